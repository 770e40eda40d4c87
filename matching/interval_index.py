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
from typing import Generic, TypeAlias, TypeVar

from matching.values import TOP, Cut, Interval

Item = TypeVar("Item")
# (lo, hi, number, item); the number is unique, so items are never compared.
Entry: TypeAlias = tuple[Cut, Cut, int, Item]

# A cut greater than any interval's end, TOP included.
BEYOND: Cut = (TOP[0] + 1, 0, 0)

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
        insort(block, entry, key=_order)
        if len(block) > MAX_ENTRIES:
            self._blocks.insert(index + 1, block[MAX_ENTRIES // 2 :])
            del block[MAX_ENTRIES // 2 :]
            self._firsts.insert(index + 1, entry[:3])
            self._reach.insert(index + 1, interval.hi)
            self._measure(index + 1)
        self._measure(index)

    def remove(self, interval: Interval, number: int) -> None:
        """Remove an item; KeyError if there is none with this interval and number."""
        order = (interval.lo, interval.hi, number)
        index = max(bisect_right(self._firsts, order) - 1, 0)
        block = self._blocks[index] if self._blocks else []
        at = bisect_left(block, order, key=_order)
        if at == len(block) or block[at][:3] != order:
            raise KeyError(number)
        del block[at]
        if block:
            self._measure(index)
        else:
            del self._blocks[index], self._firsts[index], self._reach[index]

    def _measure(self, index: int) -> None:
        """Update what is known of a block after a change in it."""
        block = self._blocks[index]
        self._firsts[index] = block[0][:3]
        self._reach[index] = max(entry[1] for entry in block)

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


def _order(entry: Entry[Item]) -> tuple[Cut, Cut, int]:
    return entry[:3]
