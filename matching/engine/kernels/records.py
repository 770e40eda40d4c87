"""Kernels that compare edges with the event, a thousand at a time.

An *edge* is a candidate that may fail nevertheless (see `matching.engine`). It is queued as two
addresses: of its record and of its whole codes. First the record's 16-bit codes are compared, which
decides nearly all; where some of them are equal to the event's, the whole codes of these parts are
compared. Records are scattered in memory, so many are prefetched before the first is compared.
"""

from __future__ import annotations

from typing import Any

from matching.engine.kernels.cache_lines import (
    inside,
    kernel,
    line_store,
    line_words,
    lowest_bit,
    prefetch,
    read32,
    read64,
    write32,
    write64,
)
from matching.engine.kernels.layout import (
    BLOCK,
    BLOCKS,
    H_ASK,
    H_ASK_COUNT,
    H_CODES,
    H_EDGES,
    H_FINE,
    H_FOUND,
    H_FOUND_COUNT,
    H_INDEXED,
    H_LINE,
    H_LINES,
    H_PITCH,
    H_SKIP,
    H_STRIDE,
    H_TABLE,
    LABELS,
    LINE,
    NARROW,
    R_COLUMNS,
    R_LABEL,
    R_LOWS,
    R_PYTHON,
    RECORDS_AHEAD,
    ROW,
    SEGMENT,
    T_EXACT,
    T_FAILS,
    T_LIVE,
    T_RECORDS,
    T_TIGHT,
    T_USED,
    TABLE,
)

ADDRESS_BITS = 48  # of a user-space address on x86-64 and ARM64; the upper bits are used for parts
# Records prefetched per block at the end of the blocks: RECORDS_AHEAD with the last `search.AHEAD`.
AT_ONCE = 8


@kernel
def record_bytes(stride: int) -> int:
    """Bytes of a record, as `layout.record_size` says to Python: here for compiled code."""
    return LINE // 2 if stride <= NARROW else LINE


@kernel
def queue_edges(h: int, table: int, block: int, candidates: Any, edge_count: int) -> int:
    """Queue a block's candidates (a line) as edges; returns the new length of the queue."""
    scratch = read64(h + H_LINE * 8)
    line_store(scratch, candidates)
    edges, stride = read64(h + H_EDGES * 8), read64(h + H_STRIDE * 8)
    size = record_bytes(stride)
    records = read64(table + T_RECORDS * 8) + block * BLOCK * size
    exact = read64(table + T_EXACT * 8) + block * BLOCK * stride * 16
    # A single loop over all words has one exit, so it costs one mispredicted branch.
    words = line_words(candidates)
    while words:
        word = lowest_bit(words)
        bits = read64(scratch + word * 8)
        at = word * 64 + lowest_bit(bits)
        bits &= bits - 1
        write64(scratch + word * 8, bits)
        words &= ~((1 if bits == 0 else 0) << word)
        write64(edges + edge_count * 16, records + at * size)
        write64(edges + edge_count * 16 + 8, exact + at * stride * 16)
        edge_count += 1
    return edge_count


@kernel
def prefetch_records(h: int, first: int, count: int) -> int:
    """Prefetch the records of some of the `count` edges, from `first` on; returns the next one.

    Used once there is no block left to prefetch, so that the first edges need not wait for memory
    (measured: *base* at 100,000 takes 7.5 microseconds instead of 8.1).
    """
    edges, last = read64(h + H_EDGES * 8), min(first + AT_ONCE, count)
    for number in range(first, last):
        prefetch(read64(edges + number * 16))
    return last


@kernel
def _compare_exactly(h: int, exact: int, columns: int, parts: int) -> bool:
    """Whether the event's codes are within the whole codes of some parts (a bit for each)."""
    codes = read64(h + H_CODES * 8)
    passes = True
    while parts:
        part = lowest_bit(parts)
        parts &= parts - 1
        code = read64(codes + ((columns >> (8 * part)) & 255) * 8)
        passes &= (read64(exact + part * 16) <= code) & (code <= read64(exact + part * 16 + 8))
    return passes


@kernel
def _store_label(h: int, label: int, passes: int) -> None:
    """Append a label to those found, or to those to be evaluated in Python, if `passes` is 1.

    It is written in any case and counted only if it passes: no branch to mispredict.
    """
    count = read64(h + H_FOUND_COUNT * 8)
    ask_count = read64(h + H_ASK_COUNT * 8)
    write32(read64(h + H_FOUND * 8) + count * 4, label)
    write32(read64(h + H_ASK * 8) + ask_count * 4, label & (LABELS - 1))
    asked = label >> R_PYTHON
    write64(h + H_FOUND_COUNT * 8, count + (passes & (1 - asked)))
    write64(h + H_ASK_COUNT * 8, ask_count + (passes & asked))


@kernel
def compare_edges(h: int, count: int) -> None:
    """Compare the queued edges with the event, and append the labels of those that match.

    Without a branch that depends on a record: half of these would be mispredicted, and memory
    accesses after a misprediction are wasted.
    """
    fines, edges = read64(h + H_FINE * 8), read64(h + H_EDGES * 8)
    stride = read64(h + H_STRIDE * 8)
    parts, size = (1 << stride) - 1, record_bytes(stride)
    ties = 0
    for number in range(min(RECORDS_AHEAD, count)):
        prefetch(read64(edges + number * 16))
    for number in range(count):
        # Beyond the queue's end are former edges, whose memory is still allocated.
        prefetch(read64(edges + (number + RECORDS_AHEAD) * 16))
        record, exact = read64(edges + number * 16), read64(edges + number * 16 + 8)
        columns, label = read64(record + size + R_COLUMNS), read32(record + size + R_LABEL)
        within = inside(columns, record + R_LOWS, record + R_LOWS + 2 * stride, fines)
        at_ends = parts & ~(within >> 8)
        sure = 1 if at_ends == 0 else 0
        _store_label(h, label, sure)
        write64(edges + ties * 16, record)
        write64(edges + ties * 16 + 8, exact | (at_ends << ADDRESS_BITS))
        ties += (1 if within & parts == parts else 0) & (1 - sure)
    for number in range(ties):
        exact = read64(edges + number * 16 + 8)
        part = lowest_bit(exact >> ADDRESS_BITS)
        prefetch((exact & (1 << ADDRESS_BITS) - 1) + part * 16)
    for number in range(ties):
        end = read64(edges + number * 16) + size
        exact = read64(edges + number * 16 + 8)
        at_ends, exact = exact >> ADDRESS_BITS, exact & ((1 << ADDRESS_BITS) - 1)
        passes = _compare_exactly(h, exact, read64(end + R_COLUMNS), at_ends)
        _store_label(h, read32(end + R_LABEL), 1 if passes else 0)


# Kernels that maintain the skip bitmap: a bit for each row and word of 64 that all fail there.
#
# A bit that could be set may be clear, which costs time but never a match: inserting only clears
# bits, and removing leaves them alone. `tighten` sets those that can be set.

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
    """The number of a column's rows."""
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
