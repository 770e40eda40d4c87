"""The plain engine: a hash table and sorted intervals under one attribute per conjunction.

Every conjunction is indexed under one attribute only, its most selective pivot (as C9 does for the
overlay): single values in a hash table, intervals in an `IntervalIndex`. An event's values are
looked up there, and only the conjunctions found are checked for their other constraints, up to the
first that is not true. Conjunctions without a pivot are evaluated for every event.

It needs no preparation and nothing but Python. The classic alternative, counting the satisfied
constraints of each conjunction, was rejected: it visits every satisfied constraint of every
attribute, this engine only those of one attribute per conjunction. With many conjunctions
`matching.engine` is faster.
"""

from __future__ import annotations

from collections.abc import Iterable

from matching.conjunction import Conjunction
from matching.interval_index import IntervalIndex
from matching.selector.evaluate import ConditionFunction
from matching.values import EVERYTHING, RANKS, Attributes, Interval, Value


class _Slot:
    """One conjunction in the engine, with what is left to check once it has been found."""

    __slots__ = ("attribute", "check", "conjunction", "intervals", "label")

    def __init__(self, label: int, conjunction: Conjunction) -> None:
        self.label = label
        self.conjunction = conjunction
        pivots = conjunction.pivots()
        self.attribute: str | None = pivots[0][0] if pivots else None
        self.intervals: tuple[Interval, ...] = ()
        if self.attribute is not None:
            constraint = conjunction.constraints.get(self.attribute)
            self.intervals = (EVERYTHING,) if constraint is None else constraint.intervals
        self.check: ConditionFunction | None = None
        """Made when it is asked for: most conjunctions of a large index are never checked here."""

    def checked(self) -> ConditionFunction:
        """What is left to check, from now on in `check`."""
        self.check = self.conjunction.check_except(self.attribute)
        return self.check


class _Table:
    """The slots indexed under one attribute."""

    __slots__ = ("points", "ranges")

    def __init__(self) -> None:
        # By (rank, value): TRUE and 1 are equal in Python but different values here.
        self.points: dict[tuple[int, Value], dict[int, _Slot]] = {}
        self.ranges: IntervalIndex[_Slot] = IntervalIndex()

    def add(self, slot: _Slot) -> None:
        for interval in slot.intervals:
            if interval.is_point():
                self.points.setdefault(interval.lo[:2], {})[slot.label] = slot
            else:
                self.ranges.add(interval, slot.label, slot)

    def remove(self, slot: _Slot) -> None:
        for interval in slot.intervals:
            if interval.is_point():
                same = self.points[interval.lo[:2]]
                del same[slot.label]
                if not same:
                    del self.points[interval.lo[:2]]
            else:
                self.ranges.remove(interval, slot.label)


class PlainEngine:
    """Conjunctions by label; finds the labels whose conjunction an event matches."""

    def __init__(self) -> None:
        self.slots: dict[int, _Slot] = {}
        """All conjunctions, by label."""
        self._tables: dict[str, _Table] = {}
        self._without_pivot: dict[int, _Slot] = {}

    def __len__(self) -> int:
        return len(self.slots)

    def __contains__(self, label: object) -> bool:
        return label in self.slots

    def add(self, label: int, conjunction: Conjunction) -> None:
        """Add a conjunction under a label that is not in use."""
        slot = self.slots[label] = _Slot(label, conjunction)
        if slot.attribute is None:
            self._without_pivot[label] = slot
        else:
            self._tables.setdefault(slot.attribute, _Table()).add(slot)

    def remove(self, label: int) -> Conjunction:
        """Remove a label and return its conjunction; KeyError if there is no such label."""
        slot = self.slots.pop(label)
        if slot.attribute is None:
            del self._without_pivot[label]
            return slot.conjunction
        table = self._tables[slot.attribute]
        table.remove(slot)
        if not table.points and not table.ranges:
            del self._tables[slot.attribute]
        return slot.conjunction

    def match(self, attributes: Attributes) -> list[int]:
        """The labels of the conjunctions that are true for an event, each once, in no order."""
        hits: dict[int, None] = {}
        for name, value in attributes.items():
            table = self._tables.get(name)
            rank = RANKS.get(type(value))
            if table is None or rank is None or value is None:
                continue
            same = table.points.get((rank, value))
            if same is not None:
                _check(same.values(), attributes, hits)
            if table.ranges:
                _check(table.ranges.containing((rank, value, 0)), attributes, hits)
        _check(self._without_pivot.values(), attributes, hits)
        return list(hits)


def _check(slots: Iterable[_Slot], attributes: Attributes, hits: dict[int, None]) -> None:
    """Add the labels of those slots to `hits` whose conjunction is true for the event."""
    for slot in slots:
        if slot.label not in hits and (slot.check or slot.checked())(attributes) is True:
            hits[slot.label] = None
