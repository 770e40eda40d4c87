"""Kernels that give a column other buckets, when its values have drifted from the sample's.

All that depends on a column's bounds is rewritten from the whole codes: the bits of each block in
the column's rows, the fine codes of the records, and the skip bitmap. Since all blocks share the
bounds, that is one call for all of them, between two matches.
"""

from __future__ import annotations

from matching.engine.kernels.cache_lines import kernel, read64, write16, write64
from matching.engine.kernels.layout import (
    BLOCK,
    BLOCKS,
    BOUNDS,
    H_BOUNDS,
    H_STRIDE,
    H_TABLE,
    LINE,
    NO_COLUMN,
    R_COLUMNS,
    R_LOWS,
    ROW,
    SEGMENT,
    T_EXACT,
    T_FAILS,
    T_RECORDS,
    TABLE,
)
from matching.engine.kernels.records import record_bytes
from matching.engine.kernels.rows import fine, row_of
from matching.engine.kernels.skipping import column_rows, first_row, tighten_rows


@kernel
def _part_of(h: int, table: int, at: int, column: int) -> int:
    """The part of a record that constrains a column; -1 if none does."""
    stride = read64(h + H_STRIDE * 8)
    size = record_bytes(stride)
    columns = read64(read64(table + T_RECORDS * 8) + (at + 1) * size + R_COLUMNS)
    for part in range(stride):
        used = (columns >> (8 * part)) & 255
        if used == column:
            return part
        if used == NO_COLUMN:
            break
    return -1


@kernel
def interval_ends(h: int, places: int, count: int, column: int, out: int) -> int:
    """The ends of intervals in a column of the subscriptions at some places (int64[count]).

    Writes the first code and the one behind the last for each that uses the column to `out`
    (int64[2 * count]); returns how many were written.
    """
    stride, found = read64(h + H_STRIDE * 8), 0
    for number in range(count):
        place = read64(places + number * 8)
        table = read64(h + H_TABLE * 8) + (place // SEGMENT) * TABLE * 8
        part = _part_of(h, table, place % SEGMENT, column)
        if part >= 0:
            exact = read64(table + T_EXACT * 8) + (place % SEGMENT * stride + part) * 16
            write64(out + found * 8, read64(exact))
            write64(out + (found + 1) * 8, read64(exact + 8) + 1)
            found += 2
    return found


@kernel
def _rewrite_codes(h: int, table: int, block: int, column: int, scratch: int) -> None:
    """Rewrite a block's fine codes in a column, and prepare its bits in the column's rows.

    Writes to `scratch` a line per row: the subscriptions whose interval begins there or has ended
    before; and behind the last row a line of those that use the column.
    """
    rows, stride = column_rows(h, column), read64(h + H_STRIDE * 8)
    size = record_bytes(stride)
    bounds = read64(h + H_BOUNDS * 8) + column * BOUNDS * 8
    for word in range((rows + 2) * 8):
        write64(scratch + word * 8, 0)
    for at in range(block * BLOCK, (block + 1) * BLOCK):
        part = _part_of(h, table, at, column)
        if part < 0:
            continue
        exact = read64(table + T_EXACT * 8) + (at * stride + part) * 16
        low, high = read64(exact), read64(exact + 8)
        first, last = row_of(bounds, low), row_of(bounds, high)
        lows = read64(table + T_RECORDS * 8) + at * size + R_LOWS + part * 2
        write16(lows, fine(h, column, first, low))
        write16(lows + stride * 2, fine(h, column, last, high))
        word, bit = (at >> 6) % 8 * 8, 1 << (at & 63)
        for row in (first, last + 1, rows + 1):
            turn = scratch + row * LINE + word
            write64(turn, read64(turn) ^ bit)


@kernel
def rebucket(h: int, column: int, blocks: int, scratch: int) -> None:
    """Rewrite all that depends on a column's bounds in the first `blocks` blocks.

    `scratch`: int64[ROWS + 2, 8]. A subscription with more parts than its record has room for may
    use the column without the record saying so: then it fails in none of the rows and is an edge in
    all of them.
    """
    rows, first = column_rows(h, column), first_row(h, column)
    for block in range(blocks):
        table = read64(h + H_TABLE * 8) + (block // BLOCKS) * TABLE * 8
        _rewrite_codes(h, table, block % BLOCKS, column, scratch)
        line = read64(table + T_FAILS * 8) + first * ROW + block % BLOCKS * LINE
        for word in range(0, LINE, 8):
            users = read64(scratch + (rows + 1) * LINE + word)
            holds = 0
            for row in range(rows):
                holds ^= read64(scratch + row * LINE + word)
                write64(line + row * ROW + word, users & ~holds)
        for number in range(block * 8, block * 8 + 8):
            tighten_rows(h, number, first, rows)
