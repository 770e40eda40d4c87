"""streams/services/capture: published events come into a stream by content, each once."""

from __future__ import annotations

from collections import Counter

import pytest

from canopy.sim.world.world import World
from harness.overlays import grown, wait
from overlay.client import Failed, Streams
from overlay.stream_client import AddStream, EditStream
from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, read
from tests.support.examples import seeds


def founded(world: World, node: str, name: str, **options: object) -> str:
    """Found a stream; returns its id when that is acknowledged."""
    command = AddStream(world.clients.request(), name, **options)  # type: ignore[arg-type]
    reply = world.ask(node, command)
    assert isinstance(reply, Streams), reply
    return reply.streams[0].id


def leader(world: World, shard: str) -> str:
    names = [n for n in world.names() if world.node(n).streams.hosts.leading(shard) is not None]
    return names[0] if len(names) == 1 else ""


def rows(world: World, shard: str) -> list[int]:
    """The attribute `n` of all committed rows, in order."""
    replica = world.node(leader(world, shard)).streams.hosts.replica(shard)
    assert replica is not None
    found: list[int] = []

    def take(chunks: tuple[bytes, ...]) -> None:
        for data in chunks:
            chunk = read(data)
            assert chunk is not None
            if chunk.kind == EVENTS and chunk.number <= replica.committed:
                found.extend(int(row.attributes["n"]) for row in rows_of(chunk))  # type: ignore[arg-type]
        following = (chunk.number + 1) if chunks and chunk is not None else replica.committed + 1
        if following <= replica.committed:
            replica.chunks.read(following, take)

    replica.chunks.read(replica.log.start, take)
    world.run(0.5)
    return found


def test_what_is_published_after_the_answer_is_in_the_stream_once() -> None:
    world = grown(5)
    shard = founded(world, "n0", "alarms", capture="level > 2") + "/0"
    for n in range(40):
        world.publish(f"n{n % 5}", {"n": n, "level": n % 6})
    world.run(3.0)
    assert sorted(rows(world, shard)) == [n for n in range(40) if n % 6 > 2]


def test_events_come_into_the_shard_of_their_attribute() -> None:
    world = grown(4)
    id_ = founded(world, "n0", "alarms", capture="level > 0", shards=3, by="room")
    for n in range(30):
        world.publish("n1", {"n": n, "level": 1, "room": n % 7})
    world.run(3.0)
    found = {number: rows(world, f"{id_}/{number}") for number in range(3)}
    assert sorted(n for each in found.values() for n in each) == list(range(30))
    for each in found.values():
        assert {n % 7 for n in each}.isdisjoint(
            n % 7 for other in found.values() if other is not each for n in other
        )


def test_a_selector_that_cannot_be_read_is_refused() -> None:
    world = grown(1)
    reply = world.ask("n0", AddStream(world.clients.request(), "alarms", capture="level >"))
    assert isinstance(reply, Failed)
    assert reply.code == "usage"


@pytest.mark.parametrize("seed", seeds(4))
def test_nothing_is_lost_or_repeated_when_leaders_are_lost(seed: int) -> None:
    """Events are published all the time; three leaders are killed one after the other, without a
    word, and started again a while later."""
    world = grown(6, seed=seed)
    shard = founded(world, "n0", "alarms", capture="level > 2") + "/0"
    rng = world.generator("test")
    published: list[int] = []

    def publish(count: int) -> None:
        """From a node that is never killed: what a publisher had is lost with it."""
        for _ in range(count):
            world.publish("n0", {"n": len(published), "level": 3})
            published.append(len(published))

    for _ in range(3):
        publish(rng.randrange(1, 20))
        world.run(rng.uniform(0.0, 0.1))
        publish(rng.randrange(1, 20))
        name = leader(world, shard)
        if name and name != "n0":
            world.crash(name)
        for _ in range(30):
            publish(rng.randrange(3))
            world.run(0.2)
        if name and name != "n0":
            world.restart(name)
        wait(world, lambda: leader(world, shard) != "", 20.0, "a leader")
    world.run(20.0)
    counted = Counter(rows(world, shard))
    assert [n for n in published if n not in counted] == []
    assert [n for n, times in counted.items() if times > 1] == []


def test_another_selector_counts_from_the_answer_on() -> None:
    world = grown(4)
    id_ = founded(world, "n0", "alarms", capture="level = 1")
    shard = f"{id_}/0"
    published = []
    for n in range(30):
        if n == 10:
            request = world.clients.request()
            reply = world.ask("n2", EditStream(request, "alarms", capture="level = 2"))
            assert isinstance(reply, Streams), reply
            assert reply.streams[0].capture == "level = 2"
        world.publish("n1", {"n": n, "level": 1 if n < 10 else 2})
        published.append(n)
        world.run(0.01)
    world.publish("n1", {"n": 99, "level": 1})
    world.run(3.0)
    assert sorted(rows(world, shard)) == published
    request = world.clients.request()
    assert isinstance(world.ask("n2", EditStream(request, "alarms", capture="")), Streams)
    world.run(1.0)
    world.publish("n1", {"n": 100, "level": 2})
    world.run(2.0)
    assert sorted(rows(world, shard)) == published
    for name in world.names():
        assert not world.node(name).clients.subscriptions


def test_options_that_make_no_sense_change_nothing() -> None:
    world = grown(1)
    founded(world, "n0", "alarms", keep_seconds=5.0)
    for name, options in (("alarms", {"capture": "x >"}), ("alarms", {"keep_seconds": -1.0})):
        reply = world.ask("n0", EditStream(world.clients.request(), name, **options))  # type: ignore[arg-type]
        assert isinstance(reply, Failed)
        assert reply.code == "usage"
    missing = world.ask("n0", EditStream(world.clients.request(), "none", keep_bytes=1))
    assert isinstance(missing, Failed)
    assert missing.code == "unknown"
    kept = world.ask("n0", EditStream(world.clients.request(), "alarms", keep_bytes=10_000_000))
    assert isinstance(kept, Streams)
    assert (kept.streams[0].keep_seconds, kept.streams[0].keep_bytes) == (5.0, 10_000_000)


def test_a_stream_that_is_full_captures_again_when_there_is_room() -> None:
    world = grown(4)
    shard = founded(world, "n0", "alarms", capture="level > 0", max_rows=10) + "/0"
    for n in range(30):
        world.publish("n1", {"n": n, "level": 1})
        world.run(0.2)
    replica = world.node(leader(world, shard)).streams.hosts.replica(shard)
    assert replica is not None
    assert 10 <= replica.log.next_offset < 30
    request = world.clients.request()
    assert isinstance(world.ask("n2", EditStream(request, "alarms", max_rows=1_000)), Streams)
    world.run(5.0)
    assert sorted(rows(world, shard)) == list(range(30))
