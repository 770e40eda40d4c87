"""Events that set out together and go the same way: one entry for all of them (C5, C6).

Keeping book of each event by itself is most of what publishing costs, and it is the same for all
events of a batch as long as all goes well: their hosts accept the whole batch. So such a batch is
kept as one *bundle*. Whatever concerns some of its events only (another host, silence, a lost link,
a receipt) makes all bundles fall apart into single events first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from overlay.client import Event
from overlay.machine import NodeId
from overlay.upper_tree.outgoing import Outgoing, took


class Bundle:
    """Events, and the trees that have not accepted them yet."""

    __slots__ = ("events", "pairs", "sequences", "since")

    def __init__(
        self, events: Sequence[Event], pairs: dict[str, tuple[NodeId, float]], since: float
    ) -> None:
        self.events = events
        self.sequences = tuple([event.sequence for event in events])
        self.pairs = pairs
        """As of an `Outgoing`."""
        self.since = since


class Taken(NamedTuple):
    """What trees have accepted of a bundle."""

    events: Sequence[Event]
    since: float | None
    """When it was sent to who has accepted it; None: it was sent to somebody else."""
    pairs: int
    done: tuple[int, ...]
    """The numbers of events that no tree is to accept any more."""


class Bundles:
    """The bundles of one publisher; `single` is where events go when one falls apart."""

    def __init__(self, single: dict[int, Outgoing]) -> None:
        self._single = single
        self._bundles: dict[int, Bundle] = {}  # by the number of the first event

    def __len__(self) -> int:
        """How many events are in bundles."""
        return sum(len(bundle.events) for bundle in self._bundles.values())

    def add(
        self, events: Sequence[Event], pairs: dict[str, tuple[NodeId, float]], now: float
    ) -> None:
        """Events have set out, at least one."""
        if len(events) == 1:
            self._single[events[0].sequence] = Outgoing(events[0], pairs, now)
        else:
            self._bundles[events[0].sequence] = Bundle(events, pairs, now)

    def accept(
        self, host: NodeId, attributes: Sequence[str], sequences: tuple[int, ...]
    ) -> Taken | None:
        """A host has accepted these events in these trees; None: they are no bundle, and no event
        is in one any more."""
        bundle = self._bundles.get(sequences[0]) if sequences else None
        if bundle is None or bundle.sequences != sequences:
            self.loosen()
            return None
        pairs = bundle.pairs
        found = [pairs.pop(attribute) for attribute in attributes if attribute in pairs]
        done: tuple[int, ...] = ()
        if not pairs:
            del self._bundles[sequences[0]]
            done = sequences
        since = next((when for asked, when in found if asked == host), None)
        return Taken(bundle.events, since, len(found) * len(sequences), done)

    def loosen(self) -> None:
        """What happens next may concern single events."""
        for bundle in self._bundles.values():
            for event in bundle.events:
                self._single[event.sequence] = Outgoing(event, dict(bundle.pairs), bundle.since)
        self._bundles.clear()


class Ended:
    """What needs nothing more."""

    def __init__(self, pairs: Sequence[tuple[Outgoing, str]] = ()) -> None:
        self.pairs = list(pairs)
        """Of single events."""
        self.whole: list[Outgoing] = []
        """Single events, with all of their pairs."""
        self.bundled = 0
        """Pairs of bundles."""
        self.done: list[int] = []
        """The numbers of events of bundles with no pairs left."""
        self.since: float | None = None
        """When the first of what was accepted was sent to who has accepted it, if it was."""

    def take(
        self,
        single: dict[int, Outgoing],
        bundles: Bundles,
        host: NodeId,
        attributes: Sequence[str],
        sequences: tuple[int, ...],
    ) -> Sequence[Event]:
        """A host has accepted these events in these trees. The events that waited for it."""
        together = bundles.accept(host, attributes, sequences)
        if together is not None:
            self.since = self.since or together.since
            self.bundled += together.pairs
            self.done += together.done
            return together.events
        self.since = self.since or took(single, host, attributes, sequences)
        all_of_it = dict.fromkeys(attributes).keys()
        waited = []
        for sequence in sequences:
            outgoing = single.get(sequence)
            if outgoing is None:
                continue
            waited.append(outgoing.event)
            if outgoing.pairs.keys() <= all_of_it:
                self.whole.append(outgoing)
            else:
                self.pairs += [(outgoing, name) for name in attributes if name in outgoing.pairs]
        return waited
