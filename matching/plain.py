"""The plain engine: a hash table and sorted intervals under one attribute per conjunction.

Every conjunction hangs under one attribute, its most selective pivot (the idea of C9 once more, on
the small): single values in a hash table, intervals in `Ranges`. An event's values are looked up
there, and only the conjunctions found are checked for the rest of what they ask, which stops at the
first part that is not true. Conjunctions without a pivot are evaluated one by one.

It starts at once and needs nothing but Python. The classic alternative, counting satisfied
constraints per conjunction, was left: it touches every satisfied constraint of every attribute,
this one only those of one attribute per conjunction. Where there are many, `matching.engine` is the
faster one.
"""

from __future__ import annotations

from collections.abc import Iterable

from matching.conjunction import Conjunction
from matching.evaluate import ConditionFunction
from matching.ranges import Ranges
from matching.values import EVERYTHING, RANKS, Attributes, Interval, Value


class _Slot:
    """One conjunction in the engine."""

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
        # What is left to check once the pivot's value lies in an interval.
        self.check: ConditionFunction = conjunction.check_except(self.attribute)


class _Table:
    """The slots under one attribute."""

    __slots__ = ("points", "ranges")

    def __init__(self) -> None:
        # By (rank, value): TRUE and 1 are one key to Python, and two values here.
        self.points: dict[tuple[int, Value], dict[int, _Slot]] = {}
        self.ranges: Ranges[_Slot] = Ranges()

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
        """By label."""
        self._tables: dict[str, _Table] = {}
        self._everything: dict[int, _Slot] = {}

    def __len__(self) -> int:
        return len(self.slots)

    def __contains__(self, label: object) -> bool:
        return label in self.slots

    def add(self, label: int, conjunction: Conjunction) -> None:
        """Put a conjunction in under a label that is not in use."""
        slot = self.slots[label] = _Slot(label, conjunction)
        if slot.attribute is None:
            self._everything[label] = slot
        else:
            self._tables.setdefault(slot.attribute, _Table()).add(slot)

    def remove(self, label: int) -> Conjunction:
        """Take a label out, and give back what it stood for; KeyError if it is not there."""
        slot = self.slots.pop(label)
        if slot.attribute is None:
            del self._everything[label]
            return slot.conjunction
        table = self._tables[slot.attribute]
        table.remove(slot)
        if not table.points and not table.ranges:
            del self._tables[slot.attribute]
        return slot.conjunction

    def match(self, attributes: Attributes) -> list[int]:
        """The labels whose conjunction is true for the attributes, each once, in no order."""
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
                _check(table.ranges.holding((rank, value, 0)), attributes, hits)
        _check(self._everything.values(), attributes, hits)
        return list(hits)


def _check(slots: Iterable[_Slot], attributes: Attributes, hits: dict[int, None]) -> None:
    """Add those slots to the hits that hold for the whole event."""
    for slot in slots:
        if slot.label not in hits and slot.check(attributes) is True:
            hits[slot.label] = None
