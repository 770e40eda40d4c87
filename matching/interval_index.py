"""A bag of intervals that answers "which hold this place?" and changes cheaply.

Entries are kept sorted by (lo, hi) in blocks of bounded length, each with the largest hi in it. A
place p is held by entries with lo <= p, which are a prefix of the order, so the blocks after it are
never looked at; of those before, blocks whose largest hi does not reach p are skipped whole.
One-sided intervals, the usual case, make both tests sharp: ``x > a`` is a prefix with nothing to
skip, ``x < b`` all begin together and are then sorted by b. Adding and removing touch one block.

Chosen over an interval tree because it is a third of the code and needs no rebuilding; the worst
case (long intervals scattered among short ones) is a scan of all entries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Generic, TypeAlias, TypeVar

from matching.values import TOP, Cut, Interval

Item = TypeVar("Item")
# (lo, hi, number, item); the number is unique, so items are never compared.
Entry: TypeAlias = tuple[Cut, Cut, int, Item]

# A cut that is no interval's end. (TOP is one: FALSE, the very first value, begins `IS NOT NULL`.)
BEYOND: Cut = (TOP[0] + 1, 0, 0)

# Entries per block before it is halved. Wild guess: a scan of this many costs about as much as
# two function calls per block would, and a hundred thousand entries are a thousand blocks.
BLOCK = 128


class IntervalIndex(Generic[Item]):
    """Intervals with an item each; the same interval may be there many times."""

    __slots__ = ("_blocks", "_firsts", "_reach")

    def __init__(self) -> None:
        self._blocks: list[list[Entry[Item]]] = []
        # Of each block: its first (lo, hi, number), and its largest hi.
        self._firsts: list[tuple[Cut, Cut, int]] = []
        self._reach: list[Cut] = []

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, interval: Interval, number: int, item: Item) -> None:
        """Put an item in; (interval, number) must be new."""
        entry = (interval.lo, interval.hi, number, item)
        if not self._blocks:
            self._blocks.append([])
            self._firsts.append(entry[:3])
            self._reach.append(interval.hi)
        index = max(bisect_right(self._firsts, entry[:3]) - 1, 0)
        block = self._blocks[index]
        insort(block, entry, key=_order)
        if len(block) > BLOCK:
            self._blocks.insert(index + 1, block[BLOCK // 2 :])
            del block[BLOCK // 2 :]
            self._firsts.insert(index + 1, entry[:3])
            self._reach.insert(index + 1, interval.hi)
            self._measure(index + 1)
        self._measure(index)

    def remove(self, interval: Interval, number: int) -> None:
        """Take an item out; KeyError if it is not there."""
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
        block = self._blocks[index]
        self._firsts[index] = block[0][:3]
        self._reach[index] = max(entry[1] for entry in block)

    def containing(self, place: Cut) -> list[Item]:
        """The items whose interval holds the place."""
        out: list[Item] = []
        # Above every hi in use, TOP included: entries with this very lo are before the bound.
        end = bisect_right(self._firsts, (place, BEYOND, 0))
        for index in range(end):
            if self._reach[index] > place:
                block = self._blocks[index]
                out += [item for lo, hi, _, item in block if lo <= place < hi]
        return out


def _order(entry: Entry[Item]) -> tuple[Cut, Cut, int]:
    return entry[:3]
