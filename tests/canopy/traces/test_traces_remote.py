"""Traces and reports in other file systems, through Hadoop's own: `viewfs:`, which is one with
names of its own and has another below."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from canopy.traces.analysis import AnalysisError, TimeWindow
from canopy.traces.analysis.output import FORMAT
from canopy.traces.analysis.remote import HadoopFolder
from canopy.traces.analysis.spark.paths import is_remote

pytestmark = pytest.mark.spark


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """The folder that `viewfs:/data` is."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def viewed(spark: Any, uri: str, mounted: Path) -> HadoopFolder:
    settings = {
        "spark.hadoop.fs.viewfs.mounttable.default.link./data": mounted.as_uri(),
        "spark.hadoop.fs.viewfs.impl.disable.cache": "true",
    }
    return HadoopFolder(spark, uri, settings)


def test_trace_files_are_fetched_by_day_under_their_names(
    spark: Any, mounted: Path, tmp_path: Path
) -> None:
    for name in (
        *("date=2026-09-21/node=a b%20ü/1.jsonl", "date=2026-09-22/node=c/2.jsonl.gz"),
        *("date=2026-09-22/node=c/.3.jsonl", "date=2026-09-22/notes.txt", "4.jsonl"),
    ):
        (mounted / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / "t" / name).write_text(name)
    place = viewed(spark, "viewfs:/data/t", mounted)
    said: list[str] = []
    place.fetch(tmp_path / "all", TimeWindow(), lambda text, done, total: said.append(text))
    found = {str(path.relative_to(tmp_path / "all")): path.read_text()
             for path in (tmp_path / "all").rglob("*") if path.is_file()}  # fmt: skip
    assert sorted(found) == [
        *("4.jsonl", "date=2026-09-21/node=a b%20ü/1.jsonl", "date=2026-09-22/node=c/2.jsonl.gz")
    ]
    assert all(name == text for name, text in found.items())
    assert said == ["copying from viewfs:/data/t: 0 of 3 files"]
    place.fetch(tmp_path / "later", TimeWindow(since=1_790_035_200.0))  # 22 September
    assert len(list((tmp_path / "later").rglob("*.jsonl*"))) == 2
    (mounted / "empty").mkdir()
    with pytest.raises(AnalysisError, match="has no trace records"):
        viewed(spark, "viewfs:/data/empty", mounted).fetch(tmp_path / "none", TimeWindow())


def test_a_report_replaces_an_earlier_one_and_nothing_else(
    spark: Any, mounted: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    (report / "tables" / "load").mkdir(parents=True)
    (report / "tables" / "load" / "part.parquet").write_text("rows")
    (report / "summary.json").write_text(json.dumps({"format": FORMAT}))
    place = viewed(spark, "viewfs:/data/r", mounted)
    place.check_output(overwrite=False)
    place.replace_report(report)
    (report / "report.html").write_text("page")
    place.check_output(overwrite=False)
    place.replace_report(report)
    written = mounted / "r"
    assert (written / "tables" / "load" / "part.parquet").read_text() == "rows"
    assert (written / "report.html").read_text() == "page"
    assert json.loads((written / "summary.json").read_text()) == {"format": FORMAT}
    (written / "notes.txt").write_text("mine")
    with pytest.raises(AnalysisError, match=r"has other content than an .* \(notes.txt\)"):
        place.check_output(overwrite=False)
    place.check_output(overwrite=True)
    place.replace_report(report)
    assert (written / "notes.txt").read_text() == "mine"


def test_a_file_system_without_a_connector_is_refused(spark: Any) -> None:
    assert is_remote("s3a://bucket/traces")
    assert not any(map(is_remote, ("/traces", "file:/traces", "c:x")))
    with pytest.raises(AnalysisError, match="no connector"):
        HadoopFolder(spark, "strange://host/traces")
    with pytest.raises(AnalysisError, match="cannot be read"):
        HadoopFolder(spark, "hdfs://127.0.0.1:9/traces").fetch(Path("none"), TimeWindow())
