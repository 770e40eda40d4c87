"""A node's reports about itself: `canopy status`, `canopy peers`, and the node's part of its health
records (used by node.py only)."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from overlay.chord.clusters import Clusters
from overlay.chord.ring.ring import Ring
from overlay.client import GetPeers, GetStatus, Peers, Status
from overlay.driver import Vitals
from overlay.health import Health
from overlay.info import PeerInfo
from overlay.links.links import Links
from overlay.lower_random.view import View
from overlay.machine import NodeId, Peer
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.host.host import Hosting
from overlay.upper_tree.host.host_offers import HostOffers
from overlay.upper_tree.publisher.publications import Publications
from overlay.upper_tree.subscriber.registrar import Registrar


class Reports:
    """Reads several machines for one reply; changes nothing."""

    def __init__(
        self,
        links: Links,
        view: View,
        clusters: Clusters,
        ring: Ring,
        hosting: Hosting,
        clients: LocalClients,
        publications: Publications,
        registrar: Registrar,
        host_offers: HostOffers,
        health: Health,
    ) -> None:
        self.links = links
        self.view = view
        self.clusters = clusters
        self.ring = ring
        self.hosting = hosting
        self.clients = clients
        self.publications = publications
        self.registrar = registrar
        self.host_offers = host_offers
        self.health = health

    def find_peer(self, node: NodeId) -> Peer | None:
        """The node as a link or the view knows it, None if none does."""
        for session in self.links.sessions():
            if session.peer.id == node:
                return session.peer
        return next((peer for peer in self.view.peers() if peer.id == node), None)

    def query_targets(self, node: NodeId) -> tuple[Peer, ...]:
        """The peers to ask about `node`: itself if its address is known, else all neighbours."""
        peer = self.find_peer(node)
        return self.view.peers() if peer is None else (peer,)

    @property
    def pending(self) -> int:
        """The amount of unfinished work: events that some tree has not accepted, publications that
        wait for room, subscriptions that are ending, 1 for registrations without an answer, 1 for
        links with unacknowledged data."""
        return (
            self.publications.publisher.unaccepted
            + self.publications.waiting
            + self.clients.ending
            + (not self.registrar.settled)
            + (self.links.unacknowledged() > 0)
        )

    @property
    def pending_and_held(self) -> int:
        """The same, and deliveries that are held for nodes out of reach."""
        return self.pending + self.hosting.holding.held.events

    @property
    def unfinished(self) -> dict[str, int]:
        """Return the work that keeps a draining node from ending, by kind, without kinds that have
        none: 1 for membership in a cluster that it has not left, trees of other nodes that it still
        serves, events that some tree has not accepted, 1 for ends of registrations without an
        answer, visits that wait here to be matched, links with unacknowledged data."""
        found = {
            "membership": int(not self.clusters.left),
            "events": self.publications.publisher.unaccepted + self.publications.waiting,
            "registrations": int(not self.registrar.settled),
            "trees": self.host_offers.hosted,
            "visits": len(self.hosting.scheduler.queue),
            "links": self.links.unacknowledged(),
        }
        return {kind: count for kind, count in found.items() if count}

    def vitals(self, latest: float, counters: Mapping[str, int]) -> Vitals:
        """Return the measurements of the node for a health record. `latest`: the most seconds by
        which its timers were late."""
        links = [one for one in self.links.sessions() if one.state == "CONNECTED"]
        measured = [one.round_trip for one in links if one.round_trip]
        return Vitals(
            queue=self.pending_and_held + len(self.hosting.scheduler.queue),
            late_ms=round(1_000.0 * latest, 3),
            round_trip_ms=round(1_000.0 * median(measured), 3) if measured else 0.0,
            resent=counters.get("link_resent", 0),
            links=len(links),
        )

    def status(
        self,
        command: GetStatus,
        me: Peer,
        name: str,
        incarnation: int,
        ready: bool,
        draining: bool,
        seeds: Mapping[str, str],
        counters: Mapping[str, int],
    ) -> Status:
        """The reply to `GetStatus`. The arguments are what node.py knows itself: name, incarnation,
        readiness, its seeds with what became of each, and its counters since the start."""
        cluster = self.clusters.cluster
        return Status(
            request=command.request,
            node=me.id,
            address=me.address,
            ready=ready,
            draining=draining,
            incarnation=incarnation,
            role=self.clusters.role,
            cluster="" if cluster is None else cluster.key,
            ring="" if cluster is None else cluster.ring,
            neighbours=len(self.view.peers()),
            links=sum(1 for s in self.links.sessions() if s.state == "CONNECTED"),
            subscriptions=len(self.clients.subscriptions),
            pending=self.pending_and_held,
            trees=len(self.hosting.trees),
            routing="counting" if self.hosting.counting else "pivot",
            seeds=dict(seeds),
            counters=dict(counters),
            name=name,
            region=me.region,
            tier=me.tier,
            health=self._own_health(me.id),
            way=self._way(),
        )

    def _way(self) -> str:
        """Return how this node reaches the owners of keys, as in `Status.way`."""
        clusters = self.clusters
        if clusters.is_primary:
            return "lease" if clusters.is_followed else "no lease"
        if clusters.cluster is not None:
            primary = clusters.cluster.primary.id
            return "member" if self.links.connected(primary) else "primary silent"
        return "known" if self.ring.is_known() else ""

    def _own_health(self, me: NodeId) -> str:
        if not (self.health.is_known or self.health.is_judged):
            return ""
        reason = self.health.reason(me)
        return f"sub-healthy: {reason}" if reason else "healthy"

    def peers(self, command: GetPeers) -> Peers:
        """The reply to `GetPeers`: all links, and the neighbours that have none now."""
        ages = {neighbour.peer.id: neighbour.age for neighbour in self.view.neighbours()}
        loads = {neighbour.peer.id: neighbour.load for neighbour in self.view.neighbours()}
        infos: dict[NodeId, PeerInfo] = {}
        for s in self.links.sessions():
            age = ages.get(s.peer.id, -1)
            infos[s.peer.id] = PeerInfo(
                s.peer.id,
                s.peer.address,
                s.state,
                age,
                age >= 0,
                s.sent,
                s.received,
                s.peer.region,
                s.peer.tier,
                loads.get(s.peer.id, 0),
                s.version,
            )
        for peer in self.view.peers():
            if peer.id not in infos:
                age = ages[peer.id]
                infos[peer.id] = PeerInfo(
                    peer.id,
                    peer.address,
                    "NOT_CONNECTED",
                    age,
                    True,
                    0,
                    0,
                    peer.region,
                    peer.tier,
                    loads[peer.id],
                )
        return Peers(command.request, tuple(infos.values()))
