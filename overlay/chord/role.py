"""This node's seat: its role in at most one cluster (P1).

A cluster has a *primary*, a *standby* that holds a copy of the primary's state, and *match
brokers*. Its description (`Cluster`) says who they are; the primary alone changes it, and every
change has a higher version: another member or another arc a higher number, another primary a higher
epoch. Everything that a node is follows from the newest description of its cluster, so this is the
one place where a role changes.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from overlay.chord.consensus.journal import Journal
from overlay.chord.events import Role, RoleChanged
from overlay.chord.messages import Cluster, Membership
from overlay.chord.ring.ring import Ring
from overlay.lower_random.messages import RingHint
from overlay.machine import Key, NodeId, Peer, Port


class RecruitingView(Protocol):
    """What a cluster needs of the view (overlay/lower_random)."""

    def peers(self) -> tuple[Peer, ...]:
        """All neighbours."""

    def idle_peers(self) -> tuple[Peer, ...]:
        """Neighbours that are said to serve nowhere."""

    def set_idle(self, idle: bool) -> None:
        """Whether this node may be recruited."""

    def advertise_ring(self, hint: RingHint | None) -> None:
        """Gossip this way into the ring; None: there is nothing to tell any more."""

    def forget_ring(self, ring: str) -> None:
        """This ring is no more."""


class ClusterRole:
    """The description of the own cluster, and what follows from it."""

    def __init__(self, port: Port, ring: Ring, view: RecruitingView, journal: Journal) -> None:
        self.port = port
        self.journal = journal
        self.ring = ring
        self.view = view
        self.cluster: Cluster | None = None
        self.resting = False  # it was the primary before it was started again, and leads no more
        self.leaving = False  # this node drains
        self.left = False  # and is free to go
        self.reserved: tuple[Key, NodeId] | None = None  # the cluster that is about to admit it

    @property
    def kind(self) -> Role:
        """This node's role by the newest description."""
        if self.cluster is None:
            return "none"
        return "broker" if self.resting else role_of(self.port.me.id, self.cluster)

    @property
    def is_primary(self) -> bool:
        """Whether this node leads its cluster."""
        return not self.resting and self._is_named_primary

    @property
    def _is_named_primary(self) -> bool:
        return self.cluster is not None and self.cluster.primary.id == self.port.me.id

    def resume(self, cluster: Cluster) -> None:
        """Before this process was started its node served in `cluster`: it is a member still, until
        it hears that it is not. If it led, it has to be elected: it has forgotten whom it told what
        is in no log."""
        self.resting = cluster.primary.id == self.port.me.id
        self._describe(cluster)
        self.ring.serve_as_member(cluster)
        self._changed("started again")

    def adopt(
        self,
        cluster: Cluster,
        reason: str,
        predecessor: Cluster | None = None,
        successors: tuple[Cluster, ...] = (),
    ) -> None:
        """The own cluster's description is this now. The ring neighbours matter only to a node
        that becomes a primary."""
        self.resting = False
        self._describe(cluster)
        self.reserved = None
        if self.is_primary:
            self.ring.serve_as_primary(cluster, predecessor, successors)
        else:
            self.ring.serve_as_member(cluster)
        self._changed(reason)

    def _describe(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.journal.store_cluster(cluster)
        hint = RingHint(cluster.ring, cluster.key, cluster.version, cluster.primary)
        self.view.advertise_ring(hint)

    def leave_cluster(
        self, reason: str, successor: Cluster | None = None, stored: bool = False
    ) -> None:
        """This node serves no more; `successor` is the description without it, where there is
        one that the ring neighbours must hear from us. `stored`: nobody took its place, so it
        serves again when it starts again."""
        if self.cluster is None:
            return
        self.cluster = None
        self.resting = False
        if not stored:
            self.journal.store_cluster(None)
        self.view.advertise_ring(None)
        if successor is None:
            self.ring.serve_as_member(None)
        else:
            self.ring.handed_over(successor)
        self._changed(reason)

    def advertise_idle(self) -> None:
        """Tell the neighbours whether this node may be recruited."""
        self.view.set_idle(self.cluster is None and not self.leaving and self.reserved is None)

    def announce(self) -> None:
        """Primary: all other members get the newest description."""
        if self.cluster is not None:
            for member in self.cluster.members()[1:]:
                self.port.send(member, Membership(self.cluster))

    def _changed(self, reason: str) -> None:
        self.advertise_idle()
        cluster = self.cluster
        members = () if cluster is None else cluster.members()
        # A primary misses any member's silence; the others only the primary's.
        watched = members[1:] if self._is_named_primary else members[:1]
        self.port.watch("cluster", watched)
        epoch = 0 if cluster is None else cluster.version[0]
        name = "" if cluster is None else cluster.key
        self.port.trace("cluster", epoch=epoch, name=name, reason=f"{self.kind}: {reason}")
        self.port.emit(RoleChanged(cluster, self.kind))


def role_of(node: NodeId, cluster: Cluster) -> Role:
    """What `node` is in `cluster`."""
    if cluster.primary.id == node:
        return "primary"
    if cluster.standby is not None and cluster.standby.id == node:
        return "standby"
    return "broker" if has_member(cluster, node) else "none"


def has_member(cluster: Cluster, node: NodeId) -> bool:
    """Whether `node` serves in `cluster`."""
    return any(member.id == node for member in cluster.members())


def with_member(cluster: Cluster, peer: Peer) -> Cluster:
    """One version later, with one more: the standby if there is none, else a match broker."""
    epoch, number = cluster.version
    if cluster.standby is None:
        return msgspec.structs.replace(cluster, version=(epoch, number + 1), standby=peer)
    return msgspec.structs.replace(
        cluster, version=(epoch, number + 1), brokers=(*cluster.brokers, peer)
    )


def without_member(cluster: Cluster, node: NodeId) -> Cluster:
    """One version later, without `node` (which is not the primary)."""
    epoch, number = cluster.version
    standby = cluster.standby
    return msgspec.structs.replace(
        cluster,
        version=(epoch, number + 1),
        standby=None if standby is not None and standby.id == node else standby,
        brokers=tuple(peer for peer in cluster.brokers if peer.id != node),
    )


def with_standby(cluster: Cluster, peer: Peer) -> Cluster:
    """One version later; the broker `peer` is the standby, and who was it a broker."""
    epoch, number = cluster.version
    former = () if cluster.standby is None else (cluster.standby,)
    brokers = (*former, *(broker for broker in cluster.brokers if broker.id != peer.id))
    return msgspec.structs.replace(
        cluster, version=(epoch, number + 1), standby=peer, brokers=brokers
    )
