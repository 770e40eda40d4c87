"""The columns of an engine: which attributes they are, their buckets, and conjunctions as codes.

Made from a sample of conjunctions: attributes that many of them use get rows, and the buckets of
these are an equi-depth histogram of the ends of the sample's intervals. Encodes conjunctions for
the kernels that insert them; `events` does the same for events to match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from matching.conjunction import Conjunction
from matching.constraint import Constraint
from matching.engine.codes import HIGHEST, LOWEST, Coder, is_common
from matching.engine.kernels import layout
from matching.engine.kernels.layout import BOUNDS, COLUMNS, FEW_ROWS, INDEXED, ROWS, aligned

Job = list[int]
"""A conjunction encoded for the insertion kernels: label, flags, number of parts, and for each part
(column, lowest code, highest code). See `J_LABEL` in `layout`."""

Jobs = npt.NDArray[np.int64]
"""Jobs of one length; int64[count, words]."""

# A column has rows if at least this share of the sample uses it: rows cost memory for every
# subscription, and those of a rarely used column exclude few. Not measured; would be measured by
# time and memory with workloads of many rare attributes.
INDEXED_SHARE = 0.01
# It has ROWS rather than FEW_ROWS rows if at least this share of the sample uses it. Measured with
# 500,000 subscriptions of workload *w07*: 1.24 times as fast as with FEW_ROWS for all, 1.28 with
# ROWS for all, 1.11 with a share of 0.3.
ROWS_SHARE = 0.15


def _equi_depth(ends: npt.NDArray[np.int64], room: int) -> npt.NDArray[np.int64]:
    """At most `room` bounds with equally many of the sorted ends between any two."""
    values, counts = np.unique(ends, return_counts=True)
    if len(values) <= room:
        return values
    # A value that would fill a bucket by itself gets a bound; the others share the remaining ones.
    heavy = counts * room > len(ends)
    light = np.repeat(values[~heavy], counts[~heavy])
    room -= int(heavy.sum())
    return np.union1d(values[heavy], light[np.arange(room) * len(light) // room])


class Columns:
    """The columns of one engine, by number; only the first `indexed` ones have rows."""

    def __init__(self, sample: Sequence[Conjunction]) -> None:
        self._coder = Coder()
        self.strings = self._coder.strings
        names = Counter(name for conjunction in sample for name in conjunction.constraints)
        chosen = [n for n, c in names.most_common(INDEXED) if c >= INDEXED_SHARE * len(sample)]
        self._of = {name: column for column, name in enumerate(chosen)}
        self.column_of: Callable[[str], int | None] = self._of.get
        """The column of an attribute, or None. A bound method of the dictionary, since it is called
        for every value of every event."""
        self.indexed = len(chosen)
        widths = sorted(len(conjunction.constraints) for conjunction in sample)
        widest = widths[len(widths) * 99 // 100] if widths else 1
        self.stride = layout.NARROW if widest <= layout.NARROW else layout.STRIDE
        """Parts (intervals) that a record has room for."""
        self.lines = aligned(self.indexed + 1, np.int64)
        """The number, over all columns, of each column's first row; int64[indexed + 1]."""
        self.bounds = aligned(max(1, self.indexed) * BOUNDS, np.int64)
        """For each column the first codes of rows 1, 2, … and the end of the last, followed by a
        copy of every eighth of them; int64[indexed * BOUNDS]."""
        self.shifts = aligned(max(1, self.indexed) * ROWS, np.int64)
        """By how many bits an offset in a row's bucket is shifted right to fit into a fine code;
        int64[indexed * ROWS]."""
        self._choose_bounds(sample)

    def __len__(self) -> int:
        return len(self._of)

    def _choose_bounds(self, sample: Sequence[Conjunction]) -> None:
        """Choose each column's number of rows, and its buckets, by the sample's intervals."""
        texts = [
            str(cut[1])
            for conjunction in sample
            for constraint in conjunction.constraints.values()
            for interval in constraint.intervals
            for cut in (interval.lo, interval.hi)
            if cut[0] == 2
        ]
        self.strings.preload(texts)
        for name, column in self._of.items():
            cuts: list[int] = []
            acquired: list[str] = []
            for conjunction in sample:
                constraint = conjunction.constraints.get(name)
                for interval in () if constraint is None else constraint.intervals:
                    low, high, _ = self._coder.interval(interval, acquired)
                    cuts += (low, high + 1)
            for text in acquired:
                self.strings.release(text)
            ends = np.array(cuts, np.int64)
            rows = ROWS if len(ends) >= 2 * ROWS_SHARE * len(sample) else FEW_ROWS
            self.lines[column + 1] = self.lines[column] + rows
            self.set_bounds(column, self.buckets(column, ends))

    def buckets(self, column: int, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The inner bounds of equi-depth buckets of a column for these ends (codes)."""
        rows = int(self.lines[column + 1] - self.lines[column])
        return _equi_depth(np.sort(ends[(ends > LOWEST + 1) & (ends < HIGHEST)]), rows - 4)

    def set_bounds(self, column: int, inner: npt.NDArray[np.int64]) -> None:
        """Set a column's inner bounds, and the shifts that fit its offsets into `FINE` bits."""
        bounds = self.bounds[column * BOUNDS :][:BOUNDS]
        bounds[0], bounds[1], bounds[2:] = LOWEST, LOWEST + 1, HIGHEST
        bounds[2 : 2 + len(inner)] = inner
        bounds[ROWS:] = bounds[7:ROWS:8]
        ends = bounds.tolist()
        for row in range(1, ROWS):
            last = max(0, ends[row] - ends[row - 1] - 1)
            self.shifts[column * ROWS + row] = max(0, last.bit_length() - layout.FINE)

    @property
    def rows(self) -> int:
        """The number of rows of all columns together."""
        return int(self.lines[self.indexed])

    @property
    def names(self) -> Iterable[str]:
        """The attributes, in the order of their columns."""
        return self._of.keys()

    def has_room_for(self, names: Collection[str]) -> bool:
        """Whether all of these attributes have columns, or can get them."""
        known = self._of
        return len(known) + len(names) <= COLUMNS or all(name in known for name in names)

    def encode(self, label: int, conjunction: Conjunction, acquired: list[str]) -> Job:
        """The job that inserts a conjunction; appends the strings that it acquires to `acquired`.

        An attribute that is new gets a column without rows, while there are fewer than `COLUMNS`.
        """
        constraints = conjunction.constraints
        wants_python = conjunction.residual is not None or len(constraints) > self.stride
        always = False
        columns, indexed = self._of, self.indexed
        of_interval = self._coder.interval
        job = [label, 0, 0]
        for name, constraint in constraints.items():
            column = columns.get(name)
            if column is None:
                if len(columns) == COLUMNS:
                    wants_python = True
                    continue
                column = columns[name] = len(columns)
            if column >= indexed:
                always = True
            if not constraint.exact:
                wants_python = True
            codes = constraint.codes
            if codes is not None:
                job += (column, *codes)
                continue
            intervals = constraint.intervals
            if len(intervals) > 1:
                wants_python = True
            for interval in intervals:
                low, high, loose = of_interval(interval, acquired)
                if loose:
                    wants_python = True
                elif len(intervals) == 1 and is_common(interval):
                    constraint.codes = low, high
                job += (column, low, high)
        if wants_python:
            job[layout.J_FLAGS] = layout.ALWAYS + layout.PYTHON
        elif always:
            job[layout.J_FLAGS] = layout.ALWAYS
        job[layout.J_COUNT] = (len(job) - layout.J_PARTS) // 3
        return job

    def has(self, names: Collection[str]) -> bool:
        """Whether all of these attributes have columns, and a record has room for them."""
        return len(names) <= self.stride and all(name in self._of for name in names)

    def encode_alike(
        self,
        names: Sequence[str],
        labels: Sequence[int],
        conjunctions: Sequence[Conjunction],
        acquired: Sequence[list[str]],
    ) -> tuple[Jobs, Sequence[int]]:
        """The jobs of conjunctions of these attributes, which all have columns (`has`), and of
        nothing but one exact interval of each: as `encode` makes them, attribute by attribute. Also
        which of them (by their place) are loose, for Python to evaluate."""
        jobs = np.empty((len(labels), layout.J_PARTS + 3 * len(names)), np.int64)
        jobs[:, layout.J_LABEL] = labels
        jobs[:, layout.J_COUNT] = len(names)
        always, loose = False, list[int]()
        for part, name in enumerate(names):
            column = self._of[name]
            always |= column >= self.indexed
            at = layout.J_PARTS + 3 * part
            jobs[:, at] = column
            constraints = [conjunction.constraints[name] for conjunction in conjunctions]
            if self._share_codes(constraints):
                jobs[:, at + 1 : at + 3] = [constraint.codes or () for constraint in constraints]
            else:
                jobs[:, at + 1 : at + 3] = self._codes_of(constraints, acquired, loose)
        jobs[:, layout.J_FLAGS] = layout.ALWAYS if always else 0
        jobs[loose, layout.J_FLAGS] = layout.ALWAYS + layout.PYTHON
        return jobs, loose

    def _share_codes(self, constraints: Sequence[Constraint]) -> bool:
        """Note the codes of those constraints that have none yet; whether all have some, which are
        the same in all engines, as those of intervals of numbers are."""
        fresh = [constraint for constraint in constraints if constraint.codes is None]
        if not fresh:
            return True
        codes = self._coder.numbers([constraint.intervals[0] for constraint in fresh])
        if len(codes) < len(fresh):
            return False
        for constraint, found in zip(fresh, codes, strict=True):
            constraint.codes = found
        return True

    def _codes_of(
        self, constraints: Sequence[Constraint], acquired: Sequence[list[str]], loose: list[int]
    ) -> list[tuple[int, int]]:
        """The codes of the one interval of each of these constraints, as in `encode_alike`."""
        found: list[tuple[int, int]] = []
        for place, constraint in enumerate(constraints):
            codes = constraint.codes
            if codes is None:
                interval = constraint.intervals[0]
                low, high, is_loose = self._coder.interval(interval, acquired[place])
                codes = low, high
                if is_loose:
                    loose.append(place)
                elif is_common(interval):
                    constraint.codes = codes
            found.append(codes)
        return found
