"""Events that set out together and go the same way: one entry for all of them (C5, C6).

Keeping book of each event by itself is most of what publishing costs, and it is the same for all
events of a batch as long as all goes well: their hosts accept the whole batch. So such a batch is
kept as one *bundle*. A host that is behind may accept the first events of a bundle before the rest:
then it is cut in two. Whatever else concerns some of its events only (another host, silence, a lost
link, a receipt) makes bundles fall apart into single events first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from overlay.client import Event
from overlay.machine import NodeId
from overlay.upper_tree.publisher.pending import PendingEvent, took


class Bundle:
    """Events, and the trees that have not accepted them yet."""

    __slots__ = ("events", "pairs", "sequences", "since")

    def __init__(
        self, events: Sequence[Event], pairs: dict[str, tuple[NodeId, float]], since: float
    ) -> None:
        self.events = events
        self.sequences = tuple([event.sequence for event in events])
        self.pairs = pairs
        """As of an `PendingEvent`."""
        self.since = since


class Taken(NamedTuple):
    """What trees have accepted of a bundle."""

    events: Sequence[Event]
    since: float | None
    """When it was sent to who has accepted it; None: it was sent to somebody else."""
    pairs: int
    done: tuple[int, ...]
    """The numbers of events that no tree is to accept any more."""


class BatchedPending:
    """The bundles of one publisher; `single` is where events go when one falls apart."""

    def __init__(self, single: dict[int, PendingEvent]) -> None:
        self._single = single
        self._bundles: dict[int, Bundle] = {}  # by the number of the first event
        self._events = 0

    def __len__(self) -> int:
        """How many events are in bundles."""
        return self._events

    @property
    def all(self) -> list[Bundle]:
        """The oldest first, but for those that were cut."""
        return list(self._bundles.values())

    def add(
        self, events: Sequence[Event], pairs: dict[str, tuple[NodeId, float]], now: float
    ) -> None:
        """Events have set out, at least one."""
        if len(events) == 1:
            self._single[events[0].sequence] = PendingEvent(events[0], pairs, now)
        else:
            self._bundles[events[0].sequence] = Bundle(events, pairs, now)
            self._events += len(events)

    def accept(
        self, host: NodeId, attributes: Sequence[str], sequences: tuple[int, ...]
    ) -> tuple[list[Taken], list[int]]:
        """A host has accepted these events in these trees: what is taken of bundles, and those that
        are single, or nobody's any more."""
        taken: list[Taken] = []
        single: list[int] = []
        at = 0
        while at < len(sequences):
            bundle = self._first(sequences, at)
            if bundle is not None:
                taken.append(self._take(bundle, host, attributes))
                at += len(bundle.sequences)
                continue
            if sequences[at] not in self._single:
                self.loosen()
            single.append(sequences[at])
            at += 1
        return taken, single

    def _first(self, sequences: tuple[int, ...], at: int) -> Bundle | None:
        """The bundle that these begin with, from that place on; cut, if they hold a part of it."""
        bundle = self._bundles.get(sequences[at])
        if bundle is None:
            return None
        own = bundle.sequences
        if sequences[at : at + len(own)] == own:
            return bundle
        count = len(sequences) - at
        if sequences[at:] != own[:count]:
            return None
        rest = Bundle(bundle.events[count:], dict(bundle.pairs), bundle.since)
        first = Bundle(bundle.events[:count], bundle.pairs, bundle.since)
        self._bundles[first.sequences[0]] = first
        self._bundles[rest.sequences[0]] = rest
        return first

    def _take(self, bundle: Bundle, host: NodeId, attributes: Sequence[str]) -> Taken:
        """These trees have all of it."""
        pairs = bundle.pairs
        found = [pairs.pop(attribute) for attribute in attributes if attribute in pairs]
        done: tuple[int, ...] = ()
        if not pairs:
            done = bundle.sequences
            del self._bundles[done[0]]
            self._events -= len(done)
        since = next((when for asked, when in found if asked == host), None)
        return Taken(bundle.events, since, len(found) * len(bundle.sequences), done)

    def loosen(self, which: Callable[[Bundle], bool] = lambda bundle: True) -> None:
        """What happens next may concern single events of these."""
        for bundle in [each for each in self._bundles.values() if which(each)]:
            for event in bundle.events:
                self._single[event.sequence] = PendingEvent(event, dict(bundle.pairs), bundle.since)
            del self._bundles[bundle.sequences[0]]
            self._events -= len(bundle.sequences)


class Ended:
    """What needs nothing more."""

    def __init__(self, pairs: Sequence[tuple[PendingEvent, str]] = ()) -> None:
        self.pairs = list(pairs)
        """Of single events."""
        self.whole: list[PendingEvent] = []
        """Single events, with all of their pairs."""
        self.bundled = 0
        """Pairs of bundles."""
        self.done: list[int] = []
        """The numbers of events of bundles with no pairs left."""
        self.since: float | None = None
        """When the first of what was accepted was sent to who has accepted it, if it was."""

    def take(
        self,
        single: dict[int, PendingEvent],
        bundles: BatchedPending,
        host: NodeId,
        attributes: Sequence[str],
        sequences: tuple[int, ...],
    ) -> Sequence[Event]:
        """A host has accepted these events in these trees. The events that waited for it."""
        together, rest = bundles.accept(host, attributes, sequences)
        for taken in together:
            self.since = self.since or taken.since
            self.bundled += taken.pairs
            self.done += taken.done
        if not rest and len(together) == 1:
            return together[0].events
        waited = [event for taken in together for event in taken.events]
        self.since = self.since or took(single, host, attributes, rest)
        all_of_it = dict.fromkeys(attributes).keys()
        for sequence in rest:
            outgoing = single.get(sequence)
            if outgoing is None:
                continue
            waited.append(outgoing.event)
            if outgoing.pairs.keys() <= all_of_it:
                self.whole.append(outgoing)
            else:
                self.pairs += [(outgoing, name) for name in attributes if name in outgoing.pairs]
        return waited
