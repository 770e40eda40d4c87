"""Founding a ring (docs/design/chord-ring.md, *Finding a way in*).

There should be one ring. A node without seeds founds it at once. Others found one only after a time
in which no node they reached knew of a ring, and then only the smallest id among those who see each
other does, so that a group of new nodes does not found one each; a node that reached none founds
alone and serves its local clients. The first cluster owns the whole ring. Each smaller id has its
turn for as long, then it is the next one's: one that does not found, or may not, holds up nobody.

Slow starts and partitions still make several rings. Where two meet, the smaller id wins, so a
ring's id begins with how little its founder knew: one that has no seeds comes before one that
took its turn, and that before one that reached no other node (see `merging`).
"""

from __future__ import annotations

from dataclasses import dataclass

from overlay.chord.keys import key_of
from overlay.chord.messages import Cluster
from overlay.chord.ring.ring_state import RingState
from overlay.chord.role import ClusterRole, RecruitingView
from overlay.machine import Timer

NO_SEEDS, ITS_TURN, ALONE = 0, 1, 2
"""First digit of a ring's id."""


class FoundingDue(Timer, frozen=True):
    """No ring was heard of for `ring.found_after` seconds."""


@dataclass(eq=False)
class Founding:
    """Decides whether this node founds a ring of its own, with the first cluster, and does so."""

    role: ClusterRole
    ring: RingState
    view: RecruitingView
    founder: bool
    found_after: float

    def __post_init__(self) -> None:
        self.port = self.role.port
        self._turns = 0  # that have passed without a ring

    def start(self) -> Cluster | None:
        """The cluster to found at once, if this node is the founder."""
        if self.founder:
            return self._cluster(NO_SEEDS)
        self.wait()
        return None

    def wait(self) -> None:
        """Wait anew: a ring was heard of, and may be again."""
        self.port.set_timer(self.found_after, FoundingDue())

    def due(self) -> Cluster | None:
        """The cluster to found now, if it is time and this node's turn; None otherwise."""
        if self.role.leaving:
            return None
        self.wait()
        if self.role.cluster or self.role.is_reserved or self.ring.knows_ring():
            self._turns = 0
            return None
        others = self.view.peers()
        before = [
            p for p in others if p.id < self.port.me.id and self.ring.votes(p.id) is not False
        ]
        self._turns += 1
        if self._turns <= len(before):
            return None  # another node's turn
        return self._cluster(ITS_TURN if others else ALONE)

    def _cluster(self, rank: int) -> Cluster:
        """The first cluster of a new ring: alone, and owner of every key."""
        me = self.port.me
        key = key_of("cluster:" + me.id)
        ring = f"{rank}{me.id}{self.port.rng.getrandbits(64):016x}"
        return Cluster(ring, key, key, (1, 0), me)
