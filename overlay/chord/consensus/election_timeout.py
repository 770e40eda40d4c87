"""How long a silence has to last before it means something (P3, P4; Lifeguard's self-doubt).

A fixed time is wrong in some network: where frames are lost or slow, what is usual would count as a
death, and where they are not, a death would be noticed late. So the primary measures how long its
beats take until a majority has answered, retransmissions included, and says with each beat how long
its voters shall be patient (`Pulse`). One slow voter changes nothing, since a majority answers
without it.

What was long lately may be so again: the longest time counts, and is forgotten by halves. Half of
the patience at most may go by until a beat is answered, so that one beat of two may be that late.
"""

from __future__ import annotations

HALF_LIFE = 20.0
"""Seconds after which a long time counts half: a network that got better is believed within a
minute. Wild guess."""

SHARE = 2.0
"""Patience in longest measured times: the next may be longer than any before. Wild guess."""


class ElectionTimeout:
    """An estimate from measured times, all in seconds."""

    def __init__(self, least: float, most: float, heartbeat: float) -> None:
        """`least`, `most`: bounds of the answer. `heartbeat`: time between two beats."""
        self.least = least
        self.most = most
        self.heartbeat = heartbeat
        self._longest = 0.0
        self._at = 0.0

    def note(self, took: float, now: float) -> None:
        """A majority answered a beat after so long."""
        self._longest = max(took, self._remembered(now))
        self._at = now

    def start_from(self, seconds: float, now: float) -> None:
        """What the primary before asked for is a beginning."""
        self.note((seconds - 2.0 * self.heartbeat) / SHARE, now)

    def seconds(self, now: float) -> float:
        """How long voters shall be patient from now on."""
        wanted = SHARE * self._remembered(now) + 2.0 * self.heartbeat
        return min(max(wanted, self.least), self.most)

    def _remembered(self, now: float) -> float:
        return float(self._longest * 0.5 ** ((now - self._at) / HALF_LIFE))
