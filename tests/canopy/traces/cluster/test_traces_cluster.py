"""The analysis on a real standalone cluster (`make cluster`): a master and two workers that have
private work folders, and one folder that they do not share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canopy.cli.main import main
from harness.spark_cluster import SparkCluster, separates, tasks_by_executor
from tests.support.traces.runs import busy_run

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "traces"
    busy_run(folder, 4, 60)
    return folder


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of which each worker sees its own, where this process may arrange that."""
    return tmp_path_factory.mktemp("private")


@pytest.fixture(scope="module")
def cluster(private: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with SparkCluster(folder, 2, private if separates() else None) as found:
        yield found


def numbers(out: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return {name: value for name, value in summary.items() if name != "report"}


def assert_same(here: Any, there: Any, where: str = "") -> None:
    """Equal to the last digit; sums and means of floating-point numbers, which tasks add up in
    another order, to the last but three."""
    assert type(here) is type(there), where
    if isinstance(here, dict):
        assert here.keys() == there.keys(), where
        for name in here:
            assert_same(here[name], there[name], f"{where}.{name}")
    elif isinstance(here, list):
        assert len(here) == len(there), where
        for place, (one, other) in enumerate(zip(here, there, strict=True)):
            assert_same(one, other, f"{where}[{place}]")
    elif isinstance(here, float):
        assert there == pytest.approx(here, rel=1e-12), where
    else:
        assert there == here, where


def test_a_cluster_finds_the_same_as_this_machine(
    cluster: SparkCluster, traces: Path, tmp_path: Path
) -> None:
    (tmp_path / "events").mkdir()
    assert main(["trace", "analyze", str(traces), "--out", str(tmp_path / "here")]) == 0
    before = cluster.executors()
    out = (tmp_path / "there").as_uri()
    on_cluster = cluster.settings(tmp_path / "events")
    assert main(["trace", "analyze", traces.as_uri(), "--out", out, *on_cluster]) == 0
    here, there = numbers(tmp_path / "here"), numbers(tmp_path / "there")
    assert here["expected"] > 50
    assert_same(here, there)
    assert (tmp_path / "there" / "report.html").stat().st_size > 10_000
    ran = tasks_by_executor(tmp_path / "events")
    for old, new in zip(before, cluster.executors(), strict=True):
        assert any(ran.get(executor, 0) for executor in new - old), ran


@pytest.mark.skipif(not separates(), reason="only root may give the workers folders of their own")
def test_an_output_folder_that_the_workers_do_not_share_is_refused(
    cluster: SparkCluster,
    traces: Path,
    private: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "events").mkdir()
    on_cluster = cluster.settings(tmp_path / "events")
    out = private / "report"
    assert main(["trace", "analyze", str(traces), "--out", str(out), *on_cluster]) == 1
    assert "not the same one on the machines of the cluster" in capsys.readouterr().err
    assert not (out / "report.html").exists()
