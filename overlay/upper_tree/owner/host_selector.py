"""C6: who may host, and where a new virtual node goes until the next plan (placement.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from overlay.machine import NodeId, Peer
from overlay.settings import Settings
from overlay.upper_tree.cluster_view import ClusterView
from overlay.upper_tree.owner.owned_tree import OwnedTree
from overlay.upper_tree.owner.placement import Part

FEWEST_HOSTS = 2
"""Where there are fewer match brokers, standby and primary host as well: with one host more, losing
one costs no event."""


class HostSelector:
    """The fit hosts of a cluster and what they have. Holds nothing of its own."""

    def __init__(
        self,
        me: Peer,
        settings: Settings,
        clusters: ClusterView,
        trees: Mapping[str, OwnedTree],
        unfit: Sequence[Collection[NodeId]],
    ) -> None:
        """`trees` that the cluster owns; `unfit`: who is not to host."""
        self.me = me
        self.tree = settings.tree
        self.clusters = clusters
        self.trees = trees
        self.unfit = unfit

    def _is_fit(self, peer: Peer) -> bool:
        return not any(peer.id in some for some in self.unfit)

    def fit_hosts(self) -> list[Peer]:
        """Who may host: the match brokers. In a small cluster, so that a virtual node has two, the
        standby and the primary as well."""
        cluster = self.clusters.cluster
        if cluster is None:
            return [self.me]
        standby = () if cluster.standby is None else (cluster.standby,)
        fit: list[Peer] = []
        for group in (cluster.brokers, standby, (cluster.primary,)):
            if len(fit) < min(FEWEST_HOSTS, self.tree.replicas):
                fit += [p for p in group if self._is_fit(p)]
        return fit or [cluster.primary]

    def emptiest_hosts(self) -> tuple[Peer, ...]:
        """As many fit hosts as a virtual node has, those with the least to match."""
        load = self._load()
        fit = sorted(self.fit_hosts(), key=lambda peer: load.get(peer.id, 0))
        return self._replicas(fit, load)

    def home(self) -> tuple[Peer, ...]:
        """Who serves a new tree: the fullest fit hosts with room, so that trees share hosts."""
        load, room = self._load(), self.tree.host_entries
        with_room = [peer for peer in self.fit_hosts() if load.get(peer.id, 0) < room]
        if not with_room:
            return self.emptiest_hosts()
        return self._replicas(sorted(with_room, key=lambda peer: -load.get(peer.id, 0)), load)

    def _replicas(self, hosts: Sequence[Peer], load: Mapping[NodeId, int]) -> tuple[Peer, ...]:
        """The first, and further ones only while they have room."""
        room = self.tree.host_entries
        others = [peer for peer in hosts[1:] if load.get(peer.id, 0) < room]
        return (hosts[0], *others[: self.tree.replicas - 1])

    def _load(self) -> dict[NodeId, int]:
        """Per host the registrations in its virtual nodes, and these."""
        load: dict[NodeId, int] = {}
        for part in self.parts():
            for host in part.hosts:
                load[host] = load.get(host, 0) + 1 + part.registrations
        return load

    def parts(self) -> list[Part]:
        """All virtual nodes, where they are or are going to be."""
        return [
            Part(attribute, entry.interval, tuple(host.id for host in entry.hosts), count)
            for attribute, owned in self.trees.items()
            for entry, count in zip(
                (owned.next or owned.tree.map).entries, owned.counts(), strict=True
            )
        ]
