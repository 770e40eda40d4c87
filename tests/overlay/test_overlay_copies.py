"""P5 in whole overlays: a lost cluster's trees are planted from its observers' copies."""

from __future__ import annotations

import pytest

from canopy.sim.checks.node_state import check_trees
from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, settings, wait, with_role
from overlay.upper_tree.messages import Register
from tests.support.examples import overlay_seeds

ONE = settings(tree={"split_at": 6}, cluster={"split_trees": 100_000, "size": 3})
TWO = settings(cluster={"split_trees": 8, "size": 3})


def served(seed: int, nodes: int, chosen: object = ONE, attributes: int = 2) -> World:
    """Clusters of three, subscriptions everywhere."""
    world = grown(nodes, seed, chosen)  # type: ignore[arg-type]
    wait(world, lambda: len(serving(world)) >= 3, 30, "a full cluster")
    for number in range(30):
        attribute = f"a{number % attributes}"
        world.subscribe(f"n{number % nodes}", f"{attribute} BETWEEN {number} AND {number + 9}")
    acknowledged(world)
    world.run(15)
    return world


def serving(world: World) -> list[str]:
    return [n for n in world.names() if world.node(n).clusters.role != "none"]


def cluster_of(world: World, leader: str) -> list[str]:
    return [world.identities[peer.id] for peer in world.node(leader).clusters.members()]


def led(world: World) -> bool:
    return any(world.node(n).clusters.heartbeat.has_lease() for n in with_role(world, "primary"))


def publish(world: World, attributes: int = 2, count: int = 40) -> None:
    names = world.names()
    for number in range(count):
        values = {f"a{n}": (number + 7 * n) % 40 for n in range(attributes)}
        world.publish(names[number % len(names)], values)
        world.run(0.02)


def registers(world: World) -> list[str]:
    """Who registers anything from now on."""
    found: list[str] = []
    for name in world.names():
        node = world.node(name)
        before = node.send

        def send(peer: object, message: object, name: str = name, before: object = before) -> None:
            if isinstance(message, Register):
                found.append(name)
            before(peer, message)  # type: ignore[operator]

        node.registrar.port = Watched(node, send)
    return found


class Watched:
    """A node's Port of which one machine's sends are seen."""

    def __init__(self, node: object, send: object) -> None:
        self._node = node
        self.send = send

    def __getattr__(self, name: str) -> object:
        return getattr(self._node, name)


@pytest.mark.parametrize("seed", overlay_seeds(3))
def test_who_goes_on_knows_all_registrations(seed: int) -> None:
    world = served(seed, 9)
    for name in serving(world):
        world.crash(name)
    asked = registers(world)
    wait(world, lambda: led(world), 6, "another cluster")
    world.run(2)
    (leader,) = with_role(world, "primary")
    assert world.node(leader).counters["trees_restored"] == 2
    world.clients.crashes.clear()
    publish(world)
    world.run(20)
    assert asked == []
    assert_exact(world)
    world.run(70)  # whose subscribers are dead has ended
    assert check_trees(world) == []


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_the_ring_successor_knows_all_registrations(seed: int) -> None:
    world = served(seed, 12, TWO, attributes=20)
    wait(world, lambda: len(with_role(world, "primary")) > 1, 60, "two clusters")
    world.run(10)
    leaders = with_role(world, "primary")
    trees = {name: len(world.node(name).owner.trees) for name in leaders}
    lost = max(trees, key=lambda name: trees[name])
    for name in cluster_of(world, lost):
        world.crash(name)
    asked = registers(world)
    world.run(8)
    adopted = [world.node(n).counters.get("trees_restored", 0) for n in world.names()]
    assert sum(adopted) == trees[lost]
    world.clients.crashes.clear()
    publish(world, 20)
    world.run(15)
    assert asked == []
    assert_exact(world)


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_a_suback_that_no_copy_has_is_kept_as_well(seed: int) -> None:
    world = served(seed, 9)
    (leader,) = with_role(world, "primary")
    observers = world.node(leader).clusters.observers.observers
    assert len(observers) == 2
    for node in observers:
        world.network.sever(leader, world.identities[node])
    outside = [n for n in world.names() if world.node(n).clusters.role == "none"]
    late = next(n for n in outside if world.drivers[n].disk.node not in observers)
    world.run(8)  # the primary waits for other observers by now, if it has any
    for node in world.node(leader).clusters.observers.observers:
        world.network.sever(leader, world.identities[node])
    subscription = world.subscribe(late, "a0 > 30 OR b = 1")
    wait(world, lambda: subscription.acknowledged is not None, 20, "SUBACK")
    for name in serving(world):
        world.crash(name)
    wait(world, lambda: led(world), 8, "another cluster")
    world.clients.crashes.clear()
    publish(world)
    for name in world.names():
        world.publish(name, {"b": 1})
    world.run(10)
    assert_exact(world)


def test_a_new_subscription_need_not_wait_until_no_cached_answer_is_trusted() -> None:
    world = served(1, 9)
    for name in [n for n in world.names() if n not in serving(world)]:
        world.publish(name, {"a0": 99})  # and gets an answer
    world.run(1)
    for name in serving(world):
        world.crash(name)
    subscription = world.subscribe(world.names()[0], "a0 = 5 AND fresh = 1")
    wait(world, lambda: subscription.acknowledged is not None, 6, "SUBACK")
    world.clients.crashes.clear()
    for name in world.names():
        world.publish(name, {"a0": 5, "fresh": 1})
    assert_exact(world)
