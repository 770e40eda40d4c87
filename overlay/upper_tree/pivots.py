"""C9: under which of its attributes a conjunction is registered.

Every event visits, for each of its attributes, the virtual node that holds the value. What a
registration costs is therefore how often its virtual node is visited without need; what an event
costs is how many *hosts* its trees are on. Both are smallest when a conjunction goes where the
fewest events come by: under the attribute that is rarest, in an interval that is narrow.

It may seem better to cover all conjunctions with few, popular trees (greedy cover). It is not, once
a host has room for a bounded number of registrations: nearly everything ends in the tree of an
attribute that nearly every event has, that tree is cut into as many virtual nodes as its
registrations fill, and where ranges are wide each event belongs to most of them. Under the rarest
attribute the trees of popular attributes hold only conjunctions that ask for nothing rarer. These
are few, and they are the ones that match most; they fit on one host, which every event visits
anyway (owner/placement.py). docs/lab/routing.md has the figures.

Popularity is a count of *conjunctions that ask for the attribute*, wherever they are registered.
Counted by tree it would turn itself round: what is avoided would look rare.

Nodes agree without messages. An attribute of which nothing is known counts as asked for by no other
conjunction; what is then still equal is ordered by the hash of the name, which is the same
everywhere and, unlike the name itself, does not make all of one application's attributes follow
each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from matching import Interval
from matching.values import WHOLE_TYPES
from overlay.chord.keys import attribute_key
from overlay.upper_tree.summary import Box

POINT = 1 / 64
"""The share of an attribute's values that one value is taken for. These three are not measured;
they would be measured by the visits per event of `canopy sim run --load paper` over them."""
BOUNDED = 1 / 4
"""… that an interval with two ends is taken for. See `POINT`."""
HALF = 1 / 2
"""… that an interval with one end, or one boolean, is taken for. See `POINT`."""

_WHOLE_ENDS = frozenset(end for whole in WHOLE_TYPES for end in (whole.lo, whole.hi))
_BY_OPEN_ENDS = (BOUNDED, HALF, 1.0)


def breadth(interval: Interval) -> float:
    """Return what share of an attribute's values an interval may hold, from 0 to 1, by its shape
    alone: the values of actual events are unknown here."""
    lo, hi = interval.lo, interval.hi
    if lo >= hi:
        return 0.0
    rank, first, before = lo
    to_rank, last, behind = hi
    is_point = first == last and rank == to_rank and before == 0 and behind == 1
    if rank == 0 and hi <= WHOLE_TYPES[0].hi:
        return HALF if is_point else 1.0
    if is_point:
        return POINT
    if rank != to_rank and hi > WHOLE_TYPES[min(rank, 2)].hi:
        return 1.0  # more than one type: the attribute need only be there
    return _BY_OPEN_ENDS[(lo in _WHOLE_ENDS) + (hi in _WHOLE_ENDS)]


def traffic(attribute: str, interval: Interval, popularity: Mapping[str, int]) -> float:
    """Estimate how many events may come by a registration there; only the order of the results is
    meaningful.

    `popularity`: attribute -> conjunctions known to ask for it. Events are assumed to carry an
    attribute as often as conjunctions ask for it.
    """
    return (1 + popularity.get(attribute, 0)) * breadth(interval)


def choose_pivot(
    pivots: Sequence[tuple[str, Interval]], popularity: Mapping[str, int]
) -> tuple[str, Interval]:
    """The one of a conjunction's pivots (`Conjunction.pivots()`, at least one) with the least
    traffic. The order of `pivots` does not matter."""
    best, _ = _cheapest(pivots, popularity)
    return best


def _cheapest(
    pivots: Sequence[tuple[str, Interval]], popularity: Mapping[str, int]
) -> tuple[tuple[str, Interval], float]:
    """The pivot with the least traffic, and this."""
    best, least = pivots[0], math.inf
    for pivot in pivots:
        name, interval = pivot
        price = (1 + popularity.get(name, 0)) * breadth(interval)  # `traffic`, without its call
        if price < least or (price == least and _by_hash(pivot) < _by_hash(best)):
            best, least = pivot, price
    return best, least


class Popularity(dict[str, int]):
    """attribute -> conjunctions that ask for it, as counted here; an attribute that none asks
    for is not in it."""

    def add(self, boxes: Iterable[Box]) -> None:
        """Count the attributes of these conjunctions (`box_of`)."""
        for box in boxes:
            for name, _ in box:
                self[name] = self.get(name, 0) + 1

    def remove(self, boxes: Iterable[Box]) -> None:
        """Take the attributes of these conjunctions out of the counts, once for each `add`."""
        for box in boxes:
            for name, _ in box:
                self[name] -= 1
                if not self[name]:
                    del self[name]


WORTH_MOVING = 2
"""A registration moves to another pivot only if that pivot has this many times less traffic. Not
measured; would be measured by registrations that move against visits saved."""


def better_pivot(attribute: str, box: Box, popularity: Mapping[str, int]) -> str | None:
    """The attribute under which a conjunction is better registered than under `attribute`; None if
    there is none, or it is not asked for."""
    (best, _), least = _cheapest(box, popularity)
    if best == attribute:
        return None
    interval = dict(box).get(attribute)
    if interval is None:
        return None
    here = traffic(attribute, interval, popularity)
    return best if here > WORTH_MOVING * least else None


def _by_hash(pivot: tuple[str, Interval]) -> str:
    return attribute_key(pivot[0])
