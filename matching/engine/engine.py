"""The engine: conjunctions by label, kept in blocks by a tree; finds those an event may match."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from matching.conjunction import Conjunction
from matching.engine import drift
from matching.engine.blocks import Blocks
from matching.engine.columns import Columns, Job
from matching.engine.events import EventWriter
from matching.engine.kernels import layout
from matching.engine.kernels.layout import ASKED, BLOCK, TRUTHS, WORD
from matching.engine.kernels.loading import kernels
from matching.engine.memory import Memory
from matching.values import Attributes

Labels = npt.NDArray[np.uint32]
Item = tuple[int, Conjunction]

# Every so many insertions the summary of the word concerned is made tight again: after a full
# churn each word has been about four times. Measured: costs less than a microsecond each.
TIGHTEN_EVERY = 16
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
        self._event = EventWriter(self._columns)
        self._memory = Memory(self._columns, self._event.cell)
        self._header = self._memory.header
        self._blocks = Blocks(self._kernels, self._memory, self._columns.indexed)
        self._checks: dict[int, Conjunction] = {}
        self._named: dict[int, list[str]] = {}
        self._size = 0
        self._inserted = 0
        self._looked, self._look_at = 0, FIRST_LOOK  # the next column, and after so many

    def __len__(self) -> int:
        return self._size

    def __contains__(self, label: int) -> bool:
        return label < len(self._memory.where) and bool(self._memory.where[label] >= 0)

    @property
    def columns(self) -> Columns:
        """Which attributes it knows, and their values as codes."""
        return self._columns

    @property
    def address(self) -> int:
        """Where the kernels find everything."""
        return self._header

    def nbytes(self) -> int:
        """The bytes of all arrays that grow with the subscriptions."""
        return self._memory.nbytes()

    # Matching.

    def match(self, attributes: Attributes) -> tuple[Labels, list[int]]:
        """(the labels found, in no order; those of them that only Python could tell)."""
        self._event.load(attributes)
        count = self._search(self._header)
        if count < ASKED:
            return self._memory.found[:count].copy(), []
        if count >= TRUTHS and self._event.reload(attributes):
            count = self._search(self._header)
        asked, count = divmod(count % TRUTHS, ASKED)
        found = self._memory.found[:count].copy()
        checks = self._checks
        labels = self._memory.ask[:asked].tolist()
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
            self._memory.see_columns()
            self._event.forget()
        self._memory.reserve_label(label)
        return job

    def add(self, label: int, conjunction: Conjunction) -> None:
        """Put a conjunction in under a label that is not in use."""
        self._memory.write_job(self._encode(label, conjunction))
        place = self._kernels.insert(self._header)
        while place < 0:
            self._blocks.relieve(-1 - place)
            place = self._kernels.insert(self._header)
        self._blocks.entered(place // BLOCK)
        self._size += 1
        self._inserted += 1
        if self._inserted % TIGHTEN_EVERY == 0:
            self._kernels.tighten(self._header, place // WORD, place // WORD + 1)
        if self._inserted >= self._look_at:
            self._look()

    def _look(self) -> None:
        """See whether the next column's buckets suit what is there now."""
        if self._looked == self._columns.indexed:
            self._looked = 0
            self._look_at = self._inserted + max(self._size, FIRST_LOOK)
            return
        drift.renew(
            self._kernels, self._header, self._columns, self._looked,
            self._memory.where, self._blocks.tree, len(self._blocks),
        )  # fmt: skip
        self._looked += 1

    def remove(self, label: int) -> None:
        """Take a label out that is in."""
        place = int(self._memory.where[label])
        self._memory.where[label] = -1
        self._kernels.remove(self._header, place)
        self._checks.pop(label, None)
        for text in self._named.pop(label, ()):
            self._columns.strings.release(text)
        self._size -= 1
        self._blocks.left(place // BLOCK)

    def add_many(self, items: Iterable[Item]) -> None:
        """Put many conjunctions in at once; into an empty engine that is several times faster."""
        if self._size:
            for label, conjunction in items:
                self.add(label, conjunction)
            return
        jobs, starts = array("q"), array("q")
        for label, conjunction in items:
            starts.append(len(jobs))
            jobs.extend(self._encode(label, conjunction))
        if starts:
            self._fill(jobs, np.frombuffer(starts, np.int64))

    def _fill(self, jobs: array[int], starts: npt.NDArray[np.int64]) -> None:
        """Put in what many jobs say, which begin at these words: grow the tree over all of them."""
        count, indexed = len(starts), self._columns.indexed
        low, high = np.empty((count, indexed), np.uint8), np.empty((count, indexed), np.uint8)
        where = jobs.buffer_info()[0], starts.ctypes.data
        self._kernels.extents(self._header, *where, count, low.ctypes.data, high.ctypes.data)
        order, leaves, places = self._blocks.lay_out(low, high)
        arrays = (order.ctypes.data, leaves.ctypes.data, places.ctypes.data)
        self._kernels.fill(self._header, *where, *arrays, count)
        self._size = self._inserted = count
        self._kernels.tighten(self._header, 0, len(self._blocks) * BLOCK // WORD)
        for _ in range(indexed):
            self._look()
