"""What a small run does in this process, and keeps in memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canopy.traces.analysis import read
from canopy.traces.analysis.parsing.stretches import Bounds, shared_out
from canopy.traces.analysis.tasks import computed_once, kept
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
    here = read.store_records(spark, files, tmp_path / "here")
    shares = shared_out([(path, path.stat().st_size) for path in files])
    read.distribute(spark, shares, tmp_path / "there", Bounds(None, None))
    there = spark.read.schema(read.RECORD).parquet(str(tmp_path / "there"))
    assert here.count() > 150
    assert here.exceptAll(there).count() == there.exceptAll(here).count() == 0
