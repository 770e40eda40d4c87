"""Members come and go (P1): in a quiet network nothing is lost by it and nothing comes twice."""

from __future__ import annotations

import pytest

from canopy.sim.world.world import World
from harness.overlays import (
    acknowledged,
    assert_exact,
    grown,
    hosts,
    settings,
    wait,
    with_role,
)
from overlay.settings import Settings
from tests.support.examples import overlay_seeds

SPREAD = settings(tree={"split_at": 6}, cluster={"split_trees": 100_000})
"""One cluster whose trees are cut early."""

CROWDED = settings(tree={"split_at": 6, "host_entries": 6}, cluster={"split_trees": 100_000})
"""… and hosts have little room, so that all match brokers host something."""


def served(seed: int, nodes: int = 7, chosen: Settings = SPREAD) -> World:
    """One full cluster with two nodes to spare, 40 subscriptions to two attributes."""
    world = grown(nodes, seed, chosen)
    wait(world, lambda: len(with_role(world, "broker")) == 3, 30, "a full cluster")
    for number in range(40):
        attribute = "xy"[number % 2]
        world.subscribe(f"n{number % nodes}", f"{attribute} BETWEEN {number} AND {number + 9}")
    acknowledged(world)
    world.run(10)  # cuts spread over the members
    return world


def publish(world: World, count: int = 60, gap: float = 0.02) -> None:
    names = [n for n in world.names() if not world.node(n).drained]
    for number in range(count):
        world.publish(names[number % len(names)], {"x": number, "y": 50 - number})
        world.run(gap)


def brokers_that_host(world: World) -> list[str]:
    brokers = with_role(world, "broker")
    return [n for n in brokers if any(n in counts for counts in hosts(world).values())]


def test_virtual_nodes_spread_over_the_match_brokers() -> None:
    world = served(1, chosen=CROWDED)
    assert len(brokers_that_host(world)) >= 2
    publish(world)
    assert_exact(world)


@pytest.mark.parametrize("seed", overlay_seeds(3))
@pytest.mark.parametrize("silent", [False, True])
def test_a_match_broker_that_crashes_is_replaced(seed: int, silent: bool) -> None:
    world = served(seed)
    victim = brokers_that_host(world)[0]
    world.crash(victim, silent=silent)
    world.run(40)  # noticed, moved, recruited
    assert all(victim not in counts for counts in hosts(world).values())
    publish(world)
    assert_exact(world)
    assert len(with_role(world, "broker")) == 3


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_events_right_after_a_crash_wait_for_the_repair(seed: int) -> None:
    world = served(seed)
    world.run(20)
    world.crash(brokers_that_host(world)[0], silent=True)
    world.clients.crashes.clear()  # quiet at that moment: nothing may be lost, whatever the grace
    publish(world)
    assert_exact(world)


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_a_crashed_broker_that_comes_back_serves_again(seed: int) -> None:
    world = served(seed, nodes=5)
    victim = brokers_that_host(world)[0]
    world.crash(victim)
    world.run(3)
    world.restart(victim)
    wait(world, lambda: len(with_role(world, "broker")) == 3, 60, "serves again")
    publish(world)
    assert_exact(world)


@pytest.mark.parametrize("seed", overlay_seeds(3))
def test_a_broker_that_drains_under_traffic_loses_nothing(seed: int) -> None:
    world = served(seed)
    victim = brokers_that_host(world)[0]
    publish(world, 20)
    world.drain(victim)
    for _ in range(10):
        publish(world, 10, 0.1)
    wait(world, lambda: victim not in world.names(), 60, "drained")
    publish(world)
    assert_exact(world)


@pytest.mark.parametrize("role", ["standby", "primary", "none"])
def test_any_role_may_drain_under_traffic(role: str) -> None:
    world = served(4)
    victim = with_role(world, role)[0]
    publish(world, 20)
    world.drain(victim)
    others = [name for name in world.names() if name != victim]
    for number in range(100):
        world.publish(others[number % len(others)], {"x": number % 50, "y": number % 60})
        world.run(0.1)
    wait(world, lambda: victim not in world.names(), 60, "drained")
    publish(world)
    assert_exact(world)


def test_a_standby_that_crashes_is_replaced() -> None:
    world = served(5)
    world.crash(with_role(world, "standby")[0])
    world.run(40)
    assert len(with_role(world, "standby")) == 1
    publish(world)
    assert_exact(world)


def test_a_subscriber_that_dies_ends_its_subscriptions() -> None:
    world = served(6)
    (victim,) = with_role(world, "none")[:1]
    world.crash(victim)
    world.run(100)  # longer than a lease
    world.clients.crashes.clear()
    world.recorder.records.clear()
    publish(world, 20)
    assert_exact(world)
    peers = [r.fields["peer"] for r in world.recorder.records if r.kind == "forward"]
    assert peers
    assert world.drivers[victim].disk.node not in peers


def test_a_new_node_takes_over_load_of_a_small_cluster() -> None:
    world = grown(2, 7, SPREAD)
    for number in range(30):
        world.subscribe(f"n{number % 2}", f"x BETWEEN {number} AND {number + 4}")
    acknowledged(world)
    publish(world, 20)
    world.add_node(seeds=["n0"])
    wait(world, lambda: "n2" in hosts(world)["x"], 60, "the newcomer hosts")
    for number in range(30):
        world.publish(f"n{number % 3}", {"x": number}, {"x": number + 0.5})
        world.run(0.05)
    assert_exact(world)
