"""Where everything is: sizes, the segment's memory, and the block of addresses the kernels get.

See the drawing in `matching.engine`. A *segment* is the unit of allocation: growing never copies
what is there, so it never makes a match wait.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

LINE = 64  # bytes; 512 bits
BLOCK = 512  # subscriptions: one line
WORD = 64  # subscriptions: one bit of a summary
BLOCKS = 64  # of a segment: its 512 words are one summary line
SEGMENT = BLOCKS * BLOCK  # subscriptions
# From one row of a segment to the next. Were it 64 lines, the lines of one block would all lie 4096
# bytes apart: in one and the same set of the first cache.
ROW = (BLOCKS + 1) * LINE  # bytes

# Rows of a column: MISSING, the two ends where nothing is, and the buckets between. More rows prune
# better and leave fewer edges; each costs a bit per subscription, so a column that few use has
# FEWER. The kernels of a change keep a column's rows in a few words: these are multiples of 64.
ROWS = 128
FEWER = 64
SPAN = ROWS // 64  # words
# Bounds of a column: those of its rows, and every eighth of these once more, to find a row by.
BOUNDS = ROWS + ROWS // 8
MISSING_ROW = 0
# Columns that have bit rows, and columns at all: a record names a column by one byte, 255 is none.
INDEXED = 48
COLUMNS = 255
NO_COLUMN = 255
# What a search adds to the number of labels: for each that Python has to check, and where a truth
# value may have been taken for a number.
ASKED, TRUTHS = 2**32, 2**62
# Parts of a record: it names its columns in one word. One of five parts is half a line.
STRIDE = 8
NARROW = 5

# An event: of each column the slot of its value, and the slots: a number's bits, or another value's
# code turned alike; -1 is no value.
E_SLOTS, E_VALUES = 0, COLUMNS

# The header: what is where, for the kernels.
(
    H_COLUMNS,  # how many columns have values
    H_INDEXED,  # how many of them have rows; the first ones
    H_SEGMENTS,
    H_STRIDE,  # parts of a record
    H_EVENT,  # address: the address of the event
    H_CODES,  # address: its codes, int64[COLUMNS + 1]
    H_FINE,  # address: its fine codes, int32[COLUMNS + 1]
    H_OFFSETS,  # address: byte offset of its row in each column, int64[INDEXED]
    H_BEFORE,  # address: of the row before, or of the same where that tells nothing; likewise
    H_BEHIND,  # address: of the row behind; likewise
    H_LINES,  # address: of each column which its first row is, int64[indexed + 1]
    H_BOUNDS,  # address: first codes of rows 1…, and each eighth of them, int64[indexed, BOUNDS]
    H_SHIFTS,  # address: how many bits fine codes drop, int64[indexed, ROWS]
    H_TABLE,  # address: of each segment its addresses, int64[segments, TABLE]
    H_DEAD,  # address: the summaries, for each column and row a line for each segment
    H_PITCH,  # bytes from one row of these to the next
    H_LINE,  # address: scratch, one line
    H_ALIVE,  # address: scratch, the blocks to look at, int64[blocks]
    H_CANDIDATES,  # address: scratch, the candidates of dense ones, a line each
    H_EDGES,  # address: scratch, (record, whole codes), int64[EDGES + BLOCK + RECORDS_AHEAD, 2]
    H_FOUND,  # address: labels found, uint32[…]
    H_ASK,  # address: labels found that Python has to check, uint32[…]
    H_FOUND_COUNT,
    H_ASK_COUNT,
    H_NODES,  # address: the tree, int64[nodes, NODE]
    H_WHERE,  # address: the place of each label, int64[labels]
    H_JOB,  # address: what to put: label, flags, how many parts, and (column, low, high) of each
    H_SPANS,  # address: scratch, int64[2 + SPAN, INDEXED]
    HEADER,
) = range(29)

# A job's head, and its flags: an edge always, and Python has to check it.
J_LABEL, J_FLAGS, J_COUNT, J_PARTS = range(4)
ALWAYS, PYTHON = 1, 2

# A node of the tree: its column (-1: a leaf), which key of a subscription's rows is compared there
# with the pivot, and the nodes of those without the column, up to the pivot, and beyond it. A leaf
# has the block that takes its next subscription in the place of the first of these.
N_COLUMN, N_KEY, N_PIVOT, N_WITHOUT, N_UPTO, N_BEYOND, NODE = range(7)
N_BLOCK = N_WITHOUT

# The segment table.
(
    T_FAILS,
    T_LIVE,
    T_ALWAYS,
    T_USED,  # of each block, a bit for each column that somebody in it uses
    T_LABELS,
    T_RECORDS,
    T_EXACT,
    T_LEAVES,
    T_TIGHT,
    TABLE,
) = range(10)

# A record: the lowest fine codes of all parts, 16 bits each, and the highest ones; at its end the
# label with the flag for Python as its highest bit, and a byte for each part's column. Eight fine
# codes are read at once however many there are, so nothing of that reaches beyond the record: the
# next line of memory would have to be waited for (measured: *base* at a million, 134 microseconds
# instead of 97). The whole codes lie elsewhere: they are looked at where fine codes are equal.
R_LOWS = 0
R_LABEL, R_COLUMNS = -12, -8  # from the end
R_PYTHON = 31  # the bit
LABELS = 2**R_PYTHON  # all labels are smaller
# Bits of a fine code below the row's seven: a place in its bucket.
FINE = 9
# Edges that are compared together. Measured: 256 to 4096 are alike.
EDGES = 1024
# Records that are asked for ahead of the one being compared. Measured: with 32 a fifth slower, 128
# is alike; asking when the edge is written down is a third slower, since the rows of blocks are
# asked for then.
RECORDS_AHEAD = 64

# Scratch for growing the tree, in words: of each column how many have it, the pivot of each key,
# the hulls of both sides of each cut (how many, least first and largest last row), and histograms.
ABSENT = 255  # instead of a row: the column is not used
# A node's key: the first row, the last one, or their sum.
FIRST, LAST, MIDDLE = range(3)
TREE_KEYS = 3
TREE_PIVOTS = INDEXED
TREE_HULLS = TREE_PIVOTS + INDEXED * TREE_KEYS
TREE_HISTOGRAM = TREE_HULLS + INDEXED * TREE_KEYS * 2 * 3
TREE_WORDS = TREE_HISTOGRAM + INDEXED * TREE_KEYS * 2 * ROWS

# Many events in one call: where each begins, and what is found (see `batch`). An event has not
# quite a page, or all would fall into one set of the first cache.
EVENT = E_VALUES + COLUMNS + 10  # words
(
    G_GROUPS,  # address: the group of each label, int32[labels]
    G_MARKS,  # address: of each group, the number of the last event that it was found for
    G_EVENTS,  # events so far
    G_EXIST,  # how many groups there are: an event for which all are found is done
    G_POSITIONS,  # address: of each pair, the event's place in the batch; uint32[…]
    G_NUMBERS,  # address: and the group
    G_LABELS,  # address: and the label
    G_UNSURE,  # address: places of events that Python has to look at; uint32[…]
    G_UNSURE_COUNT,
    GROUPING,
) = range(10)

HUGE = 2 * 1024 * 1024  # bytes of a large page on most machines


def aligned(count: int, kind: type[Any]) -> npt.NDArray[Any]:
    """A zeroed array that begins at a multiple of a line, with a line to spare behind it."""
    size = np.dtype(kind).itemsize * count
    raw = np.zeros(size + 2 * LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size].view(kind)


class Segment:
    """The memory of 64 blocks: one piece that begins where a large page may."""

    def __init__(self, rows: int, stride: int) -> None:
        """`rows`: of all columns together."""
        sizes = (
            rows * ROW,  # fails
            BLOCKS * LINE,  # live
            BLOCKS * LINE,  # always
            BLOCKS * 8,  # used
            SEGMENT * 4,  # labels
            SEGMENT * record_size(stride),
            SEGMENT * stride * 16,  # exact
            SEGMENT * 4,  # leaves
            SEGMENT // WORD * rows // 8,  # tight: the summary by words, a bit per row
        )
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + -(-size // LINE) * LINE)
        self.memory = np.zeros(starts[-1] + HUGE, np.uint8)
        first = -self.memory.ctypes.data % HUGE
        self.addresses = [self.memory.ctypes.data + first + start for start in starts[:-1]]
        """The row of the segment table."""

        def part(number: int) -> npt.NDArray[np.uint8]:
            return self.memory[first + starts[number] :][: sizes[number]]

        part(T_TIGHT)[:] = 255  # empty words are dead
        ends = slice((record_size(stride) + R_COLUMNS) // 8, None, record_size(stride) // 8)
        part(T_RECORDS).view(np.int64)[ends] = -1  # no columns yet
        self.leaves = part(T_LEAVES).view(np.int32)
        """By place: whose subscription it is."""


def record_size(stride: int) -> int:
    """The bytes of a record: half a line or a whole one."""
    return LINE // 2 if stride <= NARROW else LINE


def tree_scratch(count: int, room: int) -> int:
    """The words that growing a tree over so many needs, with room for so many more nodes."""
    return TREE_WORDS + 2 * count + 3 * (room + 1)
