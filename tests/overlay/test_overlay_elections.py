"""P4 in whole overlays: deliveries flow again after the loss of a primary, nothing comes twice."""

from __future__ import annotations

import pytest

from canopy.sim.checks.cluster_logs import check_voters
from canopy.sim.world.network import Conditions
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.overlays import acknowledged, assert_exact, grown, settings, wait, with_role
from tests.support.examples import overlay_seeds

SPREAD = settings(tree={"split_at": 6}, cluster={"split_trees": 100_000})


def served(seed: int) -> World:
    """One full cluster with three nodes to spare, subscriptions at nodes beside the primary."""
    world = grown(8, seed, SPREAD)
    wait(world, lambda: len(with_role(world, "broker")) == 3, 30, "a full cluster")
    for number in range(40):
        attribute = "xy"[number % 2]
        world.subscribe(f"n{1 + number % 7}", f"{attribute} BETWEEN {number} AND {number + 9}")
    acknowledged(world)
    world.run(10)
    return world


def publish(world: World, count: int = 40) -> None:
    names = [n for n in world.names() if n != "n0"]
    for number in range(count):
        world.publish(names[number % len(names)], {"x": number, "y": 50 - number})
        world.run(0.02)


@pytest.mark.parametrize("seed", overlay_seeds(3))
@pytest.mark.parametrize("silent", [False, True])
def test_another_primary_serves_soon_after_a_kill_and_nothing_is_lost(
    seed: int, silent: bool
) -> None:
    world = served(seed)
    (old,) = with_role(world, "primary")
    world.crash(old, silent=silent)
    world.clients.crashes.clear()  # nothing may be lost: the primary hosts nothing here
    wait(world, lambda: len(with_role(world, "primary")) == 1, 1.5, "another primary")
    publish(world)
    world.subscribe(with_role(world, "none")[0], "z > 3")
    acknowledged(world)
    world.publish(with_role(world, "standby")[0], {"z": 4})
    assert_exact(world)
    assert world.node(with_role(world, "primary")[0]).clusters.cluster.version[0] == 2


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_a_killed_primary_that_comes_back_is_a_member_like_any(seed: int) -> None:
    world = served(seed)
    world.crash("n0")
    world.run(3)
    world.restart("n0")
    world.run(60)
    assert len(with_role(world, "primary")) == 1
    assert world.ready()
    publish(world)
    assert_exact(world)


@pytest.mark.parametrize(("seed", "longer"), [(2, 0.0), (1, 5.0)])
def test_a_primary_behind_a_partition_is_fenced_when_it_heals(seed: int, longer: float) -> None:
    world = served(seed)
    (old,) = with_role(world, "primary")
    world.network.partition([[old]])
    wait(world, lambda: len(with_role(world, "primary")) == 2, 3, "another primary")
    assert not world.node(old).clusters.heartbeat.has_lease()
    world.run(longer)
    world.network.heal()
    wait(world, lambda: len(with_role(world, "primary")) == 1, 15, "one primary")
    world.run(30)
    assert check_voters(world) == []
    publish(world)
    assert_exact(world)


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_a_new_subscription_waits_for_the_election_and_not_for_a_term(seed: int) -> None:
    """The log has those who hold *no subscribers*; all of them answer the new primary."""
    world = served(seed)
    for name in world.names():
        world.publish(name, {"z": 1})
    world.run(1)
    (old,) = with_role(world, "primary")
    world.crash(old)
    world.subscribe(with_role(world, "none")[0], "z > 3")
    acknowledged(world, 2.5)
    for name in world.names():
        world.publish(name, {"z": 4})
    assert_exact(world)


def test_a_new_subscription_waits_for_a_publisher_that_cannot_be_asked() -> None:
    """Cut off, it goes on trusting the former primary, and throws away what has no subscriber."""
    world = served(1)
    (old,) = with_role(world, "primary")
    subscriber, publisher = with_role(world, "none")[:2]
    world.publish(publisher, {"z": 1})
    world.run(1)
    world.crash(old)
    world.network.partition([[publisher]])
    world.subscribe(subscriber, "z > 3")
    for _ in range(16):
        world.publish(publisher, {"z": 4})
        world.run(0.5)
    assert not world.acknowledged()
    world.network.heal()
    acknowledged(world)
    assert_exact(world)


@pytest.mark.parametrize(("seed", "low"), [(1, 0.5), (3, 0.001)])
def test_on_a_slow_network_one_round_is_enough(seed: int, low: float) -> None:
    """More than a second for an answer, and where it varies some frames are lost: no node outside
    takes the cluster for lost meanwhile, and candidates leave each other time."""
    world = World(seed, WireCodec())
    loss = 0.05 if low < 0.5 else 0.0
    world.network.conditions = Conditions(latency_low=low, latency_high=0.6, loss=loss)
    for number in range(8):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.5)
    wait(world, lambda: len(with_role(world, "broker")) == 3, 60, "a full cluster")
    world.run(40)
    world.crash("n0")
    wait(world, lambda: any(world.node(n).clusters.is_followed for n in world.names()), 9, "one")
    (new,) = with_role(world, "primary")
    assert world.node(new).clusters.cluster.version[0] == 2
    assert sum(world.node(n).counters.get("campaigns", 0) for n in world.names()) == 1


@pytest.mark.parametrize("late", [True, False])
def test_a_standby_that_stood_still_lets_the_healthy_go_first(late: bool) -> None:
    """T6: no voter is kept from standing, but who was paused lately waits for the others."""
    world = served(1)
    (new_owner,) = with_role(world, "standby")
    if late:
        world.drivers[new_owner].pause()
        world.run(2.5)
        world.drivers[new_owner].resume()
    world.run(10)
    (old,) = with_role(world, "primary")
    assert with_role(world, "standby") == [new_owner], "it was not given up"
    world.crash(old)
    wait(world, lambda: len(with_role(world, "primary")) == 1, 2, "another primary")
    assert (with_role(world, "primary") == [new_owner]) is not late
