"""A machine that is always busy still gets to what it does once in a while."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.overlays import acknowledged, assert_exact, grown, hosts, settings
from overlay.client import Draft
from overlay.machine import Alarm, Peer, Timer
from overlay.settings import Settings
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.publisher import Publisher, RetryDue
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from tests.support.world import one_node


class Look(Timer, frozen=True):
    pass


def test_an_alarm_keeps_the_earlier_time() -> None:
    port = one_node()
    alarm = Alarm(port, Look())
    alarm.within(3)
    port.world.jump(2)
    alarm.within(3)
    assert port.timers[Look()] == port.now + 1
    alarm.within(0.5)
    assert port.timers[Look()] == port.now + 0.5
    alarm.rang()
    alarm.within(3)
    assert port.timers[Look()] == port.now + 3
    alarm.cancel()
    assert Look() not in port.timers


def test_trees_are_cut_while_subscriptions_never_stop_coming() -> None:
    """One every 100 ms, where a look at the load waits for 200 ms."""
    world = grown(5, 1, settings(tree={"split_at": 8, "host_entries": 8}))
    for number in range(100):
        world.subscribe(f"n{number % 5}", f"x BETWEEN {number} AND {number + 3}")
        world.run(0.1)
    assert sum(hosts(world)["x"].values()) >= 8
    acknowledged(world)
    for number in range(40):
        world.publish(f"n{number % 5}", {"x": number * 2.5})
    assert_exact(world)


class NoFinder:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def seek(self, attributes: Iterable[str], stale: bool = False) -> None:
        pass

    def ask_summaries(self, attributes: Iterable[str]) -> None:
        pass

    def ask_again(self, attributes: Iterable[str]) -> None:
        pass

    def ask_ring(self, attributes: Iterable[str]) -> None:
        self.asked += attributes


def test_events_are_sent_again_while_events_never_stop_coming() -> None:
    port, finder, locations = one_node(), NoFinder(), LocationCache(10, ReplicaSelector("me", 3.0))
    no_points: Any = None
    publisher = Publisher(
        port, Settings(), 1, finder, locations, no_points, EventHistory(10), CopyBudget(16)
    )  # type: ignore[arg-type]
    port.add(publisher)
    locations.learn_entry("x", Peer("host", "host:1"))
    for _ in range(8):  # an answer is due after 3 s; one event every second
        publisher.publish([Draft({"x": 1})])
        port.world.jump(1)
        if port.timers.get(RetryDue(), port.now + 1) <= port.now:
            port.fire(RetryDue())
    assert "x" in finder.asked
