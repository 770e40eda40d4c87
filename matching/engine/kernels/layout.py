"""The layout of memory: sizes, the memory of a segment, and the header of addresses that kernels
get.

See the drawing in `matching.engine`. A *segment* is the unit of allocation: growing never copies
subscriptions, so no match has to wait for that. A subscription's *place* is the number of its block
times BLOCK, plus its bit in the block's lines. Constants of kernels are here since both Python and
compiled code use them; a change recompiles the kernels (`code_cache.SOURCES`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

LINE = 64  # bytes; 512 bits
BLOCK = 512  # subscriptions: one line
WORD = 64  # subscriptions: one bit of the skip bitmap
BLOCKS = 64  # per segment: its 512 words are one line of the skip bitmap
SEGMENT = BLOCKS * BLOCK  # subscriptions
# From one row of a segment to the next. With 64 lines, all lines of a block would be multiples of
# 4096 bytes apart, and so in the same set of a first-level cache.
ROW = (BLOCKS + 1) * LINE  # bytes

# Rows of a column: MISSING_ROW, the two empty ends, and the buckets between. More rows exclude more
# subscriptions and leave fewer edges; each costs a bit per subscription, so a column that few use
# has FEW_ROWS. Both are multiples of 64, since the insertion kernels keep a column's rows in words.
ROWS = 128
FEW_ROWS = 64
SPAN = ROWS // 64  # words for a column's rows
# Words for a column's bounds: those of its rows, and a copy of every eighth, to find a row in two
# steps.
BOUNDS = ROWS + ROWS // 8
MISSING_ROW = 0
# The most columns that have rows, and the most columns: a record names a column by one byte, where
# 255 is none. INDEXED is below 64, the bits of `T_USED`.
INDEXED = 48
COLUMNS = 255
NO_COLUMN = 255
# What the kernel `search` adds to the number of labels found: ASKED for each label that Python has
# to evaluate, TRUTHS if a boolean may have been encoded as a number (`EventWriter.write`).
ASKED, TRUTHS = 2**32, 2**62
# Parts of a record: it names its columns in one word. A record of five parts takes half a line.
STRIDE = 8
NARROW = 5

# An event, in words: the slot of each column's value, then the slots (see `engine.events`).
E_SLOTS, E_VALUES = 0, COLUMNS

# The header, which all kernels get as `h`.
(
    H_COLUMNS,  # how many columns have values
    H_INDEXED,  # how many of them have rows; the first ones
    H_SEGMENTS,  # how many segments there are
    H_STRIDE,  # parts of a record
    H_EVENT,  # address: the address of the event
    H_CODES,  # address: the event's codes, int64[COLUMNS + 1]
    H_FINE,  # address: the event's fine codes, int32[COLUMNS + 1]
    H_OFFSETS,  # address: byte offset of the event's row in each column, int64[INDEXED]
    H_BEFORE,  # address: byte offset of the row before (or the same at an end); likewise
    H_BEHIND,  # address: byte offset of the row behind; likewise
    H_LINES,  # address: the number of each column's first row, int64[indexed + 1]
    H_BOUNDS,  # address: first codes of rows 1…, and every eighth again, int64[indexed, BOUNDS]
    H_SHIFTS,  # address: shifts of offsets in fine codes, int64[indexed, ROWS]
    H_TABLE,  # address: the addresses of each segment's arrays, int64[segments, TABLE]
    H_SKIP,  # address: the skip bitmap, for each column and row a line per segment
    H_PITCH,  # bytes from one row of the skip bitmap to the next
    H_LINE,  # address: scratch, one line
    H_ALIVE,  # address: scratch, numbers of the blocks to read, int64[blocks]
    H_CANDIDATES,  # address: scratch, the candidates of dense blocks, a line each
    H_EDGES,  # address: scratch, addresses (record, codes), int64[EDGES + BLOCK + RECORDS_AHEAD, 2]
    H_FOUND,  # address: labels found, uint32[…]
    H_ASK,  # address: labels found that Python has to evaluate, uint32[…]
    H_FOUND_COUNT,
    H_ASK_COUNT,
    H_NODES,  # address: the placement tree, int64[nodes, NODE]
    H_WHERE,  # address: the place of each label, int64[labels]
    H_SPANS,  # address: scratch, first and last row and rows per column, int64[2 + SPAN, INDEXED]
    HEADER,
) = range(28)

# A job, a conjunction to insert: its label, flags, number of parts, then (column, lowest code,
# highest code) of each part. Flags: ALWAYS for an edge in all rows, PYTHON for one that Python
# evaluates.
J_LABEL, J_FLAGS, J_COUNT, J_PARTS = range(4)
ALWAYS, PYTHON = 1, 2

# A node of the placement tree: its column (-1: a leaf), which key of a subscription's rows is
# compared with the pivot, and the child nodes for subscriptions without the column, with a key up
# to the pivot, and with a greater one. A leaf has the block of its next subscription instead of the
# first child.
N_COLUMN, N_KEY, N_PIVOT, N_WITHOUT, N_UPTO, N_BEYOND, NODE = range(7)
N_BLOCK = N_WITHOUT

# The segment table: addresses of a segment's arrays.
(
    T_FAILS,  # for each column and row a line per block: who certainly fails
    T_LIVE,  # a bit per place: there is a subscription
    T_ALWAYS,  # a bit per place: the subscription is an edge in all rows
    T_USED,  # a word per block: a bit for each column that some subscription in it uses
    T_LABELS,  # uint32 per place
    T_RECORDS,  # see R_LOWS
    T_EXACT,  # per place (lowest code, highest code) of each part
    T_LEAVES,  # int32 per place: the leaf of the placement tree
    T_TIGHT,  # the skip bitmap by words: a bit per row
    TABLE,
) = range(10)

# A record: the lowest fine codes of all parts, 16 bits each, then the highest ones; at its end the
# label with the flag PYTHON as its highest bit, and a byte with each part's column. Eight fine
# codes are read at once however many there are, and the layout keeps that inside the record, since
# the next line would be another access to memory (measured: *base* at a million, 134 microseconds
# instead of 97). The whole codes are in T_EXACT; they are read only where fine codes are equal.
R_LOWS = 0
R_LABEL, R_COLUMNS = -12, -8  # relative to the end
R_PYTHON = 31  # the flag's bit
LABELS = 2**R_PYTHON  # all labels are smaller
# Bits of a fine code for the offset in the row's bucket; the seven above are the row.
FINE = 9
# Edges that are compared together. Measured: no difference from 256 to 4096.
EDGES = 1024
# Records that are prefetched ahead of the one being compared. Measured: a fifth slower with 32, no
# difference with 128; a third slower when prefetched as the edge is queued, which competes with the
# prefetching of the blocks' rows.
RECORDS_AHEAD = 64

ABSENT = 255  # instead of a row: the column is not used
# A node's key: a subscription's first row, its last one, or their sum (twice the middle).
FIRST, LAST, MIDDLE = range(3)
TREE_KEYS = 3
# Scratch for growing the placement tree, in words: for each column the number of subscriptions that
# use it, the pivot of each key, the hulls of both sides of each cut (number, least first and
# greatest last row), and histograms.
TREE_PIVOTS = INDEXED
TREE_HULLS = TREE_PIVOTS + INDEXED * TREE_KEYS
TREE_HISTOGRAM = TREE_HULLS + INDEXED * TREE_KEYS * 2 * 3
TREE_WORDS = TREE_HISTOGRAM + INDEXED * TREE_KEYS * 2 * ROWS

# Batches (`groups`): words from one event to the next, not a multiple of a page, or all events
# would share one set of a first-level cache; and the header for the results.
EVENT = E_VALUES + COLUMNS + 10  # words
(
    G_GROUPS,  # address: the group of each label, int32[labels]
    G_MARKS,  # address: for each group the number of the last event that it was found for
    G_EVENTS,  # number of events so far
    G_EXIST,  # number of groups: an event for which all are found is done
    G_POSITIONS,  # address: for each pair the event's index in the batch, uint32[…]
    G_NUMBERS,  # address: for each pair the group, uint32[…]
    G_LABELS,  # address: for each pair the label, uint32[…]
    G_UNSURE,  # address: indices of events that Python has to match, uint32[…]
    G_UNSURE_COUNT,  # how many of these
    GROUPING,
) = range(10)

# What `divide` makes of pairs, by word of its header.
(
    D_STARTS,  # address: scratch, a word for each group, uint32[…]
    D_GROUPS,  # number of these
    D_EVENTS,  # address: indices of the events that have pairs, uint32[…]
    D_WITNESSES,  # address: the first label of each of these, uint32[…]
    D_RUNS,  # address: each group that has pairs, and where these end, 2 * uint32[…]
    D_RUN_COUNT,  # how many of these
    D_PLACES,  # address: by group, the places of the events of its pairs among D_EVENTS, uint32[…]
    D_ORDER,  # address: by group, the numbers of its pairs, uint32[…]
    DIVIDED,
) = range(9)

HUGE = 2 * 1024 * 1024  # bytes of a huge page on x86-64 and most ARM64 systems


def aligned(count: int, kind: type[Any]) -> npt.NDArray[Any]:
    """A zeroed array that begins at a multiple of LINE, with LINE bytes or more behind it."""
    size = np.dtype(kind).itemsize * count
    raw = np.zeros(size + 2 * LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size].view(kind)


class BlockSegment:
    """The memory of 64 blocks: one allocation, aligned so that it can have huge pages."""

    def __init__(self, rows: int, stride: int) -> None:
        """`rows`: of all columns together; `stride`: parts of a record."""
        sizes = (
            rows * ROW,  # fails
            BLOCKS * LINE,  # live
            BLOCKS * LINE,  # always
            BLOCKS * 8,  # used
            SEGMENT * 4,  # labels
            SEGMENT * record_size(stride),
            SEGMENT * stride * 16,  # exact
            SEGMENT * 4,  # leaves
            SEGMENT // WORD * rows // 8,  # tight
        )
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + -(-size // LINE) * LINE)
        self.memory = np.zeros(starts[-1] + HUGE, np.uint8)
        first = -self.memory.ctypes.data % HUGE
        self.addresses = [self.memory.ctypes.data + first + start for start in starts[:-1]]
        """The segment's row of the segment table."""

        def part(number: int) -> npt.NDArray[np.uint8]:
            return self.memory[first + starts[number] :][: sizes[number]]

        part(T_TIGHT)[:] = 255  # words without subscriptions can be skipped
        ends = slice((record_size(stride) + R_COLUMNS) // 8, None, record_size(stride) // 8)
        part(T_RECORDS).view(np.int64)[ends] = -1  # no columns yet
        self.leaves = part(T_LEAVES).view(np.int32)
        """By place: the leaf of the placement tree."""


def record_size(stride: int) -> int:
    """Return the bytes of a record of `stride` parts: half a cache line or a whole one."""
    return LINE // 2 if stride <= NARROW else LINE


def tree_scratch(count: int, room: int) -> int:
    """Words of scratch for growing a tree over `count` subscriptions, with at most `room` nodes."""
    return TREE_WORDS + 2 * count + 3 * (room + 1)
