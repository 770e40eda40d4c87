"""Sizes the backlog that is kept for one peer that may be out of reach for a while (T3).

Tensor sizes the backlog of its replication so: it starts at a floor; every 30 s it is to hold what
is written in the mean time of a disconnect, over those of the last 24 hours; a larger size is taken
at once, a smaller one by halves, 2 to the power of -t, down to the floor. Here t is in half-lives
that are a setting, there is an upper bound, and until a disconnect was seen its length is assumed.
So that a burst need not wait for the end of 30 s, what was written in the last one or two times as
long as a disconnect counts as well.
"""

from __future__ import annotations

from typing import Final

PERIOD: Final = 30.0
"""Seconds of the periods over which the rate of writing is taken (Tensor)."""

REMEMBERED: Final = 24 * 3_600.0
"""Seconds for which a disconnect counts in the mean (Tensor) …"""

DISCONNECTS_MOST: Final = 64
"""… the latest ones at most: a mean of more says nothing else."""


class Backlog:
    """The size of one replay buffer, in bytes. Times are monotonic seconds. No memory is kept
    here."""

    __slots__ = (
        *("_assumed", "_asked_at", "_disconnects", "_floor", "_half_life", "_most", "_since"),
        *("_size", "_written", "_burst", "_burst_before", "_burst_since"),
    )

    def __init__(self, floor: int, most: int, half_life: float, assumed: float, now: float) -> None:
        """`assumed`: seconds that a disconnect takes as long as none was seen."""
        self._floor = float(min(floor, most))
        self._most = float(most)
        self._half_life = half_life
        self._assumed = assumed
        self._size = self._floor
        self._asked_at = now
        self._written = 0  # bytes in the present period, which began …
        self._since = now
        self._burst = self._burst_before = 0  # in the present and last time of a disconnect …
        self._burst_since = now
        self._disconnects: tuple[tuple[float, float], ...] = ()  # (when it ended, seconds)

    def wrote(self, size: int) -> None:
        """Note that `size` bytes were written for the peer."""
        self._written += size
        self._burst += size

    def reconnected(self, seconds: float, now: float) -> None:
        """Note that the peer was out of reach for `seconds`, until now."""
        latest = (*self._disconnects, (now, seconds))
        self._disconnects = latest[-DISCONNECTS_MOST:]

    def disconnect(self, now: float) -> float:
        """The seconds of a disconnect that are allowed for."""
        lasted = [seconds for at, seconds in self._disconnects if at > now - REMEMBERED]
        return sum(lasted) / len(lasted) if lasted else self._assumed

    def size(self, now: float) -> int:
        """Return the maximum number of bytes to keep from now on."""
        out, elapsed = self.disconnect(now), now - self._since
        wanted = float(self._burst + self._burst_before)
        if elapsed >= PERIOD:
            wanted = max(wanted, self._written / elapsed * out)
            self._since, self._written = now, 0
        if now - self._burst_since >= out:
            self._burst_before, self._burst, self._burst_since = self._burst, 0, now
        kept = self._size * 0.5 ** ((now - self._asked_at) / self._half_life)
        self._asked_at = now
        self._size = min(max(wanted, kept, self._floor), self._most)
        return int(self._size)
