"""The kernel of a match: skip bitmap, blocks, dense blocks, edges.

`encode_event` has mapped the event to a row in each column. `_list_alive` ORs the lines of these
rows in the skip bitmap and lists the blocks with a word that is not dead; `_candidates` ORs the
rows of one block in the columns that it uses, which leaves those that do not certainly fail. In a
block with few candidates all are *edges*, which `records` compares with the event. A block with
many is *dense* and deferred until all blocks have been searched: then the rows before and behind
separate its sure candidates from the edges.

Most of the time is spent waiting for memory. So each step prefetches what the next ones will read,
and is done for many before the next step is: the skip bitmap for all segments, then all blocks,
then the dense ones, and edges a thousand at a time.
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
    H_FOUND,
    H_FOUND_COUNT,
    H_INDEXED,
    H_LINE,
    H_OFFSETS,
    H_PITCH,
    H_SEGMENTS,
    H_SKIP,
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
from matching.engine.kernels.records import compare_edges, prefetch_records, queue_edges
from matching.engine.kernels.rows import encode_event

# Candidates from which a block is dense: with fewer, comparing all of them costs less than reading
# two more lines per column. Measured at 400,000: *mixed* is 6 % slower with 48, 3 % faster with 24
# and 4 % with 16, where *base* is 2 % slower.
DENSE = 32
# Blocks whose lines are prefetched ahead of the one being searched. Measured at 100,000, *base*: 23
# microseconds with 1, 18 with 4, 16 with 8, 19 with 16.
AHEAD = 8
# The same for dense blocks. Measured at 400,000: *mixed* is 5 % slower with 2, *w07* 3 % with 2 or
# 8.
DENSE_AHEAD = 4


@kernel
def _list_alive(h: int) -> int:
    """List the blocks with a word that is not dead (`H_ALIVE`); returns their number."""
    tables, offsets = read64(h + H_TABLE * 8), read64(h + H_OFFSETS * 8)
    segments, indexed = read64(h + H_SEGMENTS * 8), read64(h + H_INDEXED * 8)
    scratch, blocks = read64(h + H_LINE * 8), read64(h + H_ALIVE * 8)
    summary, pitch = read64(h + H_SKIP * 8), read64(h + H_PITCH * 8)
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
    """Return the subscriptions of a block that are edges for the event, as a line of bits: those
    that always are, and those in which an interval may end in the event's rows."""
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
    """Append the labels of a block's sure candidates to those found."""
    count = read64(h + H_FOUND_COUNT * 8)
    labels = read64(table + T_LABELS * 8) + block * BLOCK * 4
    emitted = line_emit(sure, labels, read64(h + H_FOUND * 8) + count * 4)
    write64(h + H_FOUND_COUNT * 8, count + emitted)


@kernel
def _prefetch_rows(h: int, place: int) -> None:
    """Prefetch the lines of one block in the event's rows."""
    table = read64(h + H_TABLE * 8) + (place // BLOCKS) * TABLE * 8
    block, offsets = place % BLOCKS, read64(h + H_OFFSETS * 8)
    fails = read64(table + T_FAILS * 8) + block * LINE
    used = read64(read64(table + T_USED * 8) + block * 8)
    while used:
        prefetch(fails + read64(offsets + lowest_bit(used) * 8))
        used &= used - 1


@kernel
def _prefetch_neighbours(h: int, place: int) -> None:
    """Prefetch the lines of one block in the rows before and behind the event's."""
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
    """A line: the subscriptions of a block that do not certainly fail."""
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
    """List the blocks that may contain a match for the encoded event; returns their number.

    Prefetches the first ones.
    """
    alive, blocks = _list_alive(h), read64(h + H_ALIVE * 8)
    for number in range(min(AHEAD, alive)):
        _prefetch_rows(h, read64(blocks + number * 8))
    return alive


@kernel
def _search_dense(h: int, blocks: int, count: int, edge_count: int) -> int:
    """Append the labels of sure candidates of dense blocks, and queue the others as edges.

    Returns the new length of the queue.
    """
    tables, kept = read64(h + H_TABLE * 8), read64(h + H_CANDIDATES * 8)
    for number in range(min(DENSE_AHEAD, count)):
        _prefetch_neighbours(h, read64(blocks + number * 8))
    for number in range(count):
        if number + DENSE_AHEAD < count:
            _prefetch_neighbours(h, read64(blocks + (number + DENSE_AHEAD) * 8))
        place = read64(blocks + number * 8)
        table, block = tables + (place // BLOCKS) * TABLE * 8, place % BLOCKS
        candidates, edge = line_load(kept + number * LINE), _edges(h, table, block)
        _emit(h, table, block, line_and(candidates, line_not(edge)))
        edge_count = queue_edges(h, table, block, line_and(candidates, edge), edge_count)
        if edge_count >= EDGES:
            compare_edges(h, edge_count)
            edge_count = 0
    return edge_count


@kernel
def search_blocks(h: int, first: int, last: int, alive: int) -> None:
    """Append the matches in the blocks `first` to `last` (exclusive) of the `alive` ones listed.

    Dense blocks are listed again, in place of blocks that have been searched.
    """
    tables, blocks = read64(h + H_TABLE * 8), read64(h + H_ALIVE * 8) + first * 8
    kept = read64(h + H_CANDIDATES * 8)
    edge_count, dense, asked = 0, 0, 0
    for number in range(last - first):
        if first + number + AHEAD < alive:
            _prefetch_rows(h, read64(blocks + (number + AHEAD) * 8))
        elif alive > AHEAD:  # with few blocks everything is in the caches
            asked = prefetch_records(h, asked, edge_count)
        place = read64(blocks + number * 8)
        table = tables + (place // BLOCKS) * TABLE * 8
        candidates = _candidates(h, table, place % BLOCKS)
        count = line_count(candidates)
        if count >= DENSE:
            write64(blocks + dense * 8, place)
            line_store(kept + dense * LINE, candidates)
            dense += 1
        elif count:
            edge_count = queue_edges(h, table, place % BLOCKS, candidates, edge_count)
        if edge_count >= EDGES:
            compare_edges(h, edge_count)
            edge_count = 0
    compare_edges(h, _search_dense(h, blocks, dense, edge_count))


@kernel
def search(h: int) -> int:
    """Find the matches of the event at `H_EVENT`.

    Returns the number of labels found, plus `ASKED` for each label to be evaluated in Python, plus
    `TRUTHS` if some value was 0 or 1.
    """
    truths = encode_event(h)
    alive = alive_blocks(h)
    search_blocks(h, 0, alive, alive)
    found: int = read64(h + H_FOUND_COUNT * 8) + read64(h + H_ASK_COUNT * 8) * ASKED
    return found + truths * TRUTHS
