"""What a node knows of a lost cluster, and of those who would lead it (P5): see `recovery`."""

from __future__ import annotations

from typing import NamedTuple

from overlay.chord.messages import Cluster
from overlay.machine import Key, NodeId, Version


class LostCluster:
    """A cluster without a leader, as far as this node knows."""

    def __init__(self, cluster: Cluster, now: float) -> None:
        self.cluster = cluster
        self.since = now
        self.not_before = now  # a refusal came
        self.jitter = -1.0  # the part of the wait that is by chance
        self.neighbours_informed = False  # some were asked to look as well


class RecoveryAttempt:
    """This node asks others whether it may lead a lost cluster."""

    def __init__(self, lost: LostCluster, epoch: int, now: float) -> None:
        self.lost = lost
        self.epoch = epoch
        self.since = now
        self.unheard = {peer.id: None for peer in lost.cluster.members()}
        self.agreed: dict[NodeId, None] = {}
        self.refused = False

    def is_meant(self, key: Key, epoch: int) -> bool:
        """Whether an answer about the cluster `key` and this epoch is one to this question."""
        return (key, epoch) == (self.lost.cluster.key, self.epoch)


Standing = tuple[bool, Version]
"""Whether a node is a member of the lost cluster, and the position of its log or copy."""


class Agreement(NamedTuple):
    """To whom this node has agreed; until then it agrees only to a node that is fitter."""

    node: NodeId
    standing: Standing
    until: float

    def is_fitter(self, node: NodeId, standing: Standing) -> bool:
        """Whether the node that was agreed to is fitter than `node`."""
        return (standing, self.node) < (self.standing, node)
