"""Nodes of the attribute trees in a `World`: an owner, hosts, and a `Rig` that joins them. The
cluster and the ring below them are as the test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.overlays import settings
from matching import compile_selector, place
from overlay.chord.events import Committed, OwnerFound, OwnerUnknown, RoleChanged
from overlay.chord.keys import attribute_key
from overlay.chord.membership.cluster_merge import ClusterLoad
from overlay.chord.messages import Cluster
from overlay.client import Event
from overlay.health import Health
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.policies import Policies
from overlay.machine import Key, Peer
from overlay.settings import Settings
from overlay.upper_tree.delivery.gap_notices import GapNotices
from overlay.upper_tree.delivery.relays import Relays
from overlay.upper_tree.host.acceptances import AcceptancesDue
from overlay.upper_tree.host.host import Hosting
from overlay.upper_tree.host.host_offers import HostOffers
from overlay.upper_tree.messages import Accepted, Register, Registration, ServingBeat, ServingReply
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.rebalance import Rebalance
from overlay.upper_tree.owner.registrations.registry import Registry
from overlay.upper_tree.owner.registrations.restoration import TreeRestoration
from overlay.upper_tree.summaries.cache_holders import CacheHolders
from overlay.upper_tree.summaries.summary_server import SummaryServer
from tests.support.world import World, WorldNode, peer

KEY = "8" * 40


def one_replica(chosen: Settings) -> Settings:
    """The same, but each virtual node has one host."""
    return msgspec.structs.replace(chosen, tree=msgspec.structs.replace(chosen.tree, replicas=1))


def registration(
    id_: str, attribute: str, selector: str, subscriber: Peer, counting: bool = False
) -> Registration:
    """What a registrar would make of a selector with one conjunction."""
    (conjunction,) = compile_selector(selector).conjunctions
    if counting:
        constraint = conjunction.constraints[attribute]
        text, where = constraint.text, constraint.hull
    else:
        text, where = conjunction.text, dict(conjunction.pivots())[attribute]
    return Registration(id_, attribute, subscriber, text, where)


def event(sequence: int, publisher: str = "pub", incarnation: int = 1, **attributes: Any) -> Event:
    return Event(publisher, incarnation, sequence, 0.0, attributes)


class FakeClusters:
    """The own cluster as a test describes it; the log commits when the test says so."""

    def __init__(self, port: WorldNode, cluster: Cluster | None) -> None:
        self.port = port
        self.cluster = cluster
        self.health = Health(port)
        self.log: list[bytes] = []
        self.copied: list[bytes] | None = None
        self.transferred: list[bytes] | None = None
        self.released: list[str] = []
        self.split_at: list[Key] = []
        self.load: ClusterLoad | None = None  # as last reported
        self.handed: list[tuple[bytes, ...]] = []  # states for the next cluster
        self.stored = 0  # arcs of the cluster before it
        self.giving_away: Cluster | None = None
        self.wanted = 0
        self.preferred: list[str] = []
        self.followed = True
        self.led_for = 0.0
        self.lease_left = 0.8
        self.unheard: tuple[str, ...] = ()
        self.uncopied = 1 << 60  # the first entry that an observer lacks
        self.whole: tuple[Key, ...] = ()  # copies of other clusters that lack nothing
        self.forgotten: list[Key] = []
        self.outranked: list[int] = []
        self.idle: tuple[Peer, ...] = ()

    def outrank(self, epoch: int) -> None:
        self.outranked.append(epoch)

    def is_silent(self, node: str) -> bool:
        return node in self.unheard

    @property
    def is_primary(self) -> bool:
        return self.cluster is not None and self.cluster.primary.id == self.port.me.id

    @property
    def is_followed(self) -> bool:
        return self.is_primary and self.followed

    def owns(self, key: Key) -> bool:
        cluster = self.cluster
        if cluster is None or not self.is_primary or not cluster.owns(key):
            return False
        return self.giving_away is None or not self.giving_away.owns(key)

    def append(self, entry: bytes) -> int:
        assert self.is_primary, "only the primary writes"
        self.log.append(entry)
        return len(self.log) - 1

    def commit(self) -> None:
        """The standby has everything."""
        self.port.hear(Committed(KEY, len(self.log)))

    def append_all(self, entries: Sequence[bytes]) -> int:
        return [self.append(entry) for entry in entries][-1]

    def is_copied(self, index: int) -> bool:
        return index < self.uncopied

    def is_whole(self, key: Key) -> bool:
        return key in self.whole

    def forget_log(self, key: Key) -> None:
        self.forgotten.append(key)

    def send_snapshot(self, entries: Sequence[bytes]) -> None:
        self.copied = list(entries)

    def store_snapshot(self, entries: Sequence[bytes]) -> None:
        raise AssertionError("there is no disk")

    def transfer(self, entries: Sequence[bytes]) -> None:
        self.transferred = list(entries)

    def release(self, peer: Peer) -> None:
        self.released.append(peer.id)

    def idle_peers(self) -> tuple[Peer, ...]:
        return self.idle

    def want(self, members: int) -> None:
        self.wanted = members

    def prefer(self, peers: Sequence[Peer]) -> None:
        self.preferred = [peer.id for peer in peers]

    def request_split(self, middle: Key) -> None:
        self.split_at.append(middle)

    def report_load(self, load: ClusterLoad) -> None:
        self.load = load

    def hand_to_successor(self, entries: Sequence[bytes]) -> None:
        self.handed.append(tuple(entries))

    def arc_stored(self) -> None:
        self.stored += 1


class FakeRing:
    """Owners as the test says: `known` at once, others when `answer` is called."""

    def __init__(self, port: WorldNode) -> None:
        self.port = port
        self.clusters: list[Cluster] = []
        self.asked: list[Key] = []
        self.collected = 0
        self.owner_asked = 0

    def owner(self, key: Key) -> Cluster | None:
        self.owner_asked += 1
        return next((c for c in reversed(self.clusters) if c.owns(key)), None)

    def find(self, key: Key) -> None:
        self.asked.append(key)

    def learn(self, cluster: Cluster) -> None:
        self.clusters.append(cluster)

    def admits(self, cluster: Cluster) -> bool:
        """Nodes here have no keys: every description is believed."""
        return True

    def walk(self) -> None:
        self.collected += 1

    def answer(self, attribute: str, cluster: Cluster | None) -> None:
        key = attribute_key(attribute)
        if cluster is None:
            self.port.hear(OwnerUnknown(key))
        else:
            self.learn(cluster)
            self.port.hear(OwnerFound(key, cluster, 2))


def cluster_of(
    primary: str, *brokers: str, standby: str | None = None, version: tuple[int, int] = (1, 1)
) -> Cluster:
    """A cluster that owns the whole ring."""
    return Cluster(
        "ring",
        KEY,
        KEY,
        version,
        peer(primary),
        None if standby is None else peer(standby),
        tuple(peer(name) for name in brokers),
    )


class OwnerNode:
    """The owner's machines (owner, registry, balance) at the primary, and a host beside them."""

    def __init__(
        self, port: WorldNode, settings: Settings, cluster: Cluster, primary: bool = True
    ) -> None:
        self.port = port
        self.clusters = FakeClusters(port, cluster)
        self.ring = FakeRing(port)
        self.owner = Owner(port, settings, self.clusters, self.ring)
        self.restoration = TreeRestoration(port, self.owner)
        self.cache_holders = CacheHolders(port, settings, self.owner, self.restoration)
        self.summaries = SummaryServer(
            port, settings, self.owner, self.cache_holders, self.restoration
        )
        self.registry = Registry(
            *(port, settings, self.owner, self.summaries, self.restoration),
            Policies(port, None, "", False),
        )
        self.rebalance = Rebalance(port, settings, self.owner)
        self.hosting = HostNode(port, settings).hosting
        port.add(
            self.owner, self.owner.hosts, self.owner.pool, self.restoration, self.cache_holders
        )
        port.add(self.summaries, self.registry.ends, self.registry, self.rebalance)
        if primary:
            port.hear(RoleChanged(cluster, "primary"))


class HostNode:
    """A host's machine."""

    def __init__(self, port: WorldNode, settings: Settings) -> None:
        self.port = port
        self.access_points = AccessPoints(port, settings.view)
        self.ring = FakeRing(port)
        self.notices = GapNotices(port)
        relays = Relays(port, tuple)
        self.hosting = Hosting(port, settings, self.access_points, self.ring, relays, self.notices)
        self.offers = HostOffers(port, settings, self.hosting.assigned, tuple)
        port.add(self.hosting, self.offers, self.notices, self.hosting.holding)

    def lease(self) -> HostNode:
        """An owner of everything counts on it: it may serve for its whole term."""
        owner, key = peer("owner"), "0" * 40
        for number in (1, 2):
            self.port.hear(ServingBeat(key, key, 1_000_000, number, number - 1, 4.0), owner)
        self.port.take(ServingReply)
        return self

    def accepted(self) -> list[Accepted]:
        """What publishers hear was taken since the last look, as soon as it is due."""
        if AcceptancesDue() in self.port.timers:
            self.port.fire(AcceptancesDue())
        return self.port.take(Accepted)


S = peer("s")
SMALL = settings(tree={"split_at": 4})


class Rig:
    """The owner p, match brokers that host, and the subscriber s."""

    def __init__(self, *brokers: str, chosen: Settings = SMALL, replicas: int = 1) -> None:
        chosen = replace(chosen, tree=replace(chosen.tree, replicas=replicas))
        self.net = World()
        self.settings = chosen
        self.subscriber = self.net.node("s")
        self.hosts = {name: HostNode(self.net.node(name), chosen) for name in brokers}
        self.owner = OwnerNode(self.net.node("p"), chosen, cluster_of("p", *brokers))

    def register(self, *selectors: str, first: int = 0) -> None:
        made = tuple(
            registration(f"s/{first + n}", "x", text, S) for n, text in enumerate(selectors)
        )
        self.owner.port.hear(Register(1, made), S)
        self.owner.clusters.commit()
        self.net.flush()

    def settle(self, seconds: float = 5.0) -> None:
        """Time passes in steps; messages arrive at once."""
        for _ in range(int(seconds * 5)):
            self.net.run(0.2)
            self.owner.clusters.commit()
            self.net.flush()

    def pause(self, kind: type) -> None:
        """Time passes until a message of this kind is on its way; it is not delivered."""
        for _ in range(50):
            self.net.run(0.2)
            while self.net.busy():
                link = self.net.busy()[0]
                if any(isinstance(message, kind) for message in self.net.links[link]):
                    return
                self.net.deliver(link)
        raise AssertionError(f"no {kind.__name__}")

    @property
    def spread(self) -> list[str]:
        """Hosts of the map's virtual nodes, in order."""
        return [entry.hosts[0].id for entry in self.owner.owner.trees["x"].tree.map.entries]

    def serving(self, value: int, name: str = "") -> list[str]:
        """Hosts (or only `name`) that match this value now."""
        return [
            host
            for host, node in self.hosts.items()
            if name in ("", host) and served(node, event(1, x=value)) is not None
        ]

    def members(self, *brokers: str) -> None:
        self.owner.clusters.cluster = cluster_of("p", *brokers)


def served(node: HostNode, what: Event) -> list[str] | None:
    """What the host would match, None if it does not serve the value."""
    tree = node.hosting.trees.get("x")
    spot = place(what.attributes["x"] or 0)
    if tree is None or tree.served.span(spot) is None:
        return None
    return tree.match(what)
