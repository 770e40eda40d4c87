"""A node sends its trace records to a stream: all of them, once put together, and none of its own
making."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import canopy
from canopy.cli.errors import CommandError
from canopy.cli.traces.from_stream import fetch
from harness.real_overlay import PATIENCE, Overlay, status, wait_ready
from overlay.client import Draft, GetStreams, Streams
from overlay.stream_client import AddStream
from streams.log.names import TRACES

pytestmark = pytest.mark.process

CONFIG = "trace: {stream: traces}\nhealth: {period: 3600}\n"


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Overlay]:
    made = Overlay(tmp_path, CONFIG)
    yield made
    made.stop()


def sent(overlay: Overlay) -> None:
    """Wait until everything is in the stream, and nothing comes."""
    until, before = time.monotonic() + PATIENCE, -1
    while True:
        size = sum(len(data) for data in files(overlay.folder / "0" / "traces").values())
        if size == before and status(overlay.clients[0]).counters["traces_unsent"] == 0:
            return
        assert time.monotonic() < until
        before = size
        time.sleep(1.2)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.glob("*/*/*.jsonl")}


def records(folder: Path) -> list[dict[str, Any]]:
    lines = (line for data in files(folder).values() for line in data.splitlines() if line)
    return [json.loads(line) for line in lines]


def test_the_stream_has_what_the_files_have_also_after_a_kill_and_no_records_of_itself(
    overlay: Overlay, tmp_path: Path
) -> None:
    wait_ready(overlay.start())
    data = overlay.folder / "0"
    with canopy.connect(data) as client:
        client.publish({"n": 1})
        until = time.monotonic() + PATIENCE
        while status(overlay.clients[0]).counters["traces_unsent"] == 0:
            assert time.monotonic() < until, "there is no such stream"
            time.sleep(0.1)
        for name in ("traces", "other"):
            client.ask(AddStream(0, name, replicas=1), Streams, PATIENCE)
        client.append("other", [{"n": 1}])
        sent(overlay)
    overlay.kill(0)
    (data / "traces-sent").unlink()  # as if it had not been written before the kill
    overlay.restart(0)
    wait_ready(*overlay.clients)
    with canopy.connect(data) as client:
        stream = client.ask(GetStreams(0, "traces"), Streams, PATIENCE).streams[0].id
        with client.read("traces", start="first", durable="d") as reading:
            reading.take(PATIENCE)
            reading.commit()
        sent(overlay)
    there = tmp_path / "there"
    assert fetch("traces", there, str(data)) >= 2
    assert files(there) == files(data / "traces")
    kinds = [(each["kind"], str(each.get("shard", ""))) for each in records(there)]
    assert [shard for kind, shard in kinds if kind == "row" and not shard.startswith(stream)]
    assert not [each for each in kinds if each[1].startswith(stream)], "records of records"


def test_what_is_missing_in_between_is_said_and_no_file_lies_outside(
    overlay: Overlay, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wait_ready(overlay.start())
    data = overlay.folder / "0"
    name = "date=2026-11-23/node=x/000000-0000.jsonl"

    def lines(at: int, text: bytes, file: str = name) -> Draft:
        return Draft({"file": file, "at": at}, text, TRACES)

    with canopy.connect(data) as client:
        client.ask(AddStream(0, "s", replicas=1), Streams, PATIENCE)
        client.append("s", [{"n": 1}])
        with pytest.raises(CommandError, match="no trace records"):
            fetch("s", tmp_path / "none", str(data))
        client.append("s", [lines(0, b"a\n"), lines(0, b"a\nb\n"), lines(10, b"c\n")])
        fetch("s", tmp_path / "some", str(data))
        assert files(tmp_path / "some") == {name: b"a\nb\nc\n"}
        assert "6 bytes" in capsys.readouterr().err
        client.append("s", [lines(0, b"a\n", "date=2026-11-23/node=x/../../000000-0000.jsonl")])
        with pytest.raises(CommandError, match="names no trace file"):
            fetch("s", tmp_path / "out", str(data))
