"""Several events in one call, and whose the labels are that are found for each of them.

Asking for one event costs Python more than the kernel: writing the event down, calling, making a
list of labels, looking up whose each is. So here up to `EVENTS` events are written down together,
attribute by attribute where they have the same ones, and one call finds for each of them the
*groups* that its labels belong to (a table by label says it), each group once with the label that
was found first, until all groups are found. What comes back is three columns for the whole batch;
`share` turns them into a list of events for each group, and counts the labels, without a look at
single pairs.

An event with labels that only Python can tell is left out, and said to be *unsure*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from matching.engine.engine import Engine
from matching.engine.events import EVENTS, BatchWriter
from matching.engine.kernels.layout import (
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
from matching.engine.kernels.loading import kernels
from matching.values import Attributes

PAIRS = 16_384
"""Pairs of event and group that one call has room for: 256 groups for `EVENTS` events. Where groups
are more, a call takes fewer events. Wild guess."""

NONE = [np.zeros(0, np.uint32)] * 3
Found = npt.NDArray[np.uint32]


class Pairs(NamedTuple):
    """(event, group) for several events, in the order of the events; each pair once. Arrays may lie
    in memory that the next call writes anew."""

    places: npt.NDArray[np.uint32]
    """Where the event is in the batch."""
    groups: npt.NDArray[np.uint32]
    labels: npt.NDArray[np.uint32]
    """The first one of the group that was found for the event."""
    unsure: list[int]
    """The places of events that Python has to look at."""


class GroupMatcher:
    """Finds groups by label for events of one engine. A group is a small integer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._search = kernels().search_groups
        self._events = BatchWriter(engine.columns)
        self._groups = aligned(1024, np.int32)
        self._hits = np.zeros(1024, np.int64)  # by label
        self._unsure = aligned(EVENTS, np.uint32)
        self._header = aligned(GROUPING, np.int64)
        self._address = self._header.ctypes.data
        self._pairs: list[npt.NDArray[np.uint32]] = []
        self._make_room(PAIRS // EVENTS)

    def _make_room(self, groups: int) -> None:
        """Room for so many groups."""
        self._marks = aligned(groups, np.int64)
        room = max(PAIRS, groups)
        self._at_once = min(EVENTS, room // groups)
        self._pairs = [aligned(room + 1, np.uint32) for _ in range(3)]
        self._point()

    def _point(self) -> None:
        header = self._header
        header[G_GROUPS], header[G_MARKS] = self._groups.ctypes.data, self._marks.ctypes.data
        header[G_POSITIONS : G_LABELS + 1] = [part.ctypes.data for part in self._pairs]
        header[G_UNSURE] = self._unsure.ctypes.data

    def note(self, label: int, group: int) -> None:
        """Whose a label is."""
        if label >= len(self._groups):
            wider = aligned(2 * label, np.int32)
            wider[: len(self._groups)] = self._groups
            self._groups = wider
            self._hits = np.concatenate([self._hits, np.zeros(len(wider) - len(self._hits), int)])
            self._point()
        if group >= len(self._marks):
            self._make_room(2 * group)
        self._groups[label] = group
        self._hits[label] = 0

    def find(self, batch: Sequence[Attributes], existing: int) -> Pairs:
        """The groups that are found for each of several events; `existing`: how many there
        are."""
        self._header[G_EXIST] = existing
        found: list[list[Found]] = []
        unsure: list[int] = []
        at_once = self._at_once
        if batch and len(batch) <= at_once:
            return Pairs(*self._find(batch), self._unsure[: self._header[G_UNSURE_COUNT]].tolist())
        for start in range(0, len(batch), at_once):
            places, groups, labels = self._find(batch[start : start + at_once])
            found.append([places + np.uint32(start), groups.copy(), labels.copy()])
            unsure += (self._unsure[: self._header[G_UNSURE_COUNT]] + start).tolist()
        places, groups, labels = map(np.concatenate, zip(*(found or [NONE]), strict=True))
        return Pairs(places, groups, labels, unsure)

    def _find(self, part: Sequence[Attributes]) -> tuple[Found, Found, Found]:
        """Of as many as one call takes."""
        self._events.load(part)
        values = self._events.address
        count = self._search(self._engine.address, values, len(part), self._address)
        places, groups, labels = self._pairs
        return places[:count], groups[:count], labels[:count]

    def share(self, found: Pairs) -> tuple[list[int], list[int], dict[int, list[int]]]:
        """The events for which some group was found (places in the batch), a label of each, and by
        group its events (places in that list). Each pair is a hit of its label."""
        np.add.at(self._hits, found.labels, 1)
        places = found.places
        is_next = np.ones(len(places), bool)  # of another event than the pair before
        np.not_equal(places[1:], places[:-1], out=is_next[1:])
        among = is_next.cumsum() - 1
        # Numbers of groups below 65,536 are sorted twice as fast as such.
        narrow = np.uint16 if len(self._marks) <= 1 << 16 else np.uint32
        ordered = among[found.groups.astype(narrow).argsort(kind="stable")].tolist()
        shares, start = dict[int, list[int]](), 0
        for group, count in enumerate(np.bincount(found.groups).tolist()):
            if count:
                shares[group] = ordered[start : start + count]
                start += count
        return places[is_next].tolist(), found.labels[is_next].tolist(), shares

    def by_group(self, found: Pairs) -> dict[int, tuple[list[int], list[int]]]:
        """By group its events (places in the batch, in order), and a label of each."""
        narrow = np.uint16 if len(self._marks) <= 1 << 16 else np.uint32
        order = found.groups.astype(narrow).argsort(kind="stable")
        places, labels = found.places[order].tolist(), found.labels[order].tolist()
        groups, start = dict[int, tuple[list[int], list[int]]](), 0
        for group, count in enumerate(np.bincount(found.groups).tolist()):
            if count:
                end = start + count
                groups[group] = places[start:end], labels[start:end]
                start = end
        return groups

    def hits(self, labels: Sequence[int]) -> int:
        """How often these labels were shared for, since they were noted."""
        return int(sum(self._hits[label] for label in labels if label < len(self._hits)))
