"""Founding a ring (DESIGN.md, section 4, Found).

There shall be one ring. A node without seeds founds it at once. Others found one only after a time
in which nobody they reached knew of a ring, and then only the smallest id among those who see each
other does, so that a group of newcomers does not found one each; a node that reached nobody founds
alone and serves its local clients. The first cluster owns the whole ring.
"""

from __future__ import annotations

from overlay.chord.keys import key_of
from overlay.chord.messages import Cluster
from overlay.chord.seat import Seat
from overlay.machine import Timer


class FoundingDue(Timer, frozen=True):
    """No ring was heard of for some time."""


class Founding:
    """Decides whether this node founds."""

    def __init__(self, seat: Seat, founder: bool, found_after: float) -> None:
        self.seat = seat
        self.port = seat.port
        self.founder = founder
        self.found_after = found_after

    def start(self) -> Cluster | None:
        """The cluster to found at once, if this node is the founder."""
        if self.founder:
            return self.cluster()
        self.port.set_timer(self.found_after, FoundingDue())
        return None

    def due(self) -> Cluster | None:
        """The cluster to found now, if it is time and this node's turn."""
        if self.seat.cluster is not None or self.seat.reserved or self.seat.leaving:
            return None
        self.port.set_timer(self.found_after, FoundingDue())
        if self.seat.ring.known():
            return None
        if any(peer.id < self.port.me.id for peer in self.seat.view.peers()):
            return None  # somebody else's turn
        return self.cluster()

    def cluster(self) -> Cluster:
        """The first cluster of a new ring: alone, and owner of every key."""
        me = self.port.me
        key = key_of("cluster:" + me.id)
        ring = f"{me.id}{self.port.rng.getrandbits(64):016x}"
        return Cluster(ring, key, key, (1, 0), me)
