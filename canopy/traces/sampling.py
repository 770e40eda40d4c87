"""Which events are traced: all while few are published, and a share of them where there are many.

The node that publishes an event decides whether it is traced, and says so in the event: so all
nodes keep the records of the same events. It keeps `rate` events a second, as nearly as halving the
share allows, and never more than the share `most`. Within a share the CRC-32 of an event's identity
decides (not `hash()`, which differs between processes), so that who reads the traces can work out
from the shares that were recorded (kind ``sampling``) which events should be there.

Records of other nodes' events cost this node as much as its own: a node in the middle of many busy
publishers keeps what all of them trace.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

WINDOW: Final = 1.0
"""Seconds over which events are counted. A burst halves the share at once; it grows again by one
step a window."""

HALVINGS_MOST: Final = 30
"""A share is never less than 2^-30: of 10^9 events a second one is kept."""


def is_sampled(event: str, sample: float) -> bool:
    """Whether records of `event` are kept at the rate `sample` (0 to 1); the same on all nodes."""
    return crc32(event.encode("utf-8", "surrogatepass")) < sample * 2**32


def marks(prefix: str, first: int, count: int, sample: float) -> list[bool]:
    """`is_sampled` of so many events, whose identities are `prefix` and a number, from `first`
    on."""
    before, most = crc32(prefix.encode("utf-8", "surrogatepass")), sample * 2**32
    return [crc32(b"%d" % number, before) < most for number in range(first, first + count)]


class AdaptiveShare:
    """The share of a node's own events that is traced. Times are seconds, of one clock."""

    def __init__(self, most: float = 1.0, rate: float = 0.0) -> None:
        """`most`: the share where few are published; `rate`: events a second that are traced, 0:
        however many there are."""
        self._most = most
        self._rate = rate
        self._halvings = 0
        self._since = float("-inf")  # the beginning of the window
        self._published = 0  # in it

    @property
    def share(self) -> float:
        """The share that holds now."""
        return self._most / (1 << self._halvings)

    def publishes(self, events: int, now: float) -> bool:
        """So many more events are published, to which `share` applies when this returns. Returns
        whether it has changed."""
        if not self._rate:
            return False
        before = self._halvings
        passed = now - self._since
        if not 0.0 <= passed < WINDOW:  # also where the clock was turned back
            quiet = passed > 2 * WINDOW or passed < 0.0
            if quiet or self._kept(self._published, self._halvings - 1) <= self._rate * passed:
                self._halvings = 0 if quiet else max(0, self._halvings - 1)
            self._since, self._published = now, 0
        self._published += events
        while (
            self._kept(self._published, self._halvings) > self._rate * WINDOW
            and self._halvings < HALVINGS_MOST
        ):
            self._halvings += 1
        return self._halvings != before

    def _kept(self, events: int, halvings: int) -> float:
        """How many of so many events are kept."""
        return events * self._most * 2.0**-halvings
