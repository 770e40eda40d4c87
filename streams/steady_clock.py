"""The time of day without its jumps, by which rows are stamped and grow old.

A clock that is set an hour forward would let rows expire, and retention remove them, an hour too
soon; one that is set back would keep them. So a node takes the time of day at its start, counts on
by a clock that nobody sets, and comes back to the time of day slowly, as a clock that is slewed.
(Between nodes clocks may differ as before: a later leader has its own.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SLEW: Final = 0.01
"""Seconds by which it comes nearer to the time of day in a second: an hour in four days. What
drifts by itself, some 0.0001, is followed at once. Guess."""

NANOSECONDS: Final = 1e9


class SteadyClock:
    """To be called for the time; it never goes back."""

    def __init__(self, now: Callable[[], float], wall: Callable[[], int]) -> None:
        """`now`: seconds by a clock that only goes forward; `wall`: nanoseconds since 1970."""
        self._now = now
        self._wall = wall
        self._read_at = now()
        self._ahead = wall() - int(self._read_at * NANOSECONDS)

    def __call__(self) -> int:
        """Nanoseconds since 1970."""
        now = self._now()
        most = int((now - self._read_at) * SLEW * NANOSECONDS)
        self._read_at = now
        counted = int(now * NANOSECONDS)
        off = self._wall() - counted - self._ahead
        self._ahead += max(-most, min(off, most))
        return counted + self._ahead
