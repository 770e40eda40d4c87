"""Kernels that maintain the skip bitmap: a bit for each row and word of 64 that all fail there.

A bit that could be set may be clear, which costs time but never a match: inserting only clears
bits, and removing leaves them alone. `tighten` sets those that can be set.
"""

from __future__ import annotations

from matching.engine.kernels.cache_lines import kernel, lowest_bit, read64, write64
from matching.engine.kernels.layout import (
    BLOCKS,
    H_INDEXED,
    H_LINES,
    H_PITCH,
    H_SKIP,
    H_TABLE,
    LINE,
    ROW,
    SEGMENT,
    T_FAILS,
    T_LIVE,
    T_TIGHT,
    T_USED,
    TABLE,
)

ALL = -1  # a word of ones


@kernel
def set_bit(word: int, bit: int, on: int) -> None:
    """Set or clear one bit of the word at an address."""
    old = read64(word) & ~(1 << bit)
    write64(word, old | (on << bit))


@kernel
def first_row(h: int, column: int) -> int:
    """The number, over all columns, of a column's first row."""
    row: int = read64(read64(h + H_LINES * 8) + column * 8)
    return row


@kernel
def column_rows(h: int, column: int) -> int:
    """How many rows a column has."""
    return first_row(h, column + 1) - first_row(h, column)


@kernel
def clear_skip_bits(h: int, table: int, number: int, first: int, rows: int) -> None:
    """Clear the bits of a word (its number over all segments) in some of 64 rows from `first` on,
    since a subscription in it does not fail there. `rows`: a bit for each."""
    own = number % (SEGMENT // 64) * first_row(h, read64(h + H_INDEXED * 8)) + first
    tight = read64(table + T_TIGHT * 8) + own // 8
    changed = read64(tight) & rows
    write64(tight, read64(tight) & ~rows)
    pitch = read64(h + H_PITCH * 8)
    dead = read64(h + H_SKIP * 8) + first * pitch + (number >> 6) * 8
    while changed:
        set_bit(dead + lowest_bit(changed) * pitch, number & 63, 0)
        changed &= changed - 1


@kernel
def _update_used(h: int, table: int, block: int) -> None:
    """Update the columns that a block uses: a subscription that uses a column fails in its row for
    a missing attribute."""
    live = read64(table + T_LIVE * 8) + block * LINE
    used = 0
    for column in range(read64(h + H_INDEXED * 8)):
        missing = read64(table + T_FAILS * 8) + first_row(h, column) * ROW + block * LINE
        uses = 0
        for word in range(0, LINE, 8):
            uses |= read64(live + word) & read64(missing + word)
        used |= (1 if uses else 0) << column
    write64(read64(table + T_USED * 8) + block * 8, used)


@kernel
def tighten_rows(h: int, number: int, first: int, count: int) -> None:
    """Set or clear the bits of a word as its subscriptions allow, in `count` rows from `first` on
    (multiples of 64)."""
    rows, pitch = first_row(h, read64(h + H_INDEXED * 8)), read64(h + H_PITCH * 8)
    table = read64(h + H_TABLE * 8) + (number // (SEGMENT // 64)) * TABLE * 8
    word = number % (SEGMENT // 64)
    empty = ~read64(read64(table + T_LIVE * 8) + word * 8)
    fails = read64(table + T_FAILS * 8) + word * 8
    dead = read64(h + H_SKIP * 8) + (number >> 6) * 8
    own = read64(table + T_TIGHT * 8) + word * rows // 8
    for start in range(first, first + count, 64):
        tight = 0
        for row in range(64):
            line = start + row
            is_dead = 1 if (read64(fails + line * ROW) | empty) == ALL else 0
            set_bit(dead + line * pitch, word & 63, is_dead)
            tight |= is_dead << row
        write64(own + start // 8, tight)


@kernel
def tighten(h: int, first: int, last: int) -> None:
    """Set or clear the bits of words `first` to `last` (exclusive; numbers over all segments) as
    their subscriptions allow; also updates the columns that their blocks use."""
    rows = first_row(h, read64(h + H_INDEXED * 8))
    for number in range(first, last):
        tighten_rows(h, number, 0, rows)
        if number % 8 == 0:
            table = read64(h + H_TABLE * 8) + (number // (SEGMENT // 64)) * TABLE * 8
            _update_used(h, table, number // 8 % BLOCKS)
