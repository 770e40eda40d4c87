"""The parts of the demo: the plan and its faults, the folder, the guard, the verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from canopy.cli.constants import DEMO_BATCH
from canopy.cli.demo import run, summary
from canopy.cli.demo.overlay import DemoNode
from canopy.cli.demo.plan import (
    DemoError,
    DemoPlan,
    OfflineError,
    PlanError,
    PlannedSubscription,
    fetch,
    is_earthquakes,
    parse_subscriptions,
    read_subscriptions,
)
from canopy.cli.demo.publisher import PublishedFeed, await_taken, batches, publish, room_of
from canopy.cli.main import main
from canopy.feeds import Refusal, read_feed, weight
from canopy.traces.analysis import AnalysisSummary
from matching import compile_selector
from overlay.client import CREDIT, Feed, GetStatus, Status


class TestSubscriptionsFile:
    def test_nodes_are_given_or_spread_and_wrap_around(self) -> None:
        text = "[{name: a, where: x > 1}, {where: 'TRUE', node: 7}, {name: 3, where: TRUE}]"
        assert parse_subscriptions(text, "f", 3) == (
            PlannedSubscription("a", "x > 1", 0),
            PlannedSubscription("subscription 2", "TRUE", 1),
            PlannedSubscription("3", "TRUE", 2),
        )

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("a: [", "line"),
            ("{}", "expected a list"),
            ("[]", "expected a list"),
            ("[x]", "entry 1: expected"),
            ("[{name: a}]", "`where`"),
            ("[{name: a, where: TRUE, wehre: 1}]", "'wehre'"),
            ("[{name: a, where: TRUE, node: -1}]", "`node`"),
            ("[{name: a, where: TRUE, node: true}]", "`node`"),
            ("[{name: [], where: TRUE}]", "`name`"),
            ("[{name: a, where: TRUE}, {name: a, where: TRUE}]", "used twice"),
            ("[{name: a, where: 'mag >'}]", "mag >\n     ^"),
        ],
    )
    def test_faults_are_reported_with_their_place(self, text: str, says: str) -> None:
        with pytest.raises(PlanError) as caught:
            parse_subscriptions(text, "subs.yaml", 3)
        assert says in str(caught.value)
        assert "subs.yaml" in str(caught.value)

    def test_the_default_ones_use_the_whole_language(self, tmp_path: Path) -> None:
        quakes = tmp_path / "q.json"
        point = {"type": "Point", "coordinates": [1, 2, 3]}
        quake = {"type": "Feature", "properties": {"mag": 1}, "geometry": point}
        padding = [{**quake, "note": "x" * 1000}] * 80  # `type` is behind what a look would see
        whole = {"features": [quake, *padding], "type": "FeatureCollection"}
        quakes.write_text(json.dumps(whole))
        for feed in ("telemetry", "usgs", str(quakes)):
            wanted = read_subscriptions(None, feed, 12)
            text = " ".join(w.where for w in wanted)
            assert 10 <= len(wanted) <= 16
            assert len({w.node for w in wanted}) == 12
            for word in ("BETWEEN", "LIKE", " IN ", " OR ", "NOT ", "IS ", "*"):
                assert word in text, (feed, word)

    def test_other_feeds_need_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "f.jsonl").write_text('{"mag": 1}\n')
        assert not is_earthquakes(tmp_path / "f.jsonl")
        with pytest.raises(PlanError, match="--subscriptions"):
            read_subscriptions(None, str(tmp_path / "f.jsonl"), 3)
        with pytest.raises(PlanError, match="No such file"):
            read_subscriptions(tmp_path / "none.yaml", "telemetry", 3)


class TestCommandLine:
    def run(self, *args: str) -> int:
        return main(["demo", *args])

    def test_faults_come_before_anything_starts(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = str(tmp_path / "out")
        (tmp_path / "f.jsonl").write_text("{}\n")
        assert self.run("--feed", str(tmp_path / "none"), "--out", out) == 2
        assert "expected telemetry, usgs, or a file" in capsys.readouterr().err
        assert self.run("--feed", str(tmp_path / "f.jsonl"), "--out", out) == 2
        assert self.run("--nodes", "0") == 2
        assert self.run("--format", "xml", "--out", out) == 2
        (tmp_path / "s.yaml").write_text("[{name: a, where: 'mag >'}]")
        assert self.run("--subscriptions", str(tmp_path / "s.yaml"), "--out", out) == 2
        assert not (tmp_path / "out").exists()

    def test_a_folder_that_the_demo_did_not_make_is_left_alone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "precious").write_text("x")
        assert self.run("--out", str(tmp_path)) == 1
        assert "nothing was changed" in capsys.readouterr().err
        assert (tmp_path / "precious").read_text() == "x"


def test_a_former_demo_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "a" / "demo"
    run.prepare(out, json.dumps({"format": run.FORMAT}))
    (out / "traces" / "old").write_text("x")
    run.prepare(out, json.dumps({"format": run.FORMAT}))
    assert not (out / "traces" / "old").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(DemoError, match="is a file"):
        run.prepare(tmp_path / "file", "")


class BehindNode:
    """A node one of whose programs has deliveries waiting for some looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def ask(self, command: GetStatus, kind: type[Status]) -> Any:
        self.looks -= 1
        program = SimpleNamespace(waiting=100 if self.looks > 0 else 0)
        return SimpleNamespace(clients=(SimpleNamespace(waiting=0), program))


def test_nothing_is_published_while_deliveries_wait_for_a_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    nodes: Any = [BehindNode(1), BehindNode(5), BehindNode(2)]
    await_taken(nodes)
    assert [node.looks for node in nodes] == [0, 0, 0]


def test_a_feed_is_cut_into_batches_and_refusals_are_kept() -> None:
    lines = b"".join(b'{"n": %d}\nno\n' % n for n in range(2 * DEMO_BATCH + 1))
    outcome = PublishedFeed()
    found = list(batches(read_feed(io.BytesIO(lines)), outcome))
    assert [len(batch) for batch in found] == [DEMO_BATCH, DEMO_BATCH, 1]
    assert [e.draft.attributes["n"] for batch in found for e in batch] == list(
        range(2 * DEMO_BATCH + 1)
    )
    assert [r.number for r in outcome.refused] == [2 * n + 2 for n in range(2 * DEMO_BATCH + 1)]
    slow = list(batches(read_feed(io.BytesIO(lines)), PublishedFeed(), rate=100))
    assert len(slow[0]) == 10


def test_a_batch_has_room_at_a_program_whose_subscriptions_all_match() -> None:
    wanted = tuple(PlannedSubscription(f"s{n}", "TRUE", n % 2) for n in range(9))
    plan = DemoPlan(3, 20.0, "f.jsonl", "auto", 0.0, "pivot", None, Path(), wanted)
    room = room_of(plan)
    assert room == CREDIT // 5
    lines = b"".join(b'{"n": %d, "text": "%s"}\n' % (n, b"t" * 20_000) for n in range(20))
    found = list(batches(read_feed(io.BytesIO(lines)), PublishedFeed(), 0.0, room))
    assert [e.draft.attributes["n"] for batch in found for e in batch] == list(range(20))
    assert len(found) > 2
    for batch in found:
        assert len(batch) == 1 or 5 * sum(weight(each.draft) for each in batch) <= CREDIT


class SamplingNode:
    """A node with the telemetry feed; one of its programs is behind at the looks `behind`."""

    def __init__(self, *behind: int) -> None:
        self.behind = behind
        self.looks = 0
        self.said: list[float | str] = []

    def ask(self, command: Any, kind: type) -> Any:
        if isinstance(command, Feed):
            self.said.append(command.period)
            return None
        self.looks += 1
        waiting = 9 if self.looks in self.behind else 0
        self.said += ["behind"] if waiting else []
        return SimpleNamespace(clients=(SimpleNamespace(waiting=waiting),))


def test_nodes_sample_no_more_while_a_program_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    nodes: Any = [SamplingNode(2, 3), SamplingNode()]
    plan = DemoPlan(2, 3.0, "telemetry", "auto", 0.0, "pivot", None, Path(), ())
    overlay: Any = SimpleNamespace(
        check=lambda: None, clients=lambda failed: contextlib.nullcontext(nodes)
    )
    publish(plan, overlay, None, lambda share, text: None)
    assert nodes[0].said == [1.0, "behind", 0.0, "behind", 1.0, 0.0]
    assert nodes[1].said == [1.0, 0.0, 1.0, 0.0]


MACHINES = {
    "idle": [
        {"type": "cpu", "core": 0, "cpu_percent": 6.1, "cores": 64},
        {"type": "memory", "memory_percent": 2.0, "memory_total_mb": 512_000, "swap_percent": 0.0,
         "memory_available_mb": 500_000, "memory_used_mb": 12_000, "swap_used_mb": 0},
        {"type": "load", "load_1": 0.9, "load_5": 0.2, "load_15": 0.1, "load_per_core": 0.014},
        {"type": "disk", "disk": "vda", "read_kbps": 0.0, "written_kbps": 9.5},
        {"type": "network", "interface": "lo", "sent_kbps": 300.0, "received_kbps": 300.0,
         "errors": 0, "drops": 0, "speed_mbps": 0},
        {"type": "process", "process": "canopy", "rank": 1, "process_cpu": 4.0,
         "process_memory_mb": 41.0, "threads": 3},
    ],
    "busy": [
        {"type": "cpu", "core": 1, "cpu_percent": 100.0, "cores": 2},
        {"type": "memory", "memory_percent": 93.0, "memory_total_mb": 4_000, "swap_percent": 60.0,
         "memory_available_mb": 280, "memory_used_mb": 3_700, "swap_used_mb": 900},
        {"type": "load", "load_1": 12.1, "load_5": 14.2, "load_15": 10.7, "load_per_core": 6.1},
        {"type": "disk", "disk": "/dev/sda1", "mount": "/", "filesystem": "ext4",
         "disk_percent": 97.0, "disk_free_gb": 2.5},
        {"type": "network", "interface": "lo0", "sent_kbps": 9_000.0, "received_kbps": 9_000.0,
         "errors": 0, "drops": 3, "speed_mbps": 0},
        {"type": "process", "process": "Python", "rank": 2, "process_cpu": 96.0,
         "process_memory_mb": 212.0, "threads": 3},
    ],
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_nearly_each_subscription_of_the_default_demo_gets_something(machine: str) -> None:
    wanted = read_subscriptions(None, "telemetry", 12)
    assert len(wanted) >= 14
    events = [{"sample": 1, **event} for event in MACHINES[machine]]
    silent = [
        one.name
        for one in wanted
        if not any(compile_selector(one.where).matches(event) for event in events)
    ]
    assert silent == ["trouble, which may be none"]


SLEEPERS = """
    import sys, time
    from pathlib import Path
    from canopy.cli.demo import overlay
    overlay.canopy_command = lambda: [sys.executable, "-c", "import time; time.sleep(600)"]
    out = Path(sys.argv[1])
    (out / "logs").mkdir()
    with overlay.Overlay(2, out, [], None) as nodes:
        for node in nodes.nodes:
            nodes._launch(node, [])
        print(*(n.process.pid for n in nodes.nodes), nodes._guard.pid, flush=True)
        time.sleep(600)
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_stays_behind_whatever_happens(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SLEEPERS), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as demo:
        assert demo.stdout is not None
        pids = [int(pid) for pid in demo.stdout.readline().split()]
        assert len(pids) == 3
        assert all(alive(pid) for pid in pids)
        demo.send_signal(number)
    until = time.monotonic() + 30
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
    assert not [pid for pid in pids if alive(pid)]


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # a system without /proc, or just gone
        return not Path("/proc/self").exists()


def test_a_node_that_dies_shows_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    dying = [sys.executable, "-c", "import sys; print('my last words'); sys.exit(7)"]
    monkeypatch.setattr("canopy.cli.demo.overlay.canopy_command", lambda: dying)
    node = DemoNode(3, tmp_path)
    node.start([], 0)
    assert node.process is not None
    node.process.wait()
    with pytest.raises(DemoError, match=r"node 3 .*code 7.*\n  my last words"):
        node.check()


ANALYSIS = AnalysisSummary(
    version=1, nodes=3, published=10, expected=4, delivered=4, missing=0, dropped=0,
    duplicates=0, spurious=0, early=0, ending=0, unknown=0, refused=0, drops=0,
    discarded=0, corrupted=0, withheld=0, unjudged=0, unjudged_share=0.0,
    result="exact", faults={}, reasons=[], overlays=[], clocks={}, clock_steps={},
    clocks_agree=True, absent_nodes=[], incomplete=[], copies=0,
    subscriptions=1, unreadable_subscriptions=0, table_hits=2, walks=1, walks_findable=1,
    walk_hits=1, ring_hits=2, absent=0,
    walk_hit_rate=1.0, walk_hops={"mean": 1.0},
    blocked=0, recovered=0, walk_messages=4, tree_hops={}, messages=12, other_messages=5,
    messages_per_delivery=3.0,
    effective_distribution_cost=12.0, latency_ms={"p50": 1.0, "p99": 2.0}, load=[],
    load_spread={},
    corrupt_lines=0, sample=1.0, seconds=2.0, report="report.html",
)  # fmt: skip


class TestVerdict:
    def plan(self, out: Path) -> DemoPlan:
        wanted = (PlannedSubscription("[all]", "TRUE", 0),)
        return DemoPlan(3, 20.0, "f.jsonl", "auto", 0.0, "pivot", None, out, wanted)

    def of(self, out: Path, received: int = 4, published: int = 10, **changes: Any) -> Any:
        analysis = dataclasses.replace(ANALYSIS, **changes)
        outcome = PublishedFeed(published, [Refusal(5, "broken")])
        return summary.summarise_demo(self.plan(out), analysis, outcome, {"[all]": received}, [])

    def test_all_that_is_promised_is_there(self, tmp_path: Path) -> None:
        found = self.of(tmp_path)
        promised = "nodes published expected delivered missing duplicates spurious walk_hits"
        for name in (*promised.split(), "ring_hits", "messages"):
            assert type(found[name]) is int, name
        assert found["latency_ms"]["p99"] == 2.0
        assert found["report"].endswith("report.html")
        assert found["exact"] is True
        assert found["refused_lines"] == [{"line": 5, "reason": "broken"}]
        summary.write(tmp_path, found)
        assert json.loads((tmp_path / "summary.json").read_text()) == found

    def test_everything_that_is_wrong_is_seen(self, tmp_path: Path) -> None:
        assert not self.of(tmp_path, missing=1, delivered=3, received=3)["exact"]
        assert not self.of(tmp_path, duplicates=1, received=5, result="not exact")["exact"]
        assert not self.of(tmp_path, spurious=1, received=5, result="not exact")["exact"]
        assert not self.of(tmp_path, result="not judged")["exact"]
        assert not self.of(tmp_path, received=3)["exact"]  # Spark says 4
        assert not self.of(tmp_path, published=11)["exact"]
        assert not self.of(tmp_path, nodes=2)["exact"]
        assert self.of(tmp_path, early=1, received=5)["exact"]

    def test_drops_are_named_in_the_verdict(self, tmp_path: Path) -> None:
        analysis = dataclasses.replace(ANALYSIS, drops=2)
        outcome, notes = PublishedFeed(10), ["at node 0: 2 deliveries were dropped"]
        found = summary.summarise_demo(
            self.plan(tmp_path), analysis, outcome, {"[all]": 2}, notes, dropped=2
        )
        assert (found["exact"], found["missing"], found["dropped"]) == (False, 0, 2)
        assert found["problems"][0] == notes[0]
        out = io.StringIO()
        summary.show(Console(file=out, width=200), self.plan(tmp_path), found)
        assert "Not exact: 2 dropped." in out.getvalue()
        other = {**found, "dropped": 0}
        out = io.StringIO()
        summary.show(Console(file=out, width=200), self.plan(tmp_path), other)
        assert "Not exact: at node 0: 2 deliveries were dropped." in out.getvalue()

    def test_what_is_wrong_is_named_by_subscription(self, tmp_path: Path) -> None:
        row = dict.fromkeys(("missing", "dropped", "spurious", "duplicates"), 0)
        rows = [
            {**row, "name": "[all]", "dropped": 3, "made": 4},
            {**row, "name": "fine", "made": 0},
        ]
        found = self.of(
            tmp_path, dropped=3, delivered=4, expected=7, received=2, by_subscription=rows
        )
        assert found["wrong_per_subscription"] == {"[all]": {"dropped": 3, "not received": 2}}
        out = io.StringIO()
        summary.show(Console(file=out, width=200), self.plan(tmp_path), found)
        assert "3 dropped, 2 not received" in out.getvalue()
        out = io.StringIO()
        summary.show(Console(file=out, width=200), self.plan(tmp_path), self.of(tmp_path))
        assert "wrong  " not in out.getvalue(), "a column only where it has something to say"

    def test_a_feed_of_which_nothing_could_be_read_is_not_exact(self, tmp_path: Path) -> None:
        found = self.of(tmp_path, 0, 0, expected=0, delivered=0)
        assert not found["exact"]
        assert any("no event of the feed could be read" in each for each in found["problems"])

    def test_the_plain_output_is_readable(self, tmp_path: Path) -> None:
        from rich.console import Console

        out = io.StringIO()
        console = Console(file=out, width=100)
        summary.show(console, self.plan(tmp_path), self.of(tmp_path))
        summary.show(console, self.plan(tmp_path), self.of(tmp_path, missing=1, delivered=3))
        shown = out.getvalue()
        for words in ("✓ Exact", "✗ Not exact: 1 missing", "[all]", "line 5: broken"):
            assert words in shown


@pytest.fixture
def site() -> Iterator[tuple[str, list[bytes]]]:
    """A web site that answers with what the test puts in the list."""
    body: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body[0])

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", body
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_usgs_feed_is_fetched(site: tuple[str, list[bytes]], tmp_path: Path) -> None:
    url, body = site
    body.append(b'{"type":"FeatureCollection","features":[]}')
    assert fetch(tmp_path / "deep" / "f", url).read_bytes() == body[0]
    body[0] = b"<html>"
    with pytest.raises(OfflineError, match="did not return a GeoJSON feed"):
        fetch(tmp_path / "f", url)


def test_offline_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OfflineError, match="--feed telemetry"):
        fetch(tmp_path / "f", "http://127.0.0.1:9/", timeout=2.0)


def test_default_selectors_compile_each_alone() -> None:
    for feed in ("telemetry", "usgs"):
        for wanted in read_subscriptions(None, feed, 1):
            assert compile_selector(wanted.where).attributes
