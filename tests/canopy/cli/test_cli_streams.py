"""canopy/cli/streams: `get`, `export` and `edit` over a node that is made up."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from canopy.cli import connect
from canopy.cli.streams.export import CsvFile
from canopy.cli.streams.group import stream
from canopy.cli.streams.manage import troubles
from canopy.client.streams.management import bounds
from overlay.client import Command, StreamEvent, Streams
from overlay.info import ConsumerInfo, ReplicaInfo, ShardInfo, StreamInfo
from overlay.stream_client import EditStream

EVENTS = [
    StreamEvent(0, 3, 100.0, {"n": 3, "ok": True, "place": 'a, "b"'}),
    StreamEvent(1, 0, 101.0, {"n": 0}),
    StreamEvent(0, 5, 110.0, {"n": 5, "ok": None}),
    StreamEvent(0, 6, 120.0, {"n": 6, "place": "c\nd"}),
]
ENDS = {0: 8, 1: 1}


class FakeReading:
    """Hands out `EVENTS`, two at a time, then what came after the reading began."""

    def __init__(self, positions: Mapping[int, int] | None) -> None:
        self.ends = dict(ENDS)
        self.positions = {0: 3, 1: 0, **(positions or {})}
        self._left = [e for e in EVENTS if e.offset >= self.positions[e.shard]]

    waits = ""

    def take(self, timeout: float | None = None) -> list[StreamEvent]:
        taken, self._left = self._left[:2], self._left[2:]
        for event in taken:
            self.positions[event.shard] = event.offset + 1
        if not self._left:  # something came meanwhile
            self.positions = {shard: end + 1 for shard, end in self.ends.items()}
            taken = [*taken, StreamEvent(0, 8, 130.0, {"n": 8})]
        return taken


class FakeClient:
    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.read_with: dict[str, Any] = {}

    @contextmanager
    def read(self, name: str, selector: str = "", **options: Any) -> Iterator[FakeReading]:
        self.read_with = {"selector": selector, **options}
        yield FakeReading(options.get("positions"))

    def ask(self, command: Command, reply: type, timeout: float) -> Streams:
        self.asked.append(command)
        assert isinstance(command, EditStream)
        return Streams(0, (StreamInfo(command.name, "id", "", 3, 60.0, 0, (), "mag > 6"),))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient()

    @contextmanager
    def opened(*arguments: Any, **options: Any) -> Iterator[FakeClient]:
        yield fake

    monkeypatch.setattr(connect, "open_client", opened)
    return fake


def run(*arguments: str) -> Result:
    return CliRunner().invoke(stream, list(arguments))


def test_lines_of_json_have_what_was_there_when_the_export_began(client: FakeClient) -> None:
    result = run("export", "alarms", "n > 0")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["shard"], line["offset"]) for line in lines] == [(0, 3), (1, 0), (0, 5), (0, 6)]
    assert lines[0]["attributes"] == EVENTS[0].attributes
    assert "exported 4 events" in result.stderr
    assert (client.read_with["selector"], client.read_with["start"]) == ("n > 0", "first")


def test_a_table_has_a_column_for_each_attribute(client: FakeClient, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    result = run("export", "alarms", "-o", str(path), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stderr)["events"] == 4
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["shard", "offset", "time", "n", "ok", "place"]
    assert rows[0] == ["0", "3", "100.0", "3", "true", 'a, "b"']
    assert rows[2] == ["0", "5", "110.0", "5", "", ""]
    assert rows[3][-1] == "c\nd"
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\uff1d1", "'\uff1d1"),
        ("-2", "-2"),
        ("+1.5e3", "+1.5e3"),
        ("a=1", "a=1"),
        ("\x1b[2J\x9b1m\u202e", "\\u001b[2J\\u009b1m\\u202e"),
        ("two\r\nlines\t", "two\r\nlines\t"),
    ],
)
def test_no_spreadsheet_calculates_a_text_and_no_terminal_acts_on_it(
    text: str, written: str
) -> None:
    for exact, cell in ((False, written), (True, text)):
        file = io.StringIO(newline="")
        writer = CsvFile(file, exact)
        writer.add(StreamEvent(0, 3, 100.0, {text: text, "n": -5}))
        writer.end()
        header, row = csv.reader(io.StringIO(file.getvalue(), newline=""))
        assert (header[3:], row[3:]) == ([cell, "n"], [cell, "-5"])
        assert writer.changed == 2 * (cell != text)


def test_a_table_may_be_exact(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = StreamEvent(0, 3, 100.0, {"f": "=1"})
    path = tmp_path / "rows.csv"
    for options, cell in ([], "'=1"), (["--exact", "--overwrite"], "=1"):
        monkeypatch.setattr(FakeReading, "take", _once(row))
        result = run("export", "alarms", "-o", str(path), *options)
        assert result.exit_code == 0, result.output
        assert path.read_text().splitlines()[1].endswith(f",{cell}")
        assert ("1 text changed" in result.stderr) == (not options)


def _once(row: StreamEvent) -> Any:
    def take(self: FakeReading, timeout: float | None = None) -> list[StreamEvent]:
        self.positions = dict(self.ends)
        return [row]

    return take


@pytest.mark.parametrize(
    ("to", "offsets"), [("5", [3, 0]), ("1970-01-01T00:01:50+00:00", [3, 0]), ("6", [3, 0, 5])]
)
def test_it_ends_before_an_offset_or_a_time(
    client: FakeClient, to: str, offsets: list[int]
) -> None:
    result = run("export", "alarms", "--to", to)
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == offsets


def test_a_file_that_is_there_is_replaced_if_that_is_asked_for(
    client: FakeClient, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("mine")
    result = run("export", "alarms", "-o", str(path))
    assert result.exit_code == 1
    assert "is there already: --overwrite replaces it" in str(result.exception)
    assert path.read_text() == "mine"
    assert run("export", "alarms", "-o", str(path), "--overwrite").exit_code == 0
    assert len(path.read_text().splitlines()) == 4
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        told = pool.submit(pipe.read_text)
        assert run("export", "alarms", "-o", str(pipe)).exit_code == 0
        assert len(told.result(30).splitlines()) == 4
    assert pipe.is_fifo(), "what is no file is written to"


def test_a_file_that_cannot_be_written_leaves_nothing(client: FakeClient, tmp_path: Path) -> None:
    result = run("export", "alarms", "-o", str(tmp_path / "none" / "rows.csv"))
    assert result.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_one_event_is_found_by_its_place(client: FakeClient) -> None:
    result = run("get", "alarms", "6")
    assert json.loads(result.stdout)["attributes"] == EVENTS[3].attributes
    for offset, shard in ((4, 0), (8, 0), (0, 7)):
        missing = run("get", "alarms", str(offset), "--shard", str(shard))
        assert missing.exit_code == 1, missing.output


def test_what_is_not_named_stays_as_it_is(client: FakeClient) -> None:
    assert run("edit", "alarms").exit_code == 2
    result = run("edit", "alarms", "--keep-for", "1m")
    assert result.exit_code == 0, result.output
    assert client.asked == [EditStream(0, "alarms", 60.0, None, None)]
    assert "1 min" in result.output
    assert "mag > 6" in result.output
    bounded = run(
        *("edit", "alarms", "--max-rows", "7", "--when-full", "drop-oldest"),
        *("--drop-unread", "--expire-consumers", "2d", "--max-bytes", "1k"),
    )
    assert bounded.exit_code == 0, bounded.output
    assert client.asked[-1] == EditStream(
        0, "alarms", None, None, None, True, 172_800.0, 1_024, 7, "drop-oldest"
    )


def test_what_a_stream_may_have_is_said() -> None:
    plain = StreamInfo("alarms", "id", "", 3, 0.0, 0, ())
    assert bounds(plain) == []
    said = bounds(structs.replace(plain, max_rows=7, drop_unread=True, expire_consumers=86_400.0))
    assert said[0] == "a shard with 7 rows refuses new rows"
    assert len(said) == 3
    consumers = (ConsumerInfo("slow", "", 9, dropped=5), ConsumerInfo("quick", "", 9))
    leads = ReplicaInfo("a", "", "leads", consumers=consumers)
    replicas = (leads, ReplicaInfo("b", "", "mending"), ReplicaInfo("c", "", "follows"))
    found = troubles(structs.replace(plain, shards=(ShardInfo(0, "a", replicas),)))
    assert found == [
        "shard 0: b mends damage in its log, and takes no part",
        "shard 0: 5 rows were dropped that slow had not read",
    ]
