"""The engine: conjunctions by label, kept in blocks by a tree; finds those an event may match."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from matching.conjunction import Conjunction
from matching.engine import drift, layout
from matching.engine.columns import Columns, Job
from matching.engine.kernels import kernels
from matching.engine.layout import (
    ASKED,
    BLOCK,
    COLUMNS,
    INDEXED,
    NO_COLUMN,
    NODE,
    SEGMENT,
    TRUTHS,
    WORD,
    aligned,
)
from matching.values import Attributes

Labels = npt.NDArray[np.uint32]
Item = tuple[int, Conjunction]

# Every so many insertions the summary of the word concerned is made tight again: after a full
# churn each word has been about four times. Measured: costs less than a microsecond each.
TIGHTEN_EVERY = 16
# How much of a block is filled when many are put in at once.
FILLED = BLOCK - 16
# Insertions after which the buckets are looked at for the first time: twice the sample that they
# were made for.
FIRST_LOOK = 2048


class Engine:
    """Conjunctions by label (an integer of 32 bits that the caller chooses, small ones best).

    Made for a sample of what will be in it: the sample decides the columns, the buckets and the
    beginnings of the tree. Anything may be put in later; what is unlike the sample is only slower.
    """

    def __init__(self, sample: Sequence[Conjunction]) -> None:
        self._kernels = kernels()
        self._search = self._kernels.search
        self._columns = Columns(sample)
        self._indexed, self._stride = self._columns.indexed, self._columns.stride
        self._checks: dict[int, Conjunction] = {}
        self._named: dict[int, list[str]] = {}
        self._size = 0
        self._inserted = 0
        self._looked, self._look_at = 0, FIRST_LOOK  # the next column, and after so many
        self._codes = aligned(COLUMNS + 1, np.int64)
        self._fine = aligned(COLUMNS + 1, np.int32)
        self._fine[NO_COLUMN] = 1  # strictly inside what has no ends
        self._offsets = aligned(3 * INDEXED, np.int64)
        self._line = aligned(8, np.int64)
        self._alive = self._candidates = aligned(0, np.int64)
        self._edges = aligned(2 * (layout.EDGES + BLOCK + layout.RECORDS_AHEAD), np.int64)
        self._spans = aligned((2 + layout.SPAN) * INDEXED, np.int64)
        self._nodes = aligned(64 * NODE, np.int64).reshape(64, NODE)
        self._node_count = 1
        self._where = aligned(1024, np.int64)
        self._where[:] = -1
        self._job = array("q", bytes(8 * 64))
        self._segments: list[layout.Segment] = []
        self._table = aligned(layout.TABLE, np.int64)
        self._dead = aligned(0, np.int64)
        self._pitch = 0  # lines of a row of it
        self._found = self._ask = aligned(0, np.uint32)
        self._header = aligned(layout.HEADER, np.int64)
        self._address = self._header.ctypes.data
        # Of each block: how many live in it, and how many leaves put their next one there.
        self._filled: list[int] = []
        self._owners: list[int] = []
        self._free: list[int] = []
        self._nodes[0, layout.N_COLUMN] = -1
        self._nodes[0, layout.N_BLOCK] = self._new_block()
        self._owners[0] = 1
        self._point()

    def __len__(self) -> int:
        return self._size

    def __contains__(self, label: int) -> bool:
        return label < len(self._where) and bool(self._where[label] >= 0)

    @property
    def columns(self) -> Columns:
        """Which attributes it knows, and their values as codes."""
        return self._columns

    @property
    def address(self) -> int:
        """Where the kernels find everything."""
        return self._address

    def _point(self) -> None:
        """Tell the kernels where everything is now."""
        header = self._header
        header[layout.H_COLUMNS] = len(self._columns)
        header[layout.H_INDEXED] = self._indexed
        header[layout.H_SEGMENTS] = len(self._segments)
        header[layout.H_STRIDE] = self._stride
        header[layout.H_PITCH] = self._pitch * layout.LINE
        header[layout.H_EVENT] = self._columns.event.buffer_info()[0]
        header[layout.H_JOB] = self._job.buffer_info()[0]
        for field, block in (
            (layout.H_CODES, self._codes),
            (layout.H_FINE, self._fine),
            (layout.H_OFFSETS, self._offsets),
            (layout.H_BEFORE, self._offsets[INDEXED:]),
            (layout.H_BEHIND, self._offsets[2 * INDEXED :]),
            (layout.H_LINES, self._columns.lines),
            (layout.H_BOUNDS, self._columns.bounds),
            (layout.H_SHIFTS, self._columns.shifts),
            (layout.H_TABLE, self._table),
            (layout.H_DEAD, self._dead),
            (layout.H_LINE, self._line),
            (layout.H_ALIVE, self._alive),
            (layout.H_CANDIDATES, self._candidates),
            (layout.H_EDGES, self._edges),
            (layout.H_FOUND, self._found),
            (layout.H_ASK, self._ask),
            (layout.H_NODES, self._nodes),
            (layout.H_WHERE, self._where),
            (layout.H_SPANS, self._spans),
        ):
            header[field] = block.ctypes.data

    # Matching.

    def match(self, attributes: Attributes) -> tuple[Labels, list[int]]:
        """(the labels found, in no order; those of them that only Python could tell)."""
        self._columns.load(attributes)
        count = self._search(self._address)
        if count < ASKED:
            return self._found[:count].copy(), []
        if count >= TRUTHS and self._columns.reload(attributes):
            count = self._search(self._address)
        asked, count = divmod(count % TRUTHS, ASKED)
        found = self._found[:count].copy()
        checks = self._checks
        labels = self._ask[:asked].tolist()
        return found, [label for label in labels if checks[label].matches(attributes)]

    # Changes.

    def _encode(self, label: int, conjunction: Conjunction) -> Job:
        """The job that puts a conjunction in; takes note of what Python has to remember."""
        columns, named = self._columns, list[str]()
        known = len(columns)
        job = columns.job(label, conjunction, named)
        if job[layout.J_FLAGS] & layout.PYTHON:
            self._checks[label] = conjunction
        if named:
            self._named[label] = named
        if len(columns) > known:
            self._header[layout.H_COLUMNS] = len(columns)
        return job

    def add(self, label: int, conjunction: Conjunction) -> None:
        """Put a conjunction in under a label that is not in use."""
        job = self._encode(label, conjunction)
        if len(job) > len(self._job):
            self._job = array("q", bytes(16 * len(job)))
            self._point()
        self._job[: len(job)] = array("q", job)
        self._make_room(label)
        place = self._kernels.insert(self._address)
        while place < 0:
            self._relieve(-1 - place)
            place = self._kernels.insert(self._address)
        self._filled[place // BLOCK] += 1
        self._size += 1
        self._inserted += 1
        if self._inserted % TIGHTEN_EVERY == 0:
            self._kernels.tighten(self._address, place // 64, place // 64 + 1)
        if self._inserted >= self._look_at:
            self._look()

    def _look(self) -> None:
        """See whether the next column's buckets suit what is there now."""
        if self._looked == self._indexed:
            self._looked = 0
            self._look_at = self._inserted + max(self._size, FIRST_LOOK)
            return
        drift.renew(
            self._kernels, self._address, self._columns, self._looked,
            self._where, self._nodes[: self._node_count], len(self._filled),
        )  # fmt: skip
        self._looked += 1

    def remove(self, label: int) -> None:
        """Take a label out that is in."""
        place = int(self._where[label])
        self._where[label] = -1
        self._kernels.remove(self._address, place)
        self._checks.pop(label, None)
        for text in self._named.pop(label, ()):
            self._columns.strings.drop(text)
        self._size -= 1
        self._filled[place // BLOCK] -= 1
        self._recycle(place // BLOCK)

    def _recycle(self, block: int) -> None:
        if self._filled[block] == 0 and self._owners[block] == 0:
            self._free.append(block)
            self._owners[block] = -1  # in the list

    def _make_room(self, label: int) -> None:
        if label >= len(self._where):
            wider = aligned(2 * label + 1, np.int64)
            wider[: len(self._where)] = self._where
            wider[len(self._where) :] = -1
            self._where = wider
            self._point()

    def _new_block(self) -> int:
        if self._free:
            block = self._free.pop()
            self._owners[block] = 0
            self._kernels.tighten(self._address, block * 8, block * 8 + 8)
            return block
        block = len(self._filled)
        self._filled.append(0)
        self._owners.append(0)
        if block * BLOCK == len(self._segments) * SEGMENT:
            self._segments.append(layout.Segment(self._columns.rows, self._stride))
            places = len(self._segments) * SEGMENT
            self._table = aligned(len(self._segments) * layout.TABLE, np.int64)
            self._table[:] = [a for s in self._segments for a in s.addresses]
            self._found, self._ask = aligned(places, np.uint32), aligned(places, np.uint32)
            self._alive = aligned(places // BLOCK, np.int64)
            self._candidates = aligned(places // WORD, np.int64)
            if len(self._segments) > self._pitch:
                self._widen_summary()
            self._point()
        return block

    def _widen_summary(self) -> None:
        """Make room in the summary for twice as many segments."""
        # Odd, so that rows spread over all sets of a cache.
        pitch = 2 * self._pitch + 1
        wider = aligned(self._columns.rows * pitch * 8, np.int64)
        rows = wider.reshape(self._columns.rows, pitch * 8)
        rows[:] = -1  # empty words are dead
        rows[:, : self._pitch * 8] = self._dead.reshape(len(rows), self._pitch * 8)
        self._dead, self._pitch = wider, pitch

    # The tree.

    def _relieve(self, leaf: int) -> None:
        """Make room for the next subscription of a leaf whose block is full."""
        block = int(self._nodes[leaf, layout.N_BLOCK])
        segment = self._segments[block * BLOCK // SEGMENT]
        start = block * BLOCK % SEGMENT
        tenants = segment.leaves[start : start + BLOCK]
        who, counts = np.unique(tenants, return_counts=True)
        if len(who) == 1:
            self._split(leaf, block, tenants)
            who, counts = np.unique(tenants, return_counts=True)
        fresh = self._new_block()
        if len(who) == 1:
            # They are all alike: the block stays as it is, and the leaf goes on in another.
            self._hand_over(leaf, block, fresh)
            return
        moving = who[np.cumsum(counts) <= max(BLOCK // 2, counts[0])]
        for node in moving.tolist():
            if self._nodes[node, layout.N_BLOCK] == block:
                self._hand_over(node, block, fresh)
        who_moves = np.flatnonzero(np.isin(tenants, moving))
        self._kernels.move(self._address, block, fresh, who_moves.ctypes.data, len(who_moves))
        self._filled[fresh] = len(who_moves)
        self._filled[block] -= len(who_moves)
        self._kernels.tighten(self._address, fresh * 8, fresh * 8 + 8)
        self._kernels.tighten(self._address, block * 8, block * 8 + 8)

    def _hand_over(self, leaf: int, block: int, fresh: int) -> None:
        self._nodes[leaf, layout.N_BLOCK] = fresh
        self._owners[block] -= 1
        self._owners[fresh] += 1

    def _split(self, leaf: int, block: int, tenants: npt.NDArray[np.generic]) -> None:
        """Grow a subtree under a leaf that has a whole block for itself."""
        places = block * BLOCK + np.arange(BLOCK)
        low = np.empty((BLOCK, self._indexed), np.uint8)
        high = np.empty((BLOCK, self._indexed), np.uint8)
        self._kernels.extents_of(
            self._address, places.ctypes.data, BLOCK, low.ctypes.data, high.ctypes.data
        )
        order, ends = self._grow(low, high, leaf)
        start = 0
        for number, (node, end) in enumerate(ends):
            tenants[order[start:end]] = node
            self._nodes[node, layout.N_BLOCK] = block
            self._owners[block] += number > 0
            start = end

    def _grow(
        self, low: npt.NDArray[np.uint8], high: npt.NDArray[np.uint8], root: int
    ) -> tuple[npt.NDArray[np.int64], list[list[int]]]:
        """Grow the tree under a leaf; the order of the rows given, and each leaf's end in it."""
        needed = self._node_count + 3 * (len(low) // 4 + 4)
        if needed > len(self._nodes):
            wider = aligned(2 * needed * NODE, np.int64).reshape(-1, NODE)
            wider[: len(self._nodes)] = self._nodes
            self._nodes = wider
            self._point()
        order = np.arange(len(low), dtype=np.int64)
        ends = np.empty((len(low) + 4, 2), np.int64)
        used, room = self._node_count, len(self._nodes)
        scratch = aligned(layout.tree_scratch(len(low), room - used), np.int64)
        arrays = [array.ctypes.data for array in (low, high, order, ends, scratch)]
        self._node_count = self._kernels.grow(self._address, len(low), root, used, room, *arrays)
        return order, ends[: int(np.argmax(ends[:, 0] == -1))].tolist()

    def add_many(self, items: Iterable[Item]) -> None:
        """Put many conjunctions in at once; into an empty engine that is several times faster."""
        if self._size:
            for label, conjunction in items:
                self.add(label, conjunction)
            return
        jobs = array("q")
        starts = array("q")
        for label, conjunction in items:
            starts.append(len(jobs))
            jobs.extend(self._encode(label, conjunction))
            self._make_room(label)
        if not starts:
            return
        count = len(starts)
        low = np.empty((count, self._indexed), np.uint8)
        high = np.empty((count, self._indexed), np.uint8)
        begins = np.frombuffer(starts, np.int64)
        self._kernels.extents(
            self._address,
            jobs.buffer_info()[0],
            begins.ctypes.data,
            count,
            low.ctypes.data,
            high.ctypes.data,
        )
        order, ends = self._grow(low, high, 0)
        places, leaves = self._lay_out(ends, count)
        self._kernels.fill(
            self._address,
            jobs.buffer_info()[0],
            begins.ctypes.data,
            order.ctypes.data,
            leaves.ctypes.data,
            places.ctypes.data,
            count,
        )
        self._size = self._inserted = count
        for block, count in enumerate(np.bincount(places // BLOCK).tolist()):
            self._filled[block] = count
        self._kernels.tighten(self._address, 0, len(self._filled) * 8)
        for _ in range(self._indexed):
            self._look()

    def _lay_out(
        self, ends: list[list[int]], count: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """A place for each subscription of the tree's leaves, in their order; and its leaf."""
        places = np.empty(count, np.int64)
        leaves = np.empty(count, np.int64)
        block, used, start = 0, 0, 0
        self._owners[0] = 0
        for node, end in ends:
            leaves[start:end] = node
            while end - start > 0:
                if used == FILLED or (end - start > FILLED - used and end - start <= FILLED):
                    block, used = self._new_block(), 0
                some = min(end - start, FILLED - used)
                places[start : start + some] = block * BLOCK + used + np.arange(some)
                start, used = start + some, used + some
            self._nodes[node, layout.N_BLOCK] = block
            self._owners[block] += 1
        return places, leaves

    def nbytes(self) -> int:
        """The bytes of all arrays that grow with the subscriptions."""
        arrays = (self._where, self._nodes, self._found, self._ask)
        return sum(s.memory.nbytes for s in self._segments) + sum(a.nbytes for a in arrays)
