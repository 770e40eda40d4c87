"""Lines of 512 bits in compiled code, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matching.engine.kernels.cache_lines import (
    inside,
    kernel,
    line_any,
    line_count,
    line_emit,
    line_load,
    line_not,
    line_reached,
    line_store,
    line_words,
)
from matching.engine.kernels.layout import aligned


@kernel
def _all_of_them(source: int, labels: int, out: int, inverse: int) -> Any:
    line = line_load(source)
    line_store(inverse, line_not(line))
    return line_count(line), line_emit(line, labels, out), line_any(line)


@pytest.mark.parametrize("density", [0.0, 0.01, 0.5, 1.0])
def test_a_line_is_counted_and_emitted(density: float) -> None:
    rng = np.random.default_rng(3)
    bits = (rng.random(512) < density).astype(np.uint8)
    line, inverse = aligned(8, np.uint64), aligned(8, np.uint64)
    line[:] = np.packbits(bits, bitorder="little").view(np.uint64)
    labels, out = aligned(512, np.uint32), aligned(512 + 16, np.uint32)
    labels[:] = rng.permutation(512)
    count, emitted, some = _all_of_them(
        line.ctypes.data, labels.ctypes.data, out.ctypes.data, inverse.ctypes.data
    )
    assert count == emitted == bits.sum()
    assert bool(some) == bool(bits.any())
    assert (out[:emitted] == labels[bits > 0]).all()
    assert (inverse == ~line).all()


@kernel
def _reached(line: int, code: int) -> int:
    return line_reached(line, code)


@pytest.mark.parametrize("code", [-(2**63), -4, -3, 0, 6, 7, 2**63 - 1])
def test_integers_that_a_code_reaches_are_counted(code: int) -> None:
    line = aligned(8, np.int64)
    line[:] = [-(2**63), -3, 0, 0, 7, 2**40, 2**63 - 2, 2**63 - 1]
    assert _reached(line.ctypes.data, code) == (line <= code).sum()


@kernel
def _words_and_parts(source: int, columns: int, lows: int, highs: int, codes: int) -> Any:
    return line_words(line_load(source)), inside(columns, lows, highs, codes)


def test_parts_are_compared_with_their_columns_codes() -> None:
    """Eight at once: below, at the low end, inside, at the high end, above; also beyond 2**15."""
    line = aligned(8, np.uint64)
    line[[1, 6]] = 5
    columns = np.array([7, 0, 255, 3, 3, 1, 2, 2], np.uint8)
    codes = np.zeros(256, np.int32)
    codes[[7, 0, 255, 3, 1, 2]] = [9, 10, 1, 60_000, 65_535, 0]
    lows = np.array([10, 10, 0, 1, 60_000, 7, 0, 1], np.uint16)
    highs = np.array([20, 20, 65_535, 60_000, 65_000, 65_535, 5, 5], np.uint16)
    arrays = (line, lows, highs, codes)
    at = [array.ctypes.data for array in arrays]
    words, held = _words_and_parts(at[0], int(columns.view(np.int64)[0]), *at[1:])
    value = codes[columns]
    assert words == 0b0100_0010
    assert held & 255 == sum(1 << i for i in range(8) if lows[i] <= value[i] <= highs[i])
    assert held >> 8 == sum(1 << i for i in range(8) if lows[i] < value[i] < highs[i])
