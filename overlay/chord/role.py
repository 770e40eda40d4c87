"""This node's role in at most one cluster (P1; Phoenix section 1).

A cluster has a *primary*, a *standby* that replaces it first, and *match brokers*. Its description
(`Cluster`) says who they are; the primary alone changes it, and every change has a higher version:
other members or another arc a higher number, another primary a higher epoch. Everything that a node
is follows from the newest description of its cluster, and this is the one place where that changes.
"""

from __future__ import annotations

from typing import Protocol

from overlay.chord.events import Role, RoleChanged
from overlay.chord.messages import Cluster, Membership
from overlay.lower_random.messages import RingHint
from overlay.machine import Key, NodeId, Peer, Port


class RecruitingView(Protocol):
    """The interface to the view (overlay/lower_random) that a cluster uses."""

    def peers(self) -> tuple[Peer, ...]:
        """All neighbours in the random graph."""

    def idle_peers(self) -> tuple[Peer, ...]:
        """Neighbours that say that they serve nowhere."""

    def set_idle(self, idle: bool) -> None:
        """Tell the neighbours, with the next shuffles, whether this node may be recruited."""

    def advertise_ring(self, hint: RingHint | None) -> None:
        """Gossip this way into the ring; None: gossip none."""

    def forget_ring(self, ring: str) -> None:
        """Forget the hints of a ring that has ended, and accept none again."""


class RingPart(Protocol):
    """The interface to the ring that is called when this node's role changes
    (`overlay.chord.ring.ring.Ring`)."""

    def serve_as_primary(
        self,
        cluster: Cluster,
        predecessor: Cluster | None = None,
        successors: tuple[Cluster, ...] = (),
    ) -> None:
        """Serve as the primary of `cluster`, which is new or has changed."""

    def sealed(self, cluster: Cluster) -> Cluster:
        """`cluster`, signed if this node leads it, where nodes have keys."""

    def serve_as_member(self, cluster: Cluster | None) -> None:
        """Note that this node is a member of `cluster` but not its primary, or of no cluster
        (None)."""

    def handed_over(self, cluster: Cluster) -> None:
        """Note that another node now leads `cluster`, of which this node was the primary."""


class DescriptionStore(Protocol):
    """The interface that stores the own cluster's description on disk
    (`cluster.journal.Journal`)."""

    def store_cluster(self, cluster: Cluster | None) -> None:
        """Store the description; None: this node serves nowhere."""


class ClusterRole:
    """The description of the own cluster, and what follows from it."""

    def __init__(
        self,
        port: Port,
        ring: RingPart,
        view: RecruitingView,
        store: DescriptionStore,
        serves: bool = True,
    ) -> None:
        """`serves`: whether it may be recruited (`cluster.serve`)."""
        self.port = port
        self._serves = serves
        self._ring = ring
        self._view = view
        self._store = store
        # The newest description; None where this node serves nowhere. Written here only.
        self.cluster: Cluster | None = None
        # This node was the primary when its former process ended: it leads no more until the voters
        # have elected it again.
        self.must_be_elected = False
        self.leaving = False  # it drains: it goes on serving until others have taken over …
        self.left = False  # … and may stop then
        self._reserved: tuple[Key, NodeId] | None = None  # the cluster that is about to admit it
        self._idle_since: float | None = None  # None: it is not idle

    @property
    def own(self) -> Cluster:
        """The own cluster. AssertionError where this node serves nowhere."""
        assert self.cluster is not None, "this node serves nowhere"
        return self.cluster

    @property
    def led(self) -> Cluster | None:
        """The own cluster if this node leads it, else None."""
        return None if self.must_be_elected or not self._is_named_primary else self.cluster

    def leads(self, key: Key, epoch: int) -> bool:
        """Whether this node leads the cluster `key` under `epoch`."""
        own = self.led
        return own is not None and (key, epoch) == (own.key, own.epoch)

    @property
    def kind(self) -> Role:
        """The role of this node by the newest description."""
        cluster, me = self.cluster, self.port.me.id
        if cluster is None or not cluster.has_member(me):
            return "none"
        if self._is_named_primary:
            return "broker" if self.must_be_elected else "primary"
        return "standby" if cluster.standby is not None and cluster.standby.id == me else "broker"

    @property
    def is_reserved(self) -> bool:
        """Whether this node has accepted to be recruited and waits for the description."""
        return self._reserved is not None

    @property
    def is_primary(self) -> bool:
        """Whether this node leads its cluster."""
        return self.led is not None

    @property
    def _is_named_primary(self) -> bool:
        return self.cluster is not None and self.cluster.primary.id == self.port.me.id

    def resume(self, cluster: Cluster) -> None:
        """Resume in `cluster`, in which this node served when its former process ended, until it
        hears otherwise. If this node led, it has to be elected again, since it no longer knows the
        messages it sent that are in no log."""
        self.must_be_elected = cluster.primary.id == self.port.me.id
        self._describe(cluster)
        self._ring.serve_as_member(cluster)
        self._changed("started again")

    def adopt(
        self,
        cluster: Cluster,
        reason: str,
        predecessor: Cluster | None = None,
        successors: tuple[Cluster, ...] = (),
    ) -> None:
        """Describe the own cluster by `cluster` from now on. The ring neighbours matter only to a
        node that becomes a primary."""
        self.must_be_elected = False
        cluster = self._ring.sealed(cluster)
        self._describe(cluster)
        self._reserved = None
        if self.is_primary:
            self._ring.serve_as_primary(cluster, predecessor, successors)
        else:
            self._ring.serve_as_member(cluster)
        self._changed(reason)

    def _describe(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._store.store_cluster(cluster)
        hint = RingHint(cluster.ring, cluster.key, cluster.version, cluster.primary)
        self._view.advertise_ring(hint)

    def leave_cluster(
        self, reason: str, successor: Cluster | None = None, stored: bool = False
    ) -> None:
        """Stop serving. `successor`: the description without this node, about which the ring
        neighbours are told. `stored`: no other node took its place, so it serves again after a
        restart."""
        if self.cluster is None:
            return
        self.cluster = None
        self.must_be_elected = False
        if not stored:
            self._store.store_cluster(None)
        self._view.advertise_ring(None)
        if successor is None:
            self._ring.serve_as_member(None)
        else:
            self._ring.handed_over(successor)
        self._changed(reason)

    def advertise_idle(self) -> None:
        """Tell the neighbours whether this node may be recruited."""
        is_free = self.cluster is None and not self.leaving and self._reserved is None
        is_idle = is_free and self._serves
        self._view.set_idle(is_idle)
        if not is_idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self.port.now

    def idle_peers(self) -> tuple[Peer, ...]:
        """Neighbours that may be recruited."""
        return self._view.idle_peers()

    def idle_for(self) -> float:
        """Seconds for which this node could have been recruited, without a break."""
        return 0.0 if self._idle_since is None else self.port.now - self._idle_since

    def reserve_for(self, cluster: Key, primary: NodeId) -> None:
        """Reserve this node for `cluster`, which it has agreed to join. It accepts no other until
        the `primary` sends the description."""
        self._reserved = (cluster, primary)
        self.advertise_idle()

    def is_reserved_for(self, cluster: Key, primary: NodeId) -> bool:
        """Whether this node waits for the description of `cluster` from `primary`."""
        return self._reserved == (cluster, primary)

    def release_reservation(self) -> None:
        """Release this node from its reservation: the cluster does not need it."""
        self._reserved = None
        self.advertise_idle()

    def start_leaving(self) -> None:
        """Begin to drain this node, which is then no longer recruited. A node that serves in no
        cluster has left at once."""
        self.leaving = True
        self.advertise_idle()
        if self.cluster is None:
            self.left = True

    def finish_leaving(self) -> None:
        """Note that this node has drained, and may stop."""
        self.left = True

    def announce(self) -> None:
        """At the primary: send the description to all other members."""
        if self.cluster is not None:
            for member in self.cluster.others():
                self.port.send(member, Membership(self.cluster))

    def trace(self, reason: str) -> None:
        """Write a trace record of what happened to the own cluster."""
        epoch, name = (0, "") if self.cluster is None else (self.cluster.epoch, self.cluster.key)
        self.port.trace("cluster", epoch=epoch, name=name, reason=reason)

    def _changed(self, reason: str) -> None:
        self.advertise_idle()
        cluster = self.cluster
        members = () if cluster is None else cluster.members()
        # A primary misses any member's silence; the others only the primary's.
        watched = members[1:] if self._is_named_primary else members[:1]
        self.port.watch("cluster", watched)
        self.trace(f"{self.kind}: {reason}")
        self.port.emit(RoleChanged(cluster, self.kind))
