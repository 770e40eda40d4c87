"""Oracle and checkers: every kind of violation is found, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from canopy.sim.checks import Violation
from canopy.sim.checks.deliveries import check_deliveries
from canopy.sim.checks.failure_report import trace_violation
from canopy.sim.checks.oracle import expectation
from canopy.sim.checks.ownership import arc_violations
from canopy.sim.world.clients import IN_FLIGHT, Shown
from canopy.sim.world.network import Conditions
from canopy.sim.world.world import World
from overlay.chord.messages import Cluster
from overlay.client import Delivery, Event
from overlay.machine import Peer
from tests.support.fake_node import FakeNode


def overlay(seed: int = 1) -> tuple[World, list[str]]:
    world = World(seed, codec=None, build=FakeNode)  # type: ignore[arg-type]
    names = [world.add_node()]
    for _ in range(2):
        names.append(world.add_node(seeds=names[:1]))
    assert world.run_until(world.ready, 5)
    world.run(1)
    return world, names


def kinds(world: World) -> list[str]:
    return [violation.kind for violation in check_deliveries(world)]


def busy() -> tuple[World, list[str]]:
    world, names = overlay()
    world.subscribe(names[0], "x > 1")
    world.subscribe(names[2], "x > 2 OR y IS NULL")
    world.run(0.1)
    for number in range(5):
        world.publish(names[1], {"x": number, "y": 1})
    world.run(15)
    return world, names


def change(world: World, index: int, **fields: Any) -> None:
    shown = world.clients.deliveries[index]
    delivery = msgspec.structs.replace(shown.delivery, **fields)
    world.clients.deliveries[index] = Shown(shown.time, shown.node, shown.client, delivery)


def test_a_quiet_world_without_faults_is_green_and_knows_the_lower_bound() -> None:
    world, _ = busy()
    expected = expectation(world.clients)
    assert len(expected.expected) == 3 + 2
    assert expected.allowed == {}
    assert expected.lower_bound == 5 + 5
    assert kinds(world) == []


def test_a_lost_event_is_missing() -> None:
    world, names = overlay()
    world.subscribe(names[2], "x > 0")
    world.run(0.1)
    world.network.conditions = Conditions(loss=1.0)
    world.publish(names[0], {"x": 1})
    world.run(15)
    assert kinds(world) == ["missing"]


def test_shown_twice_is_a_duplicate() -> None:
    world, _ = busy()
    world.clients.deliveries.append(world.clients.deliveries[0])
    assert kinds(world) == ["duplicate"]


def test_what_does_not_match_is_spurious() -> None:
    world, names = busy()
    (event,) = world.publish(names[1], {"x": 0, "y": 1})
    subscription = world.clients.subscriptions[0]
    made = Event("p", 1, 1, 0.0, event.attributes)
    world.clients.publications[-1].identity = made.identity
    delivery = Delivery(subscription.identity, made, "x", "", "", 1)
    world.clients.deliveries.append(Shown(world.now, names[0], 1, delivery))
    assert kinds(world) == ["spurious"]


def test_a_changed_event_is_noticed() -> None:
    world, _ = busy()
    event = world.clients.deliveries[0].delivery.event
    change(world, 0, event=msgspec.structs.replace(event, attributes={"x": 3.5, "y": 1}))
    assert "altered" in kinds(world)


def test_shown_to_the_wrong_client_is_spurious() -> None:
    world, names = busy()
    shown = world.clients.deliveries[0]
    world.clients.deliveries[0] = Shown(shown.time, names[1], 1, shown.delivery)
    assert kinds(world) == ["spurious"]


def test_nothing_may_be_shown_after_the_end() -> None:
    world, _ = busy()
    subscription = world.clients.subscriptions[0]
    world.unsubscribe(subscription)
    shown = world.clients.deliveries[0]
    assert kinds(world) == []
    world.clients.deliveries[0] = Shown(world.now + 1, shown.node, 1, shown.delivery)
    assert "late" in kinds(world)


def test_around_the_beginning_and_the_end_either_is_allowed() -> None:
    world, names = overlay()
    world.publish(names[0], {"x": 1})  # before: early, if it is shown at all
    subscription = world.subscribe(names[2], "x = 1")
    world.run(0.5)
    world.publish(names[0], {"x": 1})  # ends within the grace
    world.run(0.5)
    world.unsubscribe(subscription)
    world.run(0.5)
    world.publish(names[0], {"x": 1})  # after the end: nothing
    world.run(15)
    expected = expectation(world.clients)
    assert len(expected.expected) == 0
    assert len(expected.allowed) == 2
    assert kinds(world) == []


def traced(world: World, name: str, kind: str, event: str, peer: str = "") -> None:
    """One more record of an event at a node."""
    ids = {name: driver.disk.node for name, driver in world.drivers.items()}
    fields = {"event": event, "attribute": "x", **({"peer": ids[peer]} if peer else {})}
    world.recorder.write(ids[name], kind, fields)


@pytest.mark.parametrize(
    ("records", "allowed"),
    [
        ((), 0),  # the crashed node had nothing of it
        ((("n1", "match", ""),), 1),
        ((("n1", "arrive", "n0"), ("n1", "deliver", "")), 0),  # for its own programs
        ((("n0", "forward", "n1"), ("n1", "arrive", "n0")), 0),
        ((("n1", "arrive", "n0"), ("n1", "forward", "n2")), 1),  # and for others
        ((("n0", "visit", "n1"),), 1),  # it was on its way to it
        ((("n2", "forward", "n1"),), 1),
        ((("n2", "forward", "n1"), ("n0", "forward", "n1"), ("n1", "arrive", "n0")), 1),
        ((("n0", "visit", "n2"), ("n2", "forward", "n0"), ("n2", "arrive", "n1")), 0),
    ],
)
def test_a_crash_excuses_only_events_that_the_node_had(
    records: tuple[tuple[str, str, str], ...], allowed: int
) -> None:
    world, names = overlay()
    world.subscribe(names[2], "x = 1")
    world.run(0.5)
    (event,) = world.publish(names[0], {"x": 1})
    world.run(0.5)
    for name, kind, peer in records:
        traced(world, name, kind, event.identity, peer)
    world.crash(names[1])
    world.run(5)
    world.publish(names[0], {"x": 1})  # later: it had nothing of this
    world.run(15)
    expected = expectation(world.clients)
    assert (len(expected.expected), len(expected.allowed)) == (2 - allowed, allowed)


@pytest.mark.parametrize(("receipt", "allowed"), [(False, 1), (True, 0)])
def test_an_event_with_a_receipt_is_with_its_hosts(receipt: bool, allowed: int) -> None:
    world, names = overlay()
    world.subscribe(names[2], "x = 1")
    world.run(0.5)
    world.publish(names[0], {"x": 1}, receipt=receipt)
    world.run(0.5)
    world.crash(names[0])
    world.run(15)
    assert len(expectation(world.clients).allowed) == allowed


def test_a_crash_excuses_what_its_own_programs_were_to_get() -> None:
    world, names = overlay()
    world.subscribe(names[1], "x = 1")
    world.subscribe(names[2], "x = 1")
    world.run(0.5)
    (event,) = world.publish(names[0], {"x": 1})
    world.run(0.5)
    traced(world, names[1], "arrive", event.identity, names[0])
    there = world.clients.subscriptions[0]
    world.crash(names[1])
    world.run(15)
    expected = expectation(world.clients)
    assert list(expected.allowed) == [(there.identity, event.identity)]
    assert len(expected.expected) == 1


def test_what_a_node_had_long_before_it_died_is_no_excuse() -> None:
    world, names = overlay()
    world.subscribe(names[2], "x = 1")
    world.run(0.5)
    (event,) = world.publish(names[0], {"x": 1})
    world.run(0.5)
    traced(world, names[1], "match", event.identity)
    world.run(IN_FLIGHT + 1)
    world.crash(names[1])
    assert len(expectation(world.clients).expected) == 1


@pytest.mark.parametrize(
    ("cuts", "allowed"),
    [
        ([], 0),
        ([(1.0, 4.0)], 1),
        ([(-2.0, 2.5), (1.0, 2.0)], 1),
        ([(-2.0, 1.0), (1.0, 1.5)], 0),
        ([(12.5, 13.0)], 0),
        ([(4.0, 4.5), (9.0, 9.5)], 0),
    ],
)
@pytest.mark.parametrize("end", ["crash", "unsubscribe"])
def test_the_time_that_events_are_under_way_is_that_in_which_nodes_are_in_reach(
    cuts: list[tuple[float, float]], allowed: int, end: str
) -> None:
    """Many short cuts do not excuse a loss long after the event."""
    world, names = overlay()
    subscription = world.subscribe(names[2], "x = 1")
    world.run(0.5)
    began = world.now
    (event,) = world.publish(names[0], {"x": 1})
    traced(world, names[0], "publish", event.identity)
    world.clients.cuts += [(began + since, began + to) for since, to in cuts]
    world.run(IN_FLIGHT + 2)
    if end == "crash":
        world.crash(names[0])
    else:
        world.unsubscribe(subscription)
    assert len(expectation(world.clients).allowed) == allowed


def test_an_unanswered_command_is_reported() -> None:
    world, names = busy()
    world.node(names[1]).command = lambda client, command: None
    world.subscribe(names[1], "x = 9")
    world.publish(names[1], {"x": 9})
    assert kinds(world) == ["unanswered", "unanswered"]


def test_a_violation_has_a_story() -> None:
    world, _ = busy()
    identity = world.clients.publications[3].identity
    _, *story = trace_violation(world, Violation("missing", "text", (identity,)))
    kinds = [line.split()[2] for line in story]
    assert [kind for kind in kinds if kind != "start"] == ["publish", "deliver", "deliver"]


def arc(start: str, key: str, ring: str = "r") -> Cluster:
    return Cluster(ring, key, start, (1, 0), Peer("p", "a"))


def test_arcs_that_cover_the_ring_once_are_fine() -> None:
    assert arc_violations([(arc("5", "5"), "n0")]) == []
    assert arc_violations([(arc("2", "7"), "n1"), (arc("7", "2"), "n0")]) == []


def test_gaps_overlaps_and_two_rings_are_found() -> None:
    assert len(arc_violations([])) == 1
    assert len(arc_violations([(arc("2", "7"), "n0")])) == 1
    assert len(arc_violations([(arc("2", "7"), "n0"), (arc("6", "2"), "n1")])) == 1
    assert len(arc_violations([(arc("5", "5"), "n0"), (arc("5", "5"), "n1")])) == 1
    assert arc_violations([(arc("2", "7"), "n0"), (arc("7", "2", "other"), "n1")]) != []
