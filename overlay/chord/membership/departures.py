"""Members that are about to go: those who leave, and those who move to a new cluster (P1).

They go on serving, but should not vote (`cluster.leader_log`) nor become the standby. Only the
primary keeps these lists; they end when another node leads.
"""

from __future__ import annotations

from collections.abc import Iterable

from overlay.chord.messages import Cluster
from overlay.machine import NodeId, Peer


class Departures:
    """Members that are about to leave, and members that go to a cluster that splits off."""

    def __init__(self) -> None:
        self._leaving: dict[NodeId, Peer] = {}
        self._moving: dict[NodeId, None] = {}

    def clear(self) -> None:
        """This node begins to lead, or leads no more."""
        self._leaving.clear()
        self._moving.clear()

    def start_leaving(self, peer: Peer) -> None:
        """`peer` wants to be released, or is lost and a member only until it is voted out."""
        self._leaving[peer.id] = peer

    def end_leaving(self, node: NodeId) -> None:
        """Forget that `node` is about to leave: it serves no more, or stays after all."""
        self._leaving.pop(node, None)

    def is_leaving(self, node: NodeId) -> bool:
        """Whether `node` has asked to be released."""
        return node in self._leaving

    def start_moving(self, peers: Iterable[Peer]) -> None:
        """Let exactly these members go to a cluster that splits off."""
        self._moving = {peer.id: None for peer in peers}

    def end_moving(self) -> None:
        """Forget who was to go to a split-off cluster: the split is done, or given up."""
        self._moving.clear()

    def is_moving(self, node: NodeId) -> bool:
        """Whether `node` goes to a cluster that splits off."""
        return node in self._moving

    def stays(self, node: NodeId) -> bool:
        """Whether `node` neither leaves nor moves."""
        return node not in self._leaving and node not in self._moving

    def staying(self, cluster: Cluster) -> tuple[Peer, ...]:
        """The members of `cluster` that stay, the primary first: who may vote."""
        return tuple(peer for peer in cluster.members() if self.stays(peer.id))
