"""The value space of one attribute (C6): what a value is, the order of values, and intervals.

Every attribute's tree divides one totally ordered space into adjacent intervals: booleans, then
numbers, then strings by code point. The order between types only determines where a value lies in
the tree; in the selector language a comparison between types is unknown.

A *cut* is a point between values, a plain tuple (rank, value, side) where side 0 lies just before
the value and side 1 just after it. Python's tuple comparison is the order, without code of ours;
integers and floats are compared exactly by it, also beyond 2**53. Half-open intervals between cuts
express all that a selector can: ``x = 5`` is [(1, 5, 0), (1, 5, 1)), ``x > 5`` begins at (1, 5, 1).

A side between 0 and 1 lies *within* the value. No selector has such a cut. Trees divide what is
registered for one value by them: an interval that begins or ends within a value is a *shard* of it,
and lies within it altogether.

docs/design/attribute-trees.md says how trees use the space; the layout of a cut is our own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

Value: TypeAlias = bool | int | float | str
Attributes: TypeAlias = Mapping[str, Value | None]
Cut: TypeAlias = tuple[int, bool | int | float | str, int | float]

# The rank of a type in the order (C6), by exact type: objects of other types are no values.
RANKS: dict[type, int] = {bool: 0, int: 1, float: 1, str: 2}
TYPE_NAMES = ("boolean", "number", "string")

BOTTOM: Cut = (0, False, 0)
NUMBERS: Cut = (1, -math.inf, 0)
STRINGS: Cut = (2, "", 0)
TOP: Cut = (3, 0, 0)

# A signed 64-bit integer is what MessagePack, SQLite and Spark all represent exactly.
INT_MIN = -(2**63)
INT_MAX = 2**63 - 1


def check_value(value: object) -> str | None:
    """Return a message why `value` is not admissible as an attribute's value; None if it is.

    Admissible are booleans, signed 64-bit integers, finite floats, and strings that UTF-8 can
    encode. None (NULL) is the absence of a value and is refused here.
    """
    kind = type(value)
    if kind is bool:
        return None
    if isinstance(value, int) and kind is int:
        if INT_MIN <= value <= INT_MAX:
            return None
        return "the integer does not fit in 64 bits"
    if isinstance(value, float) and kind is float:
        if math.isfinite(value):
            return None
        return "NaN is no value" if math.isnan(value) else "an infinity is no value"
    if isinstance(value, str) and kind is str:
        is_valid = value.isascii() or is_utf8(value)
        return None if is_valid else "the string has a lone surrogate"
    return f"a {kind.__name__} is no boolean, number or string"


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can encode `text`: it cannot encode a lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def type_name(value: object) -> str:
    """The type of an admissible value as the selector language calls it; NULL for anything else."""
    rank = RANKS.get(type(value))
    return "NULL" if rank is None else TYPE_NAMES[rank]


def place(value: Value) -> Cut:
    """The cut just before `value`: it lies in [lo, hi) if and only if lo <= place(value) < hi.

    Raises KeyError for a type that is not admissible (`check_value`).
    """
    return (RANKS[type(value)], value, 0)


def places(values: Iterable[Value | None]) -> list[Cut | None]:
    """`place` of each of these; None for NULL."""
    return [None if value is None else (RANKS[type(value)], value, 0) for value in values]


CUT_TYPES: dict[int, tuple[type, ...]] = {
    0: (bool,),
    1: (int, float),
    2: (str,),
    3: (bool, int),
}
"""The types of a cut's value, by its rank. Rank 3 is the end of the space: its value is ignored."""
_CUTS = frozenset(
    (rank, kind, side) for rank, kinds in CUT_TYPES.items() for kind in kinds for side in (0, 1)
)


class Interval(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The values between two cuts, half-open: [lo, hi). Encoded as an array of two cuts."""

    lo: Cut
    hi: Cut

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid cut, which a peer could send."""
        for rank, value, side in (self.lo, self.hi):
            if (rank, type(value), side) not in _CUTS and not (
                0 < side < 1 and self.lo[:2] == self.hi[:2] and (rank, type(value), 0) in _CUTS
            ):
                raise ValueError(f"no cut: ({rank!r}, {value!r}, {side!r})")

    def contains(self, value: Value | None) -> bool:
        """Whether `value` lies in the interval; NULL lies in none."""
        rank = RANKS.get(type(value))
        return rank is not None and value is not None and self.lo <= (rank, value, 0) < self.hi

    def overlaps(self, other: Interval) -> bool:
        """Whether the intersection is not empty; an empty interval overlaps none."""
        lo, hi, low, high = self.lo, self.hi, other.lo, other.hi
        return lo < high and low < hi and lo < hi and low < high

    def intersect(self, other: Interval) -> Interval | None:
        """The intersection; None if it is empty."""
        lo = max(self.lo, other.lo)
        hi = min(self.hi, other.hi)
        return Interval(lo, hi) if lo < hi else None

    def is_point(self) -> bool:
        """Whether the interval contains exactly one value."""
        return self.lo[:2] == self.hi[:2] and self.lo[2] == 0 and self.hi[2] == 1

    def is_shard(self) -> bool:
        """Whether the interval begins or ends within a value."""
        return 0 < self.lo[2] < 1 or 0 < self.hi[2] < 1

    def around(self) -> Interval:
        """The whole value of a shard; any other interval as it is."""
        if not self.is_shard():
            return self
        rank, value, _ = self.lo
        return Interval((rank, value, 0), (rank, value, 1))


EVERYTHING = Interval(BOTTOM, TOP)
# All values of one type, by rank.
WHOLE_TYPES = (Interval(BOTTOM, NUMBERS), Interval(NUMBERS, STRINGS), Interval(STRINGS, TOP))

# Sorted, disjoint and not adjacent.
Intervals: TypeAlias = tuple[Interval, ...]


def point(value: Value) -> Interval:
    """The interval that contains `value` and no other value."""
    rank = RANKS[type(value)]
    return Interval((rank, value, 0), (rank, value, 1))


def union(intervals: Iterable[Interval]) -> Intervals:
    """The union, sorted, with intervals that overlap or touch joined; empty ones are dropped."""
    joined: list[Interval] = []
    for interval in sorted(intervals, key=lambda i: (i.lo, i.hi)):
        if interval.lo >= interval.hi:
            continue
        if joined and interval.lo <= joined[-1].hi:
            joined[-1] = Interval(joined[-1].lo, max(joined[-1].hi, interval.hi))
        else:
            joined.append(interval)
    return tuple(joined)


def intersection(left: Intervals, right: Intervals) -> Intervals:
    """The intersection of two sorted, disjoint sequences, in time linear in their lengths."""
    out: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        common = left[i].intersect(right[j])
        if common is not None:
            out.append(common)
        if left[i].hi <= right[j].hi:
            i += 1
        else:
            j += 1
    return tuple(out)


def complement(intervals: Intervals, whole: Interval) -> Intervals:
    """The part of `whole` outside of the sorted, disjoint `intervals`."""
    out: list[Interval] = []
    lo = whole.lo
    for interval in intervals:
        if lo < interval.lo:
            out.append(Interval(lo, min(interval.lo, whole.hi)))
        lo = max(lo, interval.hi)
    if lo < whole.hi:
        out.append(Interval(lo, whole.hi))
    return tuple(i for i in out if i.lo < i.hi)


def prefix_interval(prefix: str) -> Interval:
    """The strings that begin with `prefix`.

    The upper end is the smallest string after all of them: the prefix up to its last character that
    has a successor, which is replaced by the successor. U+10FFFF has none, and the surrogates are
    skipped since no value contains them.
    """
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if 0xD800 <= code <= 0xDFFF:
            code = 0xE000
        if code <= 0x10FFFF:
            return Interval((2, prefix, 0), (2, prefix[: end - 1] + chr(code), 0))
    return Interval((2, prefix, 0), TOP)
