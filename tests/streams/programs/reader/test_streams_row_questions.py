"""streams/programs/reader/explaining.py: what became of a row; and the shards in a node's
status."""

from __future__ import annotations

from canopy.sim.world.world import World
from harness.overlays import grown, wait
from overlay.client import (
    AppendEvents,
    BeginReading,
    CommitReading,
    Done,
    Draft,
    EventsAppended,
    EventsTaken,
    Failed,
    GetStatus,
    ReadingReady,
    Status,
    Streams,
    TakeEvents,
)
from overlay.stream_client import AddStream, RowExplained, WhyRow


def append(world: World, node: str, *numbers: int) -> None:
    drafts = tuple(Draft({"n": n}) for n in numbers)
    reply = world.ask(node, AppendEvents(world.clients.request(), "log", drafts))
    assert isinstance(reply, EventsAppended), reply


def explained(world: World, node: str, offset: int, shard: int = 0) -> RowExplained | Failed:
    reply = world.ask(node, WhyRow(world.clients.request(), "log", shard, offset))
    assert isinstance(reply, RowExplained | Failed)
    return reply


def consumed(world: World, node: str, name: str, selector: str) -> None:
    """Read everything as a durable consumer, and commit that."""
    begin = BeginReading(world.clients.request(), "log", selector, "first", durable=name)
    ready = world.ask(node, begin)
    assert isinstance(ready, ReadingReady), ready
    position = 0
    while position < ready.shards[0][1]:
        taken = world.ask(node, TakeEvents(world.clients.request(), begin.request))
        assert isinstance(taken, EventsTaken), taken
        ((_, position),) = taken.positions
    commit = CommitReading(world.clients.request(), begin.request, ((0, position),))
    assert isinstance(world.ask(node, commit), Done)


def test_a_row_was_read_or_passed_over_or_waits() -> None:
    world = grown(4)
    assert isinstance(world.ask("n0", AddStream(world.clients.request(), "log")), Streams)
    append(world, "n1", 1, 2, 3)
    consumed(world, "n2", "odd", "n IN (1, 3)")
    append(world, "n3", 4, 5)
    for node in world.names():
        second = explained(world, node, 1)
        assert isinstance(second, RowExplained), second
        assert (second.state, second.first, second.next) == ("kept", 0, 5)
        assert (second.attributes, second.number) == ({"n": 2}, 1)
        assert second.producer == "@" + world.node("n1").me.id
        assert [(r.name, r.position, r.what) for r in second.readers] == [("odd", 3, "passed over")]
    third, fifth = explained(world, "n0", 2), explained(world, "n0", 4)
    assert isinstance(third, RowExplained)
    assert isinstance(fifth, RowExplained)
    assert [reader.what for reader in third.readers] == ["read"]
    assert [reader.what for reader in fifth.readers] == ["will pass over"]
    beyond = explained(world, "n0", 5)
    assert isinstance(beyond, RowExplained)
    assert (beyond.state, [r.what for r in beyond.readers]) == ("not yet", ["unread"])


def test_streams_and_shards_that_are_not_there_are_said() -> None:
    world = grown(1)
    missing = explained(world, "n0", 0)
    assert isinstance(missing, Failed)
    assert missing.code == "unknown"
    assert isinstance(world.ask("n0", AddStream(world.clients.request(), "log")), Streams)
    missing = explained(world, "n0", 0, shard=3)
    assert isinstance(missing, Failed)
    assert missing.code == "usage"


def test_a_node_says_which_shards_it_has() -> None:
    world = grown(4)
    founded = AddStream(world.clients.request(), "log", capture="n > 0")
    assert isinstance(world.ask("n0", founded), Streams)
    append(world, "n1", 1, 2, 3)
    consumed(world, "n2", "all", "")

    def held() -> dict[str, list[str]]:
        states: dict[str, list[str]] = {}
        for node in world.names():
            status = world.ask(node, GetStatus(world.clients.request()))
            assert isinstance(status, Status)
            for one in status.shards:
                assert (one.stream, one.number, one.here.next) == ("log", 0, 3)
                assert one.here.intake is not None
                assert one.here.intake.selector == "n > 0"
                states.setdefault(one.here.state, []).append(node)
                if one.here.state == "leads":
                    assert [c.name for c in one.here.consumers] == ["all"]
                    assert len(one.here.behind) == 2
        return states

    wait(world, lambda: {s: len(n) for s, n in held().items()} == {"leads": 1, "follows": 2}, 5.0,
         "one leads, two follow")  # fmt: skip
