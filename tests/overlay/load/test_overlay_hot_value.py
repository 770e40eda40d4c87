"""C6: whole overlays in which every event has the same value, which many nodes want: it is cut into
shards, hosts of these die under the load, and every event comes once."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from canopy.sim.world.processor import Processor
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from overlay.settings import ClusterSettings, Settings

HOSTS, SUBSCRIBERS = 6, 12
DEAR = Processor(per_input=0.0005, per_match=0.002, per_further=0.001, per_recipient=0.004)
"""An event takes a host with all registrations some 50 ms."""

RATE = 12.0


class HotValue:
    """Six nodes that may serve, and one that publishes and twelve that subscribe, whose own work
    takes no time."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, WireCodec(), Settings())
        self.hosts = [f"h{number}" for number in range(HOSTS)]
        for name in self.hosts:
            self.world.add_node(() if name == "h0" else ("h0",), name)
            self.world.run(0.2)
        serving = self.world.settings
        self.world.settings = replace(serving, cluster=ClusterSettings(serve=False))
        self.subscribers = [f"s{number}" for number in range(SUBSCRIBERS)]
        for name in ("p", *self.subscribers):
            self.world.add_node(("h0",), name)
        self.world.settings = serving
        assert self.world.run_until(self.world.ready, 60.0)
        for name in self.subscribers:
            self.world.subscribe(name, "kind = 'quake'")
        assert self.world.run_until(self.world.acknowledged, 60.0)
        for name in self.hosts:
            self.world.drivers[name].processor = DEAR
        self._rng = self.world.generator("hot")

    def load(self, seconds: float) -> None:
        """Publish for so long."""
        at, end = self.world.now, self.world.now + seconds
        while at < end:
            at += self._rng.expovariate(RATE)
            self.world.at(at, self.world.publish, "p", {"kind": "quake"})
        self.world.run_to(end)

    def primary(self) -> str:
        return next(n for n in self.hosts if n in self.world.names() and self._leads(n))

    def _leads(self, name: str) -> bool:
        return bool(self.world.node(name).clusters.is_primary)

    def shard_hosts(self) -> list[list[str]]:
        """Of each shard the hosts, in order."""
        tree = self.world.node(self.primary()).owner.trees["kind"].tree
        return [
            [self.world.identities[host.id] for host in entry.hosts]
            for entry in tree.map.entries
            if entry.interval.is_shard()
        ]

    def check_exact(self) -> None:
        """Every event was delivered to every subscriber, once."""
        assert self.world.settle(60.0)
        clients = self.world.clients
        shown = Counter(each.delivery.event.identity for each in clients.deliveries)
        assert shown == {each.identity: SUBSCRIBERS for each in clients.publications}


def test_a_hot_value_is_cut_into_shards_and_no_event_is_lost() -> None:
    """Not even while a host of a shard leaves, another one dies, and then the primary dies."""
    overlay = HotValue(3)
    world = overlay.world
    overlay.load(10.0)
    assert len(overlay.shard_hosts()) >= 2
    assert sum(world.node(name).counters.get("events_gathered", 0) for name in overlay.hosts) > 0

    def host() -> str:
        primary = overlay.primary()
        names = (name for names in overlay.shard_hosts() for name in names)
        return next(name for name in names if name != primary and world.drivers[name].alive)

    world.drain(host())
    overlay.load(4.0)
    world.crash(host())
    overlay.load(4.0)
    world.crash(overlay.primary())
    overlay.load(6.0)
    overlay.check_exact()


def test_subscriptions_that_come_while_a_value_is_cut_get_every_event_from_then_on() -> None:
    overlay = HotValue(4)
    world = overlay.world
    names = [f"late{number}" for number in range(4)]
    serving = world.settings
    world.settings = replace(serving, cluster=ClusterSettings(serve=False))
    for name in names:
        world.add_node(("h0",), name)
    world.settings = serving
    assert world.run_until(world.ready, 60.0)
    for name in names:
        overlay.load(1.5)
        world.subscribe(name, "kind = 'quake'")
        assert world.run_until(world.acknowledged, 30.0)
        since = len(world.clients.publications)
        overlay.load(0.5)
        assert len(world.clients.publications) > since
    overlay.load(4.0)
    assert overlay.shard_hosts()
    mark = len(world.clients.publications)
    overlay.load(2.0)
    assert world.settle(60.0)
    after = [each.identity for each in world.clients.publications[mark:]]
    shown = Counter(each.delivery.event.identity for each in world.clients.deliveries)
    assert after
    assert {shown[identity] for identity in after} == {SUBSCRIBERS + len(names)}
    assert max(shown.values()) <= SUBSCRIBERS + len(names)
