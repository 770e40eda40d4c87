"""`tree.placement: subscribers` in whole overlays: subscribers cut their trees and host them, as
CBDLO has it, and what is delivered is what it always is."""

from __future__ import annotations

from typing import Any

import pytest

from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, settings, wait, with_role
from overlay.upper_tree.partition import PartitionMap

NODES = 10


def subscribed(routing: str, seed: int) -> World:
    """Nodes outside of the cluster have subscribed to ranges of x, and host its tree."""
    chosen = settings(tree={"placement": "subscribers", "routing": routing, "replicas": 2})
    world = grown(NODES, seed, chosen)
    for number, name in enumerate(with_role(world, "none")[:4]):
        world.subscribe(name, f"x > {10 * number}")
    acknowledged(world)
    wait(world, lambda: is_placed(world), 30, "the tree is with its subscribers")
    return world


def tree(world: World) -> Any:
    (primary,) = with_role(world, "primary")
    return world.node(primary).owner.trees["x"].tree


def map_of(world: World) -> PartitionMap:
    return tree(world).map


def is_placed(world: World) -> bool:
    """All cuts are made, all hosts are subscribers, and who cuts hosts what begins there."""
    registered = tree(world).registrations.values()
    subscribers = {each.subscriber.id for each in registered}
    hosts = {entry.interval.lo: {h.id for h in entry.hosts} for entry in map_of(world).entries}
    # Below the ranges, the ranges one by one, and above the numbers.
    return (
        len(hosts) == len(subscribers) + 2
        and all(some <= subscribers for some in hosts.values())
        and all(each.subscriber.id in hosts[each.interval.lo] for each in registered)
    )


def publish(world: World) -> None:
    for number, name in enumerate(world.names()):
        world.publish(name, {"x": 5 * number, "number": number})
    assert_exact(world)


@pytest.mark.parametrize("routing", ["pivot", "counting"])
def test_each_subscriber_hosts_what_its_subscription_cuts(routing: str) -> None:
    world = subscribed(routing, 1)
    first_hosts = [entry.hosts for entry in map_of(world).entries]
    assert all(len(hosts) == 2 for hosts in first_hosts)
    assert len({host.id for hosts in first_hosts for host in hosts}) == 4
    publish(world)
    assert world.clients.deliveries


@pytest.mark.parametrize("role", ["primary", "standby"])
def test_a_leader_of_the_cluster_hosts_the_tree_that_only_it_subscribes_to(role: str) -> None:
    world = grown(NODES, 1, settings(tree={"placement": "subscribers"}))
    (name,) = with_role(world, role)
    world.subscribe(name, "x > 10")
    acknowledged(world)
    wait(world, lambda: len(map_of(world).entries) == 3, 30, "the tree is cut")
    alone = {world.node(name).me.id}
    wait(world, lambda: set(map_of(world).hosts()) == alone, 30, "its subscriber hosts it")
    publish(world)
    assert world.clients.deliveries


def test_a_subscriber_that_ends_takes_its_cut_along() -> None:
    world = subscribed("pivot", 1)
    before = len(map_of(world).entries)
    ended = world.clients.subscriptions[1]
    world.unsubscribe(ended)
    wait(world, lambda: len(map_of(world).entries) == before - 1, 30, "the cut is gone")
    wait(world, lambda: is_placed(world), 30, "no other node hosts the tree")
    publish(world)


def test_a_host_that_dies_is_replaced_by_another_subscriber() -> None:
    world = subscribed("pivot", 2)
    (lost,) = [s.node for s in world.clients.subscriptions if "30" in s.selector]
    gone = world.node(lost).me.id
    world.crash(lost)
    wait(
        world,
        lambda: all(gone != host.id for entry in map_of(world).entries for host in entry.hosts),
        30,
        "the others host alone",
    )
    publish(world)
