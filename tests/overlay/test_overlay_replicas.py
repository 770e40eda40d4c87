"""C6 in whole overlays: every virtual node has replicas, and losing hosts costs no event."""

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
from tests.support.examples import overlay_seeds

BEFORE_REPAIR = 3.0
"""Seconds: a silent host counts as dead after six."""
RELIEVED_WITHIN = 2.0
"""Seconds: by then another host serves what only a silent one did."""


def served(seed: int, **tree: object) -> World:
    """One full cluster with five nodes to spare, which subscribe and know where the trees are."""
    world = grown(10, seed, settings(tree=tree, cluster={"split_trees": 100_000}))
    wait(world, lambda: len(with_role(world, "broker")) == 3, 30, "a full cluster")
    for number in range(20):
        name = with_role(world, "none")[number % 5]
        world.subscribe(name, f"{'xy'[number % 2]} BETWEEN {number} AND {number + 9}")
    acknowledged(world)
    world.run(5)
    publish(world, with_role(world, "none"))
    world.run(5)
    return world


def publish(world: World, names: list[str]) -> None:
    for number in range(20):
        world.publish(names[number % len(names)], {"x": number, "y": 20 - number})


def test_every_virtual_node_is_served_by_three() -> None:
    world = served(1)
    assert {tree: len(found) for tree, found in hosts(world).items()} == {"x": 3, "y": 3}
    entries = [len(world.node(n).hosting.index) for n in with_role(world, "broker")]
    assert entries == [20, 20, 20]
    assert_exact(world)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("seed", overlay_seeds(3))
def test_what_is_published_when_two_hosts_of_three_died_arrives_before_any_repair(
    seed: int, silent: bool
) -> None:
    world = served(seed)
    before = len(world.clients.deliveries)
    doomed = with_role(world, "broker")[1:]
    for name in doomed:
        world.crash(name, silent=silent)
    names = with_role(world, "none")
    publish(world, names)
    world.run(BEFORE_REPAIR)
    shown = len(world.clients.deliveries) - before
    wanted = sum(
        1
        for value in range(20)
        for number in range(20)
        if number <= (value, 20 - value)[number % 2] <= number + 9
    )
    assert shown == wanted
    assert_exact(world)


def test_the_others_take_over_and_the_map_is_whole_again() -> None:
    world = served(2)
    lost = with_role(world, "broker")[0]
    world.crash(lost, silent=True)
    world.run(25)
    assert {tree: len(found) for tree, found in hosts(world).items()} == {"x": 3, "y": 3}
    assert lost not in hosts(world)["x"]
    assert_exact(world)


def test_events_for_virtual_nodes_of_one_host_that_stands_still_are_late_by_two_seconds() -> None:
    world = served(1, replicas=1)
    (host,) = hosts(world)["x"]
    before = len(world.clients.deliveries)
    world.drivers[host].pause()
    publish(world, with_role(world, "none"))
    world.run(RELIEVED_WITHIN)
    shown = len(world.clients.deliveries) - before
    world.drivers[host].resume()
    world.run(2.0)
    assert shown == len(world.clients.deliveries) - before > 0, "it had nothing more"
    wait(world, lambda: set(hosts(world)["x"]) == {host}, 30, "its virtual node is its own again")
    assert_exact(world)


def test_a_small_overlay_has_two_replicas_and_the_smallest_one() -> None:
    world = grown(1, 1)
    world.subscribe("n0", "x > 0")
    acknowledged(world)
    assert hosts(world)["x"] == {"n0": 1}
    for number in (1, 2):
        world.add_node(seeds=["n0"])
        wait(world, lambda: len(hosts(world)["x"]) == 2, 30, f"{number + 1} nodes")
    assert_exact(world)


# --- broken links between living nodes (P3) ---


def test_what_a_broken_link_does_not_carry_goes_through_a_helper_until_it_heals() -> None:
    world = served(1)
    cut_off, *others = with_role(world, "none")
    mine = world.subscribe(cut_off, "x >= 0")
    acknowledged(world)
    for host in with_role(world, "broker"):
        world.network.sever(host, cut_off)
    before = len(world.clients.publications)
    for _ in range(3):
        publish(world, others)
        world.run(10)
    world.run(30)  # a helper may have no link either, and links are given up after six seconds
    published = [event.identity for event in world.clients.publications[before:]]
    shown = [
        each.delivery.event.identity
        for each in world.clients.deliveries
        if each.delivery.subscription == mine.identity
    ]
    assert sorted(shown) == sorted(published), "while the links are still broken"
    assert sum(world.node(n).counters.get("deliveries_relayed", 0) for n in world.names())
    world.network.heal()
    assert_exact(world)
