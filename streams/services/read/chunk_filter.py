"""Which chunks a selector cannot match anything in, by their zone maps.

A conjunction is true of no row of a chunk if one of its constraints is true of none of the values
that the chunk has of its attribute. A zone map says too much rather than too little, and so does
this: what it does not name while it is not complete may have any value.
"""

from __future__ import annotations

from math import isnan

from matching import Conjunction, Interval, Predicate
from matching.values import Intervals, point
from streams.log.zones import Zone, ZoneMap


class ChunkFilter:
    """The chunks that one selector may match something in."""

    def __init__(self, predicate: Predicate) -> None:
        self._conjunctions = [_Needs(conjunction) for conjunction in predicate.conjunctions]

    def may_match(self, zones: ZoneMap | None) -> bool:
        """Whether a row of a chunk with this zone map (None: it has none) may match."""
        if zones is None:
            return bool(self._conjunctions)
        return any(needs.may_match(zones) for needs in self._conjunctions)


class _Needs:
    """What one conjunction needs of a row's attributes."""

    def __init__(self, conjunction: Conjunction) -> None:
        self.values: list[tuple[str, Intervals]] = [
            (name, constraint.intervals) for name, constraint in conjunction.constraints.items()
        ]
        self.present = [name for name, _ in conjunction.pivots()]
        self.absent = conjunction.null_attributes

    def may_match(self, zones: ZoneMap) -> bool:
        known = zones.zones
        if zones.complete and any(name not in known for name in self.present):
            return False
        if any(name in known and not known[name].absent for name in self.absent):
            return False
        return all(
            name not in known or _may_be_in(known[name], intervals)
            for name, intervals in self.values
        )


def _may_be_in(zone: Zone, intervals: Intervals) -> bool:
    """Whether a value of the zone may lie in one of the intervals."""
    return any(span.overlaps(each) for span in _spans(zone) for each in intervals)


def _spans(zone: Zone) -> list[Interval]:
    found = [point(value) for value in zone.booleans]
    if zone.numbers is not None:
        least, greatest = zone.numbers
        if isnan(least) or isnan(greatest):  # no order holds, and so no least or greatest
            least, greatest = float("-inf"), float("inf")
        found.append(Interval((1, least, 0), (1, greatest, 1)))
    if zone.ranged:
        found.append(Interval((2, zone.texts[0], 0), (2, zone.texts[-1], 1)))
    else:
        found += [point(text) for text in zone.texts]
    return found
