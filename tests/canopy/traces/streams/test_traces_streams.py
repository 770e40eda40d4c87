"""canopy/traces/analysis/streams: what durable consumers consumed of a simulated overlay's stream,
and what is found when records say otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from canopy.cli.sim.command import opener
from canopy.sim.world.driver import SimDriver
from canopy.sim.world.world import World
from canopy.traces.analysis.streams import StreamSummary, judge_streams
from canopy.wire.transport.codec import WireCodec
from harness.overlays import READY, wait
from overlay.client import (
    AppendEvents,
    BeginReading,
    CommitReading,
    Done,
    Draft,
    EventsAppended,
    EventsTaken,
    ReadingReady,
    Streams,
    TakeEvents,
)
from overlay.stream_client import AddStream

ROWS = 60


def consume(world: World, node: str, name: str, selector: str, until: int) -> None:
    """Read as a durable consumer up to an offset, and confirm part by part."""
    begin = BeginReading(world.clients.request(), "log", selector, "first", durable=name)
    ready = world.ask(node, begin)
    assert isinstance(ready, ReadingReady), ready
    position = 0
    while position < until:
        taken = world.ask(node, TakeEvents(world.clients.request(), begin.request))
        assert isinstance(taken, EventsTaken), taken
        ((_, position),) = taken.positions
        commit = CommitReading(world.clients.request(), begin.request, ((0, position),))
        assert isinstance(world.ask(node, commit), Done)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of a run with two consumers, one of which goes on at another node."""
    return record(tmp_path_factory.mktemp("streams"))


def record(folder: Path, monkeypatch: pytest.MonkeyPatch | None = None) -> Path:
    """Write such traces into a folder; with `monkeypatch` leaders keep a quarter of the rows, and
    consumers' nodes a half, but all of the first few."""
    world = World(5, WireCodec(), traces=opener(folder))
    if monkeypatch is not None:
        shares = {"row": [0.25], "take": [1.0, 0.5]}

        def row_share(self: SimDriver, kind: str, count: int) -> float:
            left = shares[kind]
            return left.pop(0) if len(left) > 1 else left[0]

        monkeypatch.setattr(SimDriver, "row_share", row_share)
    for number in range(4):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "4 nodes ready")
    assert isinstance(world.ask("n0", AddStream(world.clients.request(), "log")), Streams)

    def append(first: int) -> None:
        for start in range(first, first + ROWS // 2, 5):
            drafts = tuple(Draft({"n": n, "odd": n % 2 == 1}) for n in range(start, start + 5))
            reply = world.ask("n1", AppendEvents(world.clients.request(), "log", drafts))
            assert isinstance(reply, EventsAppended), reply

    append(0)
    consume(world, "n2", "everything", "", ROWS // 2)
    consume(world, "n3", "odd", "odd = TRUE", ROWS // 2)
    append(ROWS // 2)
    consume(world, "n0", "everything", "", ROWS)
    world.run(2.0)
    world.recorder.close()
    return folder


def changed(
    recorded: Path, folder: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> Path:
    """A copy of the records with a change."""
    for path in recorded.rglob("*.jsonl"):
        records = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
        copy = folder / path.relative_to(recorded)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("".join(json.dumps(record) + "\n" for record in change(records)))
    return folder


def test_each_row_was_consumed_once_by_each_consumer_that_wants_it(
    recorded: Path, spark: Any
) -> None:
    found = judge_streams(recorded, session=spark)
    assert found == StreamSummary(
        *("exact", ROWS, ROWS, 2, ROWS + ROWS // 4), *(0, 0, 0, 0, 0), 1.0, ()
    )


def test_what_records_say_otherwise_is_found(recorded: Path, spark: Any, tmp_path: Path) -> None:
    """Row 7 was not taken, row 9 twice, row 11 is wanted by one only, and three were confirmed
    twice."""

    def change(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for record in records:
            kind, offset = record["kind"], record.get("offset")
            if kind == "consume" and record["until"] == ROWS:
                record = {**record, "offset": offset - 3}
            if kind == "row" and offset == 11:
                record = {**record, "attributes": '{"odd": false}'}
            if (kind, offset) != ("take", 7):
                found += [record] * (2 if (kind, offset) == ("take", 9) else 1)
        return found

    found = judge_streams(changed(recorded, tmp_path, change), session=spark)
    assert (found.result, found.overlaps) == ("wrong", 1)
    assert (found.repeated, found.spurious) == (2, 1)
    # Row 7 by both consumers; the three that "everything" had not taken a second time.
    assert found.missing == 5
    assert any(" missing by odd" in example for example in found.examples)


def test_records_of_a_share_of_the_rows_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row that is recorded, and below the share of the stretch in which it was confirmed, was
    recorded as taken."""
    lines = [
        json.loads(line)
        for path in record(tmp_path, monkeypatch).rglob("*.jsonl")
        for line in path.read_bytes().split(b"\n")
        if line
    ]
    of = {kind: [r for r in lines if r["kind"] == kind] for kind in ("row", "take", "consume")}
    hashes = {offset: crc32(f"{of['row'][0]['shard']}/{offset}".encode()) for offset in range(ROWS)}
    kept = {r["offset"] for r in of["row"]}
    assert kept == {offset for offset, found in hashes.items() if found < 2**30}
    assert {r["share"] for r in of["row"]} == {0.25}
    everything = [r for r in of["consume"] if r["name"] == "everything"]
    assert {r.get("share", 1.0) for r in everything} >= {0.5}
    for stretch in everything:
        owed = {
            offset
            for offset in range(stretch["offset"], stretch["until"])
            if hashes[offset] < stretch.get("share", 1.0) * 2**32
        }
        mine = {r["offset"] for r in of["take"] if r["subscription"] == stretch["subscription"]}
        assert owed <= mine
    assert len([r for r in of["take"] if r["name"] == "everything"]) < ROWS


@pytest.mark.parametrize("vanished", [0, 1])
def test_a_row_is_owed_a_record_by_the_share_that_its_consumer_names(
    recorded: Path, spark: Any, tmp_path: Path, vanished: int
) -> None:
    """The consumers kept half of the records; with `vanished` one of these is absent as well."""

    def is_kept(record: dict[str, Any]) -> bool:
        return crc32(record["event"].encode()) < 2**31

    def change(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        taken = [r for r in records if r["kind"] == "take" and is_kept(r)]
        gone = [r for r in taken if r["name"] == "odd"][:vanished]
        halved = [{**r, "share": 0.5} if r["kind"] == "consume" else r for r in records]
        return [r for r in halved if (r["kind"] != "take" or is_kept(r)) and r not in gone]

    found = judge_streams(changed(recorded, tmp_path, change), session=spark)
    assert (found.result, found.missing) == ("wrong" if vanished else "exact", vanished)
    assert (found.rows, found.share) == (ROWS, 0.5)
    assert 0 < found.consumed < ROWS


def test_nothing_is_concluded_where_nothing_was_confirmed(
    recorded: Path, spark: Any, tmp_path: Path
) -> None:
    def change(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [r for r in records if r["kind"] != "consume"]

    found = judge_streams(changed(recorded, tmp_path, change), session=spark)
    assert (found.result, found.rows) == ("not judged", ROWS)
