"""The demo with real processes: every delivery against what SQLite says, broken input included."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from canopy.cli.main import main
from canopy.cli.sim.command import sim

CANOPY = [sys.executable, "-m", "canopy"]
OPTIONS = ["demo", "--nodes", "3", "--feed", "feed.jsonl", "--subscriptions", "subs.yaml"]
OPTIONS += ["--out", "out", "--json"]
COLUMNS = {"id": "TEXT", "type": "TEXT", "mag": "NUMERIC", "place": "TEXT", "felt": "NUMERIC"}
WHERE = [
    "mag >= 4.5",
    "mag BETWEEN 1 AND 2.5 AND place LIKE '%Alaska'",
    "place IN ('Nome, Alaska', 'Here') OR felt > 3",
    "NOT (mag > 1 OR place LIKE 'N%')",
    "felt IS NULL AND mag < 3",
    "mag * 2 > felt + 5",
    "type <> 'event'",
    "place = 'nowhere'",
]
BROKEN = ['{"mag": NaN}', '{"mag": 1', "[1]", '{"mag": 99999999999999999999}']


def feed(count: int) -> tuple[str, list[dict[str, Any]]]:
    """JSON lines with broken ones in between, and the events that are in them."""
    rng = Random(7)
    lines, events = [], []
    for number in range(1, count + 1):
        if number % 25 == 0:
            lines.append(rng.choice(BROKEN))
            continue
        event: dict[str, Any] = {"mag": rng.choice([rng.randrange(7), round(rng.uniform(0, 7), 2)])}
        event["place"] = rng.choice(["Nome, Alaska", "Here", "Næss", "'quoted'", None])
        if rng.random() < 0.5:
            event["felt"] = rng.randrange(10)
        if rng.random() < 0.3:
            event["type"] = rng.choice(["quake", "blast"])
        if rng.random() < 0.5:
            event["id"] = f"own {number}"
        if rng.random() < 0.2:
            event["nested"] = {"a": [1]}
        lines.append(json.dumps(event))
        events.append({"id": str(number), "type": "event", **event})
    return "\n".join(lines) + "\n", events


def by_sqlite(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(subscription, event) pairs that must be delivered."""
    base = sqlite3.connect(":memory:")
    base.execute("PRAGMA case_sensitive_like = ON")
    base.execute(f"CREATE TABLE e ({', '.join(f'{n} {t}' for n, t in COLUMNS.items())})")
    rows = [tuple(event.get(name) for name in COLUMNS) for event in events]
    base.executemany("INSERT INTO e VALUES (?, ?, ?, ?, ?)", rows)
    pairs = []
    for number, where in enumerate(WHERE):
        for (identity,) in base.execute(f"SELECT id FROM e WHERE {where}"):
            pairs.append((f"s{number}", identity))
    base.close()
    return sorted(pairs)


@pytest.mark.process
@pytest.mark.spark
def test_a_demo_delivers_what_sqlite_says_and_proves_it_quietly(
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In this process, with the session that all tests share (which looks for what a session leaves
    behind)."""
    monkeypatch.setattr("canopy.traces.analysis.run.spark_session", lambda *_: nullcontext(spark))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.chdir(tmp_path)
    lines, events = feed(400)
    (tmp_path / "feed.jsonl").write_text(lines, encoding="utf-8")
    wanted = [{"name": f"s{n}", "where": where} for n, where in enumerate(WHERE)]
    (tmp_path / "subs.yaml").write_text(json.dumps(wanted))  # JSON is YAML
    out = tmp_path / "out"
    code = main(OPTIONS)
    said = capfd.readouterr()
    assert code == 0, said.err
    assert [line for line in said.err.splitlines() if not line.startswith("! ")] == []
    summary = json.loads(said.out)
    assert summary == json.loads((out / "summary.json").read_text())
    seen = [json.loads(line) for line in (out / "deliveries.jsonl").read_text().splitlines()]
    expected = by_sqlite(events)
    assert sorted((d["subscription"], d["event"]) for d in seen) == expected
    assert len(expected) > 300
    for name in ("missing", "duplicates", "spurious"):
        assert summary[name] == 0
    assert summary["expected"] == summary["delivered"] == len(expected)
    assert (summary["nodes"], summary["published"]) == (3, len(events))
    assert summary["refused"] == len(summary["refused_lines"]) == 16
    assert [r["line"] for r in summary["refused_lines"]] == list(range(25, 401, 25))
    assert Path(summary["report"]).is_file()
    assert list((out / "traces").glob("date=*/node=*/*"))
    assert {d["node"] for d in seen} == {0, 1, 2}
    replayed(out / "traces", summary)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["feed.jsonl", "out", "subs.yaml"]


def replayed(traces: Path, summary: dict[str, Any]) -> None:
    """What the simulator reads in the traces is what Spark found, and it can do it again."""
    command = ["replay", str(traces), "--routing", "counting", "--nodes", "4", "--quiet", "--json"]
    done = CliRunner().invoke(sim, command)
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    recorded, (again,) = facts["recorded"], facts["configurations"]
    for expense in (recorded, again):
        assert expense["published"] == summary["published"]
        assert expense["expected"] == expense["delivered"] == summary["expected"]
    assert recorded["messages"] == summary["messages"]
    assert recorded["routing"] == "pivot"
    assert again["messages"] > recorded["lower_bound"]


@pytest.mark.process
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path) -> None:
    command = [*CANOPY, "demo", "--nodes", "2", "--duration", "600", "--out", str(tmp_path / "o")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "Publishing" in line:
                break
        pids = []
        for log in sorted((tmp_path / "o" / "nodes").iterdir()):
            pids.append(int((log / "lock").read_text()))
        demo.send_signal(signal.SIGINT)
        said = demo.stderr.read()
    assert demo.returncode == 130
    assert "Traceback" not in said
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
