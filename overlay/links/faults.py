"""Who broke the protocol, and how long it is kept waiting (DESIGN.md: bad input).

A peer that sends garbage loses its connection. If it came back at once it could keep this node
busy with handshakes; so each fault doubles a time in which it is neither dialled nor answered.
"""

from __future__ import annotations

from overlay.machine import NodeId

REMEMBERED = 1_024
"""How many offenders are kept; the one whose fault is oldest is forgotten first. Wild guess."""

FORGIVEN = 60.0
"""Seconds after which a fault no longer makes the next one worse. Wild guess."""


class Faults:
    """Offenders with the number of their recent faults."""

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._offenders: dict[NodeId, tuple[int, float]] = {}  # id -> (faults, time of the last)

    def note(self, peer: NodeId, now: float) -> None:
        """`peer` broke the protocol."""
        faults, last = self._offenders.pop(peer, (0, now))
        if now - last > FORGIVEN:
            faults = 0
        self._offenders[peer] = (faults + 1, now)
        if len(self._offenders) > REMEMBERED:
            del self._offenders[next(iter(self._offenders))]

    def until(self, peer: NodeId) -> float:
        """When `peer` may connect again (the past, if it never sinned)."""
        offence = self._offenders.get(peer)
        if offence is None:
            return 0.0
        faults, last = offence
        return last + min(self._first * 2.0 ** min(faults, 16), self._most)
