"""C3, C5, C10 in whole overlays: a tree is walked for first, and its owner is asked for what it
alone can say. What a walk finds is a hint: whatever is wrong with it, no event is lost."""

from __future__ import annotations

import pytest

from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, settings, wait, with_role
from overlay.chord.keys import attribute_key
from overlay.lower_random.messages import AccessPoint
from overlay.machine import Peer
from overlay.settings import Settings
from overlay.upper_tree.messages import AskTree
from tests.support.examples import overlay_seeds

GOSSIP = 12.0
"""Virtual seconds in which all nodes of a small overlay hear of most trees: six shuffles."""


def subscribed(world: World, attributes: str) -> None:
    """One subscription for each attribute, spread over the nodes without the primary; then gossip
    goes on."""
    names = [name for name in world.names() if name not in with_role(world, "primary")]
    for number, attribute in enumerate(attributes):
        world.subscribe(names[number % len(names)], f"{attribute} > 0")
    acknowledged(world)
    world.run(GOSSIP)


def counted(world: World, name: str) -> int:
    return sum(world.node(node).counters.get(name, 0) for node in world.names())


def questions(world: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(node, attribute) of all that owners are asked from now on."""
    asked: list[tuple[str, str]] = []
    for name in world.names():
        node = world.node(name)
        send = node.send

        def sent(peer: Peer, message: object, name: str = name, send: object = send) -> None:
            if isinstance(message, AskTree):
                asked.extend((name, attribute) for attribute in message.attributes)
            send(peer, message)  # type: ignore[operator]

        monkeypatch.setattr(node, "send", sent)
    return asked


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_a_known_owner_is_not_asked_where_a_tree_is(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CBDLO section 3.1, step 2.1: the first event goes where a table of access points says."""
    world = grown(10, seed)
    subscribed(world, "abcdef")
    asked = questions(world, monkeypatch)
    for name in world.names():
        world.node(name).ring.find(attribute_key("a"))
    world.run(1)
    for name in world.names():
        assert world.node(name).ring.owner(attribute_key("a")) is not None
        world.publish(name, dict.fromkeys("abcdef", 1))
    assert_exact(world)
    assert len(world.clients.deliveries) == 10 * 6
    assert {attribute for _, attribute in asked}.isdisjoint("abcdef")
    assert counted(world, "lookups_by_walk") == 10 * 6


def test_what_only_the_owner_can_say_it_is_asked_once_the_walk_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No walk says that there are no subscribers, however far it goes."""
    world = grown(10, 1)
    subscribed(world, "a")
    asked = questions(world, monkeypatch)
    for name in world.names():
        world.publish(name, {"a": 1, "nothing": 1})
    assert_exact(world)
    assert sorted(asked) == sorted(
        (name, attribute) for name in world.names() for attribute in ("$event", "nothing")
    )
    missed = [r for r in world.recorder.records if r.kind == "walk_miss"]
    assert len(missed) == len(asked)


def test_the_summary_is_asked_for_when_there_is_enough_traffic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A question and its answer are two messages; below `tree.summary_visits` events there is
    nothing to be saved."""
    world = grown(8, 1)
    subscribed(world, "ab")
    publisher = with_role(world, "none")[0]
    worth = Settings().tree.summary_visits
    asked = questions(world, monkeypatch)
    for number in range(worth - 1):
        world.publish(publisher, {"a": number, "b": 1})
        world.run(0.1)
    world.run(20)
    assert {attribute for _, attribute in asked} == {"$event"}
    for number in range(worth - 1):  # the former ones are older than a term
        world.publish(publisher, {"a": number})
        world.run(0.1)
    assert "a" not in {attribute for _, attribute in asked}
    world.publish(publisher, {"a": 1})
    world.run(1)
    assert (publisher, "a") in asked
    assert_exact(world)


@pytest.mark.parametrize("seed", overlay_seeds(3))
def test_a_new_node_publishes_while_the_primary_stands_still(seed: int) -> None:
    """The hosts are found by walk, and serve until their leases end; no election is waited for."""
    world = grown(12, seed)
    subscribed(world, "abcdefgh")
    (primary,) = with_role(world, "primary")
    newcomers = with_role(world, "none")
    world.drivers[primary].pause()
    for name in newcomers:
        for attribute in "abcdefgh":
            world.publish(name, {attribute: 1})
    world.run(0.9)  # of `election.suspect_after`: no other node has taken its place
    assert with_role(world, "primary") == [primary]
    assert len(world.clients.deliveries) == 8 * len(newcomers)
    world.drivers[primary].resume()
    assert_exact(world)


@pytest.mark.parametrize("routing", ["pivot", "counting"])
@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_access_points_that_are_wrong_cost_time_and_no_event(seed: int, routing: str) -> None:
    """CBDLO section 4: every table names nodes that serve nothing, as of a later version."""
    world = grown(10, seed, settings(tree={"routing": routing}))
    subscribed(world, "abcd")
    others = [world.node(name).me for name in with_role(world, "none")]
    for name in world.names():
        points = world.node(name).access_points
        for attribute in "abcd":
            for number, wrong in enumerate(others[:3]):
                points.learn(AccessPoint(attribute, wrong, (1, 900 + number), 0, points.ring))
    for number in range(3):
        for name in world.names():
            world.publish(name, dict.fromkeys("abcd", number + 1))
        world.run(0.05)
    assert_exact(world)
    assert len(world.clients.deliveries) == 10 * 3 * 4
    assert counted(world, "visits_given_back") > 0
    assert counted(world, "stale_points") > 0 or counted(world, "lookups_by_ring") > 0


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_wrong_access_points_while_the_primary_stands_still_lose_nothing(seed: int) -> None:
    world = grown(10, seed)
    subscribed(world, "abcd")
    (primary,) = with_role(world, "primary")
    idle = with_role(world, "none")
    for name in world.names():
        points = world.node(name).access_points
        for attribute in "ab":
            for number, wrong in enumerate(idle[:3]):
                me = world.node(wrong).me
                points.learn(AccessPoint(attribute, me, (1, 900 + number), 0, points.ring))
    world.drivers[primary].pause()
    for number in range(5):
        for name in idle:
            world.publish(name, dict.fromkeys("abcd", number + 1))
        world.run(0.2)
    world.run(5)
    world.drivers[primary].resume()
    assert_exact(world)


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_a_silent_host_is_passed_over_for_another_that_the_hit_named(seed: int) -> None:
    """A newcomer knows no replica but those that the hit named. It waits for the first one's answer
    for a second (publisher/constants.py, TIMEOUT_FIRST), and asks no owner."""
    world = grown(10, seed)
    subscribed(world, "a")
    hosts = [name for name in world.names() if "a" in world.node(name).hosting.trees]
    assert len(hosts) == 3
    subscriber = world.clients.subscriptions[0].node
    silent = next(name for name in hosts if name != subscriber)
    newcomers = with_role(world, "none")
    world.drivers[silent].pause()
    for name in newcomers:
        world.publish(name, {"a": 1})
    world.run(1.5)
    assert len(world.clients.deliveries) == len(newcomers)
    world.drivers[silent].resume()
    assert_exact(world)


def test_a_receipt_waits_for_what_the_walk_did_not_find() -> None:
    """An event is accepted when every tree has it or its owner says that there is none: receipts
    are what they were."""
    world = grown(10, 1)
    subscribed(world, "a")
    (primary,) = with_role(world, "primary")
    publisher = with_role(world, "none")[0]
    world.drivers[primary].pause()
    (publication,) = world.publish(publisher, {"a": 1, "nothing": 1}, receipt=True)
    world.run(0.9)
    assert len(world.clients.deliveries) == 1
    assert publication.admitted is None, "no node can say yet that `nothing` has no subscribers"
    wait(world, lambda: publication.admitted is not None, 10, "the receipt")
    world.drivers[primary].resume()
    assert_exact(world)


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_both_ways_deliver_the_same(seed: int) -> None:
    """Walk first or owner first: who gets what is the same."""
    shown = []
    for first in (True, False):
        world = grown(8, seed, settings(walk={"first": first}))
        subscribed(world, "abcde")
        rng = world.generator("events")
        for number in range(120):
            some = {name: rng.randrange(-2, 5) for name in rng.sample("abcdefg", 3)}
            world.publish(world.names()[number % 8], {"number": number, **some})
            world.run(0.02)
        assert_exact(world)
        shown.append(
            sorted(
                (one.delivery.event.attributes["number"], one.delivery.subscription)
                for one in world.clients.deliveries
            )
        )
    assert shown[0] == shown[1]
