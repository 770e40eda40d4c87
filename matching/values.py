"""The value space of one attribute (C6): what a value is, and where it lies.

Every attribute's tree cuts one totally ordered space into adjacent intervals: booleans, then
numbers, then strings by code point. The order gives a value its *place* and nothing else: a
comparison between types stays unknown in the selector language.

A *cut* is a place between values, written as a plain tuple (rank, value, side), where side 0 lies
just before the value and side 1 just after it. Python's tuple comparison is the order, with no
code of ours in it; integers and floats compare exactly there, also beyond 2**53. Half-open
intervals between cuts say everything that a selector can: ``x = 5`` is [(1, 5, 0), (1, 5, 1)),
``x > 5`` begins at (1, 5, 1).

Order and words are MECHANISMS.md's C6; the layout of a cut is our own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

Value: TypeAlias = bool | int | float | str
Attributes: TypeAlias = Mapping[str, Value | None]
Cut: TypeAlias = tuple[int, bool | int | float | str, int]

# The rank of a type in the order (C6). Looked up by exact type: what is not here is no value.
RANKS: dict[type, int] = {bool: 0, int: 1, float: 1, str: 2}
TYPE_NAMES = ("boolean", "number", "string")

BOTTOM: Cut = (0, False, 0)
NUMBERS: Cut = (1, -math.inf, 0)
STRINGS: Cut = (2, "", 0)
TOP: Cut = (3, 0, 0)

# What MessagePack, SQLite and Spark all hold exactly: a signed 64-bit integer.
INT_MIN = -(2**63)
INT_MAX = 2**63 - 1


def check_value(value: object) -> str | None:
    """Say why `value` is no admissible value, or None if it is one.

    Admissible are booleans, integers of signed 64 bits, finite floats, and strings that UTF-8 can
    carry. None (NULL) is not a value but the absence of one, and is refused here.
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
        return None if is_utf8(value) else "the string has a lone surrogate"
    return f"a {kind.__name__} is no boolean, number or string"


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can carry `text` (a lone surrogate can not be encoded)."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def type_name(value: object) -> str:
    """The type of an admissible value in plain words, NULL for anything else."""
    rank = RANKS.get(type(value))
    return "NULL" if rank is None else TYPE_NAMES[rank]


def place(value: Value) -> Cut:
    """The cut just before `value`: v lies in [lo, hi) if and only if lo <= place(v) < hi.

    The value must be admissible (`check_value`); a KeyError tells of a foreign type.
    """
    return (RANKS[type(value)], value, 0)


CUT_TYPES: dict[int, tuple[type, ...]] = {
    0: (bool,),
    1: (int, float),
    2: (str,),
    3: (bool, int),
}
"""Types of a cut's value by its rank; the end of the value space has one that means nothing."""


class Interval(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The values between two cuts, half-open: [lo, hi). Travels as an array of two."""

    lo: Cut
    hi: Cut

    def __post_init__(self) -> None:
        """Refuse cuts that no order has, as they may come from the wire: ValueError."""
        for rank, value, side in (self.lo, self.hi):
            if side not in (0, 1) or CUT_TYPES.get(rank, ()).count(type(value)) == 0:
                raise ValueError(f"no cut: ({rank!r}, {value!r}, {side!r})")

    def contains(self, value: Value | None) -> bool:
        """Whether `value` lies here. NULL lies nowhere."""
        rank = RANKS.get(type(value))
        return rank is not None and value is not None and self.lo <= (rank, value, 0) < self.hi

    def overlaps(self, other: Interval) -> bool:
        """Whether some place lies in both (an empty interval overlaps nothing)."""
        lo, hi, low, high = self.lo, self.hi, other.lo, other.hi
        return lo < high and low < hi and lo < hi and low < high

    def intersect(self, other: Interval) -> Interval | None:
        """What lies in both, or None when nothing does."""
        lo = max(self.lo, other.lo)
        hi = min(self.hi, other.hi)
        return Interval(lo, hi) if lo < hi else None

    def is_point(self) -> bool:
        """Whether exactly one value lies here."""
        return self.lo[:2] == self.hi[:2] and self.lo[2] == 0 and self.hi[2] == 1


EVERYTHING = Interval(BOTTOM, TOP)
# One whole type each, by rank.
WHOLE_TYPES = (Interval(BOTTOM, NUMBERS), Interval(NUMBERS, STRINGS), Interval(STRINGS, TOP))

# Sorted, disjoint, not adjacent: what a single-attribute constraint allows.
Intervals: TypeAlias = tuple[Interval, ...]


def point(value: Value) -> Interval:
    """The interval that holds `value` and nothing else."""
    rank = RANKS[type(value)]
    return Interval((rank, value, 0), (rank, value, 1))


def union(intervals: Iterable[Interval]) -> Intervals:
    """The given intervals, sorted, with those that overlap or touch joined."""
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
    """What lies in both of two sorted, disjoint sequences; linear in their lengths."""
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
    """What of `whole` is not covered by the sorted, disjoint `intervals`."""
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

    The upper end is the smallest string after all of them: the last character that has a successor
    is raised. The successor skips the surrogates (no value has them, no frame can carry them);
    U+10FFFF has none.
    """
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if 0xD800 <= code <= 0xDFFF:
            code = 0xE000
        if code <= 0x10FFFF:
            return Interval((2, prefix, 0), (2, prefix[: end - 1] + chr(code), 0))
    return Interval((2, prefix, 0), TOP)
