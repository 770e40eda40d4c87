"""Whole overlays with one link cut, both ways or one: every flow goes on within a second (P3)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from canopy.sim.world.world import World
from tests.support.overlays import acknowledged, assert_exact, grown, hosts, settings, with_role

WITHIN = 1.0  # seconds in which a flow goes on

EACH = 0.05  # seconds between two events

CUTS = ("both ways", "to it", "from it")

cuts = pytest.mark.parametrize("how", CUTS)


def served(seed: int) -> tuple[World, str, str]:
    """Six nodes, a tree with a single host that is not its owner; a publisher and a subscriber that
    serve nowhere, the publisher not as an observer either (a SUBACK waits for an observer whose
    link is silent, up to two seconds). The subscriber has subscribed, and the publisher's events
    come."""
    world = grown(6, seed, settings(tree={"replicas": 1}, cluster={"size": 3}))
    world.run(10)
    (primary,) = with_role(world, "primary")
    observers = world.node(primary).clusters.observers.observers
    idle = with_role(world, "none")
    publisher = next(name for name in idle if world.node(name).me.id not in observers)
    subscriber = next(name for name in idle if name != publisher)
    world.subscribe(subscriber, "x >= 0")
    acknowledged(world)
    world.run(2)
    for value in range(20):
        world.publish(publisher, {"x": value})
        world.run(EACH)
    return world, publisher, subscriber


def cut(world: World, one: str, other: str, how: str) -> None:
    if how != "from it":
        world.network.block(one, other)
    if how != "to it":
        world.network.block(other, one)


def host_of(world: World, tree: str) -> str:
    (host,) = hosts(world)[tree]
    return host


@cuts
def test_events_go_on_when_their_only_host_is_behind_a_cut_link(how: str) -> None:
    world, publisher, _ = served(1)
    host = host_of(world, "x")
    assert host not in (publisher, *with_role(world, "primary"))
    cut(world, publisher, host, how)
    began, before = world.now, len(world.clients.deliveries)
    for value in range(20, 260):  # twelve seconds: the link is given up after six
        world.publish(publisher, {"x": value})
        world.run(EACH)
    world.run(WITHIN)
    shown = world.clients.deliveries[before:]
    times = [began, *sorted(each.time for each in shown)]
    assert max(after - earlier for earlier, after in pairwise(times)) <= WITHIN
    published = {20 + number: began + number * EACH for number in range(240)}
    late = {
        each.delivery.event.attributes["x"]: each.time
        - published[int(each.delivery.event.attributes["x"] or 0)]
        for each in shown
    }
    assert len(late) == len(published)
    assert max(late.values()) <= WITHIN
    world.network.heal()
    assert_exact(world)


@cuts
def test_a_subscription_is_acknowledged_though_the_link_to_its_owner_is_cut(how: str) -> None:
    world, publisher, _ = served(2)
    (primary,) = with_role(world, "primary")
    cut(world, publisher, primary, how)
    world.run(0.2)
    for attempt in range(3):  # the last one when the link has been given up
        mine = world.subscribe(publisher, f"y{attempt} > 1")
        assert world.run_until(lambda mine=mine: mine.acknowledged is not None, WITHIN), attempt
        world.run(4)
    world.network.heal()
    assert_exact(world)


@cuts
def test_a_tree_is_found_though_the_link_to_its_owner_is_cut(how: str) -> None:
    world, publisher, subscriber = served(3)
    (primary,) = with_role(world, "primary")
    cut(world, publisher, primary, how)
    world.subscribe(subscriber, "fresh >= 0")
    acknowledged(world)
    before = len(world.clients.deliveries)
    world.publish(publisher, {"fresh": 1, "unknown to all": 2})
    assert world.run_until(lambda: len(world.clients.deliveries) > before, 2 * WITHIN)
    world.network.heal()
    assert_exact(world)


def test_nothing_is_relayed_where_no_link_is_silent() -> None:
    world, publisher, _ = served(4)
    for value in range(50):
        world.publish(publisher, {"x": value})
        world.run(EACH)
    assert_exact(world)
    counters = [world.node(name).counters for name in world.names()]
    assert sum(one.get("messages_relayed", 0) for one in counters) == 0


def test_relaying_ends_when_the_link_heals() -> None:
    world, publisher, _ = served(1)
    cut(world, publisher, host_of(world, "x"), "both ways")
    for value in range(60):
        world.publish(publisher, {"x": value})
        world.run(EACH)
    world.network.heal()
    world.run(15)
    counters = world.node(publisher).counters
    relayed = counters["messages_relayed"]
    for value in range(60):
        world.publish(publisher, {"x": value})
        world.run(EACH)
    assert counters["messages_relayed"] == relayed > 0
    assert_exact(world)
