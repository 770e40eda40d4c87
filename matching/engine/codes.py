"""Values as 64-bit integers in the order of the value space (C6), for the kernels.

Every value gets a *code*, such that a smaller value never has a larger one; an interval between
cuts becomes a closed interval of codes. From below:

    MISSING | nothing | FALSE TRUE | -infinity … numbers … +infinity | strings | nothing

A number's code is that of the nearest float: its bits, turned so that they sort as integers. That
is exact for floats and for integers up to 2**53; beyond, several integers share a code, so an
interval that ends there is widened and said to be *loose*: who matches has to be checked again
with the values themselves. A string's code is its place in a dictionary of the strings that
subscriptions name; a string that nobody names falls between its neighbours. The dictionary leaves
gaps for strings to come; where a gap is used up, the interval is loose, and nothing is renumbered.
"""

from __future__ import annotations

import math
import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence

from matching.values import Cut, Interval

MISSING = -(2**63)
LOWEST = MISSING + 1  # below all values: nothing has it
FALSE = MISSING + 2  # TRUE is the next
HIGHEST = 2**63 - 1  # above all values: nothing has it
STRINGS = 0x7FF0_0000_0000_0001  # the code of '', the first string; +infinity is just before
# From here on integers have no float of their own (IEEE 754 binary64: 53 bits).
EXACT = 2**53
# How far apart strings are that are appended at the end: room for 28 halvings between two, and for
# a million of them before the space of 2**51 ends. Wild guess.
APPEND = 2**28
# Codes are multiples of this: just before, at, just after, and between.
STEP = 4
# Strings of events whose codes are remembered, until a subscription names a new one. Where an
# attribute has few values and most are not named, searching for their places took longer than the
# match. Wild guess.
MAX_CACHED_CODES = 4_096

_DOUBLE = struct.Struct("<d")
_INTEGER = struct.Struct("<q")


def number_code(value: float) -> int:
    """The code of a number."""
    # Adding zero makes the negative zero the other one.
    bits: int = _INTEGER.unpack(_DOUBLE.pack(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ HIGHEST


def _is_exact(number: float) -> bool:
    """Whether no integer has the same code as another one, here."""
    return -EXACT < number < EXACT


class StringDictionary:
    """The strings that subscriptions name, with codes in their order, and how often each."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {"": STRINGS}
        self._uses: dict[str, int] = {"": 1}
        self._sorted: list[str] = [""]
        self._seen: dict[str, int] = {}  # codes of strings that events had, named or not

    def __len__(self) -> int:
        return len(self._sorted)

    def code(self, text: str) -> int:
        """The code of an event's string, named or not."""
        code = self._codes.get(text)
        if code is None:
            # Above "just after" the string before, below "just before" the next one.
            return self._codes[self._sorted[bisect_left(self._sorted, text) - 1]] + 2
        return code

    def codes(self, texts: Sequence[str]) -> list[int]:
        """The code of each."""
        found = list(map(self._seen.get, texts))
        if None in found:
            if len(self._seen) > MAX_CACHED_CODES:
                self._seen.clear()
            self._seen.update((text, self.code(text)) for text in texts)
            found = list(map(self._seen.get, texts))
        return found  # type: ignore[return-value]

    def acquire(self, text: str) -> int | None:
        """The code of a string that a subscription names; None if there is no room for it."""
        code = self._codes.get(text)
        if code is None:
            at = bisect_left(self._sorted, text)
            code = self._free(at)
            if code is None:
                return None
            self._sorted.insert(at, text)
            self._codes[text] = code
            self._seen.clear()
        self._uses[text] = self._uses.get(text, 0) + 1
        return code

    def _free(self, at: int) -> int | None:
        before = self._codes[self._sorted[at - 1]]
        if at == len(self._sorted):
            code = before + APPEND * STEP
            return code if code < HIGHEST - STEP else None
        after = self._codes[self._sorted[at]]
        code = before + (after - before) // (2 * STEP) * STEP
        return code if code > before else None

    def release(self, text: str) -> None:
        """Undo one `take`."""
        self._uses[text] -= 1
        if self._uses[text] == 0:
            del self._uses[text], self._codes[text]
            del self._sorted[bisect_left(self._sorted, text)]
            self._seen.clear()

    def preload(self, texts: list[str]) -> None:
        """Take many at once for good, evenly spaced; only while nothing has been taken."""
        if len(self._sorted) > 1:
            return
        self._seen.clear()
        step = (2**50 // (len(texts) + 1)) // STEP * STEP
        for number, text in enumerate(sorted(dict.fromkeys(texts) | {"": None})):
            self._codes[text] = STRINGS + number * step
            self._uses[text] = 1
            if text:
                self._sorted.append(text)


class Coder:
    """Turns intervals into closed intervals of codes."""

    def __init__(self) -> None:
        self.strings = StringDictionary()
        # A number, and the same eight bytes as an integer; its own, for threads have engines.
        self._number = array("d", [0.0])
        self._bits = memoryview(self._number).cast("B").cast("q")

    def interval(self, interval: Interval, named: list[str]) -> tuple[int, int, bool]:
        """(lowest code, highest code, loose); adds the strings that were taken to `named`."""
        low, high = interval.lo, interval.hi
        first, last = low[1], high[1]
        if type(first) is float and type(last) is float and _is_exact(first) and _is_exact(last):
            # The usual case, and a faster `number_code`.
            number, bits = self._number, self._bits
            number[0] = first + 0.0
            below = bits[0]
            number[0] = last + 0.0
            above = bits[0]
            return (
                (below if below >= 0 else below ^ HIGHEST) + low[2],
                (above if above >= 0 else above ^ HIGHEST) + high[2] - 1,
                False,
            )
        lo, loose = self._end(low, named, True)
        hi, wide = self._end(high, named, False)
        return lo, hi, loose or wide

    def _end(self, cut: Cut, named: list[str], lower: bool) -> tuple[int, bool]:
        """The first code after a cut, or the last one before it; and whether it is loose."""
        rank, value, side = cut
        # Just before or just after the value itself: codes are integers, so one step away.
        shift = side if lower else side - 1
        if rank == 1:
            number = number_code(value)  # type: ignore[arg-type]
            if _is_exact(value) or math.isinf(value):  # type: ignore[arg-type]
                return number + shift, False
            return number, True
        if rank == 2:
            text = str(value)
            code = self.strings.acquire(text)
            if code is not None:
                named.append(text)
                return code + shift, False
            between = self.strings.code(text)
            # Every named string beside this one lies more than two codes away.
            return (between - 1 if lower else between + 1), True
        if rank == 0:
            return FALSE + int(value) + shift, False
        return HIGHEST - 1, False
