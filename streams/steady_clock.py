"""The time of day without jumps, for the timestamps and the age of rows.

If the wall clock is set an hour forward, rows would expire, and retention remove them, an hour too
early; if it is set back, too late. So a node reads the wall clock at its start, counts on with a
monotonic clock, and slews towards the wall clock. (The clocks of different nodes may still differ:
a later leader has its own.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.machine import Port

SLEW: Final = 0.01
"""Seconds of correction per second: an hour in four days. The drift of a clock, some 0.0001, is
below it and corrected at once. Guess."""

NANOSECONDS: Final = 1e9


class SteadyClock:
    """A callable that returns the time, which never goes back."""

    def __init__(self, port: Port, wall: Callable[[], int]) -> None:
        """`port.now`: seconds by a clock that only goes forward; `wall`: nanoseconds since 1970."""
        self._port = port
        self._wall = wall
        self._read_at = port.now
        self._ahead = wall() - int(self._read_at * NANOSECONDS)

    def __call__(self) -> int:
        """Nanoseconds since 1970."""
        now = self._port.now
        most = int((now - self._read_at) * SLEW * NANOSECONDS)
        self._read_at = now
        counted = int(now * NANOSECONDS)
        off = self._wall() - counted - self._ahead
        self._ahead += max(-most, min(off, most))
        return counted + self._ahead
