"""The health job on made-up traces, in Spark: what nodes show becomes a file (T6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.experiments.health.experiment import TraceAnalysis
from bench.experiments.health.trial import HealthPlan, HealthTrial
from canopy.cli.main import main
from canopy.traces.analysis import AnalysisError, Follower, Thresholds, find_health
from canopy.traces.health_file import HealthFile, decode_health
from canopy.traces.writer import TraceOptions, TraceWriter

pytestmark = pytest.mark.spark

BEGIN = 1_790_000_040.0  # a window's begin
WELL = {"cpu": 12.5, "memory": 40.0, "disk": 50.0, "clients": 1, "queue": 0, "late_ms": 2.0,
        "round_trip_ms": 0.4, "resent": 0, "links": 3, "resident": 1_000_000}  # fmt: skip


class Nodes:
    """Writes traces as nodes do; `now` is their clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = BEGIN
        self.writers: dict[str, TraceWriter] = {}

    def write(self, node: str, kind: str, **fields: Any) -> None:
        writer = self.writers.get(node)
        if writer is None:
            root = str(self.folder)
            writer = TraceWriter(
                self.open,
                node,
                lambda: self.now,
                TraceOptions(check=True),
                hybrid=lambda: int(self.now * 1e9),
                root=root,
            )
            self.writers[node] = writer
        writer.write(kind, fields)

    def open(self, path: str) -> Any:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return Path(path).open("ab", buffering=0)

    def flush(self) -> None:
        for writer in self.writers.values():
            writer.close()


def run(nodes: Nodes, seconds: float, **sick: dict[str, float]) -> None:
    """Health records of a to d for so long, with other values of those that are `sick`."""
    until = nodes.now + seconds
    while nodes.now < until:
        for node in "abcd":
            nodes.write(node, "health", **{**WELL, **sick.get(node, {})})
        nodes.now += 10.0
    nodes.flush()


def severities(found: HealthFile) -> dict[str, int]:
    return {node: each.severity for node, each in found.nodes.items()}


def test_signals_in_the_traces_become_a_health_file(spark: Any, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "traces")
    for node in "abcd":
        nodes.write(node, "start", address="x:1", routing="pivot", name=f"node-{node}")
    run(nodes, 300.0, b={"disk": 96.5})
    nodes.write("a", "incident", what="silent", peer="c", name="k", epoch=1, reason="the primary")
    nodes.write("d", "incident", what="silent", peer="c", name="k", epoch=1, reason="the primary")
    nodes.write("d", "incident", what="elected", peer="a", name="k", epoch=2, reason="")
    nodes.write("d", "start", address="x:1", routing="pivot", name="node-d")  # it had crashed
    run(nodes, 300.0)
    foreign = tmp_path / "traces" / "foreign.jsonl"
    foreign.write_bytes(b'no record\n{"v": 9, "time": 1, "node": "z"}\n{"v":1,"time":"x"}\n\xff\n')
    out = tmp_path / "health.json"
    stages: list[str] = []
    found = find_health(
        nodes.folder, out, None, None, lambda stage, *_: stages.append(stage), session=spark
    )
    assert decode_health(out.read_bytes()) == found
    assert stages == ["starting Spark", "reading the traces", "writing the health file", "done"]
    assert severities(found) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert found.nodes["b"].signals == {"disk": 96.5}
    assert found.nodes["c"].signals == {"heartbeats": 2.0}
    assert found.nodes["d"].signals == {"crash": 1.0}
    assert [each.name for each in found.nodes.values()] == [f"node-{n}" for n in "abcd"]
    assert found.until == BEGIN + 590.0
    assert found.thresholds["disk"] == 95.0


def test_a_follower_reads_what_is_new_and_says_the_same(spark: Any, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "traces")
    out = tmp_path / "health.json"
    follower = Follower(spark, nodes.folder, out, Thresholds())
    assert follower.round() == (None, 0)
    assert not out.exists()
    run(nodes, 200.0, b={"cpu": 99.0})
    first, all_bytes = follower.round()
    assert first is not None
    assert severities(first) == {"a": 0, "b": 1, "c": 0, "d": 0}
    nodes.now += 0.5
    nodes.write("c", "health", **{**WELL, "late_ms": 2_500.0})
    nodes.flush()
    second, new_bytes = follower.round()
    assert second is not None
    assert severities(second) == {"a": 0, "b": 1, "c": 2, "d": 0}
    assert 0 < new_bytes < all_bytes / 20
    assert decode_health(out.read_bytes()) == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["health.json", "traces"]


def test_what_cannot_be_is_said_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AnalysisError, match="does not exist"):
        find_health(tmp_path / "none", tmp_path / "health.json")
    nodes = Nodes(tmp_path / "traces")
    run(nodes, 10.0)
    with pytest.raises(AnalysisError, match="is a folder"):
        find_health(nodes.folder, tmp_path)
    with pytest.raises(AnalysisError, match="cannot be written"):
        find_health(nodes.folder, tmp_path / "no" / "health.json")
    command = ["trace", "health", str(nodes.folder), "--out", str(tmp_path / "h.json")]
    assert main([*command, "--set", "disc=90"]) == 2
    assert "'disc'" in capsys.readouterr().err


def test_the_command_prints_what_the_file_has(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = Nodes(tmp_path / "traces")
    run(nodes, 130.0, d={"clients": 25})
    original = find_health
    monkeypatch.setattr(
        "canopy.traces.analysis.find_health",
        lambda *args, **how: original(*args, **how, session=spark),
    )
    out = tmp_path / "h.json"
    command = ["trace", "health", str(nodes.folder), "--out", str(out), "--paper"]
    assert main([*command, "--json", "--set", "disk=60"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(out.read_bytes())
    assert printed["nodes"]["d"]["signals"] == {"clients": 25.0}
    assert (printed["thresholds"]["disk"], printed["thresholds"]["memory"]) == (60, 100)


def test_what_the_traces_say_keeps_a_sick_node_from_leading(spark: Any, tmp_path: Path) -> None:
    """The whole loop: simulated nodes, their traces, Spark, the file, and an election by it. (What
    happens without it: tests/bench/experiments/test_sim_health.py.)"""
    plan = HealthPlan(free=27_000, watched=125.0, after=30.0)
    found = HealthTrial(plan, 1, TraceAnalysis(tmp_path, spark)).run()
    assert not found.sick_leads
    assert (found.sick_named, found.sub_healthy) == (True, 1)
    assert found.failure_s is None
    assert found.elections == 1
