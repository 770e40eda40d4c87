"""The data plane's bench: selectors mean the harness's predicates, patches fit, verdicts count."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.dataplane import overlays
from bench.dataplane.adapter import Eight, One, OneUntraced, draft, selector
from bench.dataplane.compare import CONTESTANTS, Row, absent, is_complete, lacks, row
from bench.dataplane.stage import OVERLAYS, SHAPES, WIDER, StageError, stage
from matching import compile_selector

ROW = (2.0, 10.0, -30.5, 100.0, 1.0, 1.7e9, 1, b"N1", b"a1x", b"quake")


@pytest.mark.parametrize(
    ("predicates", "wanted"),
    [
        ([("mag", "range", 2.0, 3.0)], True),
        ([("mag", "range", 1.0, 2.0)], False),
        ([("lat", "range", -1e2, -30.5), ("net", "eq", "N1", None)], False),
        ([("flag", "eq", True, None), ("region", "prefix", "a1", None)], True),
        ([("flag", "eq", False, None)], False),
        ([("region", "prefix", "a2", None)], False),
        ([("time", "range", 1e-5, 2e9), ("kind", "eq", "quake", None)], True),
    ],
)
def test_a_selector_means_what_the_harness_means(predicates: list[Any], wanted: bool) -> None:
    event = draft(ROW, b"all of it", 5.0)
    assert compile_selector(selector(predicates)).matches(event.attributes) is wanted
    assert event.payload == b"all of it"


def a_harness(folder: Path) -> Path:
    """Files with nothing in them but the texts that are patched."""
    (folder / "adapters").mkdir(parents=True)
    for name in ("harness.py", "workload.py"):
        (folder / name).write_text("")
    for name, old, _ in WIDER:
        file = folder / name
        before = file.read_text() if file.exists() else ""
        file.write_text(before + old + "\n")
    return folder


def test_the_copy_has_canopy_and_wider_counters_and_leaves_the_original_alone(
    tmp_path: Path,
) -> None:
    harness = a_harness(tmp_path / "peers")
    before = (harness / "child.py").read_text()
    copy = stage(harness, tmp_path / "copy", seed=5, parts=True)
    shapes = (
        ("one", One, ()),
        ("one_untraced", OneUntraced, ("--no-trace",)),
        ("eight", Eight, ()),
    )
    for adapter, shape, flags in shapes:
        names = runpy.run_path(str(copy / "adapters" / f"canopy_{adapter}.py"))
        assert names["Adapter"] is shape
        assert shape.flags == flags
    assert "C = 64" in (copy / "workload.py").read_text()
    assert "8, 72, 136" in (copy / "child.py").read_text()
    assert (harness / "child.py").read_text() == before
    plain = stage(harness, tmp_path / "plain", seed=5, parts=False)
    assert (plain / "child.py").read_text() == before
    assert "(5,)" in (plain / "workload.py").read_text()


def test_a_harness_that_has_changed_is_named(tmp_path: Path) -> None:
    harness = a_harness(tmp_path / "peers")
    (harness / "child.py").write_text("something else")
    with pytest.raises(StageError, match=r"child\.py"):
        stage(harness, tmp_path / "copy", seed=1, parts=True)
    with pytest.raises(StageError, match="no harness"):
        stage(tmp_path / "nowhere", tmp_path / "other", seed=1, parts=False)


def test_an_adapter_is_lacking_with_what_it_is_made_of(tmp_path: Path) -> None:
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "headers.py").write_text("from adapters.fanout import Adapter\n")
    assert lacks(tmp_path, "other") == "other"
    assert lacks(tmp_path, "headers") == "fanout"
    (tmp_path / "adapters" / "fanout.py").write_text("from base import Base\n")
    assert lacks(tmp_path, "headers") == ""


class OneServer:
    """As an adapter of the harness for one server; notes who connected where."""

    def __init__(self, payload: int = 0) -> None:
        self.cfg, self.port = {"payload": payload}, 1_000
        self.sinks: list[Any] = []
        self.connected: dict[int, int] = {}

    def subscribe(self, conn: int, subs: Sequence[Any], sink: Any) -> None:
        self.connected[conn] = self.port
        self.sinks.append(sink)

    def publish(self, batch: overlays.Batch) -> None:
        for _, _, data in batch:
            for sink in self.sinks:
                sink(data)


def test_overlays_of_peers_are_staged_over_the_adapter_for_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = stage(a_harness(tmp_path / "peers"), tmp_path / "copy", seed=1, parts=False)
    for adapter, (name, base) in OVERLAYS.items():
        monkeypatch.setitem(sys.modules, f"adapters.{base}", SimpleNamespace(Adapter=OneServer))
        made = runpy.run_path(str(copy / "adapters" / f"{adapter}.py"))["Adapter"]
        assert made.__mro__[1] is getattr(overlays, name)
        assert issubclass(made, OneServer)
    assert OVERLAYS.keys() | SHAPES.keys() <= {one.adapter for one in CONTESTANTS}


def test_an_overlay_without_the_adapter_that_it_changes_is_absent(tmp_path: Path) -> None:
    one = next(c for c in CONTESTANTS if c.adapter == "zmq_three_batch")
    assert absent(one._replace(needs=()), tmp_path) == "the harness has no adapters/zmq_batch.py"
    assert "not in PATH" in absent(one._replace(needs=(), program="no-such-server"), tmp_path)


@pytest.mark.parametrize("payload", [100, 104])
def test_a_batch_is_one_message_of_events_at_a_stride(payload: int) -> None:
    class Batches(overlays.Batched, OneServer):
        pass

    adapter, got = Batches(payload), []
    adapter.subscribe(0, (), SimpleNamespace(many=lambda *batch: got.append(batch)))
    events = [bytes([n]) * (96 + payload) for n in range(3)]
    adapter.publish([(n, (), data) for n, data in enumerate(events)])
    ((joined, count, stride),) = got
    assert (count, stride, len(joined)) == (3, 200, 600)
    assert [joined[n * stride :][: 96 + payload] for n in range(3)] == events


def test_connections_are_spread_over_three_servers() -> None:
    class Mesh(overlays.ZeroMQThreeBatch, OneServer):
        pass

    mesh = Mesh()
    for conn in range(8):
        mesh.subscribe(conn, (), None)
    assert mesh.connected == {conn: 1_000 + conn % 3 for conn in range(8)}
    assert mesh.port == 1_000


def found(**changes: Any) -> Row:
    whole = {"missing": 0, "dup": 0, "spurious": 0, "bad": 0, "ev_s": 100.0}
    return {
        **whole,
        "cpu_server": 1.0,
        "cpu_subs": 2.0,
        "cpu_pub": 3.0,
        "rss_server": 9.0,
    } | changes


@pytest.mark.parametrize(
    "fault", [{"missing": 1}, {"dup": 1}, {"spurious": 1}, {"incomplete": True}, {"error": "x"}]
)
def test_one_wrong_delivery_is_incomplete(fault: Row) -> None:
    assert is_complete(found())
    assert not is_complete(found(**fault))
    assert not row(CONTESTANTS[0], 10, "one", [found(), found(**fault)], [])["complete"]


def test_a_row_has_medians_and_says_what_was_not_measured() -> None:
    runs = [found(ev_s=speed) for speed in (1.0, 3.0, 2.0)]
    got = row(CONTESTANTS[0], 10, "one", runs, [])
    assert (got["events_per_second"], got["cpu_s_per_million"]) == (2.0, 6.0)
    assert (got["p50_ms"], got["complete"]) == (None, True)
