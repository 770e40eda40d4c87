"""Places of traces and reports: compressed files, odd names, long lines, folders not shared."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from canopy.cli.main import main
from canopy.traces.analysis import AnalysisError, analyze
from canopy.traces.analysis.constants import LINE_BYTES
from canopy.traces.analysis.read import check_folder, trace_files
from canopy.traces.analysis.spark.paths import for_reading, for_writing, local, named
from canopy.traces.analysis.spark.session import check_shared, settings
from tests.support.traces.runs import busy_run

ODD = "a b+c=d ü%20[x]{y}*"


def test_compressed_files_count_with_the_text_that_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x" * 100)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"y" * 5_000))
    (tmp_path / "c.jsonl.gz.part").write_bytes(b"no")
    assert [path.name for path in trace_files(tmp_path)] == ["a.jsonl", "b.jsonl.gz"]
    assert check_folder(tmp_path) == 5_100


def test_names_are_given_to_spark_as_they_are() -> None:
    assert for_writing(Path("/x y/ü+=%20")) == "file:/x y/ü+=%20"
    assert for_reading(Path("/a[1]{2}*?\\b")) == r"file:/a\[1\]\{2\}\*\?\\b"
    assert local("file:///x%20y/%C3%BC+=%2520") == Path("/x y/ü+=%20")


def test_a_place_is_a_path_or_a_file_uri() -> None:
    assert named("a b%20/c:d") == Path("a b%20/c:d")
    assert named("s3a:x") == Path("s3a:x")  # no slash: a name
    assert named("./s3a://x") == Path("s3a:/x")
    for text in ("file:/x%20y/%C3%BC", "file:///x%20y/%C3%BC", "FILE://localhost/x y/ü"):
        assert named(text) == Path("/x y/ü")
    assert named(Path("/x y/ü#?%20").as_uri()) == Path("/x y/ü#?%20")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s3a://bucket/traces", r"\(s3a:\) that this machine's programs do not see.*s3fs"),
        ("hdfs://host:9000/t", r"\(hdfs:\).*hdfs dfs -get"),
        ("hdfs:/t", r"write \./hdfs:/t"),
        ("file://host/t", "no folder of this machine"),
        ("file:t", "file:/ and a whole path"),
        ("file:", "file:/ and a whole path"),
        ("file:/t#1", "%23"),
    ],
)
def test_a_place_out_of_sight_is_refused_with_what_to_do(text: str, says: str) -> None:
    with pytest.raises(AnalysisError, match=says):
        named(text)


def test_a_report_for_a_remote_place_is_no_folder_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text("{}\n")
    for words, says in (
        (
            ["analyze", ".", "--out", "s3a://b/r", "--master", "spark://h:7077"],
            "leave --master out",
        ),
        (["health", "s3a://b/t", "--out", "h"], "(s3a:)"),
        (["analyze", "t.jsonl", "--state", "hdfs:/s", "--out", "r"], "(hdfs:)"),
    ):
        assert main(["trace", *words]) == 1
        assert says in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_a_file_uri_is_read_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a b").mkdir()
    for words in (["analyze", "--out", "r"], ["health", "--out", "h"]):
        assert main(["trace", *words, (tmp_path / "a b").as_uri()]) == 1
        assert f"the trace folder {tmp_path}/a b has no trace records" in capsys.readouterr().err


@pytest.mark.spark
def test_odd_folders_are_read_whole(spark: Any, tmp_path: Path) -> None:
    """A compressed file is read, a line of 17 MB costs itself alone and is reported, and the names
    of the folders do not matter."""
    folder = tmp_path / ODD
    busy_run(folder, 4, 12)
    files = list(trace_files(folder))
    packed, spoiled = files[0], files[1]
    packed.with_name(packed.name + ".gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    with spoiled.open("ab") as file:
        file.write(b'{"v":1,"note":"' + b"x" * (LINE_BYTES + 2**20) + b"\nno record\n")
    summary = analyze(folder, tmp_path / f"{ODD} out", session=spark)
    assert summary.exact
    assert (summary.nodes, summary.published, summary.corrupt_lines) == (4, 12, 2)
    tables = tmp_path / f"{ODD} out" / "tables" / "corrupt"
    found = {
        row["problem"]: local(row["file"])
        for row in spark.read.parquet(for_reading(tables)).collect()
    }
    assert found == {
        "longer than 16 MB": spoiled,
        "not a JSON object": spoiled,
    }
    assert json.loads((tmp_path / f"{ODD} out" / "summary.json").read_text())["exact"] is True


class Executors:
    """A cluster's session as far as `check_shared` uses it: its executors read `seen`, or fail."""

    def __init__(self, master: str, seen: Callable[[Path], list[str]]) -> None:
        self.sparkContext = SimpleNamespace(master=master, defaultParallelism=2)
        self.settings = {
            "spark.sql.files.openCostInBytes": "4",
            "spark.sql.files.maxPartitionBytes": "128",
        }
        self.conf = SimpleNamespace(get=self.settings.get, set=self.settings.__setitem__)
        self.read = SimpleNamespace(text=self._text)
        self._seen = seen

    def _text(self, name: str) -> Any:
        assert self.settings["spark.sql.files.openCostInBytes"] == "128", "a task for each file"
        folder = local(name)
        return SimpleNamespace(collect=lambda: [{"value": text} for text in self._seen(folder)])


def all_texts(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.iterdir()]


def not_there(folder: Path) -> list[str]:
    raise PySparkException("FILE_NOT_EXIST")


@pytest.mark.parametrize("seen", [lambda folder: [], not_there, lambda f: all_texts(f)[1:]])
def test_an_output_that_the_executors_do_not_share_is_found(
    seen: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    cluster: Any = Executors("spark://host:7077", seen)
    with pytest.raises(AnalysisError, match="not the same one on the machines of the cluster"):
        check_shared(cluster, tmp_path)
    assert not list(tmp_path.iterdir())
    assert cluster.settings["spark.sql.files.openCostInBytes"] == "4"


def test_an_output_that_the_executors_share_is_left_as_it_was(tmp_path: Path) -> None:
    shared: Any = Executors("spark://host:7077", all_texts)
    check_shared(shared, tmp_path)
    here: Any = Executors("local[2]", not_there)
    check_shared(here, tmp_path)
    assert not list(tmp_path.iterdir())


def test_settings_of_the_user_replace_ours(tmp_path: Path) -> None:
    wishes = {"spark.driver.memory": "8g", "spark.driver.extraJavaOptions": "-Xmn1g"}
    found = settings(None, tmp_path, 10**9, wishes)
    assert found["spark.driver.memory"] == "8g"
    assert found["spark.driver.extraJavaOptions"].endswith(" -Xmn1g")
    assert found["spark.driver.bindAddress"] == "127.0.0.1"
    for master in (None, "spark://host:7077"):
        assert settings(master, tmp_path, 0)["spark.ui.enabled"] == "false"


@pytest.mark.parametrize("text", ["spark.x", "ui.enabled=true"])
def test_what_is_no_setting_of_spark_is_refused(text: str, tmp_path: Path) -> None:
    assert main(["trace", "analyze", str(tmp_path), "--out", "report", "--conf", text]) == 2
