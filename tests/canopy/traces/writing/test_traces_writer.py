"""The trace writer: what is kept, where it goes, and what a bad disk or a bad value costs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from canopy.traces.writer import (
    RETRY_AFTER,
    OpenFile,
    RecordSchemaError,
    TraceOptions,
    TraceWriter,
    is_sampled,
    trace_path,
)
from overlay.links.hybrid_clock import HybridClock

NOON = 1_790_000_000.0 // 86_400 * 86_400 + 43_200.0


class Disk:
    """Files in memory; `full` makes every write fail."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.full = False
        self.room: int | None = None  # bytes
        self.opened: list[str] = []

    def open(self, path: str) -> DiskFile:
        self.opened.append(path)
        self.files.setdefault(path, b"")
        return DiskFile(self, path)

    def lines(self) -> list[dict[str, Any]]:
        text = b"".join(self.files.values())
        return [json.loads(line) for line in text.split(b"\n") if line]

    def records(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["kind"] != "file"]

    def headers(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["kind"] == "file"]


class DiskFile:
    def __init__(self, disk: Disk, path: str) -> None:
        self.disk, self.path = disk, path

    def write(self, data: bytes) -> int | None:
        if self.disk.full or self.disk.room == 0:
            raise OSError(28, "No space left on device")
        if self.disk.room is None:
            self.disk.files[self.path] += data
            return None
        data = data[: self.disk.room]
        self.disk.room -= len(data)
        self.disk.files[self.path] += data
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def writer_of(
    out: OpenFile, node: str, clock: Clock, sample: float = 1.0, **options: Any
) -> TraceWriter:
    hybrid = HybridClock(lambda: clock.now - NOON, NOON)
    return TraceWriter(out, node, clock, TraceOptions(sample, **options), hybrid=hybrid.read)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


def test_a_record_has_the_common_fields_and_its_own(disk: Disk, clock: Clock) -> None:
    writer = writer_of(disk.open, "n1", clock, check=True)
    writer.write("publish", {"event": "n1.1.1", "id": "7", "attributes": '{"a":1}', "size": 3})
    writer.close()
    assert disk.records() == [
        {
            "v": 3,
            "time": NOON,
            "hlc": int(NOON * 1e9),
            "node": "n1",
            "run": 1,
            "n": 1,
            "kind": "publish",
            "event": "n1.1.1",
            "id": "7",
            "attributes": '{"a":1}',
            "size": 3,
        }
    ]


def test_the_path_names_date_and_node_in_utc() -> None:
    assert trace_path("t", "ab12", 0.0) == "t/date=1970-01-01/node=ab12/000000-0000.jsonl"
    assert trace_path("", "a/b=c", 86_399.9, 3) == (
        "date=1970-01-01/node=a%2Fb%3Dc/235959-0003.jsonl"
    )


def test_nothing_is_written_before_the_buffer_is_full(disk: Disk, clock: Clock) -> None:
    writer = writer_of(disk.open, "n1", clock, buffer_bytes=500)
    writer.write("ready", {})
    assert not disk.files
    for _ in range(20):
        writer.write("ready", {})
    assert disk.files
    assert 0 < writer.written < 21
    writer.flush()
    assert writer.written == 21 == len(disk.records())


def test_a_file_ends_at_its_size(disk: Disk, clock: Clock) -> None:
    writer = writer_of(disk.open, "n1", clock, buffer_bytes=100, file_bytes=400)
    for _ in range(40):
        writer.write("ready", {})
    writer.close()
    assert len(disk.files) == len(disk.opened) > 3
    assert all(len(data) <= 400 + 200 for data in disk.files.values())
    assert len(disk.records()) == 40


def test_midnight_starts_a_new_file_and_splits_the_buffer(disk: Disk, clock: Clock) -> None:
    writer = writer_of(disk.open, "n1", clock)
    clock.now = NOON + 43_199.0
    writer.write("ready", {})
    clock.now = NOON + 43_201.0
    writer.write("ready", {})
    writer.close()
    days = sorted(path.split("/")[0] for path in disk.files)
    assert len(days) == 2
    for path, data in disk.files.items():
        header, line = data.split()
        assert json.loads(header)["time"] == json.loads(line)["time"]
        assert trace_path("", "n1", json.loads(line)["time"])[:15] == path[:15]


def test_a_torn_line_of_a_predecessor_does_not_swallow_the_next(disk: Disk, clock: Clock) -> None:
    path = trace_path("", "n1", NOON)
    disk.files[path] = b'{"v":1,"time":1.0,"no'
    writer = writer_of(disk.open, "n1", clock)
    writer.write("ready", {})
    writer.close()
    assert [json.loads(line)["kind"] for line in disk.files[path].split(b"\n")[1:3]] == [
        "file",
        "ready",
    ]


def test_all_nodes_keep_the_same_share_of_the_events(clock: Clock) -> None:
    events = [f"n{i % 7}.1.{i}" for i in range(4_000)]
    disks = [Disk(), Disk()]
    for name, disk in zip("ab", disks, strict=True):
        writer = writer_of(disk.open, name, clock, 0.25)
        for event in events:
            writer.write("arrive", {"event": event, "peer": "x"})
        writer.close()
    first, second = ([record["event"] for record in disk.records()] for disk in disks)
    assert first == second
    assert 800 < len(first) < 1_200


def test_the_sample_is_the_same_in_every_process() -> None:
    code = (
        "from canopy.traces.writer import is_sampled;"
        "print([is_sampled(f'n.1.{i}', 0.5) for i in range(64)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{[is_sampled(f'n.1.{i}', 0.5) for i in range(64)]}\n".encode()}


def test_records_without_an_event_are_always_kept(disk: Disk, clock: Clock) -> None:
    writer = writer_of(disk.open, "n1", clock, 0.0)
    writer.write("start", {"routing": "pivot"})
    writer.write("walk_start", {"walk": "w", "attribute": "a", "hops": 10})
    writer.write("publish", {"event": "n1.1.1"})
    writer.close()
    assert [record["kind"] for record in disk.records()] == ["start", "walk_start"]
    assert disk.headers()[0]["sample"] == 0.0
    assert [record["n"] for record in disk.records()] == [1, 2], "what is not kept has no number"


def test_each_file_says_whose_it_is_and_what_came_before(disk: Disk, clock: Clock) -> None:
    options = TraceOptions(0.5, buffer_bytes=100, file_bytes=400)
    hybrid = HybridClock(lambda: clock.now - NOON, NOON)
    writer = TraceWriter(disk.open, "n1", clock, options, hybrid=hybrid.read, run=7, overlay="o")
    for _ in range(12):
        writer.write("ready", {})
    writer.close()
    assert [(h["node"], h["run"], h["overlay"], h["sample"]) for h in disk.headers()] == [
        ("n1", 7, "o", 0.5)
    ] * len(disk.files)
    assert [header["part"] for header in disk.headers()] == [*range(1, len(disk.files) + 1)]
    before = 0
    for path, data in disk.files.items():
        header, *rest = [json.loads(line) for line in data.split(b"\n") if line]
        assert (header["kind"], header["written"], header["lost"]) == ("file", before, 0), path
        before += len(rest)
    numbers = [record["n"] for record in disk.records()]
    assert numbers == [*range(1, 13)]


def test_a_lost_record_keeps_its_number_and_the_next_file_says_how_many_there_were(
    disk: Disk, clock: Clock
) -> None:
    writer = writer_of(disk.open, "n1", clock)
    writer.write("ready", {})
    writer.write("start", {"name": object()})
    writer.flush()
    disk.full = True
    writer.write("ready", {})
    writer.flush()
    disk.full = False
    clock.now -= 3_600.0  # a clock that is turned back does not put off the next attempt
    writer.write("ready", {})
    writer.close()
    assert [record["n"] for record in disk.records()] == [1, 4]
    assert [(header["written"], header["lost"]) for header in disk.headers()] == [(0, 1), (1, 2)]


def test_a_full_disk_costs_records_and_nothing_else(disk: Disk, clock: Clock) -> None:
    writer = writer_of(disk.open, "n1", clock)
    disk.full = True
    writer.write("ready", {})
    writer.flush()
    assert (writer.written, writer.lost) == (0, 1)
    assert writer.error is not None
    assert "No space" in writer.error
    disk.full = False
    writer.write("ready", {})
    writer.flush()
    assert (writer.written, writer.lost) == (0, 2)
    assert len(disk.opened) == 1, "no file is begun for a while"
    clock.now += RETRY_AFTER
    writer.write("ready", {})
    writer.close()
    assert (writer.written, writer.lost) == (1, 2)
    assert len(disk.records()) == 1


def test_a_disk_with_room_for_a_part_keeps_whole_records_and_counts_the_others(
    disk: Disk, clock: Clock
) -> None:
    writer = writer_of(disk.open, "n1", clock)
    writer.write("ready", {})
    writer.flush()
    (size,) = [len(data.splitlines()[-1]) + 1 for data in disk.files.values()]
    disk.room = 2 * size + size // 2
    for _ in range(4):
        writer.write("ready", {})
    writer.flush()
    assert (writer.written, writer.lost) == (3, 2)
    (data,) = disk.files.values()
    assert data.count(b"\n") == 2 + 3, "the third of the four is torn"


@pytest.mark.parametrize("room", range(0, 700, 23))
def test_nothing_is_counted_as_written_that_cannot_be_read(
    disk: Disk, clock: Clock, room: int
) -> None:
    """A disk that fills up anywhere, also in the first record of a file, and has room again."""
    writer = writer_of(disk.open, "n1", clock, buffer_bytes=300)
    disk.room = room
    for _ in range(8):
        writer.write("ready", {})
    writer.flush()
    disk.room = None
    clock.now += RETRY_AFTER
    writer.write("stop", {"lost": writer.lost})
    writer.close()
    whole = []
    for line in b"".join(disk.files.values()).split(b"\n"):
        if line.endswith(b"}"):
            whole.append(json.loads(line))
    numbered = [record for record in whole if record["kind"] != "file"]
    assert len(numbered) == writer.written
    assert writer.written + writer.lost == 9 == numbered[-1]["n"]
    assert numbered[-1]["lost"] == writer.lost


def test_a_value_that_is_no_json_is_counted(disk: Disk, clock: Clock) -> None:
    writer = writer_of(disk.open, "n1", clock)
    writer.write("start", {"name": object()})
    writer.write("start", {"name": "\ud800"})
    writer.close()
    assert writer.lost == 2
    assert not disk.records()


@pytest.mark.parametrize(
    ("kind", "fields"), [("publsh", {}), ("publish", {"evnt": "x"}), ("ready", {"event": "x"})]
)
def test_checked_mode_refuses_what_the_schema_does_not_know(
    disk: Disk, clock: Clock, kind: str, fields: dict[str, object]
) -> None:
    writer = writer_of(disk.open, "n1", clock, check=True)
    with pytest.raises(RecordSchemaError):
        writer.write(kind, fields)


@pytest.mark.parametrize("sample", [-0.1, 1.1, float("nan")])
def test_a_sampling_rate_outside_0_to_1_is_refused(disk: Disk, clock: Clock, sample: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        writer_of(disk.open, "n1", clock, sample)


def test_matches_without_recipients_become_counts_by_attribute() -> None:
    disk, now = Disk(), [NOON]
    hybrid = HybridClock(lambda: now[0] - NOON, NOON)
    writer = TraceWriter(
        disk.open, "a0", lambda: now[0], TraceOptions(check=True), hybrid=hybrid.read
    )
    match = {"event": "p.1.1", "attribute": "x", "lo": "0", "hi": "5", "version": 1}
    writer.count_unmatched({"x": 2})
    writer.count_unmatched({"x": 1, "y": 1})
    writer.write("match", match | {"recipients": 2})
    writer.flush()
    writer.flush()
    writer.count_unmatched({"x": 1})
    writer.close()
    found = [(r["n"], r["kind"], r["attribute"], r.get("size")) for r in disk.records()]
    assert found == [
        (1, "match", "x", None),
        (2, "unmatched", "x", 3),
        (3, "unmatched", "y", 1),
        (4, "unmatched", "x", 1),
    ]
    assert writer.written == 4


def test_records_that_differ_in_one_field_are_as_if_written_one_by_one(
    disk: Disk, clock: Clock
) -> None:
    other = Disk()
    fields = {"event": "p.1.1", "id": 'a"b\n', "hops": 2, "since": NOON - 0.5, "lo": "-∞"}
    names = ["n1.1.1", 'n1.1."2', "n1.1.ü"]
    together, apart = (writer_of(d.open, "n1", clock, check=True) for d in (disk, other))
    together.write("ready", {})
    apart.write("ready", {})
    together.write_each("deliver", "subscription", names, fields)
    for name in names:
        apart.write("deliver", {**fields, "subscription": name})
    for writer in (together, apart):
        writer.write("ready", {})
        writer.close()
    hlcs = [record["hlc"] for record in disk.records()]
    assert hlcs == sorted(hlcs)
    assert len(set(hlcs[1:4])) == 1, "they are of one moment"
    one, two = (
        [{name: value for name, value in record.items() if name != "hlc"} for record in d.records()]
        for d in (disk, other)
    )
    assert one == two
    assert [record["n"] for record in disk.records()] == [1, 2, 3, 4, 5]
    assert together.written == apart.written == 5


def test_of_records_with_a_common_value_that_is_no_json_all_are_counted(
    disk: Disk, clock: Clock
) -> None:
    writer = writer_of(disk.open, "n1", clock)
    writer.write_each("arrive", "event", ["p.1.1", "p.1.2"], {"peer": object()})
    writer.write_each("arrive", "event", ["p.1.3"], {"peer": "x"})
    writer.close()
    assert writer.lost == 2
    assert [record["n"] for record in disk.records()] == [3]


def test_records_that_differ_in_one_field_are_redacted(disk: Disk, clock: Clock) -> None:
    writer = writer_of(disk.open, "n1", clock, redact=True)
    writer.write_each("deliver", "subscription", ["s", "t"], {"event": "e", "lo": "5", "digest": 7})
    writer.close()
    assert [record["subscription"] for record in disk.records()] == ["s", "t"]
    assert all(record["lo"] != "5" and "digest" not in record for record in disk.records())


def test_counts_are_of_one_day_and_lost_with_their_record() -> None:
    disk, now = Disk(), [NOON + 43_199.0]
    hybrid = HybridClock(lambda: now[0] - NOON, NOON)
    writer = TraceWriter(disk.open, "a0", lambda: now[0], hybrid=hybrid.read)
    writer.count_unmatched({"x": 1})
    now[0] += 2
    writer.count_unmatched({"x": 1})
    writer.flush()
    one, other = disk.records()
    assert one["time"] < NOON + 43_200.0 <= other["time"], "each in the file of its day"
    assert len(disk.files) == 2
    disk.full = True
    writer.count_unmatched({"x": 1})
    writer.flush()
    assert (writer.written, writer.lost) == (2, 1)
