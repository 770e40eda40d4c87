"""The kernel that finds an event's matches: summary, blocks, dense blocks, edges.

`rows` has turned the event into codes and each column's code into a row. `_summaries` ORs the
summary lines of these rows (which words of 64 are dead) and writes down the blocks where a word is
not; `_candidates` ORs the rows of one of them (who surely fails), of the columns that somebody in
it uses. Those left in a block with few of them are *edges*, which `records` compares with the
event. A block with many is *dense*, and put off until all have been searched: the rows before and
behind tell its sure candidates from those with an end of an interval in the event's bucket, and
only these are edges.

Most of the time goes into waiting for memory. So each step asks for what the next ones will read,
and a step is done for many before the next one is: summaries of all segments, then all blocks, then
the dense ones, and edges a thousand at a time.
"""

from __future__ import annotations

from typing import Any

from matching.engine.kernels.cache_lines import (
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
    read64,
    write64,
)
from matching.engine.kernels.layout import (
    ASKED,
    BLOCK,
    BLOCKS,
    EDGES,
    H_ALIVE,
    H_ASK_COUNT,
    H_BEFORE,
    H_BEHIND,
    H_CANDIDATES,
    H_DEAD,
    H_FOUND,
    H_FOUND_COUNT,
    H_INDEXED,
    H_LINE,
    H_OFFSETS,
    H_PITCH,
    H_SEGMENTS,
    H_TABLE,
    LINE,
    ROW,
    T_ALWAYS,
    T_FAILS,
    T_LABELS,
    T_LIVE,
    T_USED,
    TABLE,
    TRUTHS,
)
from matching.engine.kernels.records import compare_edges, fetch_records, note_edges
from matching.engine.kernels.rows import rows

# With fewer candidates in a block than this, comparing them all should cost less than two more
# lines per column, and taking them one by one less than compressing. Measured at 400,000, *mixed*
# and *base*: 6 in a hundred slower with 48 (*mixed*); with 24 and 16 *mixed* is 3 and 4 faster,
# *base* 2 slower.
DENSE = 32
# Blocks whose lines are asked for ahead of the one being searched. Measured (100,000, *base*): 23
# microseconds with 1, 18 with 4, 16 with 8, 19 with 16.
AHEAD = 8
# And dense blocks. Measured (400,000): *mixed* is five in a hundred slower with 2, *w07* three with
# 2 or 8.
DENSE_AHEAD = 4


@kernel
def _summaries(h: int) -> int:
    """Write down the blocks with a word that is not dead; how many."""
    tables, offsets = read64(h + H_TABLE * 8), read64(h + H_OFFSETS * 8)
    segments, indexed = read64(h + H_SEGMENTS * 8), read64(h + H_INDEXED * 8)
    scratch, blocks = read64(h + H_LINE * 8), read64(h + H_ALIVE * 8)
    summary, pitch = read64(h + H_DEAD * 8), read64(h + H_PITCH * 8)
    for column in range(indexed):
        line = summary + read64(offsets + column * 8) // ROW * pitch
        for segment in range(segments):
            prefetch(line + segment * LINE)
    count = 0
    for segment in range(segments):
        table = tables + segment * TABLE * 8
        dead = line_none()
        for column in range(indexed):
            row = read64(offsets + column * 8) // ROW
            dead = line_or(dead, line_load(summary + row * pitch + segment * LINE))
        if not line_any(line_not(dead)):
            continue
        line_store(scratch, line_not(dead))
        used, live = read64(table + T_USED * 8), read64(table + T_LIVE * 8)
        for group in range(8):
            words = read64(scratch + group * 8)
            while words:
                byte = lowest_bit(words) >> 3
                words &= ~(255 << (byte * 8))
                block = group * 8 + byte
                prefetch(used + block * 8)
                prefetch(live + block * LINE)
                write64(blocks + count * 8, segment * BLOCKS + block)
                count += 1
    return count


@kernel
def _edges(h: int, table: int, block: int) -> Any:
    """Who of a block may have an end in the event's rows."""
    used = read64(read64(table + T_USED * 8) + block * 8)
    fails = read64(table + T_FAILS * 8) + block * LINE
    befores, behinds = read64(h + H_BEFORE * 8), read64(h + H_BEHIND * 8)
    edge = line_load(read64(table + T_ALWAYS * 8) + block * LINE)
    while used:
        column = lowest_bit(used)
        used &= used - 1
        before = line_load(fails + read64(befores + column * 8))
        behind = line_load(fails + read64(behinds + column * 8))
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
def _fetch(h: int, place: int) -> None:
    """Ask for the lines of one block in all of its columns."""
    table = read64(h + H_TABLE * 8) + (place // BLOCKS) * TABLE * 8
    block, offsets = place % BLOCKS, read64(h + H_OFFSETS * 8)
    fails = read64(table + T_FAILS * 8) + block * LINE
    used = read64(read64(table + T_USED * 8) + block * 8)
    while used:
        prefetch(fails + read64(offsets + lowest_bit(used) * 8))
        used &= used - 1


@kernel
def _fetch_beside(h: int, place: int) -> None:
    """Ask for the lines of one block before and behind those."""
    table = read64(h + H_TABLE * 8) + (place // BLOCKS) * TABLE * 8
    block = place % BLOCKS
    fails = read64(table + T_FAILS * 8) + block * LINE
    used = read64(read64(table + T_USED * 8) + block * 8)
    befores, behinds = read64(h + H_BEFORE * 8), read64(h + H_BEHIND * 8)
    prefetch(read64(table + T_ALWAYS * 8) + block * LINE)
    while used:
        column = lowest_bit(used)
        prefetch(fails + read64(befores + column * 8))
        prefetch(fails + read64(behinds + column * 8))
        used &= used - 1


@kernel
def _candidates(h: int, table: int, block: int) -> Any:
    """Who of a block does not surely fail."""
    offsets = read64(h + H_OFFSETS * 8)
    fails = read64(table + T_FAILS * 8) + block * LINE
    out = line_not(line_load(read64(table + T_LIVE * 8) + block * LINE))
    used = read64(read64(table + T_USED * 8) + block * 8)
    while used:
        out = line_or(out, line_load(fails + read64(offsets + lowest_bit(used) * 8)))
        used &= used - 1
    return line_not(out)


@kernel
def alive_blocks(h: int) -> int:
    """Write down the blocks where somebody may match the event whose rows are known; how many. Asks
    for the first ones."""
    alive, blocks = _summaries(h), read64(h + H_ALIVE * 8)
    for number in range(min(AHEAD, alive)):
        _fetch(h, read64(blocks + number * 8))
    return alive


@kernel
def _search_dense(h: int, blocks: int, count: int, edge_count: int) -> int:
    """Find the sure ones among the candidates of dense blocks; how many edges are written down
    then."""
    tables, kept = read64(h + H_TABLE * 8), read64(h + H_CANDIDATES * 8)
    for number in range(min(DENSE_AHEAD, count)):
        _fetch_beside(h, read64(blocks + number * 8))
    for number in range(count):
        if number + DENSE_AHEAD < count:
            _fetch_beside(h, read64(blocks + (number + DENSE_AHEAD) * 8))
        place = read64(blocks + number * 8)
        table, block = tables + (place // BLOCKS) * TABLE * 8, place % BLOCKS
        candidates, edge = line_load(kept + number * LINE), _edges(h, table, block)
        _emit(h, table, block, line_and(candidates, line_not(edge)))
        edge_count = note_edges(h, table, block, line_and(candidates, edge), edge_count)
        if edge_count >= EDGES:
            compare_edges(h, edge_count)
            edge_count = 0
    return edge_count


@kernel
def search_blocks(h: int, first: int, last: int, alive: int) -> None:
    """Add the matches in some of the blocks that were written down, from one up to another one.

    Dense ones are written down anew, in the place of blocks that have been searched.
    """
    tables, blocks = read64(h + H_TABLE * 8), read64(h + H_ALIVE * 8) + first * 8
    kept = read64(h + H_CANDIDATES * 8)
    edge_count, dense, asked = 0, 0, 0
    for number in range(last - first):
        if first + number + AHEAD < alive:
            _fetch(h, read64(blocks + (number + AHEAD) * 8))
        elif alive > AHEAD:  # a few blocks are in the caches
            asked = fetch_records(h, asked, edge_count)
        place = read64(blocks + number * 8)
        table = tables + (place // BLOCKS) * TABLE * 8
        candidates = _candidates(h, table, place % BLOCKS)
        count = line_count(candidates)
        if count >= DENSE:
            write64(blocks + dense * 8, place)
            line_store(kept + dense * LINE, candidates)
            dense += 1
        elif count:
            edge_count = note_edges(h, table, place % BLOCKS, candidates, edge_count)
        if edge_count >= EDGES:
            compare_edges(h, edge_count)
            edge_count = 0
    compare_edges(h, _search_dense(h, blocks, dense, edge_count))


@kernel
def search(h: int) -> int:
    """Find the matches of the event in the header's values: how many, `ASKED` for each to ask, and
    `TRUTHS` if a value was zero or one."""
    truths = rows(h)
    alive = alive_blocks(h)
    search_blocks(h, 0, alive, alive)
    found: int = read64(h + H_FOUND_COUNT * 8) + read64(h + H_ASK_COUNT * 8) * ASKED
    return found + truths * TRUTHS
