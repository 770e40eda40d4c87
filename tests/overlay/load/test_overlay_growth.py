"""C6: whole overlays whose trees grow over nodes that are no members: these die and leave, under a
load, and no event is lost."""

from __future__ import annotations

from msgspec.structs import replace

from canopy.sim.world.processor import Processor
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from overlay.settings import ClusterSettings, Settings

HOSTS = 7
SLOW = Processor(per_input=0.001, per_match=0.008, per_further=0.001, per_recipient=0.002)
"""A host can match some 80 events a second."""

RATE, SECONDS = 200.0, 8.0


class Loaded:
    """Seven nodes that may serve, and one that publishes and one that subscribes, whose own work
    takes no time."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, WireCodec(), Settings())
        self.hosts = [f"h{number}" for number in range(HOSTS)]
        for name in self.hosts:
            self.world.add_node(() if name == "h0" else ("h0",), name)
            self.world.run(0.2)
        serving = self.world.settings
        self.world.settings = replace(serving, cluster=ClusterSettings(serve=False))
        for name in ("p", "s"):
            self.world.add_node(("h0",), name)
        self.world.settings = serving
        assert self.world.run_until(self.world.ready, 60.0)
        for number in range(8):
            low, high = number / 8, (number + 1) / 8
            self.world.subscribe("s", f"x >= {low} AND x < {high}")
        assert self.world.run_until(self.world.acknowledged, 60.0)
        for name in self.hosts:
            self.world.drivers[name].processor = SLOW
        self._rng = self.world.generator("growth")

    def load(self, seconds: float) -> None:
        """Publish for so long."""
        at, end = self.world.now, self.world.now + seconds
        while at < end:
            at += self._rng.expovariate(RATE)
            self.world.at(at, self.world.publish, "p", {"x": self._rng.random()})
        self.world.run_to(end)

    def outsiders(self) -> list[str]:
        """Hosts that are no members of the cluster."""
        for name in self.world.names():
            node = self.world.node(name)
            if node.clusters.is_primary:
                tree = node.owner.trees["x"].tree
                cluster = node.clusters.cluster
                return [
                    self.world.identities[host]
                    for host in tree.map.hosts()
                    if not cluster.has_member(host)
                ]
        return []

    def check_exact(self) -> None:
        """Every event was delivered, once."""
        assert self.world.settle(60.0)
        clients = self.world.clients
        shown = [each.delivery.event.identity for each in clients.deliveries]
        assert sorted(shown) == sorted(each.identity for each in clients.publications)


def test_a_busy_cluster_splits_and_loses_no_event() -> None:
    chosen = Settings(cluster=ClusterSettings(size=3, split_load=1.5))
    world = World(4, WireCodec(), chosen)
    names = [f"h{number}" for number in range(9)]
    for name in names:
        world.add_node(() if name == "h0" else ("h0",), name)
        world.run(0.2)
    assert world.run_until(world.ready, 60.0)
    trees = ("a", "b", "c", "d")
    for tree in trees:
        world.subscribe("h1", f"{tree} >= 0")
    assert world.run_until(world.acknowledged, 60.0)
    for name in names:
        world.drivers[name].processor = SLOW
    rng = world.generator("split")

    def leading() -> list[str]:
        return [name for name in names if world.node(name).clusters.is_primary]

    assert len(leading()) == 1
    at, end = world.now, world.now + 18.0
    while at < end:
        at += rng.expovariate(RATE)
        world.at(at, world.publish, rng.choice(("h2", "h3")), {rng.choice(trees): rng.random()})
    world.run_to(end)
    primaries = leading()
    assert len(primaries) > 1
    owned = [list(world.node(name).owner.trees) for name in primaries]
    assert sorted(tree for each in owned for tree in each) == list(trees)
    assert all(owned)
    assert world.settle(60.0)
    shown = [each.delivery.event.identity for each in world.clients.deliveries]
    assert sorted(shown) == sorted(each.identity for each in world.clients.publications)


def test_a_tree_grows_beyond_its_cluster_and_loses_no_event() -> None:
    """Not even while hosts outside the cluster leave and die, and then its primary dies."""
    overlay = Loaded(5)
    world = overlay.world
    overlay.load(SECONDS)
    leaves, *_ = overlay.outsiders()
    world.drain(leaves)
    overlay.load(4.0)
    assert world.run_until(lambda: not world.drivers[leaves].alive, 12.0)
    assert leaves not in overlay.outsiders()
    dies, *_ = overlay.outsiders()
    world.crash(dies)
    overlay.load(2.0)
    world.crash(next(n for n in world.names() if world.node(n).clusters.is_primary))
    overlay.load(4.0)
    overlay.check_exact()
