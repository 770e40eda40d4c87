"""What Spark calls of the source and the sink, with a real node and without Spark: tasks are called
as Spark's workers do, also twice, late, and after the node was killed."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as dataset
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    ArrayType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import canopy
from canopy.cli.main import main
from canopy.spark import node as node_rows
from canopy.spark import sink
from canopy.spark.blocks import Block
from canopy.spark.history import history_ends
from canopy.spark.options import ROWS_PER_TRIGGER
from canopy.spark.rows import RowsLostError, SparkSourceError
from canopy.spark.source import CanopySource, CanopyStreamReader, PushingReader, Reader
from harness.real_overlay import PATIENCE, Overlay, wait_ready
from overlay.client import Streams
from overlay.stream_client import AddStream

pytestmark = pytest.mark.process

SCHEMA = StructType([StructField("n", LongType()), StructField("_offset", LongType())])


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overlay]:
    made = Overlay(tmp_path_factory.mktemp("node"))
    wait_ready(made.start())
    with canopy.connect(made.folder / "0") as client:
        for name, shards, by in (("s", 1, ""), ("long", 1, ""), ("three", 3, "n"), ("out", 3, "n")):
            client.ask(AddStream(0, name, shards, by, 1), Streams, PATIENCE)
        client.append("s", ({"n": n, "even": n % 2 == 0} for n in range(1_000)))
        client.append("three", ({"n": n} for n in range(1_000)))
        client.append("long", ({"n": n, "text": "x" * 400} for n in range(5_000)))
    yield made
    for client in node_rows._clients.values():
        client.close()
    node_rows._clients.clear()
    made.stop()


def source(overlay: Overlay, stream: str, **options: str) -> CanopySource:
    data = str(overlay.folder / "0")
    return CanopySource({"stream": stream, "node": data, "timeout": str(PATIENCE), **options})


def read(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    """The rows of these partitions, each read by another copy of the reader."""
    found = []
    for partition in partitions:
        copy = pickle.loads(pickle.dumps(reader))
        for batch in copy.read(pickle.loads(pickle.dumps(partition))):
            found += batch.to_pylist()
    return found


def test_a_batch_has_each_row_once_by_content_and_by_place(overlay: Overlay) -> None:
    made = source(overlay, "s", rowsPerPartition="300")
    assert "n bigint" in made.schema().simpleString().replace(":", " ")
    reader = made.reader(SCHEMA)
    assert type(reader) is Reader
    assert len(reader.partitions()) == 4
    assert [row["n"] for row in read(reader, reader.partitions())] == list(range(1_000))
    some = source(
        overlay, "s", selector="even = TRUE", startingOffsets="100", endingOffsets='{"0": 200}'
    ).reader(SCHEMA)
    assert [row["n"] for row in read(some, some.partitions())] == list(range(100, 200, 2))
    pushing = source(overlay, "s", pushFilters="true").reader(SCHEMA)
    assert isinstance(pushing, PushingReader)
    filters: list[Any] = [EqualTo(("n",), 7), GreaterThanOrEqual(("_offset",), 5)]
    assert pushing.pushFilters(filters) == filters
    assert [row["_offset"] for row in read(pushing, pushing.partitions())] == [7]
    three = source(overlay, "three").reader(SCHEMA)
    assert sorted(row["n"] for row in read(three, three.partitions())) == list(range(1_000))
    with pytest.raises(SparkSourceError, match="nowhere"):
        source(overlay, "nowhere").reader(SCHEMA).partitions()
    with pytest.raises(SparkSourceError, match=r"the column n is list"):
        source(overlay, "s").reader(StructType([StructField("n", ArrayType(LongType()))]))


def test_a_query_goes_trigger_by_trigger_and_a_trigger_done_again_has_the_same_pieces(
    overlay: Overlay,
) -> None:
    reader = source(overlay, "three", startingOffsets="first").streamReader(SCHEMA)
    assert isinstance(reader, CanopyStreamReader)
    assert reader.getDefaultReadLimit() == ReadMaxRows(ROWS_PER_TRIGGER)
    begin = offset = reader.initialOffset()
    found: list[int] = []
    triggers = 0
    while (end := reader.latestOffset(offset, ReadMaxRows(300))) != offset:
        pieces = reader.partitions(offset, end)
        assert sum(p.wanted.end - p.wanted.begin for p in pieces) <= 300  # type: ignore[attr-defined]
        again = reader.partitions(offset, end)
        assert [p.wanted for p in pieces] == [p.wanted for p in again]  # type: ignore[attr-defined]
        found += [row["n"] for row in read(reader, pieces)]
        offset, triggers = end, triggers + 1
    assert sorted(found) == list(range(1_000))
    assert triggers >= 4
    assert reader.latestOffset(begin, ReadAllAvailable()) == offset == reader.reportLatestOffset()
    reader.prepareForTriggerAvailableNow()
    with canopy.connect(overlay.folder / "0") as client:
        client.append("three", [{"n": n} for n in range(1_000, 1_010)])
    assert reader.latestOffset(begin, ReadAllAvailable()) == offset, "what came later is not now"
    latest = source(overlay, "three").streamReader(SCHEMA)
    start = latest.initialOffset()
    assert latest.latestOffset(start, ReadAllAvailable()) == start
    with pytest.raises(SparkSourceError, match="the checkpoint is of another stream"):
        latest.partitions({**start, "stream": "x"}, start)


def test_a_task_goes_on_when_its_node_is_killed_and_lost_rows_are_an_error(
    overlay: Overlay,
) -> None:
    reader = source(overlay, "long", startingOffsets="first").streamReader(SCHEMA)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    (piece,) = reader.partitions(begin, end)
    pieces = reader._read(piece.wanted, "")  # type: ignore[attr-defined]
    found = [next(pieces)]
    address = (overlay.folder / "0" / "address").read_text().strip()
    overlay.kill(0)
    timer = threading.Timer(0.3, overlay.start_again, (0, address))
    timer.start()
    found += pieces
    (numbers,) = Block(found).columns(["n"])
    assert numbers == list(range(5_000))
    timer.join()
    wait_ready(overlay.client_again(0))
    assert reader.latestOffset(begin, ReadAllAvailable()) == end
    beyond = {**end, "shards": {"0": 6_000}}
    brief = source(overlay, "long", timeout="0.5").streamReader(SCHEMA)
    with pytest.raises(RowsLostError, match="rows up to offset 6000 were there"):
        read(brief, brief.partitions(end, beyond))
    other = {**end, "stream": "x", "shards": {"0": 7}}
    with pytest.raises(SparkSourceError, match="the checkpoint is of another stream"):
        read(brief, brief.partitions({**other, "shards": {"0": 0}}, other))


class Task:
    """A task of Spark: the partition `number` of a batch of the query q."""

    def __init__(self, number: int, batch: int) -> None:
        self.number, self.batch = number, batch

    def partitionId(self) -> int:  # noqa: N802 - Spark's
        return self.number

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's
        return {sink.QUERY: "q", sink.BATCH: str(self.batch)}[name]


WRITTEN = StructType([StructField("n", LongType()), StructField("who", StringType())])


def rows_between(begin: int, end: int, size: int = 0) -> pa.RecordBatch:
    numbers = list(range(begin, end))
    return pa.RecordBatch.from_pydict({"n": numbers, "who": ["x" * size] * len(numbers)})


@pytest.mark.parametrize("size", [0, 2_000])
def test_a_batch_that_is_written_again_is_in_the_stream_once(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    options = {"stream": "out", "node": str(overlay.folder / "0"), "timeout": str(PATIENCE)}
    made = CanopySource(options).streamWriter(WRITTEN, False)
    first = reader_of(overlay).reportLatestOffset()
    assert first is not None

    def write(number: int, batch: int, *pieces: pa.RecordBatch) -> int:
        task = Task(number, 10 * (1 + size) + batch)
        monkeypatch.setattr(sink, "_partition", lambda: task)
        written = pickle.loads(pickle.dumps(made)).write(iter(pieces))
        assert isinstance(written, sink.TaskWritten)
        return written.rows

    assert write(0, 0, rows_between(0, 400, size)) == 400
    assert write(0, 0, rows_between(200, 400, size), rows_between(0, 200, size)) == 400, (
        "in any order"
    )
    assert write(1, 0, rows_between(400, 600, size)) == 200
    assert write(0, 1, rows_between(600, 700, size)) == 100
    assert write(0, 1, rows_between(600, 700, size)) == 100
    with pytest.raises(SparkSourceError, match="step"):
        write(0, 0, rows_between(0, 400, size))
    assert write(0, 2) == 0
    found = reader_of(overlay)
    pieces = found.partitions(first, found.latestOffset(first, ReadAllAvailable()))
    assert sorted(row["n"] for row in read(found, pieces)) == list(range(700))


def reader_of(overlay: Overlay) -> CanopyStreamReader:
    made = source(overlay, "out", startingOffsets="first").streamReader(SCHEMA)
    made.initialOffset()
    assert isinstance(made, CanopyStreamReader)
    return made


def test_a_job_with_a_number_is_written_once_and_what_no_event_can_have_is_refused(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "_partition", lambda: Task(0, 0))
    options = {"stream": "s", "node": str(overlay.folder / "0"), "producer": "job", "batch": "3"}
    before = source(overlay, "s").reader(SCHEMA)
    there = sum(p.wanted.end - p.wanted.begin for p in before.partitions())  # type: ignore[attr-defined]
    for _ in range(2):
        writer = CanopySource(options).writer(WRITTEN, False)
        writer.write(iter([rows_between(0, 50)]))  # type: ignore[arg-type]
    after = source(overlay, "s").reader(SCHEMA)
    assert sum(p.wanted.end - p.wanted.begin for p in after.partitions()) == there + 50  # type: ignore[attr-defined]
    with pytest.raises(SparkSourceError, match="mode"):
        CanopySource(options).writer(WRITTEN, True)
    with pytest.raises(SparkSourceError, match="the column when is timestamp"):
        CanopySource(options).writer(StructType([StructField("when", TimestampType())]), False)
    with pytest.raises(SparkSourceError, match="nowhere"):
        CanopySource({**options, "stream": "nowhere"}).writer(WRITTEN, False)


def test_parquet_files_go_on_where_they_end_and_refuse_what_is_not_theirs(
    overlay: Overlay, tmp_path: Path
) -> None:
    data = str(overlay.folder / "0")
    with canopy.connect(data) as client:
        client.ask(AddStream(0, "h", 2, "n", 1), Streams, PATIENCE)
        client.append("h", ({"n": n} for n in range(300)))
    export = ["stream", "export", "h", "--format", "parquet", "--connect", data, "-o"]
    folder = tmp_path / "h"
    assert main([*export, str(folder)]) == 0
    first = history_ends(folder)
    assert sum(first.values()) == 300
    assert main([*export, str(folder)]) == 0
    assert history_ends(folder) == first
    with canopy.connect(data) as client:
        client.append("h", ({"n": n, "new": f"x{n}"} for n in range(300, 500)))
    assert main([*export, str(folder)]) == 0
    ends = history_ends(folder)
    assert sum(ends.values()) == 500
    found = dataset.dataset(sorted(map(str, folder.glob("*.parquet")))[::-1]).to_table().to_pylist()
    assert sorted(row["n"] for row in found) == list(range(500))
    assert sorted(row["new"] for row in found if row["new"]) == sorted(
        f"x{n}" for n in range(300, 500)
    )
    assert not list(folder.glob(".*")), "no drafts are left"
    assert main([*export[:3], "n > 3", *export[3:], str(folder)]) == 1
    assert main([*export[:2], "s", *export[3:], str(folder)]) == 1
    with canopy.connect(data) as client:
        client.append("h", [{"n": "text"}])
    assert main([*export, str(folder)]) == 1
    some = tmp_path / "some"
    assert main([*export[:3], "n < 100", *export[3:], str(some)]) == 0
    assert sum(history_ends(some).values()) == 501, "they count what was looked at"
    rows = dataset.dataset(sorted(map(str, some.glob("*.parquet")))).to_table()
    assert sorted(rows["n"].to_pylist()) == list(range(100))
    next(some.glob("0-*")).rename(some / "0-7-9.parquet")
    (some / "0-11-12.parquet").write_bytes(b"")
    with pytest.raises(SparkSourceError, match="end at offset 9 and go on at 11"):
        history_ends(some)
