"""Questions that the overlay answers about itself: `canopy ring` and `canopy where`.

Clusters are collected by a walk around the ring, and each cluster's primary names its trees.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from overlay.chord.events import OwnerFound, OwnerUnknown, RingWalked
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.chord.ring.ring import Ring
from overlay.client import Failed, GetRing, Located, Reply, RingClusters, Where
from overlay.health import Health
from overlay.info import ClusterInfo, VirtualNodeInfo
from overlay.machine import Key, Machine, Peer, Port, Timer
from overlay.upper_tree.clients.constants import QUERY_TIMEOUT
from overlay.upper_tree.inspection_messages import AskTrees, TreesReport
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.partition import describe


class QueryTimeout(Timer, frozen=True):
    """Other nodes have had time to answer."""

    number: int


class OverlayQuery(msgspec.Struct):
    """A client's question that other nodes help to answer. `attribute`: None for the whole ring."""

    client: int
    request: int
    attribute: str | None = None
    clusters: dict[Key, Cluster] = {}
    answers: dict[Key, TreesReport] = {}
    complete: bool = True


class Inspection(Machine):
    """Answers queries about ring, trees and events."""

    def __init__(self, port: Port, owner: Owner, ring: Ring, health: Health) -> None:
        super().__init__(port)
        self.health = health
        self.trees = owner.trees
        self.own_cluster = owner.clusters
        self.ring = ring
        self._queries: dict[int, OverlayQuery] = {}
        self._number = 0

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {GetRing: self.get_ring, Where: self.where}

    def _ask(self, query: OverlayQuery) -> int:
        self._number += 1
        self._queries[self._number] = query
        self.port.set_timer(QUERY_TIMEOUT, QueryTimeout(self._number))
        return self._number

    def _answer(self, number: int, reply: Reply) -> None:
        query = self._queries.pop(number)
        self.port.cancel_timer(QueryTimeout(number))
        self.port.reply(query.client, reply)

    # --- ring ---

    def get_ring(self, client: int, command: GetRing) -> None:
        """Answer with all clusters and their attributes."""
        self._ask(OverlayQuery(client, command.request))
        self.ring.walk()

    def on_ring_walked(self, event: RingWalked) -> None:
        """The ring's clusters are known: ask each for its trees."""
        for number, query in list(self._queries.items()):
            if query.attribute is not None or query.clusters:
                continue
            query.complete = event.complete
            query.clusters = {cluster.key: cluster for cluster in event.clusters}
            for cluster in event.clusters:
                self.port.send(cluster.primary, AskTrees(number))
            if not event.clusters:
                self._answer(number, RingClusters(query.request, (), False))

    # --- where ---

    def where(self, client: int, command: Where) -> None:
        """Answer with the owner of an attribute, and its tree."""
        self._ask(OverlayQuery(client, command.request, command.attribute))
        self.ring.find(attribute_key(command.attribute))

    def on_owner_found(self, event: OwnerFound) -> None:
        """The owner is known: ask it for the tree."""
        for number, query, attribute in self._looked_up(event.key):
            query.clusters = {event.cluster.key: event.cluster}
            self.port.send(event.cluster.primary, AskTrees(number, attribute))

    def on_owner_unknown(self, event: OwnerUnknown) -> None:
        """The lookup of an owner failed: answer each question about a tree at its key with Failed
        ("time-out")."""
        for number, query, _ in self._looked_up(event.key):
            reason = "the ring does not answer; try again in a moment"
            self._answer(number, Failed(query.request, "time-out", reason))

    def _looked_up(self, key: Key) -> list[tuple[int, OverlayQuery, str]]:
        """Number, query and attribute of the questions for the tree at this key."""
        return [
            (number, query, query.attribute)
            for number, query in self._queries.items()
            if query.attribute is not None and attribute_key(query.attribute) == key
        ]

    def on_ask_trees(self, sender: Peer, message: AskTrees) -> None:
        """Answer with the own cluster's trees, if this node leads it."""
        cluster = self.own_cluster.cluster
        if cluster is None or not self.own_cluster.is_primary:
            return
        version, entries = (0, 0), []
        owned = self.trees.get(message.attribute)
        if owned is not None:
            version = owned.tree.map.version
            counts = owned.tree.map.counts(owned.tree.registrations.values())
            entries = list(zip(owned.tree.map.entries, counts, strict=True))
        names = tuple(sorted(self.trees))
        reply = TreesReport(
            message.number,
            cluster.key,
            names,
            version,
            tuple(entries),
            self.own_cluster.led_for,
            tuple(p.id for p in cluster.members() if self.own_cluster.is_silent(p.id)),
        )
        self.port.send(sender, reply)

    def on_trees(self, sender: Peer, message: TreesReport) -> None:
        """A cluster's primary has answered; the question may be complete."""
        query = self._queries.get(message.number)
        if query is None or message.key not in query.clusters:
            return
        query.answers[message.key] = message
        if query.attribute is not None:
            found = located_tree(query, query.attribute, message, self.health)
            self._answer(message.number, found)
        elif len(query.answers) == len(query.clusters):
            self._answer(message.number, self._ring(query))

    def _ring(self, query: OverlayQuery) -> RingClusters:
        infos = tuple(
            cluster_info(cluster, query.answers.get(key), self.health)
            for key, cluster in query.clusters.items()
        )
        complete = query.complete and len(query.answers) == len(query.clusters)
        return RingClusters(query.request, infos, complete)

    def on_query_timeout(self, timer: QueryTimeout) -> None:
        """Answer the client with the results so far."""
        query = self._queries.get(timer.number)
        if query is None:
            return
        if query.clusters and query.attribute is None:
            self._answer(timer.number, self._ring(query))
        else:
            reason = "no answer from the ring in time"
            self._answer(timer.number, Failed(query.request, "time-out", reason))


def cluster_info(cluster: Cluster, trees: TreesReport | None, health: Health) -> ClusterInfo:
    """A cluster for people and programs, with what this node knows of its members' health."""
    return ClusterInfo(
        cluster.key,
        cluster.start,
        cluster.version[0],
        cluster.primary.id,
        "" if cluster.standby is None else cluster.standby.id,
        tuple(peer.id for peer in cluster.brokers),
        () if trees is None else trees.attributes,
        {peer.id: peer.address for peer in cluster.members()},
        -1.0 if trees is None else trees.led_for,
        () if trees is None else trees.silent,
        health.reasons(peer.id for peer in cluster.members()),
    )


def located_tree(
    query: OverlayQuery, attribute: str, trees: TreesReport, health: Health
) -> Located:
    """A tree for people and programs."""
    nodes = tuple(
        VirtualNodeInfo(
            describe(entry.interval.lo),
            describe(entry.interval.hi),
            entry.hosts[0].id,
            count,
            tuple(host.id for host in entry.hosts[1:]),
        )
        for entry, count in trees.entries
    )
    info = cluster_info(query.clusters[trees.key], trees, health)
    return Located(query.request, attribute, info, trees.version, nodes)
