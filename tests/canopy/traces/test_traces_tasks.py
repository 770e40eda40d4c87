"""What a small run does in this process, and keeps in memory."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

from canopy.traces.analysis import read
from canopy.traces.analysis.parsing import stretches
from canopy.traces.analysis.parsing.stretches import Bounds, shared_out
from canopy.traces.analysis.tasks import (
    AT_ONCE,
    at_once,
    computed_once,
    frame_of,
    frame_of_table,
    kept,
)
from canopy.traces.analysis.verdict import expected, numbering
from tests.support.traces.runs import busy_run

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("keep", [kept, computed_once])
def test_the_files_of_a_table_are_opened_by_the_first_job_only(
    keep: Callable[[Any], Any], spark: Any, tmp_path: Path
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "table"))
    assert all(path.suffix == ".parquet" for path in (tmp_path / "table").iterdir())
    table = keep(spark.read.parquet(str(tmp_path / "table")))
    assert table.where("id > 0").count() == 2
    shutil.rmtree(tmp_path / "table")
    assert sorted(row["id"] for row in table.collect()) == [0, 1, 2]


def test_workers_and_this_process_read_the_same(spark: Any, tmp_path: Path) -> None:
    busy_run(tmp_path / "traces", 4, 12)
    files = sorted((tmp_path / "traces").rglob("*.jsonl"))
    (files[0].parent / "b.jsonl").write_text("no record\n")
    files = read.files_within(tmp_path / "traces")
    here, found = read.store_records(spark, files, tmp_path / "here")
    shares = shared_out([(path, path.stat().st_size) for path in files])
    tally = read.distribute(spark, shares, tmp_path / "there", Bounds(None, None))
    there = spark.read.schema(read.RECORD).parquet(str(tmp_path / "there"))
    assert here.count() > 150
    assert here.exceptAll(there).count() == there.exceptAll(here).count() == 0
    assert rows(tally.rows) == rows(found.rows) == rows(pa.Table.from_pylist(read.counted(here)))
    assert rows(tally.offsets) == rows(found.offsets)


def test_no_rows_are_lost_behind_a_batch_without_any(spark: Any) -> None:
    one, none = pa.table({"a": [1]}), pa.table({"a": pa.array([], pa.int64())})
    rows = pa.concat_tables([none, one, none, one, none])
    assert frame_of_table(spark, rows).count() == 2
    assert frame_of_table(spark, none).count() == 0


def test_many_files_are_read_whole(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a thousand small ones are several shares, of which each begins with no rows."""
    busy_run(tmp_path / "traces", 6, 12)
    monkeypatch.setattr(stretches, "FILE_COST", stretches.STRETCH)
    files = read.files_within(tmp_path / "traces")
    records, tally = read.store_records(spark, files, tmp_path / "here")
    assert len(shared_out([(path, 10) for path in files])) > 5
    counted = sum(row["count"] for row in tally.rows.to_pylist())
    assert (
        records.count()
        == counted
        == sum(bool(line) for path in files for line in path.read_text().splitlines())
    )


def test_a_large_run_is_counted_as_a_small_one(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy_run(tmp_path / "traces", 4, 12)
    files = read.files_within(tmp_path / "traces")
    records, _ = read.store_records(spark, files, tmp_path / "here")

    def found() -> list[str]:
        return sorted(
            str(sorted((name, value) for name, value in row.items() if value))
            for row in read.counted(records)
        )

    small = found()
    monkeypatch.setattr(read, "is_small", lambda _: False)
    assert found() == small


def test_sampled_events_are_counted_in_pieces_and_very_many_are_estimated(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = 2**31
    right = sum(crc32(f"a.1.{number}".encode()) < half for number in range(3, 251))
    monkeypatch.setattr(numbering, "PIECE", 100)
    found = numbering.sampled(spark, [("a.1", 3, 250, half), ("b.1", 1, 10**15, half)])
    assert found["a.1"] == right
    assert 0.49e15 < found["b.1"] < 0.5e15


def test_in_a_large_run_it_is_known_whether_an_event_has_two_publish_records(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected, "is_small", lambda _: False)
    made = [("publish", "a"), ("publish", "b"), ("visit", "a"), ("visit", "a")]
    assert not expected.published_again(frame_of(spark, made, "kind string, event string"))
    made.append(("publish", "b"))
    assert expected.published_again(frame_of(spark, made, "kind string, event string"))


def test_calls_run_beside_one_another_and_none_begins_after_a_failure() -> None:
    meeting = threading.Barrier(2, timeout=30)
    with at_once() as begin:
        both = [begin(meeting.wait), begin(meeting.wait)]
    assert sorted(each.result() for each in both) == [0, 1]
    go_on = threading.Event()
    begun = []

    def failing() -> None:
        with at_once() as begin:
            begun.extend(begin(go_on.wait, 30) for _ in range(AT_ONCE + 1))
            raise ValueError("no number")

    with pytest.raises(ValueError, match="no number"):
        failing()
    *busy, waiting = begun
    assert waiting.cancelled()
    go_on.set()
    assert all(each.result(30) for each in busy)


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))
