"""The engine itself: adds, removes and matches conjunctions by label. See `matching.engine`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from matching.conjunction import Conjunction
from matching.engine.blocks import Blocks
from matching.engine.codes import HIGHEST, LOWEST
from matching.engine.columns import Columns, Job
from matching.engine.events import EventWriter
from matching.engine.kernels import layout
from matching.engine.kernels.layout import (
    ASKED,
    BLOCK,
    BOUNDS,
    LINE,
    MIDDLE,
    N_COLUMN,
    N_KEY,
    N_PIVOT,
    ROWS,
    TRUTHS,
    WORD,
    aligned,
)
from matching.engine.kernels.loader import Kernels, kernels
from matching.engine.memory import Memory
from matching.values import Attributes

# --- detects that a column's buckets no longer suit its subscriptions, and replaces them ---
#
# The buckets are made for the first subscriptions. If subscriptions come in an order (first all of
# one region, then the next), or values move with time, the later ones share one bucket: all of them
# are edges there, and no block can be skipped. So whenever as many have been inserted as there are,
# each column is checked: if other buckets would be much more even for a sample of the
# subscriptions, they replace the old ones (`rebucketing`), and the pivots of the placement tree are
# mapped to new rows.

Numbers = npt.NDArray[np.int64]

SAMPLED_LABELS: Final = 4096
"""Labels in the sample: some thirty ends per bucket of a column that all subscriptions use."""

MIN_ENDS: Final = 256
"""Ends in the sample below which a column is not judged: two per bucket. Not measured; would be
measured by how often buckets are replaced without drift."""

MIN_GAIN: Final = 2.0
"""Buckets are replaced when they hold over this many times the edges that new ones would hold.
Chance alone makes 1.1 with thirty ends per bucket. Not measured between 1.1 and 2; would be
measured by the time of matches and of replacing, over a workload that drifts slowly."""


def rebucket_if_drifted(
    kernels: Kernels,
    header: int,
    columns: Columns,
    column: int,
    where: Numbers,
    nodes: Numbers,
    blocks: int,
) -> bool:
    """Replace a column's buckets if others are much better; returns whether it did.

    `where`: the place of each label, -1 for none; `nodes`: the placement tree, int64[nodes, NODE];
    `blocks`: the number of blocks.
    """
    some = where[:: max(1, len(where) // (2 * SAMPLED_LABELS))]
    places = np.ascontiguousarray(some[some >= 0])
    found = np.empty(2 * len(places), np.int64)
    count = kernels.interval_ends(
        header, places.ctypes.data, len(places), column, found.ctypes.data
    )
    ends = found[:count]
    ends = ends[(ends > LOWEST + 1) & (ends < HIGHEST)]
    if len(ends) < MIN_ENDS:
        return False
    old = columns.bounds[column * BOUNDS :][:ROWS].copy()
    inner = columns.buckets(column, ends)
    if _edges(old, ends) <= MIN_GAIN * _edges(inner, ends):
        return False
    columns.set_bounds(column, inner)
    scratch = aligned((ROWS + 2) * LINE // 8, np.int64)
    kernels.rebucket(header, column, blocks, scratch.ctypes.data)
    _map_pivots(nodes, column, old, columns.bounds[column * BOUNDS :][:ROWS])
    return True


def _edges(bounds: Numbers, ends: Numbers) -> float:
    """The number of ends that share a bucket with an end, averaged over the ends."""
    counts = np.bincount(np.searchsorted(bounds, ends, "right")).astype(float)
    return float(np.square(counts).sum() / len(ends))


def _map_pivots(nodes: Numbers, column: int, old: Numbers, new: Numbers) -> None:
    """Change the tree's pivots in a column to new rows, so that they separate the same values."""
    inner = np.flatnonzero((nodes[:, N_COLUMN] == column) & (nodes[:, N_PIVOT] >= 0))

    def moved(rows: Any) -> Any:
        """The new rows that contain the greatest codes of old rows."""
        return np.searchsorted(new, old[np.minimum(rows, ROWS - 1)] - 1, "right")

    pivots = nodes[inner, N_PIVOT]
    lower = pivots // 2
    sums = moved(lower) + moved(pivots - lower)
    nodes[inner, N_PIVOT] = np.where(nodes[inner, N_KEY] == MIDDLE, sums, moved(pivots))


Labels = npt.NDArray[np.uint32]
LabelledConjunction = tuple[int, Conjunction]

# Insertions after which the skip bitmap is tightened for the word of the last one, so about four
# times per word while all subscriptions are replaced. Measured: less than a microsecond each.
TIGHTEN_EVERY = 16
# Conjunctions of one shape from which they are encoded attribute by attribute: some twenty calls of
# NumPy take about as long as encoding eight.
ALIKE_FROM = 8
# Insertions before the first check of the buckets: twice the sample (`index.SAMPLE`) that they were
# made for.
FIRST_CHECK = 2048


class BlockEngine:
    """Conjunctions by label: an integer below 2**31 that the caller chooses, preferably small.

    Made for a sample of its future contents, which decides the columns and the buckets. Any
    conjunction may be added later; those unlike the sample are only slower.
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
        self._acquired: dict[int, list[str]] = {}
        self._size = 0
        self._inserted = 0
        self._next_column, self._next_check = 0, FIRST_CHECK  # to check, after so many insertions

    def __len__(self) -> int:
        return self._size

    def __contains__(self, label: int) -> bool:
        return label < len(self._memory.where) and bool(self._memory.where[label] >= 0)

    @property
    def columns(self) -> Columns:
        """The attributes that it knows, and the codes of values."""
        return self._columns

    @property
    def address(self) -> int:
        """The address of the header, which all kernels take."""
        return self._header

    # Matching.

    def match(self, attributes: Attributes) -> tuple[Labels, list[int]]:
        """The labels that match an event, each once, in no order.

        Returns (those that the kernel has decided, those that Python has).
        """
        self._event.write(attributes)
        count = self._search(self._header)
        if count < ASKED:
            return self._memory.scratch.found[:count].copy(), []
        if count >= TRUTHS and self._event.rewrite(attributes):
            count = self._search(self._header)
        asked, count = divmod(count % TRUTHS, ASKED)
        found = self._memory.scratch.found[:count].copy()
        checks = self._checks
        labels = self._memory.scratch.ask[:asked].tolist()
        return found, [label for label in labels if checks[label].matches(attributes)]

    # Changes.

    def has_columns(self, conjunction: Conjunction) -> bool:
        """Whether all attributes of the conjunction have columns, or can get them."""
        return self._columns.has_room_for(conjunction.constraints)

    def _encode(self, label: int, conjunction: Conjunction) -> Job:
        """Return the job that inserts a conjunction. Notes whether the conjunction has to be
        evaluated in Python, and which strings are released with it."""
        columns, acquired = self._columns, list[str]()
        known = len(columns)
        job = columns.encode(label, conjunction, acquired)
        if job[layout.J_FLAGS] & layout.PYTHON:
            self._checks[label] = conjunction
        if acquired:
            self._acquired[label] = acquired
        if len(columns) > known:
            self._memory.update_column_count()
            self._event.forget_shapes()
        self._memory.reserve_label(label)
        return job

    def add(self, label: int, conjunction: Conjunction) -> None:
        """Add a conjunction under a label that is not in use."""
        self._insert(array("q", self._encode(label, conjunction)), array("q", (0,)))

    def _insert(self, jobs: array[int], starts: array[int]) -> None:
        """Insert jobs, which begin at these words."""
        count, done = len(starts), 0
        places = array("q", bytes(8 * count))
        where = jobs.buffer_info()[0], starts.buffer_info()[0]
        while done < count:
            first = done
            done = self._kernels.insert(self._header, *where, first, count, places.buffer_info()[0])
            self._inserted_at(places[first:done])
            if done < count:
                self._blocks.make_room(-1 - places[done])
        if self._inserted >= self._next_check:
            self._check_drift()

    def _inserted_at(self, places: array[int]) -> None:
        """Count the insertions at these places, and tighten the words of some."""
        self._blocks.count_inserted(places)
        for place in places[-(self._inserted + 1) % TIGHTEN_EVERY :: TIGHTEN_EVERY]:
            self._kernels.tighten(self._header, place // WORD, place // WORD + 1)
        self._size += len(places)
        self._inserted += len(places)

    def _check_drift(self) -> None:
        """Check the buckets of the next column, or schedule the next round after the last one."""
        if self._next_column == self._columns.indexed:
            self._next_column = 0
            self._next_check = self._inserted + max(self._size, FIRST_CHECK)
            return
        rebucket_if_drifted(
            self._kernels,
            self._header,
            self._columns,
            self._next_column,
            self._memory.where,
            self._blocks.tree,
            len(self._blocks),
        )
        self._next_column += 1

    def remove(self, label: int) -> None:
        """Remove a label that is in use."""
        place = int(self._memory.where[label])
        self._memory.where[label] = -1
        self._kernels.remove(self._header, place)
        self._checks.pop(label, None)
        for text in self._acquired.pop(label, ()):
            self._columns.strings.release(text)
        self._size -= 1
        self._blocks.count_removal(place // BLOCK)

    def add_many(self, items: Iterable[LabelledConjunction]) -> None:
        """Add many conjunctions, in one call of a kernel: several times faster than each by itself,
        and better placed if they are the first."""
        jobs, starts = array("q"), array("q")
        by_names: dict[tuple[str, ...], list[LabelledConjunction] | None] = {}
        for label, conjunction in items:
            names = tuple(conjunction.constraints)
            if names not in by_names:
                by_names[names] = [] if self._columns.has(names) else None
            alike = by_names[names]
            if alike is not None:
                alike.append((label, conjunction))
            else:
                starts.append(len(jobs))
                jobs.extend(self._encode(label, conjunction))
        for names, alike in by_names.items():
            if alike:
                self._encode_alike(names, alike, jobs, starts)
        if self._inserted:
            self._insert(jobs, starts)
        elif starts:
            self._fill(jobs, np.frombuffer(starts, np.int64))

    def _encode_alike(
        self,
        names: Sequence[str],
        some: Sequence[LabelledConjunction],
        jobs: array[int],
        starts: array[int],
    ) -> None:
        """Append the jobs of conjunctions of these attributes, of which many have one shape
        (`Columns.encode_alike`)."""
        alike = [pair for pair in some if pair[1].is_box] if len(some) >= ALIKE_FROM else []
        if len(alike) < len(some):
            known = dict(alike)
            for label, conjunction in some:
                if label not in known:
                    starts.append(len(jobs))
                    jobs.extend(self._encode(label, conjunction))
        if not alike:
            return
        labels, conjunctions = [label for label, _ in alike], [one for _, one in alike]
        acquired: list[list[str]] = [[] for _ in labels]
        made, loose = self._columns.encode_alike(names, labels, conjunctions, acquired)
        starts.extend(range(len(jobs), len(jobs) + made.size, made.shape[1]))
        jobs.frombytes(made.tobytes())
        self._checks.update([alike[place] for place in loose])
        self._acquired.update([pair for pair in zip(labels, acquired, strict=True) if pair[1]])
        self._memory.reserve_label(max(labels))

    def _fill(self, jobs: array[int], starts: npt.NDArray[np.int64]) -> None:
        """Bulk load: grow the tree over all jobs, which begin at these words, and insert them."""
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
            self._check_drift()
