"""Programs that read through their nodes: with faults by seed, and in overlays of whole nodes."""

from __future__ import annotations

from typing import Any

import pytest

from canopy.sim.world.world import World
from harness.logs import SHARD
from harness.overlays import grown, wait
from overlay.client import (
    AppendEvents,
    BeginReading,
    CommitReading,
    Done,
    Draft,
    EndReading,
    EventsAppended,
    EventsTaken,
    Failed,
    ReadingReady,
    RemoveStream,
    Streams,
    TakeEvents,
)
from overlay.stream_client import AddStream
from streams.access import attachments, pacing
from streams.programs.reader import readers
from streams.programs.reader.messages import ReadShard
from tests.streams.programs.reader.reading_world import ReadingWorld, trial_of_readings
from tests.support.examples import seeds


@pytest.mark.parametrize("seed", seeds(6))
def test_programs_miss_nothing_and_get_nothing_twice_through_faults(seed: int) -> None:
    world = trial_of_readings(seed)
    assert sum(len(life.rows) for p in world.programs.values() for life in p.lives) > 20


def test_who_gets_rows_does_not_wait_for_those_who_get_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Positions without rows are told to some programs at each look, and to all of them in turn."""
    monkeypatch.setattr(readers, "PASSED_MOST", 2)
    world = ReadingWorld(1)
    node = world.peers[-1].id
    few = [world.add(client, node, "n < 0") for client in range(1, 8)]
    every = world.add(9, node, "n >= 0")
    replies: list[tuple[float, int, Any]] = []

    def replied(client: int, reply: Any) -> None:
        replies.append((world.scheduler.now, client, reply))
        world.programs[client].answered(reply)
        if isinstance(reply, EventsTaken):
            world.programs[client].work()

    world.ports[node].reply = replied
    world.run(0.1)
    world.elect(world.peers[0].id)
    for _ in range(5):
        world.run(0.5)
        world.work()
    assert all(program.takes for program in world.programs.values())
    replies.clear()
    for _ in range(3):
        world.append()
    world.run(5 * pacing.LOOK)
    end = len(world.log_rows(world.peers[0].id))
    assert [program.lives[-1].position for program in (*few, every)] == [end] * 8 != [0] * 8
    assert len(every.lives[-1].rows) == end
    empty = [(at, client) for at, client, reply in replies if not reply.events + reply.packed]
    first, last = (min(empty)[0], max(empty)[0])
    assert last - first > pacing.LOOK
    assert all(sum(at <= t < at + pacing.LOOK * 0.9 for t, _ in empty) <= 4 for at, _ in empty)


def test_a_busy_leader_is_asked_for_some_readings_at_a_time_and_not_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It answers one request in half a second, so that the last reading begins late: each is asked
    for once."""
    monkeypatch.setattr(attachments, "OPENING_MOST", 9)
    world = ReadingWorld(1)
    node, leader = world.peers[-1].id, world.peers[0].id
    world.run(0.1)
    world.elect(leader)
    world.run(0.5)
    readings = world.readers[leader].shard(SHARD)
    assert readings is not None
    begin = readings.on_read_shard
    asked: list[tuple[Any, ReadShard]] = []
    open_most, waiting = 0, 0

    def on_read_shard(sender: Any, message: ReadShard) -> None:
        asked.append((sender, message))

    monkeypatch.setattr(readings, "on_read_shard", on_read_shard)
    programs = [world.add(client, node, "") for client in range(1, 13)]
    for _ in range(26):
        world.run(0.5)
        world.work()
        open_most = max(open_most, len(asked) - waiting)
        if waiting < len(asked):
            begin(*asked[waiting])
            waiting += 1
    assert all(program.is_ready for program in programs)
    assert len(asked) == len(programs), "each was asked for once"
    assert 7 <= open_most <= 9


def ask(world: World, node: str, command: type[Any], *arguments: Any, **more: Any) -> Any:
    return world.ask(node, command(world.clients.request(), *arguments, **more))


def append(world: World, numbers: range) -> None:
    drafts = tuple(Draft({"n": n, "k": f"key {n}"}, b"p") for n in numbers)
    assert isinstance(ask(world, "n1", AppendEvents, "orders", drafts), EventsAppended)


def taken(world: World, node: str, reading: int, count: int) -> tuple[list[Any], dict[int, int]]:
    """Take until `count` events have come."""
    events: list[Any] = []
    positions: dict[int, int] = {}
    while len(events) < count:
        reply = ask(world, node, TakeEvents, reading)
        assert isinstance(reply, EventsTaken), reply
        events += reply.events
        positions.update(reply.positions)
    return events, positions


def test_a_program_reads_all_shards_from_any_node_and_goes_on_where_it_committed() -> None:
    world = grown(4, 1)
    found = ask(world, "n0", AddStream, "orders", 2, "k")
    assert isinstance(found, Streams)
    append(world, range(40))
    durable: dict[str, Any] = {"start": "first", "durable": "d"}
    ready = ask(world, "n2", BeginReading, "orders", "n >= 10", **durable)
    assert isinstance(ready, ReadingReady)
    assert sum(end for _, end in ready.shards) == 40
    events, positions = taken(world, "n2", ready.request, 30)
    assert sorted(event.attributes["n"] for event in events) == list(range(10, 40))
    for shard in (0, 1):
        offsets = [event.offset for event in events if event.shard == shard]
        assert offsets == sorted(offsets)
    committed = ask(world, "n2", CommitReading, ready.request, tuple(positions.items()))
    assert committed == Done(committed.request)
    beyond = ask(world, "n2", CommitReading, ready.request, ((0, 1_000),))
    assert (beyond.code, "beyond" in beyond.reason) == ("usage", True)
    again = ask(world, "n3", BeginReading, "orders", "n >= 10", **durable)
    assert dict(enumerate(at for at, _ in again.shards)) == positions
    fenced = ask(world, "n2", TakeEvents, ready.request)
    assert (type(fenced), fenced.code) == (Failed, "fenced")
    append(world, range(40, 45))
    events, _ = taken(world, "n3", again.request, 5)
    assert sorted(event.attributes["n"] for event in events) == list(range(40, 45))
    ended = ask(world, "n3", EndReading, again.request)
    assert isinstance(ended, Done)


def test_positions_of_a_removed_stream_are_none_of_the_next_one() -> None:
    world = grown(4, 1)
    ask(world, "n0", AddStream, "orders")
    append(world, range(15))
    ready = ask(world, "n1", BeginReading, "orders", start="first")
    _, positions = taken(world, "n1", ready.request, 15)
    assert positions == {0: 15}
    ask(world, "n0", RemoveStream, "orders")
    world.run(5.0)
    ask(world, "n0", AddStream, "orders")
    append(world, range(100, 120))
    kept: dict[str, Any] = {"positions": ((0, 15),), "stream_id": ready.stream}
    for node in ("n1", "n2"):  # which has known the former one, and has not
        lost = ask(world, node, BeginReading, "orders", **kept)
        assert (type(lost), lost.code) == (Failed, "position-lost")
        assert f"another stream orders, with the id {ready.stream}" in lost.reason
        assert "Begin again" in lost.reason
    plain = ask(world, "n1", BeginReading, "orders", positions=((0, 15),))
    assert isinstance(plain, ReadingReady), "it does not say whose it is"
    assert plain.stream != ready.stream


def test_readings_that_cannot_begin_say_why() -> None:
    world = grown(4, 1)
    ask(world, "n0", AddStream, "orders")
    append(world, range(3))
    for stream, selector, more, code in (
        ("none", "", {}, "unknown"),
        ("orders", "n >", {}, "selector"),
        ("orders", "", {"start": "offset", "at": 9}, "offset-out-of-range"),
        ("orders", "", {"resume": True}, "usage"),
        ("orders", "", {"positions": ((1, 0),)}, "usage"),
        ("x" * 5_000, "", {}, "usage"),
        ("orders", "", {"durable": "d", "packed": True}, "usage"),
    ):
        reply = ask(world, "n3", BeginReading, stream, selector, **more)
        assert (type(reply), reply.code) == (Failed, code)
    reply = ask(world, "n3", TakeEvents, 7)
    assert (type(reply), reply.code) == (Failed, "unknown")


def test_a_reading_goes_on_when_the_leader_is_lost() -> None:
    world = grown(4, 1)
    ask(world, "n0", AddStream, "orders")
    append(world, range(5))
    nodes = {name: world.node(name) for name in world.names()}
    shard = next(iter(nodes["n0"].streams.hosts.hosted), None) or next(
        shard for node in nodes.values() for shard in node.streams.hosts.hosted
    )
    leader = next(n for n, node in nodes.items() if node.streams.hosts.leading(shard) is not None)
    reader, writer = [name for name in world.names() if name not in (leader, "n0")][:2]
    ready = ask(world, reader, BeginReading, "orders", "", start="first")
    events, _ = taken(world, reader, ready.request, 5)
    world.crash(leader)

    def leads() -> bool:
        others = (node for name, node in nodes.items() if name != leader)
        return any(node.streams.hosts.leading(shard) is not None for node in others)

    wait(world, leads, 20.0, "another node leads")
    drafts = tuple(Draft({"n": n}) for n in range(5, 8))
    assert isinstance(ask(world, writer, AppendEvents, "orders", drafts), EventsAppended)
    more, _ = taken(world, reader, ready.request, 3)
    assert [event.offset for event in (*events, *more)] == list(range(8))


def test_a_reading_that_has_failed_is_forgotten_but_for_why() -> None:
    world = grown(4, 1)
    ask(world, "n0", AddStream, "orders")
    append(world, range(3))
    durable: dict[str, Any] = {"start": "first", "durable": "d"}
    first = ask(world, "n2", BeginReading, "orders", **durable)
    ask(world, "n3", BeginReading, "orders", **durable)
    taken(world, "n2", first.request, 3)
    fenced = ask(world, "n2", TakeEvents, first.request)
    assert (type(fenced), fenced.code) == (Failed, "fenced")
    assert not world.node("n2").streams.readers.attached
    again = ask(world, "n2", TakeEvents, first.request)
    assert again.code == "fenced"
    assert isinstance(ask(world, "n2", EndReading, first.request), Done)
    assert ask(world, "n2", TakeEvents, first.request).code == "unknown"
