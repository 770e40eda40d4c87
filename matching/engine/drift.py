"""Whether a column's buckets still suit what is in it, and others if they do not.

The buckets are those of the first subscriptions. Whoever subscribes in an order (first all of one
region, then the next), or to values that move with time, has all others in one bucket: everybody in
it is an edge, and no block can be skipped. So each time as many have been put in as there are, each
column is looked at: where a sample of those who are in would have far more even buckets, it gets
them, in the place of the old ones (`rebound`). The tree's cuts move along to where they were.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from matching.engine.codes import HIGHEST, LOWEST
from matching.engine.columns import Columns
from matching.engine.kernels.layout import (
    BOUNDS,
    LINE,
    MIDDLE,
    N_COLUMN,
    N_KEY,
    N_PIVOT,
    ROWS,
    aligned,
)
from matching.engine.kernels.loading import Kernels

SAMPLE: Final = 4096
"""Labels that are looked at: some thirty ends for each bucket of a column that all use."""

FEW: Final = 256
"""Ends in a sample that say nothing about buckets yet. Wild guess."""

WORSE: Final = 2.0
"""How many times as many edges make other buckets worth their time. Chance alone makes 1.1 of the
first sample's thirty ends for a bucket. Wild guess."""


def renew(
    kernels: Kernels, header: int, columns: Columns, column: int,
    where: npt.NDArray[np.int64], nodes: npt.NDArray[np.int64], blocks: int,
) -> bool:  # fmt: skip
    """Give a column other buckets if these would be far better. `where`: the place of each label
    (-1: none), `nodes`: the tree, int64[…, NODE]; `blocks`: how many there are. Whether it did."""
    some = where[:: max(1, len(where) // (2 * SAMPLE))]
    places = np.ascontiguousarray(some[some >= 0])
    found = np.empty(2 * len(places), np.int64)
    count = kernels.interval_ends(
        header, places.ctypes.data, len(places), column, found.ctypes.data
    )
    ends = found[:count]
    ends = ends[(ends > LOWEST + 1) & (ends < HIGHEST)]
    if len(ends) < FEW:
        return False
    old = columns.bounds[column * BOUNDS :][:ROWS].copy()
    inner = columns.buckets(column, ends)
    if _edges(old, ends) <= WORSE * _edges(inner, ends):
        return False
    columns.bind(column, inner)
    scratch = aligned((ROWS + 2) * LINE // 8, np.int64)
    kernels.rebucket(header, column, blocks, scratch.ctypes.data)
    _move_cuts(nodes, column, old, columns.bounds[column * BOUNDS :][:ROWS])
    return True


def _edges(bounds: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> float:
    """How many ends are in the bucket of one of them, on the average."""
    counts = np.bincount(np.searchsorted(bounds, ends, "right")).astype(float)
    return float(np.square(counts).sum() / len(ends))


def _move_cuts(
    nodes: npt.NDArray[np.int64], column: int, old: npt.NDArray[np.int64],
    new: npt.NDArray[np.int64],
) -> None:  # fmt: skip
    """Let the tree's cuts in a column be where they were, in the new rows."""
    mine = np.flatnonzero((nodes[:, N_COLUMN] == column) & (nodes[:, N_PIVOT] >= 0))

    def moved(rows: Any) -> Any:
        """The new rows of what lies just below the end of old ones."""
        return np.searchsorted(new, old[np.minimum(rows, ROWS - 1)] - 1, "right")

    pivots = nodes[mine, N_PIVOT]
    lower = pivots // 2
    sums = moved(lower) + moved(pivots - lower)
    nodes[mine, N_PIVOT] = np.where(nodes[mine, N_KEY] == MIDDLE, sums, moved(pivots))
