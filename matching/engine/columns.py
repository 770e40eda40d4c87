"""What the engine knows of attributes: their columns, the rows of these, and values as codes.

Made from a sample of conjunctions: the attributes that many of them use get rows, whose buckets
hold equally many ends of the sample's intervals. Turns conjunctions into jobs for the kernels of a
change (`events` does the like for a match).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from matching.conjunction import Conjunction
from matching.engine.codes import HIGHEST, LOWEST, Coder
from matching.engine.kernels import layout
from matching.engine.kernels.layout import BOUNDS, COLUMNS, FEWER, INDEXED, ROWS, aligned

Job = list[int]

# A column has bit rows if at least this share of the sample uses it: rows cost their memory for
# every subscription, and one that few use prunes little. Wild guess.
SHARE = 0.01
# And it has twice the rows if at least this share of the sample uses it. Measured at 500,000:
# *w07* is 1.24 times as fast as with FEWER for all, 1.28 if none has FEWER, 1.11 with 0.3.
OFTEN = 0.15


def _buckets(ends: npt.NDArray[np.int64], room: int) -> npt.NDArray[np.int64]:
    """So many bounds with equally many of the ends, which are sorted, between any two."""
    values, counts = np.unique(ends, return_counts=True)
    if len(values) <= room:
        return values
    # What would fill a bucket alone (no limit, say) has a bound, and the others the room left.
    heavy = counts * room > len(ends)
    light = np.repeat(values[~heavy], counts[~heavy])
    room -= int(heavy.sum())
    return np.union1d(values[heavy], light[np.arange(room) * len(light) // room])


class Columns:
    """The columns of one engine; those after the first `indexed` ones have no rows."""

    def __init__(self, sample: Sequence[Conjunction]) -> None:
        self._coder = Coder()
        self.strings = self._coder.strings
        names = Counter(name for conjunction in sample for name in conjunction.constraints)
        chosen = [n for n, c in names.most_common(INDEXED) if c >= SHARE * len(sample)]
        self._of = {name: column for column, name in enumerate(chosen)}
        self.column_of: Callable[[str], int | None] = self._of.get
        """The column of an attribute, if it has one; asked for each value of each event."""
        self.indexed = len(chosen)
        widths = sorted(len(conjunction.constraints) for conjunction in sample)
        widest = widths[len(widths) * 99 // 100] if widths else 1
        self.stride = layout.NARROW if widest <= layout.NARROW else layout.STRIDE
        """Parts of a record."""
        self.lines = aligned(self.indexed + 1, np.int64)
        """Which row, of all columns together, is a column's first; int64[indexed + 1]."""
        self.bounds = aligned(max(1, self.indexed) * BOUNDS, np.int64)
        """The first codes of rows 1, 2, … and the end of all; behind these each eighth of them once
        more; int64[indexed * BOUNDS]."""
        self.shifts = aligned(max(1, self.indexed) * ROWS, np.int64)
        """How many bits of a place in a row's bucket its fine code drops; int64[indexed * ROWS]."""
        self._set_bounds(sample)

    def __len__(self) -> int:
        return len(self._of)

    def _set_bounds(self, sample: Sequence[Conjunction]) -> None:
        """Equi-depth buckets between the ends of the sample's intervals."""
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
            named: list[str] = []
            for conjunction in sample:
                constraint = conjunction.constraints.get(name)
                for interval in () if constraint is None else constraint.intervals:
                    low, high, _ = self._coder.interval(interval, named)
                    cuts += (low, high + 1)
            for text in named:
                self.strings.release(text)
            ends = np.array(cuts, np.int64)
            rows = ROWS if len(ends) >= 2 * OFTEN * len(sample) else FEWER
            self.lines[column + 1] = self.lines[column] + rows
            self.bind(column, self.buckets(column, ends))

    def buckets(self, column: int, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The inner bounds that a column should have for these ends of intervals."""
        rows = int(self.lines[column + 1] - self.lines[column])
        return _buckets(np.sort(ends[(ends > LOWEST + 1) & (ends < HIGHEST)]), rows - 4)

    def bind(self, column: int, inner: npt.NDArray[np.int64]) -> None:
        """Give a column these inner bounds, and so many shifts that the codes of a bucket fit into
        the bits there are for them."""
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
        """Of all columns together."""
        return int(self.lines[self.indexed])

    @property
    def names(self) -> Iterable[str]:
        """The attributes, in the order of their columns."""
        return self._of.keys()

    def job(self, label: int, conjunction: Conjunction, named: list[str]) -> Job:
        """The job that puts a conjunction in; adds the strings that it takes to `named`."""
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
            intervals = constraint.intervals
            if len(intervals) > 1 or not constraint.exact:
                wants_python = True
            for interval in intervals:
                low, high, loose = of_interval(interval, named)
                if loose:
                    wants_python = True
                job += (column, low, high)
        if wants_python:
            job[layout.J_FLAGS] = layout.ALWAYS + layout.PYTHON
        elif always:
            job[layout.J_FLAGS] = layout.ALWAYS
        job[layout.J_COUNT] = (len(job) - layout.J_PARTS) // 3
        return job
