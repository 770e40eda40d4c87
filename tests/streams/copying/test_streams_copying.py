"""streams/services/copy: sources and mirrors, through lost leaders and cuts between regions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from canopy.cli.streams.manage import outside, troubles
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.overlays import READY, grown, wait
from overlay.client import (
    AppendEvents,
    BeginReading,
    Done,
    Draft,
    EventsAppended,
    EventsTaken,
    Failed,
    GetStreams,
    ReadingReady,
    RemoveStream,
    StreamEvent,
    Streams,
    TakeEvents,
)
from overlay.info import StreamInfo
from overlay.stream_client import AddStream, EditStream
from streams.directory import commands
from streams.directory.questions import CircleSearch
from streams.log.verify import Verifier
from streams.services.copy import Copies, OriginReading, ShardCopy
from tests.support.examples import seeds


def add(world: World, node: str, name: str, **options: object) -> StreamInfo:
    reply = world.ask(node, AddStream(world.clients.request(), name, **options))  # type: ignore[arg-type]
    assert isinstance(reply, Streams), reply
    info = reply.streams[0]
    wait(world, lambda: all(leader(world, f"{info.id}/{s.number}") for s in info.shards), 10.0,
         "leaders")  # fmt: skip
    return info


def leader(world: World, shard: str) -> str:
    names = [n for n in world.names() if world.node(n).streams.hosts.leading(shard) is not None]
    return names[0] if len(names) == 1 else ""


def append(world: World, node: str, stream: str, *rows: dict[str, Any]) -> None:
    drafts = tuple(Draft(row) for row in rows)
    reply = world.ask(node, AppendEvents(world.clients.request(), stream, drafts))
    assert isinstance(reply, EventsAppended), reply


def rows_of(world: World, node: str, stream: str, count: int) -> list[StreamEvent]:
    """All rows of a stream, when there are so many; more if more are there."""
    begin = BeginReading(world.clients.request(), stream, "", "first")
    ready = world.ask(node, begin)
    assert isinstance(ready, ReadingReady), ready
    found: list[StreamEvent] = []
    while len(found) < count:
        reply = world.ask(node, TakeEvents(world.clients.request(), begin.request))
        assert isinstance(reply, EventsTaken), (reply, len(found))
        found += reply.events
    world.run(1.0)
    last = TakeEvents(world.clients.request(), begin.request)
    world.drivers[node].command(1, last)
    world.run(1.0)
    more = world.clients.answers.pop(last.request, None)
    return found + (list(more.events) if isinstance(more, EventsTaken) else [])


def numbers(events: list[StreamEvent]) -> list[Any]:
    return [event.attributes["n"] for event in events]


def test_rows_go_from_leaves_to_an_aggregator_and_to_a_root_each_once() -> None:
    world = grown(5)
    for name in ("a", "b"):
        add(world, "n0", name)
        append(world, "n1", name, *({"n": n, "of": name} for n in range(20)))
    add(world, "n2", "all", sources=(("a", "n > 4"), ("b", "")))
    add(world, "n3", "root", sources=(("all", "n < 10"),))
    append(world, "n1", "a", {"n": 5, "of": "again"})
    found = rows_of(world, "n4", "all", 36)
    a = [e.attributes["n"] for e in found if e.attributes["of"] != "b"]
    assert a == [*range(5, 20), 5]
    assert [e.attributes["n"] for e in found if e.attributes["of"] == "b"] == list(range(20))
    root = rows_of(world, "n0", "root", 16)
    assert sorted(numbers(root)) == sorted(n for n in numbers(found) if n < 10)


def test_a_mirror_has_the_same_rows_with_the_same_offsets_and_nobody_appends_to_it() -> None:
    world = grown(5)
    add(world, "n0", "origin", shards=2, by="n")
    append(world, "n1", "origin", *({"n": n} for n in range(30)))
    info = add(world, "n2", "copy", mirror="origin", shards=2, by="n")
    assert info.mirror == "origin"
    append(world, "n1", "origin", *({"n": n} for n in range(30, 40)))
    first = rows_of(world, "n3", "origin", 40)
    second = rows_of(world, "n3", "copy", 40)

    def places(events: list[StreamEvent]) -> list[tuple[int, int, Any]]:
        return sorted((e.shard, e.offset, e.attributes["n"]) for e in events)

    assert places(first) == places(second)
    refused = AppendEvents(world.clients.request(), "copy", (Draft({"n": 1}),))
    reply = world.ask("n1", refused)
    assert isinstance(reply, Failed)
    assert (reply.code, "mirror" in reply.reason) == ("usage", True)
    described = world.ask("n0", GetStreams(world.clients.request(), "copy"))
    assert isinstance(described, Streams)
    intakes = [r.intake for s in described.streams[0].shards for r in s.replicas if r.intake]
    assert sorted(o.position for i in intakes for o in i.origins) == sorted(
        1 + max(e.offset for e in first if e.shard == shard) for shard in (0, 1)
    )


def test_rows_that_cannot_follow_are_not_mirrored_and_are_asked_for_again() -> None:
    world = grown(4)
    add(world, "n0", "origin")
    append(world, "n1", "origin", *({"n": n} for n in range(5)))
    shard = add(world, "n0", "copy", mirror="origin").id + "/0"
    assert len(rows_of(world, "n2", "copy", 5)) == 5
    copies = world.node(leader(world, shard)).streams.copies
    copy = copies.shards[shard]
    (origin,) = copy.origins.values()
    for first in (3, 5 + 2**41):
        event = StreamEvent(0, first, 0.0, {"n": -1})
        origin.taken = EventsTaken(0, (event,), ((0, first + 1),))
        said = copy.take(origin)
        assert (f"rows {first} to" in said) is (first > 4), "what was copied is passed over"
    assert "cannot begin" in copy.begin(origin, 2**45)
    append(world, "n1", "origin", {"n": 5})
    assert [e.attributes["n"] for e in rows_of(world, "n2", "copy", 6)] == list(range(6))


def test_a_mirror_of_an_origin_that_has_removed_rows_leaves_their_offsets_out() -> None:
    world = grown(4)
    add(world, "n0", "origin", keep_seconds=3.0)
    append(world, "n1", "origin", *({"n": n} for n in range(5)))
    world.run(12.0)
    append(world, "n1", "origin", {"n": 5})
    shard = add(world, "n0", "copy", mirror="origin").id + "/0"
    copied = rows_of(world, "n2", "copy", 1)
    assert [(e.offset, e.attributes["n"]) for e in copied] == [(5, 5)]
    name = leader(world, shard)
    world.run(1.0)
    files = world.drivers[name].logs.durable[shard]
    found = Verifier(shard).run(sorted(files), lambda file: bytes(files[file]))
    assert (found.fault, found.rows, found.next_offset) == (None, 1, 6)


@pytest.mark.parametrize("seed", range(2))
def test_leaders_of_both_sides_are_lost_and_no_row_is_lost_or_repeated(seed: int) -> None:
    trial(seed)


def trial(seed: int, mirror: bool = False) -> None:
    """Rows are appended all the time, while leaders of origin and copy are killed in turns, and
    links are cut. WrongError if the copy is not the origin."""
    world = grown(6, seed=seed)
    origin = add(world, "n0", "origin").id + "/0"
    options: dict[str, object] = {"mirror": "origin"} if mirror else {"sources": (("origin", ""),)}
    copy = add(world, "n0", "copy", **options).id + "/0"
    rng = world.generator("test")
    count = 0
    for round_ in range(4):
        for _ in range(rng.randrange(5, 20)):
            append(world, "n0", "origin", {"n": count})
            count += 1
            world.run(rng.uniform(0.0, 0.05))
        name = leader(world, (origin, copy)[round_ % 2])
        if name and name != "n0":
            world.crash(name)
            for _ in range(rng.randrange(5, 15)):
                append(world, "n0", "origin", {"n": count})
                count += 1
            world.run(rng.uniform(0.0, 3.0))
            world.restart(name)
        one, other = leader(world, origin), leader(world, copy)
        if one and other and one != other:
            world.network.cut(one, other)
    wait(world, lambda: bool(leader(world, origin) and leader(world, copy)), 30.0, "leaders")
    rows = rows_of(world, "n0", "copy", count)
    assert numbers(rows) == list(range(count))
    if mirror:
        assert [event.offset for event in rows] == list(range(count))


@pytest.mark.parametrize("seed", seeds(3, first=10))
def test_a_mirror_survives_lost_leaders_with_its_offsets(seed: int) -> None:
    trial(seed, mirror=True)


def test_a_mirror_that_skips_at_reconnect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a new reading begins with what is new, not where the log ends."""
    original = Copies._read

    def skipping(self: Copies, copy: ShardCopy, source: Any, id_: str, number: int) -> None:
        ask = self._ask

        def asking(client: int, command: Any) -> None:
            if isinstance(command, BeginReading) and command.positions:
                command = BeginReading(1, command.stream, "", "new", shard=command.shard)
            ask(client, command)

        self._ask = asking
        original(self, copy, source, id_, number)
        self._ask = ask

    monkeypatch.setattr(Copies, "_read", skipping)
    with pytest.raises((AssertionError, TimeoutError)):
        trial(11, mirror=True)


def test_a_copy_that_forgets_how_far_it_was_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a new leader takes everything again."""
    monkeypatch.setattr(ShardCopy, "floor", lambda self, origin: 0)
    with pytest.raises((AssertionError, TimeoutError)):
        trial(0)


def test_an_origin_that_has_lost_rows_is_not_copied_on_and_a_gap_is_counted() -> None:
    world = grown(3)
    add(world, "n0", "origin")
    append(world, "n1", "origin", {"n": 0})
    shard = add(world, "n0", "copy", mirror="origin").id + "/0"
    rows_of(world, "n2", "copy", 1)
    (copy,) = world.node(leader(world, shard)).streams.copies.shards.values()
    origin = OriginReading("origin", next(iter(copy.origins.values())).id, 0)
    assert "lost rows" in copy.begin(origin, 0)
    assert (copy.begin(origin, 1), copy.gaps, copy.replica.log.next_offset) == ("", 0, 1)
    assert (copy.begin(origin, 4), copy.gaps, copy.replica.log.next_offset) == ("", 1, 4)
    assert copy.replica.state.floor == 0


def test_a_mirror_in_another_region_catches_up_after_a_cut() -> None:
    """Origin and mirror have their replicas each in a region; the regions are cut apart while the
    origin goes on, and the mirror's leader changes meanwhile."""
    world = World(3, WireCodec())
    for number in range(8):
        region = "eu" if number < 4 else "us"
        world.add_node(seeds=["n0"] if number else [], region=region)
        world.run(0.2)
    wait(world, world.ready, READY, "8 nodes ready")
    origin = add(world, "n0", "origin", region="eu")
    copy = add(world, "n0", "copy", mirror="origin", region="us")
    places = {world.identities[r.node] for s in copy.shards for r in s.replicas}
    assert places <= {"n4", "n5", "n6", "n7"}
    assert {world.identities[r.node] for s in origin.shards for r in s.replicas} <= {
        "n0", "n1", "n2", "n3"
    }  # fmt: skip
    append(world, "n1", "origin", *({"n": n} for n in range(10)))
    assert numbers(rows_of(world, "n5", "copy", 10)) == list(range(10))
    world.network.partition([["n0", "n1", "n2", "n3"], ["n4", "n5", "n6", "n7"]])
    world.run(2.0)
    first = leader(world, f"{copy.id}/0")
    if first:
        world.crash(first)
    world.run(10.0)
    world.network.heal()
    wait(world, lambda: leader(world, f"{origin.id}/0") != "", 40.0, "the origin leads")
    append(world, "n1", "origin", *({"n": n} for n in range(10, 30)))
    if first:
        world.restart(first)
    wait(world, lambda: leader(world, f"{copy.id}/0") != "", 60.0, "the mirror leads")
    alive = next(n for n in ("n4", "n5", "n6", "n7") if n in world.names())
    rows = rows_of(world, alive, "copy", 30)
    assert [(e.offset, e.attributes["n"]) for e in rows] == [(n, n) for n in range(30)]


def test_a_copy_that_is_full_waits_and_goes_on_when_there_is_room() -> None:
    world = grown(4)
    add(world, "n0", "origin")
    shard = add(world, "n0", "copy", sources=(("origin", ""),), max_rows=10).id + "/0"
    for n in range(30):
        append(world, "n1", "origin", {"n": n})
        world.run(0.2)
    copies = world.node(leader(world, shard)).streams.copies
    status = copies.status(shard)
    assert status is not None
    assert status.state == "full"
    assert copies.shards[shard].replica.log.next_offset < 30
    edit = EditStream(world.clients.request(), "copy", max_rows=1_000)
    assert isinstance(world.ask("n2", edit), Streams)
    assert numbers(rows_of(world, "n2", "copy", 30)) == list(range(30))


def test_a_stream_that_would_copy_itself_is_refused() -> None:
    world = grown(4)
    add(world, "n0", "leaf")
    add(world, "n0", "other")
    add(world, "n0", "root", sources=(("leaf", "n > 1"), ("other", "")))
    add(world, "n1", "middle", mirror="root")
    remove(world, "leaf")
    for name, options in (
        ("leaf", {"sources": (("middle", ""),)}),
        ("leaf", {"mirror": "middle"}),
        ("self", {"mirror": "self"}),
    ):
        reply = world.ask("n2", AddStream(world.clients.request(), name, **options))  # type: ignore[arg-type]
        assert isinstance(reply, Failed)
        assert (reply.code, "copy itself" in reply.reason) == ("usage", True)
    assert "leaf from middle from root from leaf" in _refusal(world, mirror="middle")
    add(world, "n2", "leaf", sources=(("other", ""),))


def test_a_stream_that_is_not_there_is_not_copied() -> None:
    world = grown(4)
    add(world, "n0", "leaf")
    for options in ({"sources": (("leaf", ""), ("nowhere", ""))}, {"mirror": "nowhere"}):
        reply = world.ask("n2", AddStream(world.clients.request(), "root", **options))  # type: ignore[arg-type]
        assert isinstance(reply, Failed)
        assert reply.code == "unknown"
        assert "no stream nowhere to copy" in reply.reason


def test_replicas_outside_of_the_region_that_was_asked_for_are_said() -> None:
    world = grown(4)
    found = add(world, "n0", "far", region="eu")
    assert [replica.region for replica in found.shards[0].replicas] == ["", "", ""]
    assert "3 of 3 replicas are not in the region eu" in troubles(found)[0]
    assert outside(msgspec.structs.replace(found, region="")) == []


def remove(world: World, name: str) -> None:
    reply = world.ask("n0", RemoveStream(world.clients.request(), name))
    assert isinstance(reply, Done), reply


def _refusal(world: World, **options: object) -> str:
    reply = world.ask("n3", AddStream(world.clients.request(), "leaf", **options))  # type: ignore[arg-type]
    assert isinstance(reply, Failed)
    return reply.reason


class Blind(CircleSearch):
    """Finds nothing."""

    def start(self) -> None:
        self._then(())


def test_streams_that_were_founded_into_a_circle_at_once_copy_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither founding has found the other stream."""
    world = grown(4)
    add(world, "n0", "two")
    add(world, "n0", "one", sources=(("two", ""),))
    remove(world, "two")
    monkeypatch.setattr(commands, "CircleSearch", Blind)
    add(world, "n1", "two", sources=(("one", ""),))
    append(world, "n0", "one", {"n": 1})
    world.run(8.0)
    faults = {name: _faults(world, name) for name in ("one", "two")}
    assert faults["two"], "it was founded when the other was there"
    assert all("copy itself" in fault for fault in faults["two"]), faults
    assert len(rows_of(world, "n2", "one", 1)) == 1, "the row goes round no more"


def _faults(world: World, name: str) -> list[str]:
    reply = world.ask("n2", GetStreams(world.clients.request(), name))
    assert isinstance(reply, Streams), reply
    intakes = [r.intake for s in reply.streams[0].shards for r in s.replicas if r.intake]
    return [origin.fault for intake in intakes for origin in intake.origins]
