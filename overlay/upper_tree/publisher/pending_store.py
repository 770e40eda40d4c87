"""All events of a publisher that some tree has not accepted yet (C3, C5, C6).

    submit ──► held back (coalescer.py) ──► dispatched ──► a batch with one record
                                                │           (batched_pending.py)
                                                │                 │ something concerns a part of it
                                                └────► a single event (pending_event.py)
                                                            │  ▲
                                         `await_tree`       ▼  │ `located`
                                                       waits until its tree is located

`accept` ends (event, tree) pairs that a host has taken, `drop` those that need no host, and
`retry`, `host_lost` and `moved` name pairs that have to be sent again. The store says by
`EventsAccepted` which events are done, and by `RoomAgain` that more may be admitted. It sends no
message: where a pair goes is decided in publisher.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from overlay.client import Event
from overlay.machine import Handlers, Machine, NodeId, Port
from overlay.upper_tree.events import EventsAccepted, PublicationsRefused, RoomAgain
from overlay.upper_tree.publisher.batched_pending import BatchedPending
from overlay.upper_tree.publisher.coalescer import ByNames, Coalescer
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.pending_event import (
    Overdue,
    PendingEvent,
    PendingPair,
    find_overdue,
    is_overdue,
    suspect_silent,
)
from overlay.upper_tree.publisher.pending_window import PendingWindow
from overlay.upper_tree.publisher.routing_plan import Route


class Acceptance(NamedTuple):
    """The pairs that a host has accepted."""

    events: list[Sequence[Event]]
    """Per entry of the message's `taken`."""
    sent_at: float | None
    """When the first of it was sent to that host; None: it was sent to another one."""


class PendingStore(Machine):
    """Bounded by `capacity` pairs, `most` bytes, and one turn's submissions beyond that.

    An event counts for as many bytes as the largest of those that were submitted with it: weighing
    each would cost more than the rest of its record."""

    def __init__(
        self,
        port: Port,
        capacity: int,
        most: int,
        locations: LocationCache,
        dispatch: Callable[[ByNames, int], None],
    ) -> None:
        """`capacity` in (event, tree) pairs (`tree.pending`), `most` in bytes
        (`tree.pending_bytes`). `dispatch` gets the events that are
        to be sent now, by the names of their attributes, and a size in bytes that none exceeds; it
        calls `add_batch` or `add_single` for them."""
        super().__init__(port)
        self._window = PendingWindow(capacity, port.now)
        self.most = most
        self.bytes = 0
        """Of dispatched events that some tree has not accepted yet, at most."""
        self._largest = 1  # bytes of the events that came last
        self.pairs = 0
        """(event, tree) pairs of dispatched events that are not accepted yet."""
        self._is_room_awaited = False
        self._locations = locations
        self._coalescer = Coalescer(port, lambda: self.in_flight, dispatch)
        self._single: dict[int, PendingEvent] = {}
        self._batches = BatchedPending(self._single)
        self._unlocated: dict[str, dict[int, None]] = {}  # attribute -> sequence numbers
        self._receipts: dict[int, dict[str, NodeId]] = {}
        """By sequence number of an event whose hosts are asked for: those that have accepted it, by
        their trees' attributes."""

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return self._coalescer.handlers()

    @property
    def has_room(self) -> bool:
        """Whether more events may be admitted."""
        return self.pairs < self._window.most(bool(self._unlocated)) and self.bytes < self.most

    def await_room(self) -> None:
        """There was no room for something: emit RoomAgain when there is. (It would not do to
        compare before and after each acceptance: the window changes between these as well.)"""
        self._is_room_awaited = True

    @property
    def room(self) -> int:
        """How many events of the size of those before them may be admitted at once."""
        return (self.most - self.bytes) // self._largest

    def __len__(self) -> int:
        """How many events some tree has not accepted yet."""
        return self.in_flight + len(self._coalescer)

    @property
    def in_flight(self) -> int:
        """How many of them are not held back any more."""
        return len(self._single) + len(self._batches)

    def await_receipts(self, events: Iterable[Event]) -> dict[int, None]:
        """The sequence numbers of those of these events that are pending. Which hosts accept them
        will be in their `EventsAccepted`."""
        self._batches.break_up()
        held, single = self._coalescer.sequences, self._single
        found = {e.sequence: None for e in events if e.sequence in single or e.sequence in held}
        self._receipts.update((sequence, {}) for sequence in found)
        return found

    # --- new events ---

    def submit(self, by_names: ByNames, largest: int) -> None:
        """Events are published; none exceeds `largest` bytes. They are dispatched now, or held
        back for at most a moment."""
        self._coalescer.submit(by_names, largest)

    def add_batch(self, events: Sequence[Event], route: Route, largest: int) -> None:
        """These events, none over `largest` bytes, leave now for the hosts of `route`. If it names
        none they are done: none of their trees has a subscriber."""
        if not route:
            self._emit_accepted([event.sequence for event in events])
            return
        now = self.port.now
        pairs = {name: (host, now) for host, (_, trees) in route.items() for name in trees}
        self.pairs += len(pairs) * len(events)
        self._largest = max(1, largest)
        self.bytes += largest * len(events)
        self._batches.add(events, pairs, now, largest)

    def add_single(
        self, events: Sequence[Event], trees: Sequence[str], largest: int
    ) -> list[PendingPair]:
        """Each of these events is to visit these trees by itself. Returns the pairs, by event, for
        which `sent`, `await_tree` or `drop` has to follow."""
        now = self.port.now
        added = [
            PendingEvent(event, dict.fromkeys(trees, ("", 0.0)), now, largest) for event in events
        ]
        self._largest = max(1, largest)
        self.bytes += largest * len(added)
        self.pairs += len(trees) * len(added)
        self._single.update((each.event.sequence, each) for each in added)
        return [(each, tree) for each in added for tree in trees]

    # --- where pairs are ---

    def sent(self, pair: PendingPair, host: NodeId) -> None:
        """The pair leaves now for this host."""
        pending, attribute = pair
        pending.pairs[attribute] = (host, self.port.now)

    def await_tree(self, pair: PendingPair) -> None:
        """The pair waits until its tree is located."""
        pending, attribute = pair
        pending.pairs[attribute] = ("", self.port.now)
        self._unlocated.setdefault(attribute, {})[pending.event.sequence] = None
        self._locations.hold(attribute)

    def awaiting(self, attribute: str) -> dict[int, None]:
        """The events that wait for this tree, as they were published."""
        return self._unlocated.get(attribute, {})

    def first_awaiting(self, attributes: Iterable[str]) -> int | None:
        """The first event that waits for one of these trees; None: there is none."""
        waits = (self._unlocated.get(attribute, {}) for attribute in attributes)
        return min((next(iter(sequences)) for sequences in waits if sequences), default=None)

    def located(self, attribute: str, last: int | None = None) -> list[PendingPair]:
        """The pairs that waited for this tree, up to those of the event `last` (None: all); they
        wait no longer."""
        sequences = self._unlocated.pop(attribute, {})
        if last is not None:
            later = {sequence: None for sequence in sequences if sequence > last}
            if later:
                self._unlocated[attribute] = later
            sequences = {sequence: None for sequence in sequences if sequence <= last}
        if attribute not in self._unlocated:
            self._locations.release(attribute)
        return [
            (pending, attribute)
            for sequence in sequences
            if (pending := self._single.get(sequence)) is not None and attribute in pending.pairs
        ]

    # --- the end of pairs ---

    def accept(
        self, host: NodeId, taken: Iterable[tuple[tuple[str, ...], tuple[int, ...]]]
    ) -> Acceptance:
        """A host has accepted events: per entry attributes of trees, and sequence numbers. What is
        not pending (any more) is passed over."""
        before = self.pairs
        events: list[Sequence[Event]] = []
        done: list[int] = []
        sent_at: float | None = None
        for attributes, sequences in taken:
            if self._receipts:
                self._note_host(host, attributes, sequences)
            batches, rest = self._batches.accept(host, attributes, sequences)
            for accepted in batches:
                sent_at = sent_at or accepted.sent_at
                self.pairs -= accepted.pairs
                self.bytes -= accepted.bytes
                done += accepted.done
            if not rest and len(batches) == 1:
                events.append(batches[0].events)
                continue
            sent_at = sent_at or self._sent_at(host, attributes, rest)
            waited = [event for accepted in batches for event in accepted.events]
            for sequence in rest:
                pending = self._single.get(sequence)
                if pending is not None:
                    waited.append(pending.event)
                    self._end(pending, attributes, done)
            events.append(waited)
        now = self.port.now
        self._window.accepted(before - self.pairs, None if sent_at is None else now - sent_at, now)
        self._emit_accepted(done)
        return Acceptance(events, sent_at)

    def _note_host(
        self, host: NodeId, attributes: tuple[str, ...], sequences: Sequence[int]
    ) -> None:
        """For the receipts: a host has accepted these events (the first, if two did)."""
        for sequence in sequences:
            hosts = self._receipts.get(sequence)
            if hosts is not None:
                for attribute in attributes:
                    hosts.setdefault(attribute, host)

    def _sent_at(
        self, host: NodeId, attributes: Sequence[str], sequences: Sequence[int]
    ) -> float | None:
        """When the first of these pairs was sent to this host; None: it was not."""
        first = self._single.get(sequences[0]) if sequences else None
        if first is None or not attributes:
            return None
        asked, since = first.pairs.get(attributes[0], ("", 0.0))
        return since if asked == host else None

    def drop(self, pairs: Iterable[PendingPair]) -> None:
        """These pairs need no host: their trees have no subscriber for the event."""
        done: list[int] = []
        for pending, attribute in pairs:
            self._end(pending, (attribute,), done)
        self._emit_accepted(done)

    def refuse(self, sequences: Iterable[int], reason: str) -> list[int]:
        """A host has refused these events, for this reason: none of their trees has to accept them
        any more. Returns those that were pending. `PublicationsRefused` and then
        `EventsAccepted` follow for them."""
        self._batches.break_up()
        done: list[int] = []
        for sequence in sequences:
            pending = self._single.get(sequence)
            if pending is not None:
                self._end(pending, list(pending.pairs), done)
        if done:
            self.port.emit(PublicationsRefused(tuple(done), reason))
        self._emit_accepted(done)
        return done

    def _end(self, pending: PendingEvent, attributes: Iterable[str], done: list[int]) -> None:
        """These trees have the event; if those were the last it is added to `done`."""
        pairs = pending.pairs
        for attribute in attributes:
            if attribute in pairs:
                del pairs[attribute]
                self.pairs -= 1
        if not pairs and self._single.pop(pending.event.sequence, None) is not None:
            self.bytes -= pending.bytes
            done.append(pending.event.sequence)

    def _emit_accepted(self, done: list[int]) -> None:
        if done:
            receipts = self._receipts
            hosts = {s: receipts.pop(s) for s in done if s in receipts} if receipts else {}
            self.port.emit(EventsAccepted(tuple(done), hosts))
        if self._is_room_awaited and self.has_room:
            self._is_room_awaited = False
            self.port.emit(RoomAgain())

    # --- what has to be sent again ---

    def sent_to(self, host: NodeId, sequences: Iterable[int]) -> list[PendingPair]:
        """Those of these events, and of their trees, that a host was sent and has not accepted."""
        self._batches.break_up()
        return [
            (pending, attribute)
            for sequence in sequences
            if (pending := self._single.get(sequence)) is not None
            for attribute, state in pending.pairs.items()
            if state[0] == host
        ]

    def moved(self, attribute: str, sequences: Iterable[int]) -> list[PendingPair]:
        """A host does not serve this tree (any more). Returns the pairs that it did not accept."""
        self._batches.break_up()
        again: list[PendingPair] = []
        for sequence in sequences:
            pending = self._single.get(sequence)
            if pending is not None and pending.pairs.get(attribute, ("",))[0]:
                pending.moves += 1
                again.append((pending, attribute))
        return again

    def host_lost(self, host: NodeId) -> list[PendingPair]:
        """The link to a host is lost. Returns the pairs that had been sent there."""
        self._batches.break_up()
        return [
            (pending, attribute)
            for pending in self._single.values()
            for attribute, (asked, _) in pending.pairs.items()
            if asked == host
        ]

    def retry(self) -> Overdue:
        """Suspect the hosts that are silent, and name the pairs that have to be sent again: those
        sent to suspected hosts, and those that have waited for longer than events take there."""
        now, replicas = self.port.now, self._locations.replicas
        silent_from = suspect_silent([*self._single.values(), *self._batches.all], replicas, now)
        self._batches.break_up(lambda batch: is_overdue(batch, replicas, now))
        found = find_overdue(self._single.values(), self._locations, now)
        return found._replace(next_check=min([found.next_check, *silent_from]))
