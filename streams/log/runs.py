"""Sets of numbers that mostly follow on one another: all below a floor, and runs above it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

Run = tuple[int, int]
"""The first number, and the one behind the last."""


class Runs:
    """A set of numbers. Adding and looking up cost the logarithm of the runs."""

    __slots__ = ("_ends", "_firsts", "floor")

    def __init__(self, floor: int = 0, runs: Iterable[Run] = ()) -> None:
        """`runs`: in any order."""
        self.floor = floor
        """All numbers below it are in the set."""
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in runs:
            self.add(first, end)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs from the floor on, ascending; between two of them lies at least one number."""
        return tuple(zip(self._firsts, self._ends, strict=True))

    @property
    def count(self) -> int:
        """The number of runs."""
        return len(self._ends)

    def __contains__(self, number: int) -> bool:
        return self.end_of(number) > number

    def end_of(self, number: int) -> int:
        """The lowest number from `number` on that is not in the set."""
        if number < self.floor:
            return self.floor
        place = bisect_right(self._firsts, number) - 1
        return max(number, self._ends[place]) if place >= 0 else number

    def add(self, first: int, end: int) -> None:
        """Add the numbers from `first` to before `end`."""
        first = max(first, self.floor)
        if end <= first:
            return
        firsts, ends = self._firsts, self._ends
        if not ends or first > ends[-1]:
            firsts.append(first)
            ends.append(end)
            return
        low, high = bisect_left(ends, first), bisect_right(firsts, end)
        if low < high:
            first, end = min(first, firsts[low]), max(end, ends[high - 1])
        firsts[low:high], ends[low:high] = [first], [end]

    def raise_floor(self, floor: int) -> None:
        """Add all numbers below `floor`."""
        self.floor = max(self.floor, floor)
        gone = bisect_right(self._ends, self.floor)
        del self._firsts[:gone], self._ends[:gone]

    def forget(self, count: int) -> None:
        """Forget the lowest runs: all numbers up to the end of the last of them are added."""
        self.raise_floor(self._ends[count - 1])
