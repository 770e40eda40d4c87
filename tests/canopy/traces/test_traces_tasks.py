"""What a small run keeps in memory: its files are opened once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canopy.traces.analysis.tasks import computed_once, kept

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
