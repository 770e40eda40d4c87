"""Hosts from the whole overlay, for trees that ask for more than their cluster has (C6).

A cluster's members host its trees. Where these are busy the primary asks other nodes: subscribers
of the busy trees first, since what they host they need not be sent, whatever cluster they serve in;
then nodes that serve nowhere, as the view knows them, or those that were asked. A node that agrees
is given virtual nodes under the same serving leases as a member (lease_grants.py). It has no vote
and no log, and may be recruited by a cluster.

Where a region of many subscribers has no host, a node there is asked as well (M1), whatever the
load. A node names such as are near the region that it is asked for.

The pool is in no log: a new primary finds in the maps who hosts, and asks whether they are there.
It grows at once, and shrinks when half of it would do for a while, so that a burst that comes again
finds it. Who leaves, or is lost, is in it no more (`StopsHosting`, `LinkDown`), and its virtual
nodes move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from overlay.bounded import BoundedDict
from overlay.chord.clusters import Clusters
from overlay.links.events import LinkDown
from overlay.machine import Machine, NodeId, Peer, Port, Region
from overlay.upper_tree.host_load import Machines, machine_of
from overlay.upper_tree.messages import AskToHost, HostAnswer
from overlay.upper_tree.owner.constants import (
    ASK_AGAIN,
    ASK_TIMEOUT,
    ASKED_MOST,
    CANDIDATES_MOST,
    CONFIRM_WITHIN,
    POOL_KEPT,
    POOL_MOST,
)


class PoolOwner(Protocol):
    """The part of the owner's role that the pool uses."""

    def rebalance_soon(self, delay: float = 0.0) -> None:
        """Look at the load in `delay` seconds."""


class HostPool(Machine):
    """Nodes that may become hosts, at the primary; elsewhere it is empty."""

    def __init__(
        self, port: Port, clusters: Clusters, owner: PoolOwner, machines: Machines
    ) -> None:
        super().__init__(port)
        self._machines = machines
        self._clusters = clusters
        self._owner = owner
        self._hosts: dict[NodeId, Peer] = {}
        self._wanted = 0
        self._enough_since: float | None = None  # half of it would do
        self.is_short = False
        """Whether fewer nodes than wanted agreed to host, and there is none left to ask."""
        self._asks_named_only = False  # `ask_for` names all that may host
        # Of a former primary, until when they may answer.
        self._unconfirmed: dict[NodeId, float] = {}
        self._asked: dict[NodeId, tuple[Peer, float]] = {}  # until when they may answer
        self._refused: BoundedDict[NodeId, float] = BoundedDict(CANDIDATES_MOST)  # until when
        self._candidates: BoundedDict[NodeId, Peer] = BoundedDict(CANDIDATES_MOST)
        self._regions: tuple[Region, ...] = ()  # that are to have a host
        self._asked_in: dict[Region, float] = {}  # until when a node there may answer

    # --- the role ---

    def begin(self, hosts: Iterable[Peer]) -> None:
        """Begin to supervise the pool, since this node leads the cluster now; `hosts` serve its
        trees."""
        self.end()
        self._hosts = {host.id: host for host in hosts if not self._is_member(host.id)}
        self._wanted = len(self._hosts)
        cluster = self._clusters.cluster
        if cluster is not None:
            for host in self._hosts.values():
                self._unconfirmed[host.id] = self.port.now + CONFIRM_WITHIN
                self.port.send(host, AskToHost(cluster.key, cluster.ring))

    def end(self) -> None:
        """Forget all hosts, because this node does not, or no longer does, lead a cluster."""
        self._hosts.clear()
        self._asked.clear()
        self._unconfirmed.clear()
        self._candidates.clear()
        self._regions = ()
        self._asked_in.clear()
        self._wanted = 0
        self.is_short = False
        self._asks_named_only = False
        self._enough_since = None

    # --- what there is ---

    def hosts(self) -> list[Peer]:
        """The nodes that may host beside the cluster's members, the longest known first."""
        for node, until in list(self._unconfirmed.items()):
            if until <= self.port.now:
                del self._unconfirmed[node]
                self.drop(node)
        cluster = self._clusters.cluster
        members = () if cluster is None else [member.id for member in cluster.members()]
        return [host for host in self._hosts.values() if host.id not in members]

    @property
    def is_asking(self) -> bool:
        """Whether nodes that were asked may still answer."""
        return any(until > self.port.now for _, until in self._asked.values())

    def has_room_for(self, peer: Peer, hosts: Iterable[Peer]) -> bool:
        """Whether a node's machine carries it as a host, beside these."""
        return not self._machines.is_full(machine_of(peer), hosts)

    # --- how many there should be ---

    def grow(self, wanted: int, preferred: Sequence[Peer]) -> None:
        """Have `wanted` hosts beside the members, if that number agrees, the `preferred` first."""
        self._wanted = max(min(wanted, POOL_MOST), self._wanted)
        self._enough_since = None
        self._ask(preferred)

    def ask_for(self, hosts: Sequence[Peer]) -> None:
        """Have these nodes as hosts beside the members, as far as they agree, and no others."""
        named = {host.id for host in hosts}
        for node in [node for node in self._hosts if node not in named]:
            del self._hosts[node]
        others = [host for host in hosts if not self._is_member(host.id)]
        self._wanted = min(len(others), POOL_MOST)
        self._asks_named_only = True
        self._ask(others)

    def settle(self, wanted: int) -> None:
        """Give up surplus hosts. `wanted`: the number of hosts that suffices now. Hosts are given
        up only after half of them, or fewer, have sufficed for `POOL_KEPT`."""
        now = self.port.now
        if wanted * 2 > self._wanted or not self._wanted:
            self._enough_since = None
        elif self._enough_since is None:
            self._enough_since = now
        elif now - self._enough_since >= POOL_KEPT:
            self._enough_since = now
            self._wanted = wanted
            self.is_short = self.is_short and wanted > 0
            for node in list(self._hosts)[wanted:]:
                if not self._covers(self._hosts[node]):
                    del self._hosts[node]

    def cover(
        self, regions: Sequence[Region], lacking: Sequence[Region], preferred: Sequence[Peer]
    ) -> None:
        """Keep a host in each of `regions`. In each region of `lacking`, ask one node to host, the
        `preferred` nodes first. Surplus hosts in other regions are given up."""
        cluster, now = self._clusters.cluster, self.port.now
        self._regions = tuple(regions)
        spare = [node for node, host in self._hosts.items() if not self._covers(host)]
        for node in spare[self._wanted :]:
            del self._hosts[node]
        for region in lacking:
            known = self._known(preferred)
            there = [p for p in known if p.region == region and self._may_be_asked(p.id, now)]
            if cluster is None or not there or self._asked_in.get(region, now) > now:
                continue
            peer = next(iter(self._clusters.health.healthy_first(there)))
            self._asked_in[region] = now + ASK_TIMEOUT
            self._asked[peer.id] = (peer, now + ASK_TIMEOUT)
            self._refused.renew(peer.id, now + ASK_AGAIN)  # until it answers
            self.port.send(peer, AskToHost(cluster.key, cluster.ring, region))

    def _covers(self, host: Peer) -> bool:
        """Whether a host of the pool is the first one in a region that is to have one."""
        others = (each.id for each in self._hosts.values() if each.region == host.region)
        return host.region in self._regions and next(others, host.id) == host.id

    def _ask(self, preferred: Sequence[Peer]) -> None:
        cluster, now = self._clusters.cluster, self.port.now
        self._asked = {node: each for node, each in self._asked.items() if each[1] > now}
        missing = self._wanted - len(self.hosts()) - len(self._asked)
        if cluster is None or missing <= 0:
            return
        candidates = {
            peer.id: peer for peer in self._known(preferred) if self._may_be_asked(peer.id, now)
        }
        taken = [*cluster.brokers, *self.hosts(), *(peer for peer, _ in self._asked.values())]
        for peer in self._clusters.health.healthy_first(candidates.values()):
            if not self._asks_named_only and not self.has_room_for(peer, taken):
                continue
            taken.append(peer)
            self._asked[peer.id] = (peer, now + ASK_TIMEOUT)
            self._candidates.pop(peer.id, None)
            self._refused.renew(peer.id, now + ASK_AGAIN)  # until it answers
            self.port.send(peer, AskToHost(cluster.key, cluster.ring))
            missing -= 1
            if not missing or len(self._asked) >= ASKED_MOST:
                break
        if not self._asked:
            self.is_short = True

    def _known(self, preferred: Sequence[Peer]) -> tuple[Peer, ...]:
        """Nodes that might host, in the order in which they are asked."""
        if self._asks_named_only:
            return tuple(preferred)
        return (*preferred, *self._clusters.idle_peers(), *self._candidates.values())

    def _may_be_asked(self, node: NodeId, now: float) -> bool:
        return (
            node != self.port.me.id
            and node not in self._hosts
            and not self._is_member(node)
            and self._refused.get(node, now) <= now
        )

    def _is_member(self, node: NodeId) -> bool:
        cluster = self._clusters.cluster
        return cluster is not None and cluster.has_member(node)

    # --- what nodes say ---

    def on_host_answer(self, sender: Peer, message: HostAnswer) -> None:
        """A node that was asked agrees, or not, and names others that may."""
        cluster = self._clusters.cluster
        self._unconfirmed.pop(sender.id, None)
        asked = self._asked.pop(sender.id, None)
        if asked is None or cluster is None or cluster.key != message.key:
            return
        self._machines.reported(sender, message.processors)
        for other in message.others:
            self._candidates.renew(other.id, other)
        wanted = len(self._hosts) < self._wanted or self._covers(sender)
        if message.willing and wanted:
            self._hosts[sender.id] = sender
            self.port.count("hosts_recruited")
        self._ask(())
        self._owner.rebalance_soon(0.0)

    def on_link_down(self, event: LinkDown) -> None:
        """A host is lost: it is asked again if it comes back."""
        self.drop(event.peer.id)

    def drop(self, node: NodeId) -> None:
        """Remove a host from the pool, so that it is given nothing more."""
        self._hosts.pop(node, None)
        self._asked.pop(node, None)
        self._candidates.pop(node, None)
        self._refused.renew(node, self.port.now + ASK_AGAIN)
