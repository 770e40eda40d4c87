"""How long a primary may be silent before its voters act (P3, P4; Lifeguard's idea of a measured
timeout).

A fixed time is wrong in some network: where frames are lost or slow, usual delays would count as a
death, and where they are not, a death would be noticed late. So the primary measures how long its
heartbeats take until a majority has answered, retransmissions included, and tells its voters with
each heartbeat how long to wait (`heartbeat`). One slow voter changes nothing, since a majority
answers without it.

The longest recent time counts, and is forgotten by halves. The timeout is twice that, so that one
heartbeat of two may be that late. An answer that took longer than the voters were asked to wait
counts as just so long: the majority was out of reach, which says little of how slow the network is.
One that has become slow is followed all the same, since the timeout can double each time.
"""

from __future__ import annotations

from overlay.chord.constants import TIMEOUT_HALF_LIFE, TIMEOUT_SHARE


class ElectionTimeout:
    """An estimate from measured times. All values are seconds."""

    def __init__(self, least: float, most: float, heartbeat: float) -> None:
        """`least`, `most`: bounds of the timeout. `heartbeat`: time between two heartbeats."""
        self.least = least
        self.most = most
        self.heartbeat = heartbeat
        self._longest = 0.0
        self._at = 0.0

    def note(self, took: float, asked: float, now: float) -> None:
        """A majority answered a heartbeat after `took` seconds; the heartbeat asked the voters to
        wait for `asked` seconds."""
        self._remember(min(took, asked), now)

    def start_from(self, seconds: float, now: float) -> None:
        """Begin with the timeout that the primary before asked for."""
        self._remember((seconds - 2.0 * self.heartbeat) / TIMEOUT_SHARE, now)

    def seconds(self, now: float) -> float:
        """The election timeout from now on: `TIMEOUT_SHARE` times the longest answer that is
        remembered, and two heartbeats, within the bounds."""
        wanted = TIMEOUT_SHARE * self._remembered(now) + 2.0 * self.heartbeat
        return min(max(wanted, self.least), self.most)

    def _remember(self, took: float, now: float) -> None:
        self._longest = max(took, self._remembered(now))
        self._at = now

    def _remembered(self, now: float) -> float:
        return float(self._longest * 0.5 ** ((now - self._at) / TIMEOUT_HALF_LIFE))
