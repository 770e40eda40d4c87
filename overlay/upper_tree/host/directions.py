"""What a host has told publishers of where its trees are, so that it says it now and then (C7).

Whoever visits a tree is told where it is: its next events then go there directly, and it knows the
other replicas. It remembers that, and an acceptance that says it again for each of ten trees costs
more than all the rest of it. So a host says what is new, and repeats it after a while: publishers
may forget (a link was lost, or they know too many trees), and an acceptance may be lost.
"""

from __future__ import annotations

from matching import Interval
from overlay.machine import NodeId, Version

AGAIN = 1.0
"""Seconds after which a publisher is told everything once more. Until then one that has forgotten
sends its events to some way into the tree. Wild guess."""

PUBLISHERS_MOST = 1_024
"""Publishers of whom it is remembered what they were told. Wild guess."""

Known = dict[tuple[str, Interval], Version]
"""By tree and part of it: the version of the map that a publisher was told."""


class Directions:
    """Bounded: the publisher that was told everything longest ago goes first. Times in seconds."""

    def __init__(self) -> None:
        self._told: dict[NodeId, tuple[float, Known]] = {}

    def known_to(self, publisher: NodeId, now: float) -> Known:
        """What it was told lately; whoever tells it more notes it there."""
        told = self._told.get(publisher)
        if told is None or now - told[0] > AGAIN:
            self._told.pop(publisher, None)
            told = self._told[publisher] = (now, {})
            if len(self._told) > PUBLISHERS_MOST:
                del self._told[next(iter(self._told))]
        return told[1]
