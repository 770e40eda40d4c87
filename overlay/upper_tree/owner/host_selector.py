"""C6: which nodes may host, in which regions some should (M1), and where a virtual node goes until
the next plan (placement.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matching import Interval
from overlay.chord.clusters import Clusters
from overlay.machine import NodeId, Peer, Port, Region
from overlay.settings import Settings
from overlay.upper_tree.owner.constants import (
    FEWEST_HOSTS,
    REGION_SHARE,
    REGIONS_MOST,
    SHARDS_IDLE,
    TARGET,
)
from overlay.upper_tree.owner.host_pool import HostPool
from overlay.upper_tree.owner.host_supervisor import HostSupervisor
from overlay.upper_tree.owner.owned_tree import OwnedTrees


class PlacedNode(NamedTuple):
    """A virtual node where it is or is going to be, with its number of registrations."""

    attribute: str
    interval: Interval
    hosts: tuple[NodeId, ...]
    registrations: int
    busy: float = 0.0
    """Share of a host's time that its events ask for, of late …"""
    alone: float = 0.0
    """… and of that for events that visit nothing else where they meet it."""


def is_hot_shard(node: PlacedNode) -> bool:
    """Whether a virtual node is a shard of a value with events."""
    return node.interval.is_shard() and node.busy > SHARDS_IDLE


def fair_share(nodes: Sequence[PlacedNode], hosts: int, elsewhere: float = 0.0) -> float:
    """The share of its time that a host is to be asked for: `TARGET`, or more where `hosts` of them
    are too few."""
    total = sum([node.busy for node in nodes]) + elsewhere
    return max(TARGET, total / max(1, hosts))


class HostSelector:
    """The hosts of a cluster and the trees that they serve. Has no state of its own."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        clusters: Clusters,
        trees: OwnedTrees,
        hosts: HostSupervisor,
        pool: HostPool,
    ) -> None:
        """`trees` are those that the cluster owns."""
        self._port = port
        self._settings = settings.tree
        self._clusters = clusters
        self._trees = trees
        self._hosts = hosts
        self._pool = pool

    def fit_hosts(self) -> list[Peer]:
        """The nodes that may host: members, then nodes of the pool; without those that are
        sub-healthy, unless they are needed for as many hosts as a virtual node has replicas. Never
        empty."""
        return self._fit(self.fit_members())

    def fit_subscribers(self) -> list[Peer]:
        """The nodes that may host where a tree is hosted by its subscribers: as `fit_hosts`, with
        every member of the cluster, standby and primary included, since a subscriber among them
        serves its own trees. May be empty."""
        cluster, may = self._clusters.cluster, self._hosts.may_be_given_trees
        members = [self._port.me] if cluster is None else cluster.members()
        return self._fit([peer for peer in members if may(peer.id)])

    def _fit(self, members: Sequence[Peer]) -> list[Peer]:
        """Return these members and then nodes of the pool, without those whose health excludes
        them."""
        may = self._hosts.may_be_given_trees
        found = {peer.id: peer for peer in members}
        found.update((peer.id, peer) for peer in self._pool.hosts() if may(peer.id))
        health = self._clusters.health
        in_order = health.healthy_first(found.values())
        healthy = sum(not health.severity(peer.id) for peer in in_order)
        if healthy == len(in_order):
            return list(found.values())
        return in_order[: max(healthy, self._settings.replicas)]

    def fit_members(self) -> list[Peer]:
        """Return the members of the cluster that may host.

        These are the match brokers. The standby and the primary are added in a small cluster, so
        that a virtual node has two hosts, and when no further hosts can be found for the load.
        Never empty.
        """
        cluster = self._clusters.cluster
        if cluster is None:
            return [self._port.me]
        standby = () if cluster.standby is None else (cluster.standby,)
        fit: list[Peer] = []
        for group in (cluster.brokers, standby, (cluster.primary,)):
            too_few = len(fit) < min(FEWEST_HOSTS, self._settings.replicas)
            for peer in group:
                may = self._hosts.may_be_given_trees(peer.id)
                if may and (too_few or self._is_needed(peer, fit)):
                    fit.append(peer)
        return fit or [cluster.primary]

    def _is_needed(self, peer: Peer, others: Sequence[Peer]) -> bool:
        """Whether there are too few other nodes, and its machine carries it beside these."""
        pool = self._pool
        return pool.is_short and pool.has_room_for(peer, [*others, *pool.hosts()])

    def emptiest_hosts(self) -> tuple[Peer, ...]:
        """Return the hosts with the fewest registrations, as many as a virtual node has
        replicas."""
        load, silent = self._trees.loads(), self._hosts.is_silent
        fit = sorted(self.fit_hosts(), key=lambda peer: (silent(peer.id), load.get(peer.id, 0)))
        return self._replicas(fit, load)

    def relief(self) -> Peer | None:
        """The host that has the fewest registrations of those that answer, for virtual nodes whose
        hosts are all silent, whether it has room or not; else a member that would not host. None:
        there is none."""
        load, hosts, cluster = self._trees.loads(), self._hosts, self._clusters.cluster
        members = () if cluster is None else cluster.members()
        may = [peer for peer in members if hosts.may_be_given_trees(peer.id)]
        for group in (self.fit_hosts(), may):
            if awake := [peer for peer in group if not hosts.is_silent(peer.id)]:
                return min(awake, key=lambda peer: load.get(peer.id, 0))
        return None

    def hosts_for_new_tree(self) -> tuple[Peer, ...]:
        """The hosts of a tree that is created: the fullest ones with room, so that trees share
        hosts."""
        load, room = self._trees.loads(), self._settings.host_entries
        with_room = [peer for peer in self.fit_hosts() if load.get(peer.id, 0) < room]
        if not with_room:
            return self.emptiest_hosts()
        silent = self._hosts.is_silent
        fullest = sorted(with_room, key=lambda peer: (silent(peer.id), -load.get(peer.id, 0)))
        return self._replicas(fullest, load)

    def _replicas(self, hosts: Sequence[Peer], load: Mapping[NodeId, int]) -> tuple[Peer, ...]:
        """The first of `hosts`, and further ones only while they have room."""
        room = self._settings.host_entries
        others = [peer for peer in hosts[1:] if load.get(peer.id, 0) < room]
        return (hosts[0], *others[: self._settings.replicas - 1])

    def virtual_nodes(self) -> list[PlacedNode]:
        """Return all virtual nodes with their current or future hosts and their loads."""
        loads, now = self._hosts.loads, self._port.now
        return [
            PlacedNode(
                attribute,
                entry.interval,
                tuple(host.id for host in entry.hosts),
                count,
                *loads.recent(attribute, entry.interval, now),
            )
            for attribute, owned in self._trees.items()
            for entry, count in zip(
                owned.coming_map.entries, owned.size.counts(owned.coming_map), strict=True
            )
        ]


class WantedRegions:
    """The regions in which a cluster's trees are to have a host (M1): those with a share of its
    registrations. One that is wanted stays so until it has less than half of that, so that hosts do
    not come and go with single registrations."""

    def __init__(self) -> None:
        self._wanted: tuple[Region, ...] = ()

    def update(self, interest: Mapping[Region, int]) -> tuple[Region, ...]:
        """The regions, that of most interest first. `interest`: registrations by region, "" those
        of nodes without one."""
        least = REGION_SHARE * sum(interest.values())
        found = [
            (-count, region)
            for region, count in interest.items()
            if region and count >= (least / 2 if region in self._wanted else least)
        ]
        self._wanted = tuple([region for _, region in sorted(found)[:REGIONS_MOST]])
        return self._wanted
