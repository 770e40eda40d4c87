"""Who broke the protocol, and how long it is kept waiting (DESIGN.md: bad input).

A peer that sends garbage loses its connection. If it came back at once it could keep this node
busy with handshakes; so each fault doubles a time in which it is neither dialled nor answered.

Where only the bytes were damaged the session goes on with the next connection, and the peer may
have done nothing wrong. So that time stays well below the silence that counts as death: else a
network that damages a frame now and then would, once the time has doubled often enough, end
sessions with all that waits in them, and renewals of leases with it.
"""

from __future__ import annotations

from typing import NamedTuple

from overlay.machine import NodeId

REMEMBERED = 1_024
"""How many offenders are kept; the one whose fault is oldest is forgotten first. Wild guess."""

FORGIVEN = 60.0
"""Seconds after which a fault no longer makes the next one worse. Wild guess."""


class Offence(NamedTuple):
    """What one peer has done. Times are the clock's, in seconds."""

    faults: int
    last: float
    until: float
    """When it may connect again."""


class Faults:
    """Offenders with the number of their recent faults."""

    def __init__(self, first: float, most: float, damage_most: float) -> None:
        """Seconds: half of what the first fault costs, the most that one costs, and the most that
        damage costs."""
        self._first = first
        self._most = most
        self._damage_most = damage_most
        self._offenders: dict[NodeId, Offence] = {}

    def note(self, peer: NodeId, now: float) -> None:
        """`peer` broke the protocol."""
        self._note(peer, now, self._most)

    def note_damage(self, peer: NodeId, now: float) -> None:
        """What came from `peer` was no frame, or not as it was sent."""
        self._note(peer, now, self._damage_most)

    def _note(self, peer: NodeId, now: float, most: float) -> None:
        offence = self._offenders.pop(peer, Offence(0, now, 0.0))
        faults = 1 + (0 if now - offence.last > FORGIVEN else offence.faults)
        wait = min(self._first * 2.0 ** min(faults, 16), most)
        self._offenders[peer] = Offence(faults, now, max(now + wait, offence.until))
        if len(self._offenders) > REMEMBERED:
            del self._offenders[next(iter(self._offenders))]

    def until(self, peer: NodeId) -> float:
        """When `peer` may connect again (the past, if it never sinned)."""
        offence = self._offenders.get(peer)
        return 0.0 if offence is None else offence.until
