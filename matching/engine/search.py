"""The kernel that finds an event's matches: summary, rows, edges, records.

One pass over the segments. `_rows` turns the event into codes and each column's code into a row;
`_segment` ORs the summary lines of these rows (which words of 64 are dead), then, block by block
where a word is not, the rows themselves (who surely fails). Of those left, `_settle` tells the sure
ones from those with an end of an interval in the event's bucket: the row before or behind would
fail them. These *edges* are compared with their records, number by number.
"""

from __future__ import annotations

from typing import Any

from matching.engine.layout import (
    BLOCK,
    BLOCKS,
    H_ALIVE,
    H_ASK,
    H_ASK_COUNT,
    H_BOUNDS,
    H_CODES,
    H_COLUMNS,
    H_EDGES,
    H_FOUND,
    H_FOUND_COUNT,
    H_INDEXED,
    H_OFFSETS,
    H_SEGMENTS,
    H_STRIDE,
    H_TABLE,
    H_VALUES,
    INDEXED,
    LINE,
    R_LABEL,
    R_PARTS,
    R_PYTHON,
    ROWS,
    T_ALWAYS,
    T_DEAD,
    T_EXACT,
    T_FAILS,
    T_LABELS,
    T_LIVE,
    T_RECORDS,
    TABLE,
)
from matching.engine.lines import (
    kernel,
    line_and,
    line_any,
    line_count,
    line_emit,
    line_load,
    line_none,
    line_not,
    line_or,
    line_store,
    lowest_bit,
    prefetch,
    read32,
    read64,
    write32,
    write64,
)

ROW = BLOCKS * LINE  # bytes of a row in a segment
# With fewer candidates in a block than this, comparing them all should cost less than two more
# lines per column, and taking them one by one less than compressing. Wild guess.
DENSE = 24
# Blocks whose lines are asked for ahead of the one being searched. Measured: 0 to 8 are alike.
AHEAD = 2
# Blocks of a segment that are alive from which its rows are read as a whole. Measured: 24 to 40
# are alike.
MANY = 32
TURN = 0x7FFF_FFFF_FFFF_FFFF  # turns the bits of a negative float so that they sort


@kernel
def row_of(bounds: int, code: int) -> int:
    """How many of a column's bounds (an address) the code reaches: its row."""
    row = 0
    step = ROWS // 2
    while step:
        if read64(bounds + (row + step - 1) * 8) <= code:
            row += step
        step >>= 1
    return row


@kernel
def _rows(h: int) -> None:
    """The event's codes, and where each column's row begins; takes the event away."""
    values, codes = read64(h + H_VALUES * 8), read64(h + H_CODES * 8)
    for column in range(read64(h + H_COLUMNS * 8)):
        bits = read64(values + column * 8)
        write64(values + column * 8, -1)
        if bits == -TURN - 1:  # the negative zero
            bits = 0
        write64(codes + column * 8, bits if bits >= 0 else bits ^ TURN)
    bounds, offsets = read64(h + H_BOUNDS * 8), read64(h + H_OFFSETS * 8)
    for column in range(read64(h + H_INDEXED * 8)):
        row = row_of(bounds + column * (ROWS - 1) * 8, read64(codes + column * 8))
        here = column * ROWS + row
        # In the outermost rows no interval ends that a candidate could have.
        before = here if row == 0 else here - 1
        behind = here if row == 0 or row == ROWS - 1 else here + 1
        write64(offsets + column * 8, here * ROW)
        write64(offsets + (INDEXED + column) * 8, before * ROW)
        write64(offsets + (2 * INDEXED + column) * 8, behind * ROW)


@kernel
def _compare_exactly(h: int, exact: int, columns: int) -> bool:
    """Compare whole codes."""
    codes = read64(h + H_CODES * 8)
    passes = True
    for part in range(read64(h + H_STRIDE * 8)):
        code = read64(codes + ((columns >> (8 * part)) & 255) * 8)
        passes &= (read64(exact + part * 16) <= code) & (code <= read64(exact + part * 16 + 8))
    return passes


@kernel
def _compare(h: int, table: int, count: int) -> None:
    """Compare the edges' records with the event's codes; put those that pass where they go."""
    codes, edges = read64(h + H_CODES * 8), read64(h + H_EDGES * 8)
    stride = read64(h + H_STRIDE * 8)
    records, exact = read64(table + T_RECORDS * 8), read64(table + T_EXACT * 8)
    found, ask = read64(h + H_FOUND * 8), read64(h + H_ASK * 8)
    found_count, ask_count = read64(h + H_FOUND_COUNT * 8), read64(h + H_ASK_COUNT * 8)
    size = record_bytes(stride)
    for number in range(count):
        at = read32(edges + number * 4)
        record = records + at * size
        columns, label = read64(record), read64(record + R_LABEL)
        passes, close = True, False
        for part in range(stride):
            code = read64(codes + ((columns >> (8 * part)) & 255) * 8) >> 32
            ends = read64(record + R_PARTS + part * 8)
            low, high = (ends << 32) >> 32, ends >> 32
            passes &= (low <= code) & (code <= high)
            close |= (low == code) | (code == high)
        if passes & close:
            passes = _compare_exactly(h, exact + at * stride * 16, columns)
        # Written always, kept if it counts: no branch to mispredict.
        write32(found + found_count * 4, label)
        write32(ask + ask_count * 4, label)
        asked = (label >> R_PYTHON) & 1
        found_count += passes & (asked == 0)
        ask_count += passes & (asked == 1)
    write64(h + H_FOUND_COUNT * 8, found_count)
    write64(h + H_ASK_COUNT * 8, ask_count)


@kernel
def record_bytes(stride: int) -> int:
    """`layout.record_size`, for kernels."""
    return (R_PARTS + 8 * stride + LINE - 1) // LINE * LINE


@kernel
def _edges(h: int, table: int, block: int) -> Any:
    """Who of a block may have an end in the event's rows."""
    fails = read64(table + T_FAILS * 8) + block * LINE
    offsets = read64(h + H_OFFSETS * 8) + INDEXED * 8
    edge = line_load(read64(table + T_ALWAYS * 8) + block * LINE)
    for column in range(read64(h + H_INDEXED * 8)):
        before = line_load(fails + read64(offsets + column * 8))
        behind = line_load(fails + read64(offsets + (INDEXED + column) * 8))
        edge = line_or(edge, line_or(before, behind))
    return edge


@kernel
def _emit(h: int, table: int, block: int, sure: Any) -> None:
    """Put a block's sure candidates to those found."""
    count = read64(h + H_FOUND_COUNT * 8)
    labels = read64(table + T_LABELS * 8) + block * BLOCK * 4
    emitted = line_emit(sure, labels, read64(h + H_FOUND * 8) + count * 4)
    write64(h + H_FOUND_COUNT * 8, count + emitted)


@kernel
def _note(h: int, table: int, block: int, candidates: Any, edge_count: int) -> int:
    """Write a block's candidates down to be compared; how many are written down then."""
    scratch = read64(h + H_ALIVE * 8) + LINE
    line_store(scratch, candidates)
    edges = read64(h + H_EDGES * 8)
    records = read64(table + T_RECORDS * 8)
    size = record_bytes(read64(h + H_STRIDE * 8))
    for word in range(8):
        bits = read64(scratch + word * 8)
        while bits:
            at = block * BLOCK + word * 64 + lowest_bit(bits)
            bits &= bits - 1
            write32(edges + edge_count * 4, at)
            prefetch(records + at * size)
            edge_count += 1
    return edge_count


@kernel
def _alive(h: int, table: int) -> int:
    """Write down the blocks of a segment with a word that is not dead; how many."""
    offsets = read64(h + H_OFFSETS * 8)
    summary = read64(table + T_DEAD * 8)
    dead = line_none()
    for column in range(read64(h + H_INDEXED * 8)):
        dead = line_or(dead, line_load(summary + read64(offsets + column * 8) // BLOCKS))
    if not line_any(line_not(dead)):
        return 0
    scratch = read64(h + H_ALIVE * 8)
    line_store(scratch, line_not(dead))
    count = 0
    for group in range(8):
        words = read64(scratch + group * 8)
        while words:
            byte = lowest_bit(words) >> 3
            words &= ~(255 << (byte * 8))
            write64(scratch + (16 + count) * 8, group * 8 + byte)
            count += 1
    return count


@kernel
def _fetch(h: int, fails: int, line: int) -> None:
    """Ask for the lines of one block in all the event's rows."""
    offsets = read64(h + H_OFFSETS * 8)
    for column in range(read64(h + H_INDEXED * 8)):
        prefetch(fails + read64(offsets + column * 8) + line)


@kernel
def _few(h: int, table: int, alive: int) -> int:
    """Search a segment block by block, where many are dead; how many edges there are."""
    blocks = read64(h + H_ALIVE * 8) + 16 * 8
    offsets = read64(h + H_OFFSETS * 8)
    fails, live = read64(table + T_FAILS * 8), read64(table + T_LIVE * 8)
    indexed = read64(h + H_INDEXED * 8)
    edge_count = 0
    for number in range(min(AHEAD, alive)):
        _fetch(h, fails, read64(blocks + number * 8) * LINE)
    for number in range(alive):
        if number + AHEAD < alive:
            _fetch(h, fails, read64(blocks + (number + AHEAD) * 8) * LINE)
        block = read64(blocks + number * 8)
        out = line_not(line_load(live + block * LINE))
        for column in range(indexed):
            here = fails + read64(offsets + column * 8)
            out = line_or(out, line_load(here + block * LINE))
        candidates = line_not(out)
        count = line_count(candidates)
        if count >= DENSE:
            edge = _edges(h, table, block)
            _emit(h, table, block, line_and(candidates, line_not(edge)))
            candidates = line_and(candidates, edge)
        if count:
            edge_count = _note(h, table, block, candidates, edge_count)
    return edge_count


@kernel
def _gather(h: int, table: int, rows: int, into: int) -> None:
    """OR whole rows of a segment, one after the other: memory likes to be read in runs."""
    fails, offsets = read64(table + T_FAILS * 8), read64(h + H_OFFSETS * 8)
    for column in range(read64(h + H_INDEXED * 8)):
        row = fails + read64(offsets + (rows * INDEXED + column) * 8)
        for line in range(0, ROW, LINE):
            line_store(into + line, line_or(line_load(into + line), line_load(row + line)))


@kernel
def _many(h: int, table: int) -> int:
    """Search a segment row by row, where most blocks are alive; how many edges there are."""
    out = read64(h + H_ALIVE * 8) + (16 + BLOCKS) * 8
    edge = out + ROW
    live, always = read64(table + T_LIVE * 8), read64(table + T_ALWAYS * 8)
    for line in range(0, ROW, LINE):
        line_store(out + line, line_not(line_load(live + line)))
        line_store(edge + line, line_load(always + line))
    _gather(h, table, 0, out)
    count = 0
    for line in range(0, ROW, LINE):
        count += line_count(line_not(line_load(out + line)))
    dense = count >= DENSE * BLOCKS // 2
    if dense:
        _gather(h, table, 1, edge)
        _gather(h, table, 2, edge)
    edge_count = 0
    for block in range(BLOCKS):
        candidates = line_not(line_load(out + block * LINE))
        if not line_any(candidates):
            continue
        if dense:
            ends = line_load(edge + block * LINE)
            _emit(h, table, block, line_and(candidates, line_not(ends)))
            candidates = line_and(candidates, ends)
        elif line_count(candidates) >= DENSE:
            ends = _edges(h, table, block)
            _emit(h, table, block, line_and(candidates, line_not(ends)))
            candidates = line_and(candidates, ends)
        edge_count = _note(h, table, block, candidates, edge_count)
    return edge_count


@kernel
def _segment(h: int, table: int) -> None:
    """The matches of one segment, whose row of the segment table is given."""
    alive = _alive(h, table)
    edge_count = _many(h, table) if alive >= MANY else _few(h, table, alive)
    _compare(h, table, edge_count)


@kernel
def search(h: int) -> int:
    """Find the matches of the event in the header's values: how many, and 2**32 for each to ask."""
    write64(h + H_FOUND_COUNT * 8, 0)
    write64(h + H_ASK_COUNT * 8, 0)
    _rows(h)
    table = read64(h + H_TABLE * 8)
    offsets = read64(h + H_OFFSETS * 8)
    segments = read64(h + H_SEGMENTS * 8)
    for segment in range(segments):
        if segment + 1 < segments:
            summary = read64(table + ((segment + 1) * TABLE + T_DEAD) * 8)
            for column in range(read64(h + H_INDEXED * 8)):
                prefetch(summary + read64(offsets + column * 8) // BLOCKS)
        _segment(h, table + segment * TABLE * 8)
    return read64(h + H_FOUND_COUNT * 8) + (read64(h + H_ASK_COUNT * 8) << 32)
