"""A report and traces in S3, of the server of `moto` where that is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from canopy.traces.analysis import AnalysisError, TimeWindow
from canopy.traces.analysis.output import FORMAT
from canopy.traces.analysis.remote import S3Folder

pytestmark = pytest.mark.cluster


@pytest.fixture
def settings() -> Iterator[dict[str, str]]:
    """The settings of a server with an empty bucket."""
    from pyarrow import fs

    server = pytest.importorskip("moto.server")
    running = server.ThreadedMotoServer(port=0)
    running.start()
    host, port = running.get_host_and_port()
    made = fs.S3FileSystem(
        access_key="a",
        secret_key="b",
        endpoint_override=f"{host}:{port}",
        scheme="http",
        allow_bucket_creation=True,
    )
    made.create_dir("bucket")
    names = {"access.key": "a", "secret.key": "b", "endpoint": f"http://{host}:{port}"}
    yield {f"spark.hadoop.fs.s3a.{name}": value for name, value in names.items()}
    running.stop()


def test_traces_come_from_s3_and_a_report_replaces_an_earlier_one(
    settings: dict[str, str], tmp_path: Path
) -> None:
    report = tmp_path / "report"
    (report / "tables" / "load").mkdir(parents=True)
    (report / "tables" / "load" / "1.jsonl").write_text("rows")
    (report / "summary.json").write_text(json.dumps({"format": FORMAT}))
    place = S3Folder("s3a://bucket/a/report", settings)
    place.check_output(overwrite=False)
    for _ in range(2):
        place.replace_report(report)
        place.check_output(overwrite=False)
    place.fetch(tmp_path / "got", TimeWindow())
    (got,) = (path for path in (tmp_path / "got").rglob("*") if path.is_file())
    assert (got.relative_to(tmp_path / "got").as_posix(), got.read_text()) == (
        "tables/load/1.jsonl",
        "rows",
    )
    (tmp_path / "notes.txt").write_text("mine")
    S3Folder("s3://bucket/a/report", settings)._put(tmp_path / "notes.txt")
    with pytest.raises(AnalysisError, match=r"has other content than an .* \(notes.txt\)"):
        place.check_output(overwrite=False)
    with pytest.raises(AnalysisError, match="cannot be read"):
        S3Folder("s3://bucket/none", settings).fetch(tmp_path / "none", TimeWindow())
