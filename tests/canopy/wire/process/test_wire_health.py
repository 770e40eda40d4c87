"""Health in a node's process: the records that it writes, and the file that it reads (T6)."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from canopy.traces.health_file import (
    HealthFile,
    HealthFileError,
    NodeFinding,
    decode_health,
    encode_health,
)
from canopy.traces.schema import FIELDS, KINDS
from canopy.wire.config import HealthConfig, NodeConfig, TraceConfig
from canopy.wire.folder import DataFolder
from canopy.wire.log import Log
from canopy.wire.process.health_watch import HealthWatch
from canopy.wire.process.machine_load import MachineLoad, disk_used, memory_used, resident
from canopy.wire.process.node_process import NodeProcess, build_node
from overlay.health import HealthReport
from tests.support.real.echo_node import EchoNode

NOW = 1_790_000_000.0
SICK = NodeFinding(2, "heartbeats missed", {"heartbeats": 3.0})


class Watched:
    """A watch on a file in `folder`, with a wall clock of its own."""

    def __init__(self, folder: Path, max_age: float = 600.0) -> None:
        self.path = folder / "health.json"
        self.now = NOW
        self.reports: list[HealthReport] = []
        self.output = io.StringIO()
        log = Log("info", self.output)
        update: Callable[[HealthReport], None] = self.reports.append
        settings = HealthConfig(file=str(self.path), max_age=max_age)
        self.watch = HealthWatch(settings, log, lambda: self.now, update)

    def write(self, data: bytes) -> None:
        draft = self.path.with_suffix(".new")
        draft.write_bytes(data)
        draft.replace(self.path)
        self.watch.look()

    def write_file(self, until: float = NOW, **nodes: NodeFinding) -> None:
        self.write(encode_health(HealthFile(until, 1_800.0, nodes, made=until)))


def test_a_new_file_is_read_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.write_file(NOW - 100, a=SICK, b=NodeFinding(0, ""))
    watched.watch.look()
    (report,) = watched.reports
    assert {node: found.severity for node, found in report.nodes.items()} == {"a": 2}
    assert report.nodes["a"].reason == "heartbeats missed"
    assert report.valid_for == 500.0
    watched.write_file(NOW, b=SICK)
    assert list(watched.reports[1].nodes) == ["b"]
    assert watched.watch.ignored == 0


MALFORMED = {
    "empty": b"",
    "no JSON": b"\xff\xfe health",
    "a list": b"[]",
    "no mark": b'{"until": 1790000000, "window": 1800, "nodes": {}}',
    "a report": b'{"format": "canopy-report", "until": 1790000000, "window": 1, "nodes": {}}',
    "a later version": json.dumps(
        {"format": "canopy-health", "version": 2, "until": NOW, "window": 1, "nodes": {}}
    ).encode(),
    "a severity that does not exist": json.dumps(
        {
            "format": "canopy-health", "version": 1, "until": NOW, "window": 1,
            "nodes": {"a": {"severity": 9, "reason": ""}},
        }
    ).encode(),
    "nested without end": b'{"nodes":' + b"[" * 100_000,
    "too large": b" " * (4 * 1024 * 1024 + 1),
}  # fmt: skip


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_file_changes_nothing(tmp_path: Path, data: bytes) -> None:
    watched = Watched(tmp_path)
    watched.write_file(a=SICK)
    watched.write(data)
    watched.watch.look()
    assert len(watched.reports) == 1
    assert watched.watch.ignored == 1
    assert "health_ignored" in watched.output.getvalue()
    watched.write_file(b=SICK)
    assert len(watched.reports) == 2


def test_a_stale_file_or_one_from_the_future_changes_nothing(tmp_path: Path) -> None:
    watched = Watched(tmp_path, max_age=60.0)
    watched.write_file(NOW - 60.0, a=SICK)
    watched.write_file(NOW + 61.0, a=SICK)
    assert watched.reports == []
    assert watched.watch.ignored == 2
    watched.write_file(NOW + 5.0, a=SICK)  # clocks differ a little
    assert [report.valid_for for report in watched.reports] == [60.0]


def test_a_missing_file_changes_nothing_and_is_said_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    for _ in range(3):
        watched.watch.look()
    assert watched.watch.ignored == 1
    watched.write_file(a=SICK)
    watched.path.unlink()
    watched.watch.look()
    watched.watch.look()
    assert len(watched.reports) == 1
    assert watched.watch.ignored == 2
    watched.path.mkdir()
    watched.watch.look()
    assert len(watched.reports) == 1


def test_what_is_encoded_is_decoded() -> None:
    file = HealthFile(NOW, 60.0, {"a": SICK}, {"disk": 95.0}, NOW + 1)
    assert decode_health(encode_health(file)) == file
    with pytest.raises(HealthFileError, match="not a health file"):
        decode_health(b"{}")


def test_the_machine_is_measured(tmp_path: Path) -> None:
    times = iter([0.0, 10.0, 20.0])
    busy = iter([1.0, 3.5, 13.5])
    load = MachineLoad(tmp_path, times.__next__, busy.__next__)
    first, second = load.measure(), load.measure()
    assert (first["cpu"], second["cpu"]) == (25.0, 100.0)
    assert 0 < first["disk"] <= 100
    found = os.statvfs(tmp_path)
    free = 100.0 * found.f_bavail / (found.f_blocks - found.f_bfree + found.f_bavail)
    assert disk_used(tmp_path) == pytest.approx(100.0 - free, abs=1.0)
    assert disk_used(tmp_path / "gone") is None


def test_memory_is_read_where_the_system_tells_it(tmp_path: Path) -> None:
    info, statm = tmp_path / "meminfo", tmp_path / "statm"
    assert memory_used(info) is None
    assert resident(statm) is None
    info.write_text("MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    150 kB\n")
    statm.write_text("900 25 10 1 0 300 0\n")
    assert memory_used(info) == 85.0
    assert resident(statm) == 25 * os.sysconf("SC_PAGE_SIZE")
    info.write_text("MemTotal: 1000 kB\n")
    assert memory_used(info) is None


@pytest.mark.trio
async def test_a_node_writes_health_records_and_reads_its_file(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "health.json"
    health = HealthConfig(period=10.0, file=str(path))
    config = NodeConfig(data=str(tmp_path / "node"), health=health)
    file = HealthFile(time.time(), 1_800.0, {"a": SICK})
    with closing(DataFolder(config.folder)) as folder:
        process = NodeProcess(config, folder, Log("error", io.StringIO()), build_node)
        node = EchoNode(process.driver)
        process.driver.attach(node, process)
        assert process._health is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process._measure_health)
            nursery.start_soon(process._health.run)
            await trio.sleep(11.0)
            path.write_bytes(encode_health(file))
            await trio.sleep(10.0)
            nursery.cancel_scope.cancel()
        assert process._traces is not None
        process._traces.close()
    written = [json.loads(line) for line in lines_below(config.trace_folder) if line]
    found = [record for record in written if record["kind"] == "health"]
    assert len(found) == 2
    unknown = {"memory", "resident"} if memory_used() is None else set()
    for record in found:
        assert set(KINDS["health"]) - unknown <= record.keys() <= {*FIELDS}
        assert (record["late_ms"], record["links"], record["clients"]) == (2.5, 1, 0)
    assert [each["disk"] for each in node.judged] == [record["disk"] for record in found]
    (report,) = [each[1] for each in node.inputs if each[0] == "health"]
    assert list(report.nodes) == ["a"]


@pytest.mark.trio
async def test_a_node_without_traces_or_a_file_judges_itself_all_the_same(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    config = NodeConfig(data=str(tmp_path / "node"), trace=TraceConfig(enabled=False))
    with closing(DataFolder(config.folder)) as folder:
        process = NodeProcess(config, folder, Log("error", io.StringIO()), build_node)
        node = EchoNode(process.driver)
        process.driver.attach(node, process)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process._measure_health)
            await trio.sleep(25.0)
            nursery.cancel_scope.cancel()
    assert [each["late_ms"] for each in node.judged] == [2.5, 2.5]
    assert all(each["disk"] == disk_used(config.folder) for each in node.judged)


def lines_below(folder: Path) -> list[str]:
    found: list[Any] = [path.read_text().splitlines() for path in folder.rglob("*.jsonl")]
    return [line for lines in found for line in lines]
