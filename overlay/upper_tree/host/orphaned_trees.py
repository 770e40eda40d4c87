"""Trees at a host whose owner was lost: does the owner that came in its place know of them? (C6,
P5)

When another cluster leads in the place of a lost one (`ClusterForked`), the host asks it about the
trees that it serves of the former one (`StillHosting`); the owner answers with what it knows to be
here (`TreesHosted`), and the host drops the rest. A cluster that was led all the time may go on
beside a fork for a while, and give the host trees after it asked: when its leases end, it asks
again.

The host may hear of a fork too early, or only by gossip. A tree that was left behind serves
nothing, since it has no lease, but it would be kept, and named to publishers, for ever. So a tree
that had no lease at two looks is asked about as well. A fork that is gone may have been higher than
the cluster that has its arc now, and this host obeys no lower one: so it says which epoch that one
has to have. It says so as well if it has refused orders about a tree that it does not have: their
owner would wait for it as long as it answers beats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from overlay.bounded import BoundedDict
from overlay.chord.events import ClusterForked
from overlay.chord.keys import attribute_key, in_arc
from overlay.chord.messages import Cluster
from overlay.chord.ring.ring import Ring
from overlay.machine import Alarm, Key, Machine, NodeId, Peer, Port, Timer
from overlay.upper_tree.host.constants import (
    FORKS_MOST,
    LEASE_SHARE,
    LEASES_MOST,
    ORPHAN_PERIOD,
    REPLIES_MOST,
)
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.messages import ServingBeat, StillHosting

# Serving leases at a host: what each owner lets it serve (C6); owner/lease_grants.py has the
# rules.


class ServingLease(msgspec.Struct):
    """A lease from one owner: this host may serve the owner's arc (start, key] until a time of the
    Port."""

    start: Key
    key: Key
    epoch: int = 0
    until: float = 0.0


class ServingLeases:
    """A host's leases, by arc. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._leases: BoundedDict[tuple[Key, Key], ServingLease] = BoundedDict(LEASES_MOST)
        self._replied: BoundedDict[tuple[NodeId, Key], dict[int, float]] = BoundedDict(LEASES_MOST)

    def take(self, sender: NodeId, beat: ServingBeat, now: float) -> None:
        """Take a beat of an owner, which may prolong a lease. It is answered at `now`."""
        replied = self._replied.setdefault((sender, beat.key), {})
        self._replied.move_to_end((sender, beat.key))
        since = replied.get(beat.heard)
        if since is not None:
            self._prolong(beat, since + LEASE_SHARE * beat.term)
        if beat.number < max(replied, default=0):
            replied.clear()  # the owner counts again
        replied[beat.number] = now
        if len(replied) > REPLIES_MOST:
            del replied[min(replied)]

    def _prolong(self, beat: ServingBeat, until: float) -> None:
        arc = (beat.start, beat.key)
        lease = self._leases.setdefault(arc, ServingLease(*arc))
        self._leases.move_to_end(arc)
        if beat.epoch >= lease.epoch:
            lease.epoch = beat.epoch
            lease.until = max(until, lease.until)

    def covers(self, key: Key, epoch: int, now: float) -> bool:
        """Whether a tree with this key may be served, whose owner has at least this epoch."""
        return self.until(key, epoch, now) > now

    def until(self, key: Key, epoch: int, now: float) -> float:
        """Until when it may be served, as far as is known; no later than `now`: not."""
        for lease in self._leases.values():
            if lease.until > now and lease.epoch >= epoch and in_arc(key, lease.start, lease.key):
                return lease.until
        return now


class OrphanCheckDue(Timer, frozen=True):
    """Time to check which trees have no lease."""


class ForkCheckDue(Timer, frozen=True):
    """Look whether the owner that we serve for still grants leases, now that a fork leads, too."""


class LeasedHost(Protocol):
    """The host whose trees are looked at."""

    def has_lease(self, tree: HostedTree) -> bool:
        """Whether the tree's owner lets the host serve it now."""

    def known_epoch(self, tree: HostedTree) -> int:
        """The epoch of the tree's owner, the latest that the host heard of."""


class OrphanedTrees(Machine):
    """Asks owners whether they know of the trees that this host has without a lease."""

    def __init__(
        self,
        port: Port,
        trees: Mapping[str, HostedTree],
        host: LeasedHost,
        ring: Ring,
        lease_most: float,
    ) -> None:
        """`trees`: the host's; `lease_most`: seconds after which a lease that is not renewed is
        over."""
        super().__init__(port)
        self._trees = trees
        self._host = host
        self._ring = ring
        self._lease_most = lease_most
        self._forks: BoundedDict[Key, Cluster] = BoundedDict(FORKS_MOST)  # the latest that led
        self._fork_check = Alarm(port, ForkCheckDue())
        self._orphan_check = Alarm(port, OrphanCheckDue())
        self._unleased: dict[str, int] = {}  # attributes without a lease at the last look
        self._refused: BoundedDict[str, int] = BoundedDict(FORKS_MOST)
        """Attributes of which an order was refused since the last look, with the epoch that this
        host has heard of."""

    def start(self) -> None:
        """Begin to look, every `ORPHAN_PERIOD` s, for trees that have no serving lease."""
        self._orphan_check.within(ORPHAN_PERIOD)

    def tree_assigned(self) -> None:
        """Note that the host was given a tree: if its owner has a fork beside it, check the tree
        when the leases end."""
        if self._forks:
            self._fork_check.within(self._lease_most)

    def order_refused(self, attribute: str, epoch: int) -> None:
        """Note that this host has not followed an order, since it has heard of `epoch`."""
        self._refused.renew(attribute, epoch)

    def ring_left(self) -> None:
        """Forks of the former ring do not matter any more."""
        self._forks.clear()
        self._refused.clear()
        self._fork_check.cancel()

    def on_cluster_forked(self, event: ClusterForked) -> None:
        """A cluster that leads in the place of a lost one may not know what this host serves."""
        cluster = event.cluster
        self._forks.renew(cluster.key, cluster)
        if self._of_former(cluster):
            self.port.send(cluster.primary, StillHosting(cluster.key))
            self._fork_check.within(self._lease_most)

    def on_fork_check(self, timer: ForkCheckDue) -> None:
        """Ask forks about trees whose former owner grants no leases any more."""
        self._fork_check.rang()
        for cluster in self._forks.values():
            trees = self._of_former(cluster)
            if not all(map(self._host.has_lease, trees)):
                self.port.send(cluster.primary, StillHosting(cluster.key))
            if trees:
                self._fork_check.within(self._lease_most)

    def _of_former(self, cluster: Cluster) -> list[HostedTree]:
        """Trees of an arc that this host was given under an older epoch than `cluster` has."""
        epoch = cluster.version[0]
        return [
            tree
            for tree in self._trees.values()
            if cluster.owns(tree.key) and tree.version[0] < epoch
        ]

    def on_orphan_check(self, timer: OrphanCheckDue) -> None:
        """Ask the owners of trees that had no lease at the last look either, and those whose orders
        were refused since then."""
        self._orphan_check.rang()
        self._orphan_check.within(ORPHAN_PERIOD)
        unleased = {
            attribute: self._host.known_epoch(tree)
            for attribute, tree in self._trees.items()
            if not self._host.has_lease(tree)
        }
        doubted = {a: epoch for a, epoch in unleased.items() if a in self._unleased}
        asked: dict[tuple[NodeId, Key], tuple[Peer, int]] = {}
        for attribute, epoch in (*doubted.items(), *self._refused.items()):
            key = attribute_key(attribute)
            owner = self._ring.owner(key)
            if owner is None:
                self._ring.find(key)  # for the next look
            else:
                _, highest = asked.get((owner.primary.id, owner.key), (None, 0))
                asked[owner.primary.id, owner.key] = owner.primary, max(epoch, highest)
        for (_, cluster), (peer, epoch) in asked.items():
            self.port.send(peer, StillHosting(cluster, epoch))
        self._unleased = unleased
        self._refused.clear()
