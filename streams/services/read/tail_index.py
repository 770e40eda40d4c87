"""Which of the selectors at a shard's tail match which rows of a batch.

Most programs that want few rows of a stream want one value of an attribute, as ``key = 'k17'``.
Such a selector is *pinned*: it is looked up by the row's value and looked at for no other row.
With 5,000 of them that takes a quarter of what the block engine does, which compares many selectors
with a row at once (`bench.streams.reading`). All others, and those whose value too many want, are
in an index of the matching package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matching import Conjunction, GroupedIndex, Predicate, Value
from matching.selector.evaluate import ConditionFunction
from matching.values import RANKS, Attributes

ALIKE_MOST: Final = 16
"""Pinned selectors of one value of one attribute at most: each is tried for a row with the value.
Guess: 16 take about as long as the block engine takes for all."""

Point = tuple[int, Value]
"""Rank and value: TRUE and 1 are equal in Python and different values here."""

Pin = tuple[str, tuple[Point, ...], Conjunction]
"""An attribute, the values of which a conjunction wants one, and the conjunction."""


class TailIndex:
    """Predicates by the text of their selectors."""

    def __init__(self) -> None:
        self._points: dict[str, dict[Point, list[tuple[str, ConditionFunction]]]] = {}
        self._pins: dict[str, list[Pin]] = {}
        self._index: GroupedIndex[str, str] = GroupedIndex()

    def __len__(self) -> int:
        return len(self._pins) + len(self._index)

    def add(self, selector: str, predicate: Predicate) -> None:
        """Add one that is not there."""
        pins = [_pin(conjunction) for conjunction in predicate.conjunctions]
        known = [pin for pin in pins if pin is not None and self._has_room(pin)]
        if not pins or len(known) < len(pins):
            self._index.add(selector, predicate, selector)
            return
        self._pins[selector] = known
        for attribute, points, conjunction in known:
            check = conjunction.check_except(attribute)
            table = self._points.setdefault(attribute, {})
            for point in points:
                table.setdefault(point, []).append((selector, check))

    def remove(self, selector: str) -> None:
        """Remove one that is there."""
        pins = self._pins.pop(selector, None)
        if pins is None:
            self._index.remove(selector)
            return
        for attribute, points, _ in pins:
            table = self._points.get(attribute, {})
            for point in points:
                rest = [each for each in table.pop(point, ()) if each[0] != selector]
                if rest:
                    table[point] = rest
            if not table:
                self._points.pop(attribute, None)

    def _has_room(self, pin: Pin) -> bool:
        attribute, points, _ = pin
        table = self._points.get(attribute, {})
        return all(len(table.get(point, ())) < ALIKE_MOST for point in points)

    def find(self, batch: Sequence[Attributes]) -> dict[str, list[int]]:
        """The selectors that match some rows, each with the rows' places in the batch,
        ascending."""
        found: dict[str, list[int]] = {}
        if len(self._index):
            for selector, (places, _) in self._index.find_by_group(batch).items():
                found[selector] = places
        tables = list(self._points.items())
        for place, attributes in enumerate(batch if tables else ()):
            for name, table in tables:
                value = attributes.get(name)
                if value is None:
                    continue
                alike = table.get((RANKS.get(type(value), -1), value))
                if alike is None:
                    continue
                for selector, check in alike:
                    if check(attributes) is not True:
                        continue
                    known = found.get(selector)
                    if known is None:
                        found[selector] = [place]
                    elif known[-1] != place:  # else by another conjunction of it
                        known.append(place)
        return found


def _pin(conjunction: Conjunction) -> Pin | None:
    """By which values a conjunction can be looked up; None: by few values it cannot."""
    pivots = conjunction.pivots()
    constraint = conjunction.constraints.get(pivots[0][0]) if pivots else None
    if constraint is None or not 0 < len(constraint.intervals) <= ALIKE_MOST:
        return None
    if not all(interval.is_point() for interval in constraint.intervals):
        return None
    points = tuple(interval.lo[:2] for interval in constraint.intervals)
    return pivots[0][0], points, conjunction
