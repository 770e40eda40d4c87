"""Lines of 512 bits in compiled code, against NumPy; and when compiled code is stale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matching.engine import lines
from matching.engine.layout import aligned
from matching.engine.lines import (
    kernel,
    line_any,
    line_count,
    line_emit,
    line_load,
    line_not,
    line_store,
)


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


NUMBER = 1


def _uses_a_number() -> int:
    return NUMBER


def test_a_changed_constant_changes_the_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = []
    for number in (1, 1, 2):
        monkeypatch.setitem(globals(), "NUMBER", number)
        monkeypatch.setattr(lines._Sources, "checksum", 7)
        lines._Sources.add(_uses_a_number)
        sums.append(lines._Sources.checksum)
    assert sums[0] == sums[1] != sums[2]
