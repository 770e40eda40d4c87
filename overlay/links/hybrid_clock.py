"""A hybrid logical clock: trace records of all nodes in an order that respects causality.

Kulkarni et al., *Logical Physical Clocks and Consistent Snapshots in Globally Distributed
Databases*, 2014: every batch between two nodes carries its sender's time, and a node that hears of
a later time goes on from there, so that of two events of which one can have caused the other, that
one has the smaller time, whatever the machines' clocks show. Here it is one integer, nanoseconds
since 1970, and differs from the paper in what the physical part is: the node's monotonic clock, set
by the wall clock once, when the process starts. So a wall clock that is turned while the node runs
changes nothing. A node that hears of a later time moves its clock forward for good (Lamport 1978,
*physical clocks*) and does not merely count until its own clock has come so far. Hence all nodes
that exchange batches show the same time, but for the time a batch takes, and that time passes as
real time does, even where one machine is an hour ahead and has pulled all others with it. That is
meant to be so: nothing reads this clock as the time of day, and no protocol decides by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LATEST: Final = 1 << 62
"""Nanoseconds: in the year 2116. A time beyond it is not taken over, so that a damaged one cannot
use up the 63 bits that a trace record has."""

NANOSECONDS: Final = 1e9  # per second

MOST_AHEAD: Final = 86_400 * 10**9
"""Nanoseconds by which others may be ahead of this node's own wall clock, if that is set at all: so
that one that lies cannot take all clocks to `LATEST`, where they would part."""

SET: Final = 1_700_000_000 * 10**9
"""A time in 2023, in nanoseconds: a machine's clock with an earlier one has not been set yet, and
follows any other."""


class HybridClock:
    """The hybrid logical clock of one process of a node."""

    def __init__(self, monotonic: Callable[[], float], wall: float) -> None:
        """`monotonic` is the node's clock in seconds, `wall` what the machine's wall clock shows
        now, in seconds since 1970; a time that cannot be right counts as 0."""
        self._monotonic = monotonic
        now = int(wall * NANOSECONDS)
        self._offset = (now if 0 < now < LATEST else 0) - int(monotonic() * NANOSECONDS)
        self._own = self._offset if SET < now < LATEST else None
        """The offset by its own wall clock; None: that is not set."""
        self._last = 0

    def read(self) -> int:
        """The time of what the node does now, later than every time it gave or heard of before."""
        now = int(self._monotonic() * NANOSECONDS) + self._offset
        if now <= self._last:
            now = self._last + 1
        self._last = now
        return now

    def observe(self, seen: int) -> None:
        """Advance the clock past `seen`, the clock of the sender of a batch."""
        if self._last < seen <= LATEST:
            now = int(self._monotonic() * NANOSECONDS)
            if self._own is not None and seen > now + self._own + MOST_AHEAD:
                return
            ahead = seen - now - self._offset
            if ahead > 0:
                self._offset += ahead
            self._last = seen
