"""Finds the groups of the labels that match, for a batch of events in one call of a kernel.

For a single event Python costs more than the kernel: encoding the event, the call, a list of
labels, looking up the group of each. So up to `EVENTS` events are encoded together, attribute by
attribute where they have the same ones, and one call finds for each event the *groups* of its
labels (a table by label), each group once with the label found first. It stops searching for an
event once all groups are found. The result is three arrays for the whole batch; `share` and
`by_group` have another kernel sort them by group, without Python code per pair.

Events with labels that only Python can decide (see `Pairs.unsure`) are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from matching.columnar import EventColumns, part_of
from matching.engine.block_engine import BlockEngine
from matching.engine.events import EVENTS, BatchWriter
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
    G_EXIST,
    G_GROUPS,
    G_LABELS,
    G_MARKS,
    G_POSITIONS,
    G_UNSURE,
    G_UNSURE_COUNT,
    GROUPING,
    aligned,
)
from matching.engine.kernels.loader import kernels
from matching.values import Attributes

# Divides the pairs of events and groups that match among the groups, in one call of a kernel.

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
    """The position of each pair's event in `events`, by group."""
    order: Found
    """The number of each pair, by group."""
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
"""Indices of the result's addresses, in the order of `DividedPairs`."""


PAIRS = 16_384
"""Pairs of event and group that one call has room for: 256 groups for `EVENTS` events. With more
groups a call takes fewer events. Not measured; would be measured by the time per event with 100 to
10,000 groups."""

NONE = [np.zeros(0, np.uint32)] * 3


class GroupMatcher:
    """Finds the groups of matching labels in one engine. A group is a small integer."""

    def __init__(self, engine: BlockEngine) -> None:
        self._engine = engine
        self._search = kernels().search_groups
        self._events = BatchWriter(engine.columns)
        self._groups = aligned(1024, np.int32)
        self._hits = np.zeros(1024, np.int64)  # by label
        self._unsure = aligned(EVENTS, np.uint32)
        self._header = aligned(GROUPING, np.int64)
        self._address = self._header.ctypes.data
        self._pairs: list[Found] = []
        self._make_room(PAIRS // EVENTS)

    def _make_room(self, groups: int) -> None:
        """Allocate the arrays whose size depends on the number of groups."""
        self._marks = aligned(groups, np.int64)
        room = max(PAIRS, groups)
        self._at_once = min(EVENTS, room // groups)
        self._pairs = [aligned(room + 1, np.uint32) for _ in range(3)]
        self._divider = PairDivider(groups)
        self._write_header()

    def _write_header(self) -> None:
        """Write the addresses of all arrays where the kernel reads them."""
        header = self._header
        header[G_GROUPS], header[G_MARKS] = self._groups.ctypes.data, self._marks.ctypes.data
        header[G_POSITIONS : G_LABELS + 1] = [part.ctypes.data for part in self._pairs]
        header[G_UNSURE] = self._unsure.ctypes.data

    def set_group(self, labels: Sequence[int], group: int) -> None:
        """Put labels into a group, and reset their hits."""
        highest = max(labels)
        if highest >= len(self._groups):
            wider = aligned(2 * highest, np.int32)
            wider[: len(self._groups)] = self._groups
            self._groups = wider
            self._hits = np.concatenate([self._hits, np.zeros(len(wider) - len(self._hits), int)])
            self._write_header()
        if group >= len(self._marks):
            self._make_room(2 * group)
        self._groups[labels] = group
        self._hits[labels] = 0

    def find(self, batch: Sequence[Attributes], existing: int) -> Pairs:
        """The groups that each event of a batch matches; `existing`: how many groups there are."""
        self._header[G_EXIST] = existing
        found: list[list[Found]] = []
        unsure: list[int] = []
        at_once = self._at_once
        alike = self._events.alike(batch)
        if batch and len(batch) <= at_once:
            return Pairs(
                *self._find(batch, alike), self._unsure[: self._header[G_UNSURE_COUNT]].tolist()
            )
        for start in range(0, len(batch), at_once):
            end = start + at_once
            positions, groups, labels = self._find(batch[start:end], part_of(alike, start, end))
            found.append([positions + np.uint32(start), groups.copy(), labels.copy()])
            unsure += (self._unsure[: self._header[G_UNSURE_COUNT]] + start).tolist()
        positions, groups, labels = map(np.concatenate, zip(*(found or [NONE]), strict=True))
        return Pairs(positions, groups, labels, unsure)

    def _find(
        self, part: Sequence[Attributes], alike: EventColumns | None
    ) -> tuple[Found, Found, Found]:
        """(events, groups, labels) of as many events as one call takes."""
        self._events.write(part, alike)
        values = self._events.address
        count = self._search(self._engine.address, values, len(part), self._address)
        positions, groups, labels = self._pairs
        return positions[:count], groups[:count], labels[:count]

    def share(self, found: Pairs) -> tuple[list[int], list[int], dict[int, list[int]]]:
        """Divide a batch among the groups, and count each pair as a hit of its label.

        Returns (indices in the batch of the events that some group gets, a label of each of them,
        by group the indices of its events in that list).
        """
        divided = self._divider.divide(found, self._hits.ctypes.data)
        places = divided.places.tolist()
        shares = {group: places[run] for group, run in divided.runs}
        return divided.events.tolist(), divided.witnesses.tolist(), shares

    def by_group(self, found: Pairs) -> dict[int, tuple[list[int], list[int]]]:
        """By group: (indices of its events in the batch, ascending; a label of each)."""
        divided = self._divider.divide(found)
        order = divided.order
        positions, labels = found.positions[order].tolist(), found.labels[order].tolist()
        return {group: (positions[run], labels[run]) for group, run in divided.runs}

    def hits(self, labels: Sequence[int]) -> int:
        """The pairs of these labels that `share` has counted since their group was set."""
        return int(sum(self._hits[label] for label in labels if label < len(self._hits)))
