"""Back-off for peers that broke the protocol: neither dialled nor accepted for a while.

A peer that sends garbage loses its connection. If it could return at once it would keep this node
busy with handshakes; so each violation doubles the time for which it is shut out.

Where only bytes were corrupted on the way the session goes on with the next connection, and the
peer may have done nothing wrong. That time therefore stays well below the silence that counts as
death: otherwise a network that damages a frame now and then would, once the time has doubled often
enough, end sessions with all that waits in them.
"""

from __future__ import annotations

from typing import NamedTuple

from overlay.bounded import BoundedDict
from overlay.links.constants import MAX_DOUBLINGS, MAX_PENALTIES, PENALTY_RESET_AFTER
from overlay.machine import NodeId


class Penalty(NamedTuple):
    """The recent violations of one peer. Times are monotonic seconds."""

    violations: int
    last: float
    until: float  # when it may connect again


class Penalties:
    """Peers with recent violations; the one whose last violation is oldest is forgotten first."""

    def __init__(self, first: float, most: float, corruption_most: float) -> None:
        """Seconds: half of the penalty for a first violation, the longest penalty, and the longest
        for corrupted bytes."""
        self._first = first
        self._most = most
        self._corruption_most = corruption_most
        self._penalties: BoundedDict[NodeId, Penalty] = BoundedDict(MAX_PENALTIES)

    def protocol_violated(self, peer: NodeId, now: float) -> None:
        """Penalise `peer` for a frame or message that the protocol does not allow."""
        self._add(peer, now, self._most)

    def bytes_corrupted(self, peer: NodeId, now: float) -> None:
        """Penalise `peer` for bytes that were no frame or did not match their digest."""
        self._add(peer, now, self._corruption_most)

    def _add(self, peer: NodeId, now: float, most: float) -> None:
        last = self._penalties.get(peer, Penalty(0, now, 0.0))
        violations = 1 + (0 if now - last.last > PENALTY_RESET_AFTER else last.violations)
        wait = min(self._first * 2.0 ** min(violations, MAX_DOUBLINGS), most)
        self._penalties.renew(peer, Penalty(violations, now, max(now + wait, last.until)))

    def until(self, peer: NodeId) -> float:
        """When `peer` may connect again; 0 if it has no penalty."""
        penalty = self._penalties.get(peer)
        return 0.0 if penalty is None else penalty.until
