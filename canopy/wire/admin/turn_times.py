"""The durations of a node's turns: a histogram for Prometheus."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate
from typing import Final

BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
"""Upper bounds of the buckets, in seconds: from a turn with one message to a turn that other nodes
take for silence."""


IDLE_WINDOW: Final = 0.02
"""The shortest time, in seconds, over which the node's idle share is measured."""


class TurnTimes:
    """Counts turns by their duration. Its methods are called each turn, so they do little."""

    __slots__ = ("_measured", "counts", "idle", "total")

    def __init__(self) -> None:
        self.idle = 0.0
        """The share of the last `IDLE_WINDOW` seconds or more in which the node had nothing to
        do."""
        self._measured = (-math.inf, 0.0)  # … as of this time, and of this processor time
        self.counts = [0] * (len(BOUNDS) + 1)
        """The number of turns by bucket; the last bucket has all longer turns."""
        self.total = 0.0
        """The seconds of all turns."""

    def observe(self, seconds: float) -> None:
        """Count a turn of `seconds` seconds."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def measure(self, now: float, spent: float) -> None:
        """Update `idle`. `now`: the time; `spent`: the processor time that the node has used so
        far. Seconds."""
        since, before = self._measured
        if now - since >= IDLE_WINDOW:
            self.idle = max(0.0, 1.0 - (spent - before) / (now - since))
            self._measured = (now, spent)

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper bound as text, number of turns up to it) of each bucket, as the exposition
        needs them."""
        bounds = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))
