"""Divides the pairs of events and groups that match among the groups, in one call of a kernel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from matching.engine.kernels.layout import (
    D_EVENTS,
    D_GROUPS,
    D_ORDER,
    D_PLACES,
    D_RUN_COUNT,
    D_RUNS,
    D_STARTS,
    D_WITNESSES,
    DIVIDED,
    aligned,
)
from matching.engine.kernels.loading import kernels

Found = npt.NDArray[np.uint32]


class Pairs(NamedTuple):
    """(event, group) pairs of a batch in the order of the events, each once: uint32[pairs] each.

    The arrays may be overwritten by the next call of `GroupMatcher.find`.
    """

    positions: Found
    """The event's index in the batch."""
    groups: Found
    labels: Found
    """The label of the group that was found first for the event."""
    unsure: list[int]
    """Indices of events that may match conjunctions which only Python can evaluate; these events
    have no pairs."""


class DividedPairs(NamedTuple):
    """Pairs by group, within a group in the order of the events. The arrays may be overwritten by
    the next call of `PairDivider.divide`."""

    events: Found
    """Indices in the batch of the events that have pairs, ascending."""
    witnesses: Found
    """The first label of each of these."""
    places: Found
    """Of each pair, by group: the place of its event in `events`."""
    order: Found
    """Of each pair, by group: its number."""
    runs: list[tuple[int, slice]]
    """The groups that have pairs, and which in `places` and `order` these are."""


class PairDivider:
    """The memory in which the kernel divides pairs."""

    def __init__(self, groups: int) -> None:
        """`groups`: all are less than this number."""
        self._kernel = kernels().divide
        self._header = aligned(DIVIDED, np.int64)
        self._address = self._header.ctypes.data
        self._starts, self._runs = aligned(groups, np.uint32), aligned(2 * groups, np.uint32)
        self._header[D_GROUPS] = groups
        self._header[D_STARTS] = self._starts.ctypes.data
        self._header[D_RUNS] = self._runs.ctypes.data
        self._made = aligned(0, np.uint32).reshape(4, 0)

    def divide(self, found: Pairs, hits: int = 0) -> DividedPairs:
        """Divide pairs among their groups. `hits`: the address at which each counts for its label
        (int64[labels]), 0: nowhere."""
        positions, groups, labels = found.positions, found.groups, found.labels
        count = len(positions)
        if count > self._made.shape[1]:
            self._made = aligned(8 * count, np.uint32).reshape(4, -1)
            for field, part in zip(FIELDS, self._made, strict=True):
                self._header[field] = part.ctypes.data
        where = positions.ctypes.data, groups.ctypes.data, labels.ctypes.data
        wanted = self._kernel(self._address, *where, count, hits)
        events, witnesses, places, order = self._made
        numbers = iter(self._runs[: 2 * self._header[D_RUN_COUNT]].tolist())
        runs, start = list[tuple[int, slice]](), 0
        for group, end in zip(numbers, numbers, strict=True):
            runs.append((group, slice(start, end)))
            start = end
        return DividedPairs(
            events[:wanted], witnesses[:wanted], places[:count], order[:count], runs
        )


FIELDS = (D_EVENTS, D_WITNESSES, D_PLACES, D_ORDER)
"""Where the addresses are of what is made, in the order of `DividedPairs`."""
