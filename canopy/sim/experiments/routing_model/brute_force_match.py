"""Who is interested, by brute force: what routing is held against, and what counting would cost.

Nothing here knows of pivots, trees or hosts. A subscription's attributes are bits; an array
operation over all subscriptions leaves those that ask for nothing but what the event has, and of
these another one looks at all ranges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from canopy.sim.scenario.range_load import RangeSubscription

WORD = 64
"""Attributes in one word of bits."""


class Audience:
    """All subscriptions, compiled to arrays, to find the interested ones of an event by brute
    force."""

    def __init__(self, subscriptions: Sequence[RangeSubscription], attributes: int) -> None:
        self.subscriptions = subscriptions
        words = [[0] * len(subscriptions) for _ in range(0, attributes, WORD)]
        for number, one in enumerate(subscriptions):
            for name in one.ranges:
                words[name // WORD][number] |= 1 << (name % WORD)
        self._asked = [np.array(word, dtype=np.uint64) for word in words]
        self._by_attribute: dict[int, NDArray[np.int64]] = {}
        # All ranges one after the other: attribute, low, high; and where each subscription's begin.
        self._ranges = np.array(
            [(name, *span) for one in subscriptions for name, span in one.ranges.items()],
            dtype=np.int64,
        ).reshape(-1, 3)
        self._count = np.array([len(one.ranges) for one in subscriptions], dtype=np.int64)
        self._start = np.cumsum(self._count) - self._count
        self._values = np.zeros(attributes, dtype=np.int64)

    def matching(self, event: dict[int, int]) -> list[int]:
        """The numbers of the subscriptions that match."""
        lacking = [(1 << WORD) - 1] * len(self._asked)
        for name in event:
            lacking[name // WORD] &= ~(1 << (name % WORD))
        open_ = np.zeros(len(self.subscriptions), dtype=np.uint64)
        for asked, mask in zip(self._asked, lacking, strict=True):
            open_ |= asked & np.uint64(mask)
        candidates = np.flatnonzero(open_ == 0)
        if not len(candidates):
            return []
        self._values[list(event)] = list(event.values())
        count = self._count[candidates]
        first = np.cumsum(count) - count  # of each candidate, among the rows taken
        taken = np.arange(count.sum()) + np.repeat(self._start[candidates] - first, count)
        names, lows, highs = self._ranges[taken].T
        values = self._values[names]
        met = np.logical_and.reduceat((lows <= values) & (values <= highs), first)
        found: list[int] = candidates[met].tolist()
        return found

    def copies(self, event: dict[int, int]) -> int:
        """Copies that counting (C8) sends: for each attribute one to each node whose range contains
        the value."""
        if not self._by_attribute:
            rows: dict[int, list[tuple[int, int, int]]] = {}
            for one in self.subscriptions:
                for name, (low, high) in one.ranges.items():
                    rows.setdefault(name, []).append((one.node, low, high))
            self._by_attribute = {name: np.array(found) for name, found in rows.items()}
        sent = 0
        for name, value in event.items():
            ranges = self._by_attribute.get(name)
            if ranges is not None:
                hit = (ranges[:, 1] <= value) & (value <= ranges[:, 2])
                sent += len(np.unique(ranges[hit, 0]))
        return sent
