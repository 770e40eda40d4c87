"""Kernels that map codes to the rows of a column.

A code's *row* is the bucket of the column that it falls into; its *fine code* is the row and the
offset in the bucket, in 16 bits. `encode_event` computes both for an event; the insertion kernels
do so for the ends of a subscription's intervals.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from matching.engine.kernels.cache_lines import kernel, line_reached, read64, write32, write64
from matching.engine.kernels.layout import (
    BOUNDS,
    E_SLOTS,
    E_VALUES,
    FINE,
    H_ASK_COUNT,
    H_BEFORE,
    H_BEHIND,
    H_BOUNDS,
    H_CODES,
    H_COLUMNS,
    H_EVENT,
    H_FINE,
    H_FOUND_COUNT,
    H_INDEXED,
    H_LINES,
    H_OFFSETS,
    H_SHIFTS,
    LINE,
    MISSING_ROW,
    ROW,
    ROWS,
)

ONE = 0x3FF0_0000_0000_0000  # the bits of the float 1.0
TURN = 0x7FFF_FFFF_FFFF_FFFF  # XOR with it makes the bits of negative floats sort as integers


@kernel
def row_of(bounds: int, code: int) -> int:
    """A code's row: how many of the column's bounds (an address) are at most the code."""
    # In two steps of eight at once: every eighth bound, then the eight that follow the last
    # reached.
    eights = 0
    for line in range(ROWS * 8, BOUNDS * 8, LINE):
        eights += line_reached(bounds + line, code)
    row: int = eights * 8 + line_reached(bounds + eights * LINE, code)
    return row


@kernel
def fine(h: int, column: int, row: int, code: int) -> int:
    """A code's fine code, given its row: 16 bits in the order of the codes."""
    if column >= read64(h + H_INDEXED * 8):
        return (code >> 48) + 2**15
    if row == MISSING_ROW:
        return 0
    first = read64(read64(h + H_BOUNDS * 8) + (column * BOUNDS + row - 1) * 8)
    shift = read64(read64(h + H_SHIFTS * 8) + (column * ROWS + row) * 8)
    # The difference may need all 64 bits, so it is shifted as an unsigned number.
    place: Any = np.int64(np.uint64(code - first) >> np.uint64(shift))
    return (row << FINE) + int(place)


@kernel
def encode_event(h: int) -> int:
    """Begin a match: compute the event's codes, fine codes and rows, and clear its values.

    Returns whether some value was 0 or 1. Sets the numbers of labels found to zero.
    """
    write64(h + H_FOUND_COUNT * 8, 0)
    write64(h + H_ASK_COUNT * 8, 0)
    event, codes = read64(read64(h + H_EVENT * 8)), read64(h + H_CODES * 8)
    values = event + E_VALUES * 8
    fines = read64(h + H_FINE * 8)
    indexed = read64(h + H_INDEXED * 8)
    bounds, offsets = read64(h + H_BOUNDS * 8), read64(h + H_OFFSETS * 8)
    lines = read64(h + H_LINES * 8)
    befores, behinds = read64(h + H_BEFORE * 8), read64(h + H_BEHIND * 8)
    truths = 0
    for column in range(read64(h + H_COLUMNS * 8)):
        value = values + read64(event + (E_SLOTS + column) * 8) * 8
        bits = read64(value)
        write64(value, -1)
        if bits == -TURN - 1:  # the negative zero
            bits = 0
        truths |= (1 if bits == 0 else 0) | (1 if bits == ONE else 0)
        code = bits if bits >= 0 else bits ^ TURN
        write64(codes + column * 8, code)
        row = 0
        if column < indexed:
            row = row_of(bounds + column * BOUNDS * 8, code)
            here = read64(lines + column * 8) + row
            # No interval ends where the attribute is missing, nor in the last row, which is empty.
            before = here if row == MISSING_ROW else here - 1
            behind = here if row == MISSING_ROW else here + 1
            write64(offsets + column * 8, here * ROW)
            write64(befores + column * 8, before * ROW)
            write64(behinds + column * 8, behind * ROW)
        write32(fines + column * 4, fine(h, column, row, code))
    return truths
