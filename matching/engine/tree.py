"""The kernels that decide who shares a word and a block: a greedy tree over columns.

A word of 64 is skipped when one column fails all of it, so those should be together that fail
together: that use the same columns, with intervals in the same place. A node cuts its subscriptions
in three: without a column, with it and a *key* (first row, last row, or their sum: the middle) up
to a pivot, and beyond it. Of all columns and keys that one is taken which gains most per bit of
entropy spent: gain is how many subscriptions the hull of their part would let an event skip, of
those that it does not skip already, events being thought of as equally spread over the rows (they
are equi-depth). A large node is judged by a sample.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from matching.engine.edit import spans
from matching.engine.layout import (
    H_INDEXED,
    H_SPANS,
    INDEXED,
    N_BEYOND,
    N_BLOCK,
    N_COLUMN,
    N_KEY,
    N_PIVOT,
    N_UPTO,
    N_WITHOUT,
    ROWS,
)
from matching.engine.lines import kernel, read64

# Subscriptions under which a node is not cut further; a word is 64. Measured at 300,000: with 96
# three blocks in a hundred more, since leaves are not parted between blocks; with 24 it is alike.
LEAF = 48
# A large node's sample.
SAMPLE = 4096
ABSENT = 255
KEYS = 3


@kernel
def extents(h: int, jobs: Any, starts: Any, low: Any, high: Any) -> None:
    """The first and last row of many jobs in each column (ABSENT: none); uint8[jobs, indexed]."""
    out = read64(h + H_SPANS * 8)
    for job in range(len(starts)):
        spans(h, jobs + starts[job] * 8)
        for column in range(read64(h + H_INDEXED * 8)):
            first = read64(out + column * 8)
            low[job, column] = ABSENT if first < 0 else first
            high[job, column] = ABSENT if first < 0 else read64(out + (INDEXED + column) * 8)


@kernel
def _measure(first: Any, last: Any, key: int) -> Any:
    return first if key == 0 else last if key == 1 else first + last


@kernel
def _pivots(low: Any, high: Any, part: Any, step: int, counts: Any, pivots: Any) -> None:
    """Of each column and key: how many have the column in the sample, and the key's median."""
    indexed = low.shape[1]
    histogram = np.zeros((indexed, KEYS, 2 * ROWS), np.int64)
    counts[:] = 0
    for number in range(0, len(part), step):
        which = part[number]
        for column in range(indexed):
            first, last = np.int64(low[which, column]), np.int64(high[which, column])
            if first != ABSENT:
                counts[column] += 1
                histogram[column, 0, first] += 1
                histogram[column, 1, last] += 1
                histogram[column, 2, first + last] += 1
    for column in range(indexed):
        for key in range(KEYS):
            below, value = 0, -1
            while 2 * below < counts[column]:
                value += 1
                below += histogram[column, key, value]
            # Where all of the upper half are at the median itself, the cut goes below it.
            if below == counts[column]:
                below -= histogram[column, key, value]
                value -= 1
            pivots[column, key] = value if below > 0 else -1


@kernel
def _hulls(low: Any, high: Any, part: Any, step: int, pivots: Any, hulls: Any) -> None:
    """Of each column, key and side: how many, the least first and the largest last row."""
    hulls[:, :, :, 0] = 0
    hulls[:, :, :, 1] = ROWS
    hulls[:, :, :, 2] = -1
    for number in range(0, len(part), step):
        which = part[number]
        for column in range(low.shape[1]):
            first, last = np.int64(low[which, column]), np.int64(high[which, column])
            if first == ABSENT:
                continue
            for key in range(KEYS):
                side = 0 if _measure(first, last, key) <= pivots[column, key] else 1
                hulls[column, key, side, 0] += 1
                hulls[column, key, side, 1] = min(hulls[column, key, side, 1], first)
                hulls[column, key, side, 2] = max(hulls[column, key, side, 2], last)


@kernel
def _entropy(count: int, total: int) -> float:
    return 0.0 if count == 0 else -count * math.log2(count / total)


@kernel
def _best(low: Any, high: Any, part: Any) -> tuple[int, int, int]:
    """The best cut of a node: (column, key, pivot); column -1 if there is none."""
    indexed = low.shape[1]
    step = max(1, len(part) // SAMPLE)
    total = (len(part) + step - 1) // step
    counts = np.zeros(indexed, np.int64)
    pivots = np.zeros((indexed, KEYS), np.int64)
    hulls = np.zeros((indexed, KEYS, 2, 3), np.int64)
    _pivots(low, high, part, step, counts, pivots)
    _hulls(low, high, part, step, pivots, hulls)
    best, column_, key_, pivot_ = 0.0, -1, 0, 0
    for column in range(indexed):
        for key in range(KEYS):
            pivot = pivots[column, key]
            with_it = counts[column]
            if with_it == 0 or (pivot < 0 and with_it == total):
                continue
            gain, spent = 0.0, _entropy(total - with_it, total)
            least, most = ROWS, -1
            for side in range(2):
                count, first, last = hulls[column, key, side]
                if count:
                    gain += count * (1.0 - (last - first + 1) / (ROWS - 2))
                    spent += _entropy(count, total)
                    least, most = min(least, first), max(most, last)
            if with_it == total:  # only what lies in the hull of all is not skipped as it is
                hull = (most - least + 1) / (ROWS - 2)
                gain = (gain - total * (1.0 - hull)) / hull
            score = gain / spent if spent > 0 else 0.0
            # Cutting without a gain still serves to make room.
            score += 1e-9 * spent
            if score > best:
                best, column_, key_, pivot_ = score, column, key, pivot
    return column_, key_, pivot_


@kernel
def _cut(low: Any, high: Any, part: Any, column: int, key: int, pivot: int) -> tuple[int, int]:
    """Sort a node's subscriptions into its three parts; the ends of the first two."""
    copy = part.copy()
    ends = np.zeros(4, np.int64)
    sides = np.empty(len(part), np.int8)
    for number in range(len(part)):
        first, last = np.int64(low[copy[number], column]), np.int64(high[copy[number], column])
        side = 0 if first == ABSENT else 1 if _measure(first, last, key) <= pivot else 2
        sides[number] = side
        ends[side + 1] += 1
    ends[2] += ends[1]
    one, two = ends[1], ends[2]
    for number in range(len(part)):
        side = sides[number]
        part[ends[side]] = copy[number]
        ends[side] += 1
    return one, two


@kernel
def grow(low: Any, high: Any, order: Any, nodes: Any, root: int, used: int, ends: Any) -> int:
    """Grow a tree under a root that is a leaf; the number of nodes in use then.

    `order` (a permutation) is sorted so that each leaf's subscriptions are side by side; `ends`
    gets, for each leaf in this order, (leaf, end of its part), and (-1, …) after the last. Stops
    early when the nodes are used up.
    """
    stack = [(root, 0, len(order))]
    leaves = 0
    while len(stack):
        node, start, end = stack.pop()
        column, key, pivot = -1, 0, 0
        if end - start > LEAF and used + 3 <= len(nodes):
            column, key, pivot = _best(low, high, order[start:end])
        nodes[node, N_COLUMN] = column
        if column < 0:
            nodes[node, N_BLOCK] = -1
            ends[leaves, 0], ends[leaves, 1] = node, end
            leaves += 1
            continue
        one, two = _cut(low, high, order[start:end], column, key, pivot)
        nodes[node, N_KEY], nodes[node, N_PIVOT] = key, pivot
        nodes[node, N_WITHOUT] = used
        nodes[node, N_UPTO] = used + 1
        nodes[node, N_BEYOND] = used + 2
        stack.append((used + 2, start + two, end))
        stack.append((used + 1, start + one, start + two))
        stack.append((used, start, start + one))
        used += 3
    ends[leaves, 0] = -1
    return used
