"""The trees that events visit together at this host, decided once for all events.

Events of one shape visit the same trees here, one visit after the other. Whether all of these are
served, whole and under a lease depends on what owners say, not on the events: it is kept, by the
names of the trees, until an owner says anything that could change it. So a visit of a single event
costs one lookup in place of a dozen decisions for each of its ten trees.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random

import msgspec

from matching import Attributes
from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.upper_tree.host.constants import PLACES_LEAST, PLACES_MOST, TOGETHER_MOST
from overlay.upper_tree.host.hosted_tree import HostedTree


class TreesTogether(msgspec.Struct, eq=False):
    """Trees that are all served here, whole. Counts events for the samples of all of them
    (`VisitSample`), so that an event is counted and drawn once."""

    trees: dict[str, HostedTree]
    until: float
    """When the first lease of these trees ends; the Port's seconds."""
    events: int = 0
    stride: int = 1
    until_next: int = 0
    drawn: int = 0  # with this stride
    samples: deque[Attributes] = msgspec.field(default_factory=lambda: deque(maxlen=PLACES_MOST))
    """The events that were drawn, until they are handed over."""

    def visited(self, events: Sequence[Event], rng: Random) -> None:
        """These events have visited all of the trees."""
        self.events += len(events)
        self.until_next -= len(events)
        while self.until_next < 0:
            self.samples.append(events[self.until_next].attributes)
            self.drawn += 1
            if self.drawn == PLACES_LEAST:  # many come since the last measurement
                self.stride, self.drawn = 2 * self.stride, 0
            self.until_next += 1 + rng.randrange(2 * self.stride - 1)

    def hand_over(self) -> None:
        """Add the counted events to the samples of the trees."""
        for tree in self.trees.values():
            tree.visits.count(self.events, len(self.trees))
            tree.visits.draw(self.samples)
        self.events = 0
        self.samples.clear()


class KnownTogether:
    """By their names, trees that events visit together. Bounded: those that were found longest ago
    are found again."""

    def __init__(self) -> None:
        self._known: BoundedDict[tuple[str, ...], TreesTogether] = BoundedDict(
            TOGETHER_MOST, lambda _, together: together.hand_over()
        )

    def get(self, names: tuple[str, ...], now: float) -> TreesTogether | None:
        """Trees that were found; None: they are to be looked at."""
        found = self._known.get(names)
        return found if found is not None and found.until > now else None

    def add(self, names: tuple[str, ...], trees: Mapping[str, HostedTree], until: float) -> None:
        """These are served until then, whole, if no owner says anything else."""
        before = self._known.pop(names, None)
        if before is not None:
            before.hand_over()
        stride = 1 if before is None else before.stride
        skipped = 0 if before is None else before.until_next
        self._known[names] = TreesTogether(dict(trees), until, 0, stride, skipped)

    def hand_over(self) -> None:
        """Add the counted events to the samples of the trees."""
        for together in self._known.values():
            together.stride, together.drawn = max(1, together.events // PLACES_LEAST), 0
            together.hand_over()

    def forget(self) -> None:
        """An owner has said something: nothing is known any more but how to count."""
        for together in self._known.values():
            together.until = float("-inf")
