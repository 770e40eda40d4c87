"""Whole overlays with one link cut, both ways or one: every flow goes on within a second, and
neither end takes the other for dead (P3)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, hosts, settings, with_role
from overlay.links.events import LinkDown, SessionEnd
from overlay.lower_random.constants import HELPERS

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
    assert sum(one.get("links_detoured", 0) for one in counters) == 0


def test_relaying_ends_when_the_link_heals() -> None:
    world, publisher, _ = served(1)
    cut(world, publisher, host_of(world, "x"), "both ways")
    for value in range(60):
        world.publish(publisher, {"x": value})
        world.run(EACH)
    world.network.heal()
    world.run(15)
    counters = world.node(publisher).counters
    relayed = counters["links_detoured"]
    for value in range(60):
        world.publish(publisher, {"x": value})
        world.run(EACH)
    assert counters["links_detoured"] == relayed > 0
    assert_exact(world)


ENDS = {  # two nodes, by what they are for a tree
    "primary and standby": ("primary", "standby"),
    "primary and voter": ("primary", "broker"),
    "primary and host": ("primary", "host"),
    "host and subscriber": ("host", "subscriber"),
}


def full_cluster(seed: int, nodes: int = 8) -> World:
    """A full cluster, a tree with one host; the nodes that serve nowhere publish and subscribe."""
    world = grown(nodes, seed, settings(tree={"replicas": 1}, cluster={"size": 5}))
    world.run(15)
    subscriber = with_role(world, "none")[0]
    world.subscribe(subscriber, "x >= 0")
    acknowledged(world)
    world.run(2)
    publish_some(world, range(20))
    return world


def node(world: World, what: str) -> str:
    if what == "subscriber":
        return with_role(world, "none")[0]
    if what == "publisher":
        return with_role(world, "none")[1]
    if what == "host":
        return next(iter(hosts(world)["x"]))
    return next(name for name in with_role(world, what) if name not in hosts(world)["x"])


def publish_some(world: World, values: range, gap: float = 0.05) -> None:
    for value in values:
        world.publish(with_role(world, "none")[1], {"x": value})
        world.run(gap)


def deaths(world: World) -> list[tuple[str, LinkDown]]:
    """From now on: what any node says of lost links."""
    heard: list[tuple[str, LinkDown]] = []
    for name in world.names():
        world.node(name).turns.listen(LinkDown, lambda e, name=name: heard.append((name, e)))
    return heard


@pytest.mark.parametrize("who", ENDS)
def test_neither_end_of_a_cut_link_takes_the_other_for_dead(who: str) -> None:
    world = full_cluster(1)
    one, other = (node(world, what) for what in ENDS[who])
    assert one != other
    cluster = world.node(with_role(world, "primary")[0]).clusters.cluster
    heard = deaths(world)
    before = len(world.clients.deliveries)
    world.network.block(one, other)
    world.network.block(other, one)
    for round_ in range(10):  # ten seconds and more: `links.dead_after` is six
        mine = world.subscribe(with_role(world, "none")[0], f"y{round_} > 1")
        assert world.run_until(lambda mine=mine: mine.acknowledged is not None, WITHIN), round_
        publish_some(world, range(20 + 10 * round_, 30 + 10 * round_), 0.1)
        shown = [each.delivery.event.attributes["x"] for each in world.clients.deliveries[before:]]
        assert max(shown, default=0) >= 20 + 10 * round_, "an event of this second"
    assert [(name, e.peer.id, e.reason) for name, e in heard] == []
    after = world.node(with_role(world, "primary")[0]).clusters.cluster
    assert (after.epoch, set(after.members())) == (cluster.epoch, set(cluster.members()))
    assert world.node(one).counters["links_detoured"]
    world.network.heal()
    world.run(15)
    assert world.node(one).links.is_direct(other) or not world.node(one).links.connected(other)
    assert_exact(world)


def test_a_node_out_of_reach_of_all_is_found_dead_after_the_same_time() -> None:
    world = full_cluster(2)
    lost = node(world, "broker")
    id_ = world.node(lost).me.id
    others = [name for name in world.names() if name != lost]
    heard = deaths(world)
    probes = {name: counter(world, name, "indirect_probes") for name in others}
    (primary,) = with_role(world, "primary")
    for name in others:
        world.network.block(lost, name)
        world.network.block(name, lost)
    dead_after = world.node(primary).settings.links.dead_after
    world.run(dead_after + 0.5)
    assert (primary, SessionEnd.UNREACHABLE) in [
        (name, e.end) for name, e in heard if e.peer.id == id_
    ]
    for name in others:
        asked = counter(world, name, "indirect_probes") - probes[name]
        assert asked <= 3 * HELPERS, f"{name} asked {asked} times for one node"
    world.run(0.5)
    assert id_ not in {m.id for m in world.node(primary).clusters.cluster.members()}
    world.network.heal()
    assert_exact(world)


def counter(world: World, name: str, which: str) -> int:
    return int(world.node(name).counters.get(which, 0))
