"""The newest rows of each key in overlays of whole nodes, from the founding to the program."""

from __future__ import annotations

from typing import Any

from canopy.sim.world.world import World
from harness.overlays import grown
from overlay.client import (
    AppendEvents,
    BeginReading,
    Draft,
    EventsAppended,
    EventsTaken,
    Failed,
    GetStreams,
    ReadingReady,
    Streams,
    TakeEvents,
)
from overlay.stream_client import AddStream

Row = dict[str, Any]


def ask(world: World, node: str, command: type[Any], *arguments: Any, **more: Any) -> Any:
    return world.ask(node, command(world.clients.request(), *arguments, **more))


def append(world: World, *rows: Row) -> Any:
    return ask(world, "n1", AppendEvents, "users", tuple(map(Draft, rows)))


def test_a_program_begins_with_the_newest_rows_of_all_shards_and_goes_on() -> None:
    world = grown(4)
    found = ask(world, "n0", AddStream, "users", 2, "id", key="id", deletes="op = 'delete'")
    assert isinstance(found, Streams), found
    rows = [{"id": n % 8, "n": n, "op": "put"} for n in range(24)]
    assert isinstance(append(world, *rows, {"id": 3, "op": "delete"}), EventsAppended)
    refused = append(world, {"id": 1}, {"n": 1})
    assert isinstance(refused, Failed)
    assert (refused.code, "event 1 of the batch lacks" in refused.reason) == ("malformed", True)
    world.run(1.0)
    ready = ask(world, "n3", BeginReading, "users", "n >= 18 OR op = 'delete'", "keys")
    assert isinstance(ready, ReadingReady), ready
    table, tables = {}, True
    while tables:
        taken = ask(world, "n3", TakeEvents, ready.request)
        assert isinstance(taken, EventsTaken), taken
        tables = bool(taken.tables)
        table.update({e.attributes["id"]: e.attributes["n"] for e in taken.events})
    assert table == {n % 8: n for n in range(18, 24) if n % 8 != 3}
    append(world, {"id": 5, "op": "delete"})
    taken = ask(world, "n3", TakeEvents, ready.request)
    assert [e.attributes for e in taken.events] == [{"id": 5, "op": "delete"}]
    shown = ask(world, "n2", GetStreams, "users").streams[0]
    keys = [r.keys for shard in shown.shards for r in shard.replicas if r.keys is not None]
    assert (shown.key, shown.deletes, sum(keys)) == ("id", "op = 'delete'", 6)


def test_a_start_with_keys_that_cannot_be_says_why() -> None:
    world = grown(2)
    ask(world, "n0", AddStream, "users")
    none = ask(world, "n1", BeginReading, "users", "", "keys")
    assert isinstance(none, Failed)
    assert none.code == "no-key"
    durable = ask(world, "n1", BeginReading, "users", "", "keys", durable="d")
    assert isinstance(durable, Failed)
    assert durable.code == "usage"
