"""A multiset of intervals for stabbing queries (which intervals contain this point?).

Entries are sorted by (lo, hi) in blocks of bounded length, each with the largest hi in it. All
intervals that contain a point p have lo <= p, so they are in a prefix of the order and later blocks
are never visited; earlier blocks whose largest hi does not exceed p are skipped. Both tests are
effective for one-sided intervals, the usual case: all of ``x > a`` in the prefix match, and all of
``x < b`` have the same lo and are sorted by b. Adding and removing change one block.

An interval tree would have three times the code and need rebalancing; in exchange the worst case
here (long intervals scattered among short ones) is a scan of all entries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

from matching.values import TOP, Cut, Interval

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
