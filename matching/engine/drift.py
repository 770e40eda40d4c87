"""Detects that a column's buckets no longer suit its subscriptions, and replaces them.

The buckets are made for the first subscriptions. If subscriptions come in an order (first all of
one region, then the next), or values move with time, the later ones share one bucket: all of them
are edges there, and no block can be skipped. So whenever as many have been inserted as there are,
each column is checked: if other buckets would be much more even for a sample of the subscriptions,
they replace the old ones (`rebucketing`), and the pivots of the placement tree are mapped to new
rows.
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

Numbers = npt.NDArray[np.int64]

SAMPLED_LABELS: Final = 4096
"""Labels in the sample: some thirty ends per bucket of a column that all subscriptions use."""

MIN_ENDS: Final = 256
"""Ends in the sample below which a column is not judged: two per bucket. Not measured; would be
measured by how often buckets are replaced without drift."""

MIN_GAIN: Final = 2.0
"""Buckets are replaced if there are more than so many times as many edges as with new ones. Chance
alone makes 1.1 with thirty ends per bucket. Not measured between 1.1 and 2; would be measured by
the time of matches and of replacing, over a workload that drifts slowly."""


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
