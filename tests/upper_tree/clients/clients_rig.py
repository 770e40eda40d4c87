"""A whole node with local clients, and a host that answers when it is let, for tests."""

from __future__ import annotations

from typing import Any

from overlay.client import Delivered, Draft, Publish, Subscribe, Subscribed
from overlay.lower_random.messages import WalkFailed
from overlay.lower_random.policies import Policies, PolicyStore
from overlay.settings import Settings
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.publications import Publications
from overlay.upper_tree.publisher.publisher import Publisher
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from overlay.upper_tree.subscriber.receiver import Receiver
from overlay.upper_tree.subscriber.registrar import Registrar
from tests.support.trees import HostNode, OwnerNode, cluster_of, one_replica
from tests.support.world import World, WorldNode


class Walks:
    """No node to walk to."""

    def __init__(self, port: WorldNode) -> None:
        self.port = port

    def walk(self, attributes: Any, hops: int | None = None) -> None:
        self.port.emit(WalkFailed(tuple(attributes), 0))


class Rig:
    """A whole node; the trees are hosted by the broker h, which answers when `settle` is called."""

    def __init__(
        self, chosen: Settings | None = None, tenant: str = "", store: PolicyStore | None = None
    ) -> None:
        chosen = one_replica(chosen or Settings())
        self.net = World()
        self.port = self.net.node("me")
        self.host = HostNode(self.net.node("h"), chosen)
        cluster = cluster_of("me", "h")
        self.owner = OwnerNode(self.port, chosen, cluster)
        ring = self.owner.ring
        ring.learn(cluster)
        locations, self.history = LocationCache(100, ReplicaSelector("me", 3.0)), EventHistory(100)
        finder = TreeFinder(self.port, chosen, Walks(self.port), ring, locations)
        access_points = self.host.access_points
        self.publisher = Publisher(
            self.port,
            chosen,
            1,
            finder,
            locations,
            access_points,
            self.history,
            self.host.hosting.copies,
        )
        self.registrar = Registrar(self.port, chosen, 1, ring)
        self.receiver = Receiver(self.port, chosen, self.history)
        self.clients = LocalClients(
            *(self.port, 1, self.registrar, self.receiver, self.history),
            policies := Policies(self.port, store, tenant, False),
            *(chosen, lambda: 1_000.0 + self.port.now),
        )
        self.publications = Publications(self.port, self.publisher, policies)
        self.port.add(finder, self.publisher, self.publications)
        self.port.add(self.registrar, self.receiver, self.clients, policies)
        self._request = 0

    def settle(self) -> None:
        self.net.run(0.0)
        self.owner.clusters.commit()
        self.net.flush()

    def command(self, client: int, kind: Any, *arguments: Any, **named: Any) -> int:
        self._request += 1
        command = kind(self._request, *arguments, **named)
        commands = {**self.clients.commands(), **self.publications.commands()}
        commands[kind](client, command)
        self.port.turn()
        return self._request

    def leave(self) -> None:
        self.publications.leave()
        self.clients.leave()

    def subscribe(self, selector: str, client: int = 1, name: str = "") -> str:
        self.command(client, Subscribe, selector, name)
        self.settle()
        return self.port.answers(Subscribed)[-1].subscription

    def publish(self, *events: dict[str, Any], client: int = 1, receipt: bool = False) -> int:
        drafts = tuple(Draft(attributes) for attributes in events)
        return self.command(client, Publish, drafts, receipt=receipt)

    def shown(self) -> list[tuple[int, list[tuple[str, int]]]]:
        """(client, [(subscription, sequence)]) per reply."""
        found = [
            (client, [(d.subscription, d.event.sequence) for d in reply.deliveries])
            for client, reply in self.port.replies
            if isinstance(reply, Delivered)
        ]
        self.port.answers(Delivered)
        return found
