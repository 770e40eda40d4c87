"""A set of offsets as runs: all below a floor, and some runs above it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class Runs:
    """A set of offsets. Adding and looking up cost the logarithm of the runs."""

    def __init__(self, floor: int = 0, runs: Iterable[tuple[int, int]] = ()) -> None:
        """`runs`: (first offset, the offset behind the last) of each, in any order."""
        self.floor = floor
        """All offsets below it are in the set; the floor itself is not."""
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in runs:
            self.add(first, end)

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """The runs above the floor, ascending; between two of them lies at least one offset."""
        return tuple(zip(self._firsts, self._ends, strict=True))

    def __contains__(self, offset: int) -> bool:
        return self.end_of(offset) > offset

    def end_of(self, offset: int) -> int:
        """The lowest offset from `offset` on that is not in the set."""
        if offset < self.floor:
            return self.floor
        place = bisect_right(self._firsts, offset) - 1
        return max(offset, self._ends[place]) if place >= 0 else offset

    def add(self, first: int, end: int) -> None:
        """Add the offsets from `first` to before `end`."""
        first = max(first, self.floor)
        if end <= first:
            return
        low, high = bisect_left(self._ends, first), bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high], self._ends[low:high] = [first], [end]
        if self._firsts[0] <= self.floor:
            self.floor = self._ends.pop(0)
            del self._firsts[0]

    def remove(self, offset: int) -> None:
        """Remove one offset. An offset below the floor becomes the floor."""
        end = self.end_of(offset)
        if end == offset:
            return
        if offset < self.floor:
            self.floor, place, first = offset, 0, offset
        else:
            place = bisect_right(self._firsts, offset) - 1
            first = self._firsts.pop(place)
            del self._ends[place]
        parts = [(a, b) for a, b in ((first, offset), (offset + 1, end)) if a < b]
        self._firsts[place:place] = [a for a, _ in parts]
        self._ends[place:place] = [b for _, b in parts]
