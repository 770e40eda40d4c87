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

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

from matching.conjunction import Conjunction
from matching.selector.evaluate import ConditionFunction
from matching.values import EVERYTHING, RANKS, TOP, Attributes, Cut, Interval, Value

# --- a multiset of intervals for stabbing queries (which intervals contain this point?) ---
#
# Entries are sorted by (lo, hi) in blocks of bounded length, each with the largest hi in it. All
# intervals that contain a point p have lo <= p, so they are in a prefix of the order and later
# blocks are never visited; earlier blocks whose largest hi does not exceed p are skipped. Both
# tests are effective for one-sided intervals, the usual case: all of ``x > a`` in the prefix match,
# and all of ``x < b`` have the same lo and are sorted by b. Adding and removing change one block.
#
# An interval tree would have three times the code and need rebalancing; in exchange the worst case
# here (long intervals scattered among short ones) is a scan of all entries.

Item = TypeVar("Item")
# (lo, hi, number, item); the number is unique, so items are never compared.
Entry: TypeAlias = tuple[Cut, Cut, int, Item]

# A cut greater than any interval's end, TOP included.
BEYOND: Cut = (TOP[0] + 1, 0, 0)

_HI: Callable[[Entry[Any]], Cut] = itemgetter(1)

# Entries of a block before it is split in half: scanning so many costs about as much as visiting a
# block. Not measured; would be measured by the time of a query over 1,000 to 100,000 intervals.
MAX_ENTRIES = 128


class IntervalIndex(Generic[Item]):
    """Intervals with an item each; many items may have the same interval."""

    __slots__ = ("_blocks", "_firsts", "_reach")

    def __init__(self) -> None:
        self._blocks: list[list[Entry[Item]]] = []
        # For each block: its first (lo, hi, number), and its largest hi.
        self._firsts: list[tuple[Cut, Cut, int]] = []
        self._reach: list[Cut] = []

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, interval: Interval, number: int, item: Item) -> None:
        """Add an item; (interval, number) must be unique."""
        entry = (interval.lo, interval.hi, number, item)
        if not self._blocks:
            self._blocks.append([])
            self._firsts.append(entry[:3])
            self._reach.append(interval.hi)
        index = max(bisect_right(self._firsts, entry[:3]) - 1, 0)
        block = self._blocks[index]
        insort(block, entry)
        self._firsts[index] = block[0][:3]
        self._reach[index] = max(self._reach[index], interval.hi)
        if len(block) > MAX_ENTRIES:
            rest = block[MAX_ENTRIES // 2 :]
            del block[MAX_ENTRIES // 2 :]
            self._blocks.insert(index + 1, rest)
            self._firsts.insert(index + 1, rest[0][:3])
            self._reach.insert(index + 1, _reach(rest))
            self._reach[index] = _reach(block)

    def remove(self, interval: Interval, number: int) -> None:
        """Remove an item; KeyError if there is none with this interval and number."""
        order = (interval.lo, interval.hi, number)
        index = max(bisect_right(self._firsts, order) - 1, 0)
        block = self._blocks[index] if self._blocks else []
        at = bisect_left(block, order)  # which comes before the entry that begins with it
        if at == len(block) or block[at][:3] != order:
            raise KeyError(number)
        del block[at]
        if not block:
            del self._blocks[index], self._firsts[index], self._reach[index]
            return
        self._firsts[index] = block[0][:3]
        if interval.hi == self._reach[index]:
            self._reach[index] = _reach(block)

    def containing(self, place: Cut) -> list[Item]:
        """The items whose interval contains the cut `place`."""
        out: list[Item] = []
        # BEYOND is greater than every hi: entries whose lo equals `place` are within the prefix.
        end = bisect_right(self._firsts, (place, BEYOND, 0))
        for index in range(end):
            if self._reach[index] > place:
                block = self._blocks[index]
                out += [item for lo, hi, _, item in block if lo <= place < hi]
        return out


def _reach(block: list[Entry[Item]]) -> Cut:
    """The largest hi in a block."""
    return max(map(_HI, block))


class _Slot:
    """One conjunction in the engine, with the check that remains once it has been found."""

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
        """Return the remaining check, which is in `check` from now on."""
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
