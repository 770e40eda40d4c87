"""The world's own promises, with a node that only floods: order, time, faults, one history."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from canopy.sim.world.network import Conditions
from canopy.sim.world.world import World
from overlay.links.messages import Ack, Batch
from tests.support.fake_node import FakeNode


def make(seed: int = 1, **more: Any) -> World:
    return World(seed, codec=None, build=FakeNode, **more)  # type: ignore[arg-type]


def grown(count: int, seed: int = 1) -> tuple[World, list[str]]:
    world = make(seed)
    names = [world.add_node()]
    for _ in range(count - 1):
        names.append(world.add_node(seeds=names[:1]))
    assert world.run_until(world.ready, 5)
    world.run(1)
    return world, names


def test_things_at_the_same_time_happen_in_the_order_of_their_cause() -> None:
    world, seen = make(), []
    world.at(2, seen.append, "c")
    world.at(1, seen.append, "a")
    world.at(1, seen.append, "b")
    world.run(3)
    assert seen == ["a", "b", "c"]
    assert world.now == 3


def test_an_event_reaches_a_subscriber_and_names_its_delay() -> None:
    world, names = grown(3)
    subscription = world.subscribe(names[2], "x > 1")
    (event,) = world.publish(names[1], {"x": 2})
    world.publish(names[1], {"x": 0})
    world.run(1)
    (shown,) = world.clients.deliveries
    assert shown.delivery.event.identity == event.identity
    assert shown.delivery.subscription == subscription.identity
    assert 0 < shown.time - event.published < 0.1  # two hops of at most 20 ms


def test_frames_of_one_connection_stay_in_order() -> None:
    world, names = grown(2)
    world.network.conditions = Conditions(latency_low=0, latency_high=1)
    first, second = (world.node(name) for name in names)
    for number in range(200):
        world.drivers[names[0]].write(first.connections[0], Ack(number, 0))
        world.run(0.001)
    second.on_frames = lambda connection, frames: second.frames.extend(frames)
    world.run(2)
    assert [frame.acknowledged for frame in second.frames] == list(range(200))


def test_loss_is_about_what_was_asked_for() -> None:
    world, names = grown(2)
    world.network.conditions = Conditions(loss=0.25)
    second = world.node(names[1])
    second.on_frames = lambda connection, frames: second.frames.extend(frames)
    for number in range(1000):
        world.drivers[names[0]].write(world.node(names[0]).connections[0], Ack(number, 0))
    world.run(1)
    assert 180 < world.network.lost < 320
    assert len(second.frames) == 1000 - world.network.lost


def test_a_dial_to_an_address_without_a_node_is_refused() -> None:
    world = make()
    name = world.add_node(seeds=["10.9.9.9:1"])
    world.run(1)
    assert world.node(name).closed == ["connection refused"]


def test_a_crash_resets_connections_unless_the_machine_dies_too() -> None:
    world, names = grown(3)
    world.crash(names[1])
    world.run(1)
    assert world.node(names[0]).closed == ["connection reset"]
    world.crash(names[2], silent=True)
    world.run(60)
    assert world.node(names[0]).closed == ["connection reset"]
    assert world.names() == [names[0]]


def test_a_restart_keeps_the_disk_and_raises_the_incarnation() -> None:
    world, names = grown(2)
    before = world.node(names[1])
    world.crash(names[1])
    world.run(1)
    world.restart(names[1])
    world.run(1)
    after = world.node(names[1])
    assert after is not before
    assert after.me == before.me
    assert (before.incarnation, after.incarnation) == (1, 2)
    assert after.restored == (b"started 1",)
    assert len(world.node(names[0]).connections) == 1


def test_a_cut_is_noticed_by_both_sides() -> None:
    world, names = grown(3)
    assert world.network.cut(names[0], names[1]) == 1
    world.run(1)
    assert world.node(names[0]).closed == ["cut"]
    assert world.node(names[1]).closed == ["cut"]
    assert world.node(names[2]).closed == []


def test_a_partition_swallows_what_crosses_it_until_it_heals() -> None:
    world, names = grown(3)
    world.subscribe(names[1], "TRUE")
    world.network.partition([[names[1]], [names[0], names[2]]])
    world.publish(names[2], {"x": 1})
    world.run(1)
    assert world.clients.deliveries == []
    assert world.node(names[1]).closed == []
    world.network.heal()
    world.publish(names[2], {"x": 2})
    world.run(1)
    assert [d.delivery.event.attributes for d in world.clients.deliveries] == [{"x": 2}]


def test_severed_nodes_reach_each_other_through_others_only() -> None:
    world, names = grown(3)
    world.network.sever(names[0], names[1])
    for name in names:
        world.subscribe(name, "x = 1")
    world.publish(names[2], {"x": 1})  # reaches node 0, which can not pass it on to node 1
    world.run(1)
    assert [d.node for d in world.clients.deliveries] == [names[2], names[0]]
    world.network.heal()
    world.publish(names[2], {"x": 1})
    world.run(1)
    assert len(world.clients.deliveries) == 5


def numbers(world: World, name: str) -> list[int]:
    return [frame.acknowledged for frame in world.node(name).frames]


def say(world: World, sender: str, number: int) -> None:
    world.drivers[sender].write(world.node(sender).connections[0], Ack(number, 0))


def listening(seed: int = 1) -> tuple[World, str, str]:
    world, (one, two) = grown(2, seed)
    for name in (one, two):
        node = world.node(name)
        node.on_frames = lambda connection, frames, node=node: node.frames.extend(frames)
        node.frames.clear()
    return world, one, two


def test_a_one_way_block_swallows_one_way() -> None:
    world, one, two = listening()
    world.network.block(one, two)
    say(world, one, 1)
    say(world, two, 2)
    world.run(1)
    assert numbers(world, two) == []
    assert numbers(world, one) == [2]
    world.network.heal()
    say(world, one, 3)
    world.run(1)
    assert numbers(world, two) == [3]


def test_a_clog_holds_back_in_order_and_loses_nothing() -> None:
    world, one, two = listening()
    world.network.clog(one, two)
    for number in range(20):
        say(world, one, number)
        world.run(0.01)
    world.run(5)
    assert numbers(world, two) == []
    world.network.unclog(one, two)
    say(world, one, 20)
    world.run(1)
    assert numbers(world, two) == list(range(21))


def arrivals(conditions: Conditions, count: int = 50) -> tuple[list[float], int]:
    """When so many frames that node 0 writes at once arrive at node 1, and the bytes of one."""
    world, one, two = listening()
    world.network.conditions = conditions
    at: list[float] = []
    world.node(two).on_frames = lambda connection, frames: at.append(world.now)
    begin = world.now
    for _ in range(count):
        say(world, one, 1)
    world.run(60)
    return [time - begin for time in at], world.traffic.bytes["links"] // count


def test_a_connection_carries_so_many_bytes_a_second() -> None:
    slow = Conditions(latency_low=0.5, latency_high=0.5, link_bandwidth=100)
    at, size = arrivals(slow)
    assert at == pytest.approx([0.5 + number * size / 100 for number in range(1, 51)])
    slow = Conditions(latency_low=0.5, latency_high=0.5, node_bandwidth=100)
    assert arrivals(slow)[0] == pytest.approx(at)


def test_an_uplink_is_shared_and_a_throttled_way_is_not() -> None:
    def spread(**more: float) -> list[float]:
        world, names = grown(3)
        calm = Conditions(latency_low=0, latency_high=0, **more)
        world.network.conditions = calm
        if not more:
            world.network.throttle("n0", "n1", 100)
        at: list[float] = []
        for name in names[1:]:
            world.node(name).on_frames = lambda connection, frames: at.append(world.now)
        begin = world.now
        for connection in world.node("n0").connections:
            world.drivers["n0"].write(connection, Ack(1, 0))
        world.run(5)
        return sorted(time - begin for time in at)

    one, two = spread(node_bandwidth=100)
    assert two == pytest.approx(2 * one)
    assert spread(link_bandwidth=100) == pytest.approx([one, one])
    assert spread() == pytest.approx([0, one])


def test_a_throttle_ends_with_heal_and_a_goodbye_waits_for_its_frames() -> None:
    world, one, two = listening()
    world.network.throttle(one, "", 10)
    for number in range(5):
        say(world, one, number)
    world.drivers[one].close(world.node(one).connections[0], "done")
    world.run(60)
    assert numbers(world, two) == [0, 1, 2, 3, 4]
    assert world.node(two).closed == ["done"]
    world.network.heal()
    assert world.network._throttled == {}


def test_some_frames_come_twice_but_in_order() -> None:
    world, one, two = listening()
    world.network.conditions = Conditions(duplicate=0.5)
    for number in range(200):
        say(world, one, number)
    world.run(1)
    got = numbers(world, two)
    assert got == sorted(got)
    assert list(dict.fromkeys(got)) == list(range(200))
    assert 250 < len(got) < 350


def test_some_batches_arrive_with_one_wrong_bit() -> None:
    world, one, two = listening()
    world.network.conditions = Conditions(damage=0.5)
    body = msgspec.msgpack.encode([["Text", "x" * 100]])
    for number in range(200):
        world.drivers[one].write(
            world.node(one).connections[0], Batch(number, 0, 0, 0, False, body)
        )
    say(world, one, 7)
    world.run(1)
    *batches, ack = world.node(two).frames
    assert ack == Ack(7, 0)
    wrong = [bits(batch.body, body) for batch in batches if batch.body != body]
    assert set(wrong) == {1}
    assert 60 < len(wrong) == world.network.damaged < 140


def bits(one: bytes, two: bytes) -> int:
    """How many differ."""
    return (int.from_bytes(one) ^ int.from_bytes(two)).bit_count()


def test_a_paused_process_misses_nothing_and_does_nothing() -> None:
    world, one, two = listening()
    world.drivers[two].pause()
    for number in range(5):
        say(world, one, number)
    world.run(3)
    assert numbers(world, two) == []
    world.drivers[two].resume()
    world.drivers[two].resume()
    assert numbers(world, two) == list(range(5))


def test_nodes_do_not_share_a_clock_or_a_generator() -> None:
    world, names = grown(3)
    clocks = [world.drivers[name].clock() for name in names]
    assert len({round(clock, 3) for clock in clocks}) == 3
    world.run(10)
    assert [round(world.drivers[n].clock() - c, 6) for n, c in zip(names, clocks, strict=True)] == [
        10.0
    ] * 3
    draws = [world.node(name).rng.random() for name in names]
    assert len(set(draws)) == 3


def test_ticks_come_at_the_deadline() -> None:
    world, names = grown(1)
    world.run(100)
    ticks = world.node(names[0]).ticks
    gaps = [later - earlier for earlier, later in pairwise(ticks)]
    assert 50 <= len(ticks) <= 100  # every 1 to 2 s
    assert all(gap > 0.999 and gap < 2.001 for gap in gaps)


def test_a_drained_node_ends() -> None:
    world, names = grown(2)
    world.drain(names[1])
    world.run(1)
    assert world.names() == [names[0]]
    assert world.node(names[0]).closed == ["left"]


def test_a_node_that_stands_still_shows_until_it_hears_that_it_is_to_leave() -> None:
    world, names = grown(2)
    subscription = world.subscribe(names[1], "x > 1")
    world.run(1)
    world.drivers[names[1]].pause()
    asked = world.now
    world.drain(names[1])
    world.run(1)
    assert (subscription.ending, subscription.ended) == (asked, None)
    world.drivers[names[1]].resume()
    assert subscription.ended == world.now
    assert world.names() == [names[0]]


HISTORY = """
from tests.canopy.sim.world.test_sim_world import history
print(history(%d))
"""


def history(seed: int) -> str:
    world, names = grown(6, seed)
    world.network.conditions = Conditions(loss=0.1)
    for number in range(30):
        world.subscribe(names[number % 6], f"x > {number}")
        world.publish(names[-1 - number % 6], {"x": number, "y": "text", "z": None})
        world.run(0.05)
    world.crash(names[3])
    world.run(3)
    world.restart(names[3])
    world.run(30)
    return f"{world.recorder.trace_hash} {world.steps}"


def test_a_seed_is_one_history_whatever_the_hash_seed() -> None:
    def elsewhere(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", HISTORY % 5],
            env={
                **os.environ,
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    assert elsewhere("1") == elsewhere("2") == history(5)
    assert history(5) != history(6)


def test_asking_a_node_that_does_not_answer_ends() -> None:
    world, names = grown(1)
    from overlay.client import GetRing

    with pytest.raises(TimeoutError, match="did not answer"):
        world.ask(names[0], GetRing(world.clients.request()), most=2)
