"""Order-preserving encoding of values as 64-bit integers, for the kernels.

Every value has a *code*, and the codes are in the order of the value space (C6); an interval
between cuts becomes a closed interval of codes. In ascending order:

    MISSING | unused | FALSE TRUE | -infinity … numbers … +infinity | strings | unused

A number's code is the bit pattern of the nearest float, with the bits of negative ones inverted so
that they sort as integers. It is exact for floats and for integers up to 2**53; beyond, several
integers share a code, so an interval that ends there is widened and called *loose*: what it finds
has to be checked again with the values themselves.

Strings have codes from an order-preserving dictionary (see Binnig, Hildenbrand and Färber,
"Dictionary-based order-preserving string compression for main memory column stores", SIGMOD 2009)
of the strings in subscriptions; another string falls between its neighbours. Codes leave gaps for
strings to come; where a gap is used up, the interval becomes loose, and nothing is renumbered.
"""

from __future__ import annotations

import math
import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from matching.values import Cut, Interval

MISSING = -(2**63)
LOWEST = MISSING + 1  # below all values, and no value's code
FALSE_CODE = MISSING + 2  # TRUE is the next
HIGHEST = 2**63 - 1  # above all values, and no value's code
FIRST_STRING = 0x7FF0_0000_0000_0001  # the code of ''; that of +infinity is one less
# Larger integers share floats with others (IEEE 754 binary64 has 53 significant bits).
EXACT = 2**53
# The gap before a string that is appended at the end, in units of CODE_STEP: room for 28 halvings
# between two, and for a million of them in the space of 2**51 codes. Not measured; would be
# measured by the share of loose intervals with strings that come in order.
APPEND_GAP = 2**28
# Codes of strings are multiples of this: there is a code just before, just after, and between.
CODE_STEP = 4
# Strings of events whose codes are cached, until a subscription brings a new string: where an
# attribute has few values and most are in no subscription, the binary search took longer than the
# match. Not measured; would be measured by hit rates with attributes of 1,000 to 100,000 values.
MAX_CACHED_CODES = 4_096

_DOUBLE = struct.Struct("<d")
_INTEGER = struct.Struct("<q")


def number_code(value: float) -> int:
    """The code of a number: the bits of the nearest float, made to sort as integers."""
    # Adding zero turns the negative zero into the positive one.
    bits: int = _INTEGER.unpack(_DOUBLE.pack(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ HIGHEST


def _is_exact(number: float) -> bool:
    """Whether integers of this size have codes of their own."""
    return -EXACT < number < EXACT


class StringDictionary:
    """The strings in subscriptions, with reference counts, and codes in their order."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {"": FIRST_STRING}
        self._uses: dict[str, int] = {"": 1}
        self._sorted: list[str] = [""]
        self._seen: dict[str, int] = {}  # codes of strings in events

    def __len__(self) -> int:
        return len(self._sorted)

    def code(self, text: str) -> int:
        """The code of a string in an event, which may be in no subscription."""
        code = self._codes.get(text)
        if code is None:
            # Greater than "just after" the previous string, less than "just before" the next one.
            return self._codes[self._sorted[bisect_left(self._sorted, text) - 1]] + 2
        return code

    def codes(self, texts: Sequence[str]) -> list[int]:
        """The `code` of each string, in order; codes of up to `MAX_CACHED_CODES` strings are
        remembered."""
        found = list(map(self._seen.get, texts))
        if None in found:
            if len(self._seen) > MAX_CACHED_CODES:
                self._seen.clear()
            self._seen.update((text, self.code(text)) for text in texts)
            found = list(map(self._seen.get, texts))
        return found  # type: ignore[return-value]

    def acquire(self, text: str) -> int | None:
        """The code of a string in a subscription, counting a reference; None if the gap for a new
        string is used up (then no reference is counted)."""
        code = self._codes.get(text)
        if code is None:
            at = bisect_left(self._sorted, text)
            code = self._free_code(at)
            if code is None:
                return None
            self._sorted.insert(at, text)
            self._codes[text] = code
            self._seen.clear()
        self._uses[text] = self._uses.get(text, 0) + 1
        return code

    def _free_code(self, at: int) -> int | None:
        """A code for a new string that will be at this index of the sorted ones; None if none is
        left between its neighbours."""
        before = self._codes[self._sorted[at - 1]]
        if at == len(self._sorted):
            code = before + APPEND_GAP * CODE_STEP
            return code if code < HIGHEST - CODE_STEP else None
        after = self._codes[self._sorted[at]]
        code = before + (after - before) // (2 * CODE_STEP) * CODE_STEP
        return code if code > before else None

    def release(self, text: str) -> None:
        """Undo one successful `acquire`; the string goes with its last reference."""
        self._uses[text] -= 1
        if self._uses[text] == 0:
            del self._uses[text], self._codes[text]
            del self._sorted[bisect_left(self._sorted, text)]
            self._seen.clear()

    def preload(self, texts: list[str]) -> None:
        """Give many strings evenly spaced codes permanently; does nothing if there are strings."""
        if len(self._sorted) > 1:
            return
        self._seen.clear()
        step = (2**50 // (len(texts) + 1)) // CODE_STEP * CODE_STEP
        for number, text in enumerate(sorted(dict.fromkeys(texts) | {"": None})):
            self._codes[text] = FIRST_STRING + number * step
            self._uses[text] = 1
            if text:
                self._sorted.append(text)


def is_common(interval: Interval) -> bool:
    """Whether an interval has the same codes in every engine: no string but the first bounds it,
    whose code is the same in all dictionaries."""
    return (interval.lo[0] != 2 or not interval.lo[1]) and (
        interval.hi[0] != 2 or not interval.hi[1]
    )


class Coder:
    """Encodes intervals between cuts as closed intervals of codes."""

    def __init__(self) -> None:
        self.strings = StringDictionary()
        # A float, and the same eight bytes as an integer. Not shared: engines may be in other
        # threads.
        self._number = array("d", [0.0])
        self._bits = memoryview(self._number).cast("B").cast("q")

    def interval(self, interval: Interval, acquired: list[str]) -> tuple[int, int, bool]:
        """(lowest code, highest code, loose); appends the strings acquired to `acquired`."""
        low, high = interval.lo, interval.hi
        first, last = low[1], high[1]
        if low[0] == 1 == high[0] and _is_exact(first) and _is_exact(last):  # type: ignore[arg-type]
            # The usual case: `number_code` of both ends without a call.
            number, bits = self._number, self._bits
            number[0] = first + 0.0  # type: ignore[operator]
            below = bits[0]
            number[0] = last + 0.0  # type: ignore[operator]
            above = bits[0]
            return (
                (below if below >= 0 else below ^ HIGHEST)
                + int(low[2]),  # no selector cuts within a value
                (above if above >= 0 else above ^ HIGHEST) + int(high[2]) - 1,
                False,
            )
        if low[0] == 2 == high[0] and first == last and first:
            code = self.strings.acquire(str(first))  # of both ends, which are one string
            if code is not None:
                acquired.append(str(first))
                return code + int(low[2]), code + int(high[2]) - 1, False
        lo, loose = self._end(low, acquired, True)
        hi, wide = self._end(high, acquired, False)
        return lo, hi, loose or wide

    def numbers(self, intervals: Sequence[Interval]) -> list[tuple[int, int]]:
        """As `interval`, for several intervals whose ends are numbers. Returns an empty list if one
        of them has other ends, or is loose."""
        lows, highs = [one.lo for one in intervals], [one.hi for one in intervals]
        if any(cut[0] != 1 for cut in (*lows, *highs)):
            return []
        ends = np.array([[cut[1] for cut in lows], [cut[1] for cut in highs]], np.float64)
        if not (np.abs(ends) < EXACT).all():
            return []
        bits = (ends + 0.0).view(np.int64)
        codes = np.where(bits >= 0, bits, bits ^ HIGHEST)
        codes += np.array([[cut[2] for cut in lows], [cut[2] - 1 for cut in highs]], np.int64)
        return list(zip(*codes.tolist(), strict=True))

    def _end(self, cut: Cut, acquired: list[str], lower: bool) -> tuple[int, bool]:
        """(the first code after a lower cut or the last one before an upper cut, loose)."""
        rank, value, side = cut
        # The value's own code if it is inside, else the neighbouring integer.
        shift = int(side) if lower else int(side) - 1
        if rank == 1:
            number = number_code(value)  # type: ignore[arg-type]
            if _is_exact(value) or math.isinf(value):  # type: ignore[arg-type]
                return number + shift, False
            return number, True
        if rank == 2:
            text = str(value)
            if not text:  # the end of the numbers
                return FIRST_STRING + shift, False
            code = self.strings.acquire(text)
            if code is not None:
                acquired.append(text)
                return code + shift, False
            between = self.strings.code(text)
            # Every string of the dictionary is more than two codes away.
            return (between - 1 if lower else between + 1), True
        if rank == 0:
            return FALSE_CODE + int(value) + shift, False
        return HIGHEST - 1, False
