"""Which of many predicates match an event: the index of a virtual node, a subscriber, a log.

Every conjunction hangs under one attribute, its most selective pivot (the idea of C9 once more, on
the small): single values in a hash table, intervals in `Ranges`. An event's values are looked up
there, and only the conjunctions found are checked for the rest of what they ask, which stops at the
first part that is not true. Conjunctions without a pivot are evaluated one by one.

The classic alternative, counting satisfied constraints per conjunction, was left: it touches every
satisfied constraint of every attribute, this one only those of one attribute per conjunction.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from matching.conjunction import Conjunction
from matching.evaluate import ConditionFunction
from matching.predicate import Predicate
from matching.ranges import Ranges
from matching.values import EVERYTHING, RANKS, Attributes, Interval, Value

Key = TypeVar("Key", bound=Hashable)


class _Slot(Generic[Key]):
    """One conjunction in the index."""

    __slots__ = ("attribute", "check", "intervals", "key", "number", "sequence")

    def __init__(self, number: int, sequence: int, key: Key, conjunction: Conjunction) -> None:
        self.number = number
        self.sequence = sequence
        self.key = key
        pivots = conjunction.pivots()
        self.attribute: str | None = pivots[0][0] if pivots else None
        self.intervals: tuple[Interval, ...] = ()
        if self.attribute is not None:
            constraint = conjunction.constraints.get(self.attribute)
            self.intervals = (EVERYTHING,) if constraint is None else constraint.intervals
        # What is left to check once the pivot's value lies in an interval.
        self.check: ConditionFunction = conjunction.check_except(self.attribute)


class _Table(Generic[Key]):
    """The slots under one attribute."""

    __slots__ = ("points", "ranges")

    def __init__(self) -> None:
        # By (rank, value): TRUE and 1 are one key to Python, and two values here.
        self.points: dict[tuple[int, Value], dict[int, _Slot[Key]]] = {}
        self.ranges: Ranges[_Slot[Key]] = Ranges()

    def add(self, slot: _Slot[Key]) -> None:
        for interval in slot.intervals:
            if interval.is_point():
                self.points.setdefault(interval.lo[:2], {})[slot.number] = slot
            else:
                self.ranges.add(interval, slot.number, slot)

    def remove(self, slot: _Slot[Key]) -> None:
        for interval in slot.intervals:
            if interval.is_point():
                same = self.points[interval.lo[:2]]
                del same[slot.number]
                if not same:
                    del self.points[interval.lo[:2]]
            else:
                self.ranges.remove(interval, slot.number)


class Index(Generic[Key]):
    """Predicates by key; finds the keys whose predicate an event matches.

    Keys are any hashable. A key that is added again has its predicate replaced and keeps its place
    in the order.
    """

    def __init__(self) -> None:
        self._slots: dict[Key, list[_Slot[Key]]] = {}
        self._sequences: dict[Key, int] = {}
        self._tables: dict[str, _Table[Key]] = {}
        self._everything: dict[int, _Slot[Key]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        return key in self._slots

    def add(self, key: Key, predicate: Predicate | Conjunction) -> None:
        """Register a predicate, or one conjunction of it, under a key."""
        conjunctions = (
            (predicate,) if isinstance(predicate, Conjunction) else predicate.conjunctions
        )
        sequence = self._sequences.get(key, self._next)
        if key in self._slots:
            self.remove(key)
        self._sequences[key] = sequence
        self._next += 1
        slots = []
        for conjunction in conjunctions:
            slot = _Slot(self._next, sequence, key, conjunction)
            self._next += 1
            slots.append(slot)
            if slot.attribute is None:
                self._everything[slot.number] = slot
            else:
                self._tables.setdefault(slot.attribute, _Table()).add(slot)
        self._slots[key] = slots

    def remove(self, key: Key) -> None:
        """Take a key out; KeyError if it is not there."""
        for slot in self._slots.pop(key):
            if slot.attribute is None:
                del self._everything[slot.number]
                continue
            table = self._tables[slot.attribute]
            table.remove(slot)
            if not table.points and not table.ranges:
                del self._tables[slot.attribute]
        del self._sequences[key]

    def match(self, attributes: Attributes) -> list[Key]:
        """The keys whose predicate is true for the attributes, each once, in insertion order."""
        hits: dict[int, Key] = {}
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
        return [hits[sequence] for sequence in sorted(hits)]

    def match_many(self, batch: Iterable[Attributes]) -> list[list[Key]]:
        """`match` for each of several events."""
        return [self.match(attributes) for attributes in batch]


def _check(slots: Iterable[_Slot[Key]], attributes: Attributes, hits: dict[int, Key]) -> None:
    """Add those slots to the hits that hold for the whole event."""
    for slot in slots:
        if slot.sequence not in hits and slot.check(attributes) is True:
            hits[slot.sequence] = slot.key
