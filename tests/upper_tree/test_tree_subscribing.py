"""Many subscriptions of one turn in whole overlays: each SUBACK keeps its promise whoever dies
while the batch is under way."""

from __future__ import annotations

import pytest

from canopy.sim.world.network import Conditions
from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, settings, wait, with_role
from overlay.client import Unsubscribe

CHOSEN = settings(tree={"split_at": 60}, cluster={"split_trees": 100_000})
MANY = 150
"""More than a turn of an owner takes."""


def full(seed: int) -> World:
    """One full cluster with three nodes to spare."""
    world = grown(8, seed, CHOSEN)
    wait(world, lambda: len(with_role(world, "broker")) == 3, 30, "a full cluster")
    world.subscribe("n7", "x >= 0")
    acknowledged(world)
    publish(world)  # publishers have summaries
    world.run(5)
    return world


def publish(world: World, count: int = 12) -> None:
    for number in range(count):
        names = world.names()
        world.publish(names[number % len(names)], {"x": 13 * number % MANY, "y": number % 3})
        world.run(0.01)


def batch(first: int = 0) -> list[str]:
    return [
        f"x BETWEEN {n} AND {n + 3} AND y = {n % 3}" if n % 2 else f"y = {n % 3} AND x > {n}"
        for n in range(first, first + MANY)
    ]


@pytest.mark.parametrize(
    ("seed", "after", "role"),
    [(1, 0.002, "primary"), (2, 0.006, "broker"), (3, 0.012, "primary"), (4, 0.03, "broker")],
)
def test_a_batch_whose_primary_or_host_dies_under_way_is_acknowledged_and_kept(
    seed: int, after: float, role: str
) -> None:
    world = full(seed)
    world.network.conditions = Conditions(0.002, 0.004)
    mine = next(name for name in with_role(world, "none"))
    made = world.subscribe_together(mine, batch(), client=5)
    world.run(after)
    world.crash(with_role(world, role)[0])
    world.clients.crashes.clear()  # replicas have what it hosted
    for _ in range(6):
        publish(world)
        world.run(0.3)
    acknowledged(world)
    assert all(one.acknowledged is not None for one in made)
    world.run(5)
    publish(world)
    assert_exact(world)


@pytest.mark.parametrize("seed", [5, 6])
def test_batches_that_begin_and_end_on_a_lossy_network_are_exact(seed: int) -> None:
    world = full(seed)
    world.network.conditions = Conditions(0.002, 0.05, loss=0.02)
    first = world.subscribe_together("n6", batch(), client=5)
    second = world.subscribe_together("n5", batch(MANY), client=5)
    publish(world)
    acknowledged(world)
    for one in first[::2] + second[::3]:
        world.unsubscribe(one)
    publish(world)
    world.client_gone("n5", client=5)
    publish(world, 20)
    assert_exact(world)


def test_ends_of_one_turn_are_asked_for_and_logged_together() -> None:
    world = full(7)
    made = world.subscribe_together("n6", batch(), client=5)
    acknowledged(world)
    logged = {name: len(world.node(name).owner.trees) for name in world.names()}
    assert any(logged.values())
    (primary,) = with_role(world, "primary")
    log = world.node(primary).clusters.log
    before = log.next
    ends = [Unsubscribe(10_000_000 + n, one.identity) for n, one in enumerate(made)]
    world.drivers["n6"].command(5, *ends)
    world.run(3)
    trees = world.node(primary).owner.trees.values()
    assert sum(len(owned.tree.registrations) for owned in trees) == 1
    assert log.next - before <= 10
