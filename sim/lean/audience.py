"""Who is interested, by brute force: what routing is held against, and what counting would cost.

Nothing here knows of pivots, trees or hosts. A subscription's attributes are bits; an array
operation over all subscriptions leaves those that ask for nothing but what the event has, and of
these each is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.lean.load import LeanSubscription

WORD = 64
"""Attributes in one word of bits."""


class Audience:
    """All subscriptions."""

    def __init__(self, subscriptions: Sequence[LeanSubscription], attributes: int) -> None:
        self.subscriptions = subscriptions
        words = [[0] * len(subscriptions) for _ in range(0, attributes, WORD)]
        for number, one in enumerate(subscriptions):
            for name in one.ranges:
                words[name // WORD][number] |= 1 << (name % WORD)
        self._asked = [np.array(word, dtype=np.uint64) for word in words]
        self._by_attribute: dict[int, NDArray[np.int64]] = {}

    def matching(self, event: dict[int, int]) -> list[int]:
        """The numbers of the subscriptions that match."""
        lacking = [(1 << WORD) - 1] * len(self._asked)
        for name in event:
            lacking[name // WORD] &= ~(1 << (name % WORD))
        open_ = np.zeros(len(self.subscriptions), dtype=np.uint64)
        for asked, mask in zip(self._asked, lacking, strict=True):
            open_ |= asked & np.uint64(mask)
        candidates = np.flatnonzero(open_ == 0).tolist()
        return [number for number in candidates if self.subscriptions[number].matches(event)]

    def copies(self, event: dict[int, int]) -> int:
        """What counting (C8) sends: for each attribute a copy to each node whose range it meets."""
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
