"""Virtual nodes and clusters are cut while events flow (C6, P1): nothing is lost, nothing twice."""

from __future__ import annotations

import pytest

from canopy.sim.scenario.scenario import Scenario
from canopy.sim.scenario.workload import WorkloadShape
from canopy.sim.world.network import Conditions
from harness.overlays import (
    acknowledged,
    assert_exact,
    grown,
    hosts,
    run_green,
    settings,
    wait,
)

SEEDS = [("pivot", 1), ("counting", 2)]  # `make soak` draws as many as wanted


@pytest.mark.parametrize(("routing", "seed"), SEEDS)
def test_virtual_nodes_split_under_traffic(routing: str, seed: int) -> None:
    world = grown(8, seed, settings(tree={"split_at": 5, "host_entries": 5, "routing": routing}))
    for number in range(120):
        world.subscribe(f"n{number % 8}", f"x BETWEEN {number % 40} AND {number % 40 + 2}")
        world.publish(f"n{(number + 3) % 8}", {"x": number % 43})
        world.run(0.05)
    acknowledged(world)
    for number in range(80):
        world.publish(f"n{number % 8}", {"x": number % 43 + 0.5}, {"x": number % 43})
        world.run(0.05)
    assert_exact(world)
    counts = hosts(world)["x"]
    assert sum(counts.values()) >= 8
    assert len(counts) >= 3


@pytest.mark.parametrize(("routing", "seed"), SEEDS)
def test_clusters_split_under_traffic(routing: str, seed: int) -> None:
    chosen = settings(tree={"routing": routing}, cluster={"split_trees": 4, "size": 3})
    result = run_green(
        Scenario(
            nodes=14,
            seed=seed,
            settings=chosen,
            subscriptions=20,
            late_subscriptions=40,
            events=160,
            rate=20.0,
        )
    )
    assert result.clusters >= 2


def test_all_at_once_with_loss() -> None:
    chosen = settings(
        tree={"split_at": 8, "host_entries": 8}, cluster={"split_trees": 5, "size": 3}
    )
    result = run_green(
        Scenario(
            nodes=12,
            seed=1,
            settings=chosen,
            network=Conditions(loss=0.02, latency_high=0.05),
            shape=WorkloadShape(attributes=12),
            subscriptions=40,
            late_subscriptions=60,
            late_unsubscriptions=20,
            events=200,
            rate=20.0,
        )
    )
    assert result.clusters >= 2


def test_a_hot_value_is_not_cut_for_ever() -> None:
    world = grown(4, 1, settings(tree={"split_at": 5, "host_entries": 5}))
    for number in range(30):
        world.subscribe(f"n{number % 4}", "x = 7")
    acknowledged(world)
    world.run(10)
    before = world.recorder.counted.get("map", 0)
    world.run(60)
    assert world.recorder.counted.get("map", 0) == before
    world.publish("n1", {"x": 7}, {"x": 8})
    assert_exact(world)
    assert len(world.clients.deliveries) == 30


def test_an_emptied_tree_goes_away() -> None:
    world = grown(4, 2, settings(tree={"split_at": 4, "host_entries": 4}))
    made = [world.subscribe(f"n{n % 4}", f"x BETWEEN {n} AND {n + 1}") for n in range(24)]
    acknowledged(world)
    world.run(5)
    for subscription in made:
        world.unsubscribe(subscription)
        world.run(0.1)
    wait(world, lambda: "x" not in hosts(world), 120, "the tree is gone")
    world.publish("n1", {"x": 7})
    assert_exact(world)
