"""The memory that the kernels work on, and the header with its addresses.

Each engine has one `Memory`: the segments, the skip bitmap over all of them, the place of each
label, and the nodes of the placement tree; and `Scratch` for the kernels. All of it is allocated
and grown here; the header is rewritten whenever an array has been replaced.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from matching.engine.columns import Columns
from matching.engine.kernels import layout
from matching.engine.kernels.layout import (
    BLOCK,
    BLOCKS,
    COLUMNS,
    INDEXED,
    NO_COLUMN,
    NODE,
    SEGMENT,
    WORD,
    BlockSegment,
    aligned,
)


class Scratch:
    """The arrays in which kernels work, and the results of a match: subscriptions are not kept
    here."""

    def __init__(self) -> None:
        self.found = self.ask = aligned(0, np.uint32)
        """Results of a match: the labels found, and those that Python has to evaluate."""
        self.alive = self._candidates = aligned(0, np.int64)
        self._codes = aligned(COLUMNS + 1, np.int64)
        self._fine = aligned(COLUMNS + 1, np.int32)
        self._fine[NO_COLUMN] = 1  # of parts without a column: inside every interval, at no end
        self._offsets = aligned(3 * INDEXED, np.int64)
        self._line = aligned(8, np.int64)
        self._edges = aligned(2 * (layout.EDGES + BLOCK + layout.RECORDS_AHEAD), np.int64)
        self._spans = aligned((2 + layout.SPAN) * INDEXED, np.int64)

    def reserve(self, places: int) -> None:
        """Make room for as many subscriptions."""
        self.found, self.ask = aligned(places, np.uint32), aligned(places, np.uint32)
        self.alive = aligned(places // BLOCK, np.int64)
        self._candidates = aligned(places // WORD, np.int64)

    def arrays(self) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Each array with the field of the header that has its address."""
        yield layout.H_CODES, self._codes
        yield layout.H_FINE, self._fine
        yield layout.H_OFFSETS, self._offsets
        yield layout.H_BEFORE, self._offsets[INDEXED:]
        yield layout.H_BEHIND, self._offsets[2 * INDEXED :]
        yield layout.H_LINE, self._line
        yield layout.H_ALIVE, self.alive
        yield layout.H_CANDIDATES, self._candidates
        yield layout.H_EDGES, self._edges
        yield layout.H_FOUND, self.found
        yield layout.H_ASK, self.ask
        yield layout.H_SPANS, self._spans


class Memory:
    """The arrays of one engine; `layout` defines their contents."""

    def __init__(self, columns: Columns, event: array[int]) -> None:
        """`event`: the word with the address of the event to match (`EventWriter.cell`)."""
        self._columns, self._event = columns, event
        self._segments: list[BlockSegment] = []
        self._table = aligned(layout.TABLE, np.int64)
        self._skip = aligned(0, np.int64)
        self._pitch = 0  # lines from one row of the skip bitmap to the next
        self.where = aligned(1024, np.int64)
        """The place of each label's subscription, -1 for none; int64[labels]."""
        self.where[:] = -1
        self.nodes = aligned(64 * NODE, np.int64).reshape(64, NODE)
        """The placement tree; int64[nodes, NODE]."""
        self.scratch = Scratch()
        self._header = aligned(layout.HEADER, np.int64)
        self.header = self._header.ctypes.data
        """The address of the header, which all kernels take."""
        self._write_header()

    def _write_header(self) -> None:
        """Write the current sizes and addresses into the header."""
        header = self._header
        header[layout.H_COLUMNS] = len(self._columns)
        header[layout.H_INDEXED] = self._columns.indexed
        header[layout.H_SEGMENTS] = len(self._segments)
        header[layout.H_STRIDE] = self._columns.stride
        header[layout.H_PITCH] = self._pitch * layout.LINE
        header[layout.H_EVENT] = self._event.buffer_info()[0]
        for field, block in (
            (layout.H_LINES, self._columns.lines),
            (layout.H_BOUNDS, self._columns.bounds),
            (layout.H_SHIFTS, self._columns.shifts),
            (layout.H_TABLE, self._table),
            (layout.H_SKIP, self._skip),
            (layout.H_NODES, self.nodes),
            (layout.H_WHERE, self.where),
            *self.scratch.arrays(),
        ):
            header[field] = block.ctypes.data

    def update_column_count(self) -> None:
        """Write the number of columns into the header."""
        self._header[layout.H_COLUMNS] = len(self._columns)

    def reserve_label(self, label: int) -> None:
        """Make room for a label in `where`."""
        if label >= len(self.where):
            wider = aligned(2 * label + 1, np.int64)
            wider[: len(self.where)] = self.where
            wider[len(self.where) :] = -1
            self.where = wider
            self._write_header()

    def reserve_nodes(self, count: int) -> None:
        """Make room for `count` nodes of the tree."""
        if count > len(self.nodes):
            wider = aligned(2 * count * NODE, np.int64).reshape(-1, NODE)
            wider[: len(self.nodes)] = self.nodes
            self.nodes = wider
            self._write_header()

    def reserve_block(self, block: int) -> None:
        """Make room for a new block: allocates a segment if it is the first block of one."""
        if block < len(self._segments) * BLOCKS:
            return
        self._segments.append(BlockSegment(self._columns.rows, self._columns.stride))
        places = len(self._segments) * SEGMENT
        self._table = aligned(len(self._segments) * layout.TABLE, np.int64)
        self._table[:] = [a for s in self._segments for a in s.addresses]
        self.scratch.reserve(places)
        if len(self._segments) > self._pitch:
            self._widen_skip_bitmap()
        self._write_header()

    def _widen_skip_bitmap(self) -> None:
        """Make room in the skip bitmap for twice as many segments."""
        # An odd number of lines, so that rows spread over all sets of a cache.
        pitch = 2 * self._pitch + 1
        wider = aligned(self._columns.rows * pitch * 8, np.int64)
        rows = wider.reshape(self._columns.rows, pitch * 8)
        rows[:] = -1  # words without subscriptions can be skipped
        rows[:, : self._pitch * 8] = self._skip.reshape(len(rows), self._pitch * 8)
        self._skip, self._pitch = wider, pitch

    def leaves(self, block: int) -> npt.NDArray[np.int32]:
        """The leaf of the subscription at each place of a block; int32[BLOCK], a view."""
        start = block % BLOCKS * BLOCK
        return self._segments[block // BLOCKS].leaves[start : start + BLOCK]
