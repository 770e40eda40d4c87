"""The commands with real nodes. Those that a shell starts and that run on (nodes, `sub`) are
processes, and one `pub` that reads its standard input; the others run in this process: to start
Python and to import all that they need takes longer than all else that they do."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from canopy.cli.main import main

ROOT = Path(__file__).parents[3]
CANOPY = [sys.executable, "-m", "canopy"]
PATIENCE = 60.0

pytestmark = pytest.mark.process


def canopy(data: Path, *args: str, text: str = "", code: int = 0) -> str:
    """Run a command against the node of a data folder, with `text` as a file that it reads; its
    standard output."""
    if text:
        feed = data.parent / "feed.jsonl"
        feed.write_text(text)
        args = (*args, str(feed))
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        ended = main([*args, "--connect", str(data)])
    said = [each.buffer.getvalue().decode() for each in (out, err)]  # type: ignore[attr-defined]
    assert ended == code, said
    assert "Traceback" not in said[1]
    return said[0]


def await_ready(data: Path) -> str:
    """The address of a node, as soon as it is ready."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if (data / "address").exists():
            found = json.loads(canopy(data, "status", "--json"))
            if found["ready"]:
                return str(found["address"])
        time.sleep(0.05)
    raise AssertionError(f"not ready: {(data.parent / f'{data.name}.log').read_text()}")


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Two nodes: one by `canopy node`, one by `python node.py`."""
    base = tmp_path_factory.mktemp("live")
    processes = []
    starts = [([*CANOPY, "node"], base / "a"), ([sys.executable, "node.py"], base / "b")]
    peers: list[str] = []
    for start, data in starts:
        with (base / f"{data.name}.log").open("wb") as log:
            command = [*start, "--listen", "127.0.0.1:0", "--data", str(data), *peers]
            processes.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))
        peers = ["--peer", await_ready(data)]
    yield base / "a", base / "b"
    assert json.loads(canopy(base / "b", "stop", "--json"))["pid"] == processes[1].pid
    assert processes[1].poll() == 0, "the command has waited for the end of the process"
    processes[0].send_signal(signal.SIGTERM)
    assert [process.wait(PATIENCE) for process in processes] == [0, 0]


def test_events_travel_from_one_node_to_the_other(overlay: tuple[Path, Path]) -> None:
    first, second = overlay
    command = [*CANOPY, "sub", "mag > 3 AND place LIKE '%Alaska'", "--name", "quakes", "--json"]
    command += ["--count", "3", "--connect", str(second)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as sub:
        assert sub.stderr is not None
        assert sub.stderr.readline().startswith("subscribed")
        events = [
            {"id": "q1", "mag": 4, "place": "Nome, Alaska", "n": 2**53 + 1, "deep": {"x": [1]}},
            {"id": "q2", "mag": 2, "place": "Nome, Alaska"},
            {"id": "q3", "mag": 3.5, "place": "Adak, Alaska"},
        ]
        text = "".join(json.dumps(e) + "\n" for e in events)
        done = json.loads(canopy(first, "pub", "--receipt", "--json", text=text))
        assert sum(done["hosts"].values()) >= 2, done
        shown = canopy(second, "why", "q1")
        asked = json.loads(canopy(first, "why", "q1", "--json"))
        canopy(second, "why", "q1", "nosuch", code=1)
        identity = json.loads(canopy(first, "why", "q2", "--json"))["event"]
        answer = json.loads(canopy(second, "why", identity, "--json"))
        subprocess.run(
            [*CANOPY, "pub", "--connect", str(first)],
            cwd=ROOT,
            input='{"id": "q4", "mag": 9, "place": "Alaska"}',
            check=True,
            text=True,
            timeout=PATIENCE,
        )
        out, _ = sub.communicate(timeout=PATIENCE)
    assert sub.returncode == 0
    got = [json.loads(line) for line in out.splitlines()]
    assert sorted(g["id"] for g in got) == ["q1", "q3", "q4"]
    q1 = next(g for g in got if g["id"] == "q1")
    assert q1["attributes"]["n"] == 2**53 + 1
    assert q1["payload"] == {"deep": {"x": [1]}}
    (reason,) = [r for r in answer["reasons"] if r["name"] == "quakes"]
    assert not reason["delivered"]
    assert {"depth", "text", "verdict", "seen"} <= reason["verdicts"][0].keys()
    assert [address for _, address in asked["shown_at"]] == [
        (second / "address").read_text().strip()
    ]
    assert "✓" in shown
    assert "quakes" in shown


def test_a_subscription_is_listed_and_ended_from_outside(overlay: tuple[Path, Path]) -> None:
    first, second = overlay
    command = [*CANOPY, "sub", "seen = 1", "--name", "odd", "--json", "--connect", str(second)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as sub:
        assert sub.stderr is not None
        assert sub.stderr.readline().startswith("subscribed")
        canopy(first, "pub", "seen=1", "--receipt")
        assert sub.stdout is not None
        assert json.loads(sub.stdout.readline())["attributes"]["seen"] == 1
        (found,) = [s for s in json.loads(canopy(second, "subs", "--json")) if s["name"] == "odd"]
        assert (found["delivered"], found["pid"]) == (1, sub.pid)
        canopy(second, "subs", "rm", found["subscription"])
        _, err = sub.communicate(timeout=PATIENCE)
    assert sub.returncode == 1
    assert "was ended by another program" in err
    assert all(s["name"] != "odd" for s in json.loads(canopy(second, "subs", "--json")))


def test_the_way_between_two_nodes_is_measured(overlay: tuple[Path, Path]) -> None:
    first, second = overlay
    nodes = ["--from", str(first), "--to", str(second), "--to", str(first)]
    found = json.loads(canopy(first, "bench", *nodes, "--events", "600", "--json"))
    assert (found["published"], found["delivered"], found["missing"]) == (600, 1_200, 0)
    latency = found["latency_ms"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]
    assert "latency p99" in canopy(second, "bench", "--events", "20", "--rate", "200")


def test_the_overlay_can_be_looked_at(overlay: tuple[Path, Path]) -> None:
    first, second = overlay
    me = json.loads(canopy(first, "status", "--json"))["node"]
    you = json.loads(canopy(second, "status", "--json"))["node"]
    assert you in [peer["node"] for peer in json.loads(canopy(first, "peers", "--json"))]
    for data in overlay:
        clusters = json.loads(canopy(data, "ring", "--json"))
        assert clusters
        assert clusters[0]["primary"] in (me, you)
        owner = json.loads(canopy(data, "where", "mag", "--json"))
        assert owner["key"] in [cluster["key"] for cluster in clusters]
    for command in (["status"], ["peers"], ["ring"], ["where", "mag"]):
        assert canopy(first, *command).strip()


def test_bad_input_is_reported_and_the_node_lives(overlay: tuple[Path, Path]) -> None:
    first, _ = overlay
    assert canopy(first, "sub", "mag >", code=2) == ""
    canopy(first, "pub", text='{"a": NaN}\n', code=1)
    canopy(first, "pub", text='{"a": NaN}\n{"a": 1}\n', code=0)
    canopy(first, "why", "never", code=1)
    assert json.loads(canopy(first, "status", "--json"))["ready"]


def test_a_taken_port_and_folder_are_reported(overlay: tuple[Path, Path], tmp_path: Path) -> None:
    first, _ = overlay
    address = (first / "address").read_text().strip()
    port, folder = ["--listen", address, "--data", str(tmp_path)], ["--data", str(first)]
    for args, code in ((port, 1), (folder, 6)):
        ended = subprocess.run(
            [*CANOPY, "node", *args], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
        )
        assert ended.returncode == code
        assert "Traceback" not in ended.stderr
        assert "use" in ended.stderr
    assert os.path.exists(first / "control.sock") or os.path.exists(first / "control")
