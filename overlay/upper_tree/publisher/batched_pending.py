"""Pending events that were sent together to the same hosts: one record for all of them (C5, C6).

A record per event is most of what publishing costs, and while nothing goes wrong the records of a
batch are the same: its hosts accept all of it. So such a batch has one record. A host that is
behind may accept the first events of a batch before the rest: then the batch is cut in two.
Whatever else concerns only some of its events (another host, silence, a lost link, a receipt) first
breaks batches up into records of single events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from overlay.client import Event
from overlay.machine import NodeId
from overlay.upper_tree.publisher.pending_event import PairStates, PendingEvent


class PendingBatch:
    """At least two events, and the trees that have not accepted them yet."""

    __slots__ = ("events", "largest", "pairs", "sequences", "since")

    def __init__(
        self, events: Sequence[Event], pairs: PairStates, since: float, largest: int
    ) -> None:
        """`pairs` and `since` are those of each of the events, none of which exceeds `largest`
        bytes."""
        self.events = events
        self.largest = largest
        self.sequences = tuple([event.sequence for event in events])
        self.pairs = pairs
        self.since = since


class BatchAcceptance(NamedTuple):
    """The events of a batch that the trees of one host have accepted."""

    events: Sequence[Event]
    sent_at: float | None
    """When it was sent to that host; None: it was sent to another one."""
    pairs: int
    """How many (event, tree) pairs that was."""
    done: tuple[int, ...]
    """Sequence numbers of the events that no tree has to accept any more …"""
    bytes: int
    """… and for how many bytes they were counted."""


class BatchedPending:
    """The batches of one publisher. `single`, by sequence number, is where the events of a batch go
    that is broken up."""

    def __init__(self, single: dict[int, PendingEvent]) -> None:
        self._single = single
        self._batches: dict[int, PendingBatch] = {}  # by the number of the first event
        self._events = 0

    def __len__(self) -> int:
        """How many events are in batches."""
        return self._events

    @property
    def all(self) -> list[PendingBatch]:
        """The oldest first, except for those that were cut."""
        return list(self._batches.values())

    def add(self, events: Sequence[Event], pairs: PairStates, now: float, largest: int) -> None:
        """Events (at least one) that were sent just now to the same hosts, each of at most
        `largest` bytes."""
        if len(events) == 1:
            self._single[events[0].sequence] = PendingEvent(events[0], pairs, now, largest)
        else:
            self._batches[events[0].sequence] = PendingBatch(events, pairs, now, largest)
            self._events += len(events)

    def accept(
        self, host: NodeId, attributes: Sequence[str], sequences: tuple[int, ...]
    ) -> tuple[list[BatchAcceptance], list[int]]:
        """A host has accepted these events in these trees. Returns what that is of batches, and the
        sequence numbers that are in none (pending singly, or not at all)."""
        accepted: list[BatchAcceptance] = []
        single: list[int] = []
        at = 0
        while at < len(sequences):
            batch = self._starting_at(sequences, at)
            if batch is not None:
                accepted.append(self._accept_all(batch, host, attributes))
                at += len(batch.sequences)
                continue
            if sequences[at] not in self._single:
                self.break_up()
            single.append(sequences[at])
            at += 1
        return accepted, single

    def _starting_at(self, sequences: tuple[int, ...], at: int) -> PendingBatch | None:
        """The batch whose events stand in `sequences` from index `at` on. It is cut first if only
        its first events stand there, at the end."""
        batch = self._batches.get(sequences[at])
        if batch is None:
            return None
        own = batch.sequences
        if sequences[at : at + len(own)] == own:
            return batch
        count = len(sequences) - at
        if sequences[at:] != own[:count]:
            return None
        rest = PendingBatch(batch.events[count:], dict(batch.pairs), batch.since, batch.largest)
        first = PendingBatch(batch.events[:count], batch.pairs, batch.since, batch.largest)
        self._batches[first.sequences[0]] = first
        self._batches[rest.sequences[0]] = rest
        return first

    def _accept_all(
        self, batch: PendingBatch, host: NodeId, attributes: Sequence[str]
    ) -> BatchAcceptance:
        pairs = batch.pairs
        found = [pairs.pop(attribute) for attribute in attributes if attribute in pairs]
        done: tuple[int, ...] = ()
        if not pairs:
            done = batch.sequences
            del self._batches[done[0]]
            self._events -= len(done)
        sent_at = next((when for asked, when in found if asked == host), None)
        pairs_taken = len(found) * len(batch.sequences)
        size = batch.largest * len(done)
        return BatchAcceptance(batch.events, sent_at, pairs_taken, done, size)

    def break_up(self, which: Callable[[PendingBatch], bool] = lambda batch: True) -> None:
        """Give each event of these batches a record of its own."""
        for batch in [each for each in self._batches.values() if which(each)]:
            for event in batch.events:
                self._single[event.sequence] = PendingEvent(
                    event, dict(batch.pairs), batch.since, batch.largest
                )
            del self._batches[batch.sequences[0]]
            self._events -= len(batch.sequences)
