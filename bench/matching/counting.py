"""The classic to compare with: counting satisfied predicates, in numba.

Per attribute the lower ends, the upper ends and the points are sorted, each with the number of its
subscription. An event's value satisfies a prefix of the lower ends, a suffix of the upper ends and
a run of the points; each adds one to its subscription's counter. Who has all has a match.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from bench.matching.workloads import Table

Array = Any


@numba.njit(cache=True, boundscheck=False)
def _add(counters: Array, ids: Array, first: int, last: int) -> None:
    for number in range(first, last):
        counters[ids[number]] += 1


@numba.njit(cache=True, boundscheck=False)
def _count(
    values: Array, starts: Array, ends: Array, ids: Array, counters: Array, needs: Array, out: Array
) -> int:
    """`ends`, `ids`: all sorted runs, one after the other; `starts`: where each attribute's three
    (lower, upper, points) begin."""
    counters[:] = 0
    for attribute in range(len(values)):
        value = values[attribute]
        if np.isnan(value):
            continue
        low, high, point, stop = starts[attribute]
        reached = low + np.searchsorted(ends[low:high], value, side="right")
        _add(counters, ids, low, reached)
        left = high + np.searchsorted(ends[high:point], value, side="left")
        _add(counters, ids, left, point)
        first = point + np.searchsorted(ends[point:stop], value, side="left")
        last = point + np.searchsorted(ends[point:stop], value, side="right")
        _add(counters, ids, first, last)
    found = 0
    for number in range(len(counters)):
        out[found] = number
        found += counters[number] == needs[number]
    return found


class Counting:
    """Built once from a workload's table; deletes and inserts are not its business."""

    def __init__(self, table: Table) -> None:
        count, attributes = table.low.shape
        self._starts = np.zeros((attributes, 4), np.int64)
        needs = np.zeros(count, np.uint8)
        ends, ids = [], []
        place = 0
        for attribute in range(attributes):
            low, high = table.low[:, attribute], table.high[:, attribute]
            is_point = low == high
            kinds = (
                (low, np.isfinite(low) & ~is_point),
                (high, np.isfinite(high) & ~is_point),
                (low, is_point),
            )
            for kind, (bounds, used) in enumerate(kinds):
                who = np.flatnonzero(used)
                needs[who] += 1
                order = np.argsort(bounds[who], kind="stable")
                self._starts[attribute, kind] = place
                ends.append(bounds[who][order])
                ids.append(who[order].astype(np.int32))
                place += len(who)
            self._starts[attribute, 3] = place
        self._ends, self._ids, self._needs = np.concatenate(ends), np.concatenate(ids), needs
        self._counters = np.zeros(count, np.uint8)
        self._out = np.zeros(count + 1, np.int32)

    def match(self, values: Array) -> Array:
        """The numbers of the subscriptions that the event (NaN: absent) satisfies."""
        found = _count(
            values,
            self._starts,
            self._ends,
            self._ids,
            self._counters,
            self._needs,
            self._out,
        )
        return self._out[:found].copy()
