"""Rows that are past their time: who is given them, and when they go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.logs import EventBatch, append_batches
from overlay.machine import Peer
from streams.log import shard_log
from streams.log.batches import BatchHead, Row
from streams.log.chunk import POSITIONS
from streams.log.group_state import GroupFounded, GroupOptions
from streams.log.state import ConsumerAttached, encode_entries
from streams.machines import SLEW, SteadyClock
from streams.programs.reader.messages import Durable, ReadFrom, ReadingBegan
from streams.shard.replica import Replica
from streams.shard.retention import Keep
from tests.streams.programs.group import groups_world
from tests.streams.programs.group.groups_world import HandMember
from tests.streams.programs.reader.reading_world import Client, ConsumingWorld, led_world

SECOND = 10**9
FIRST = ReadFrom("first")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[ConsumingWorld, Peer, Replica]:
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 1_500)
    return led_world()


def keep(replica: Replica, wanted: Keep) -> None:
    assert replica.leader is not None
    replica.leader.retention.change(wanted)
    replica.describe(replica.terms._replace(keep=wanted))


def put(world: ConsumingWorld, replica: Replica, *rows: Row) -> None:
    assert replica.leader is not None
    append_batches(replica.leader, [EventBatch(BatchHead("", 0, 0, len(rows)), rows)], now(world))
    world.run(0.1)


def now(world: ConsumingWorld) -> int:
    return int(world.scheduler.now * 1e9)


def read(world: ConsumingWorld, leader: Peer, number: int, start: ReadFrom = FIRST) -> Client:
    client = Client(world, world.peers[-1], number)
    client.open(leader, start)
    world.run(1.0)
    return client


def test_rows_are_delivered_until_they_are_past_their_time(
    made: tuple[ConsumingWorld, Peer, Replica],
) -> None:
    world, leader, replica = made
    keep(replica, Keep(ttl=10 * SECOND))
    put(world, replica, Row({"n": 0}), Row({"n": 1}))
    world.run(7.0)
    put(world, replica, Row({"n": 2}))
    assert list(read(world, leader, 1).rows) == [0, 1, 2]
    world.run(3.0)
    late = read(world, leader, 2)
    assert (list(late.rows), late.position) == ([2], 3)
    keep(replica, Keep())
    assert list(read(world, leader, 3).rows) == [0, 1, 2], "they are there, and nobody's loss"


def test_a_row_may_have_a_time_of_its_own(made: tuple[ConsumingWorld, Peer, Replica]) -> None:
    world, leader, replica = made
    keep(replica, Keep(ttl=5 * SECOND, ttl_by="life"))
    lives = (2, 20, 0.5, None, "long", True, -1)
    put(world, replica, *(Row({"life": life}) for life in lives))
    world.run(0.5)
    assert list(read(world, leader, 1).rows) == [0, 1, 3, 4, 5, 6]
    world.run(2.0)
    assert list(read(world, leader, 2).rows) == [1, 3, 4, 5, 6], "what is no number has none"
    world.run(4.0)
    assert list(read(world, leader, 3).rows) == [1]
    assert replica.leader is not None
    replica.leader.retain(replica.terms.keep, now(world))
    world.run(0.5)
    assert replica.state.floor == 0, "it cannot be said of a segment"


def test_rows_past_their_time_go_whether_they_were_read_or_not(
    made: tuple[ConsumingWorld, Peer, Replica],
) -> None:
    world, leader, replica = made
    keep(replica, Keep(ttl=20 * SECOND))
    assert replica.leader is not None
    entries = [
        ConsumerAttached("slow", "token", "", 0, 0),
        GroupFounded("g", GroupOptions(), 0),
    ]
    replica.leader.append_chunk(POSITIONS, encode_entries(entries))
    for n in range(30):
        put(world, replica, Row({"n": n}, b"x" * 200))
        world.run(2.0)
    for _ in range(3):
        replica.leader.retain(replica.terms.keep, now(world))
        world.run(0.5)
    floor = replica.state.floor
    assert 10 < floor < 30
    assert replica.log.first_offset > 5
    known = replica.state.consumers["slow"]
    assert (known.position, known.dropped) == (floor, floor)
    assert replica.state.groups.groups["g"].done.floor == floor
    client = Client(world, world.peers[-1], 1)
    client.open(leader, FIRST, durable=Durable("slow", "new", False, 0))
    world.run(1.0)
    assert [m.position for m in client.messages if isinstance(m, ReadingBegan)] == [floor]
    world.run(60.0)
    replica.leader.retain(replica.terms.keep, now(world))
    world.run(0.5)
    assert replica.state.floor == 30, "also when nobody writes"


def test_a_row_that_waits_for_a_member_is_passed_over_when_its_time_is_past() -> None:
    world, leader, replica = groups_world.led_world()
    keep(replica, Keep(ttl=10_000 * SECOND + 10 * SECOND))  # the world's clock is 10,000 s ahead
    world.put(replica, *({"n": n} for n in range(3)))
    one = HandMember(world, 1).join(leader, credit=1)
    assert one.offsets() == [0]
    one.keep(leader, 12.0)
    world.put(replica, {"n": 3})
    one.settle(leader, "ack", one.rows[0])
    one.look(1.0)
    assert one.offsets() == [0, 3]
    one.settle(leader, "ack", one.rows[-1])
    assert replica.state.groups.groups["g"].done.floor == 4


def test_a_clock_that_is_set_moves_no_row_out_of_its_time() -> None:
    port: Any = SimpleNamespace(now=0.0)
    wall = [1_000.0]
    clock = SteadyClock(port, lambda: int(wall[0] * 1e9))

    def later(passed: float, jump: float = 0.0) -> float:
        before = clock()
        port.now += passed
        wall[0] += passed + jump
        return (clock() - before) / 1e9

    assert later(10.0) == pytest.approx(10.0)
    assert later(10.0, 3_600.0) == pytest.approx(10.0 * (1 + SLEW))
    assert later(10.0, -7_200.0) == pytest.approx(10.0 * (1 - SLEW))
    assert later(0.0, 50.0) == 0.0
    later(1_000_000.0)
    assert clock() == pytest.approx(wall[0] * 1e9), "it comes back to the time of day"
