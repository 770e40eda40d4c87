"""Tensor's eight signals and its tree, on windows that are made up (T6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from canopy.traces.analysis.constants import HEALTH_WINDOW, LOST_AFTER
from canopy.traces.analysis.health.history import LIVES_KEPT, History
from canopy.traces.analysis.health.job import (
    NONE,
    classify,
    features,
    findings,
    judge,
    model,
)
from canopy.traces.analysis.health.signals import PAPER, SIGNS, Thresholds, find
from canopy.traces.analysis.health.windows import NodeWindow, TraceTails, Windows
from canopy.traces.health_file import NodeFinding

FIRST = 1_000
"""Number of the first window."""

LIMITS = Thresholds()


def healthy(count: int = 5, node: str = "a", first: int = FIRST) -> Windows:
    """Windows in which all is well."""
    worst = {"cpu": 20.0, "memory": 40.0, "disk": 50.0, "clients": 1.0}
    return {
        (node, number): NodeWindow(
            records=40,
            measured=12,
            first=number * HEALTH_WINDOW,
            last=(number + 1) * HEALTH_WINDOW - 1,
            worst={**worst, "late_ms": 3.0, "round_trip_ms": 0.5},
            resent=(0, 0),
            starts=(first * HEALTH_WINDOW,) if number == first else (),
        )
        for number in range(first, first + count)
    }


def judged(windows: Windows, limits: Thresholds = LIMITS, node: str = "a") -> NodeFinding:
    history = History(limits.window)
    history.add(windows)
    return find(history.nodes[node], history.until, limits)


NAMED = {"late_ms": "late"}
"""Names in the health file that are not those of the signal."""


def test_a_node_without_a_signal_is_healthy() -> None:
    found = judged(healthy())
    assert (found.severity, found.reason, found.signals) == (0, "", {})


@pytest.mark.parametrize(
    ("name", "value", "signal", "severity"),
    [
        ("memory", 95.0, "memory", 1),
        ("cpu", 95.0, "cpu", 1),
        ("disk", 95.0, "disk", 1),
        ("clients", 128.0, "clients", 1),
        ("round_trip_ms", 1_000.0, "latency", 2),
        ("late_ms", 1_000.0, "heartbeats", 2),
    ],
)
def test_a_value_at_its_threshold_is_a_signal_and_one_below_is_none(
    name: str, value: float, signal: str, severity: int
) -> None:
    windows = healthy()
    windows["a", FIRST + 2].worst[name] = value - 0.01
    assert judged(windows).severity == 0
    windows["a", FIRST + 2].worst[name] = value
    found = judged(windows)
    assert (found.severity, found.signals) == (severity, {NAMED.get(name, signal): value})
    assert found.reason.startswith(f"{signal}: ")


def test_a_value_is_shown_with_its_own_unit() -> None:
    windows = healthy()
    windows["a", FIRST + 2].worst["late_ms"] = 1_500.0
    late = "heartbeats: 1500 ms by which its timers were late"
    assert judged(windows).reason == late
    windows["a", FIRST + 1].reporters = {"b": None, "c": None}
    found = judged(windows)
    assert found.reason == "heartbeats: 2 other nodes did not hear it"
    assert found.signals == {"heartbeats": 2.0, "late": 1_500.0}


def test_the_papers_thresholds_are_the_papers() -> None:
    windows = healthy()
    windows["a", FIRST].worst |= {"round_trip_ms": 29_000.0, "memory": 99.0, "cpu": 99.0}
    windows["a", FIRST].worst |= {"clients": 20.0, "disk": 94.9}
    assert judged(windows, PAPER).severity == 0
    windows["a", FIRST].worst |= {"clients": 21.0, "disk": 95.0}
    assert sorted(judged(windows, PAPER).signals) == ["clients", "disk"]


def test_of_several_signals_the_one_nearest_to_the_root_counts() -> None:
    windows = healthy()
    worst = windows["a", FIRST + 1].worst
    for name, value, signal in (
        *(("clients", 500.0, "clients"), ("disk", 99.0, "disk"), ("cpu", 100.0, "cpu")),
        *(("memory", 98.0, "memory"), ("round_trip_ms", 2e3, "latency")),
    ):
        worst[name] = value
        assert judged(windows).reason.startswith(f"{signal}: ")
    windows["a", FIRST + 3].reporters = {"b": None}
    assert judged(windows).reason.startswith("latency: ")
    assert judged(windows, PAPER).reason.startswith("heartbeats: 1 ")
    windows["a", FIRST + 3].reporters = {"b": None, "c": None}
    found = judged(windows)
    assert found.reason.startswith("heartbeats: 2 ")
    assert list(found.signals) != []
    assert set(found.signals) == {"heartbeats", "latency", "memory", "cpu", "disk", "clients"}
    assert list({sign.signal: sign.severity for sign in SIGNS}.values()) == [3, 2, 2, 2, 1, 1, 1, 1]


def test_a_start_without_a_stop_before_it_is_a_crash_and_with_one_it_is_none() -> None:
    windows = healthy()
    again = (FIRST + 2) * HEALTH_WINDOW + 5.0
    windows["a", FIRST + 2].starts = (again,)
    found = judged(windows)
    assert (found.severity, found.signals["crash"]) == (3, 1.0)
    windows["a", FIRST + 2].stops = (again - 1.0,)
    assert judged(windows).severity == 0


def test_a_node_that_falls_silent_has_crashed_unless_it_stopped() -> None:
    windows = healthy(3) | healthy(6, "b")
    assert judged(windows).signals == {"crash": 1.0}
    windows["a", FIRST + 2].stops = ((FIRST + 3) * HEALTH_WINDOW - 1,)
    assert judged(windows).severity == 0
    windows = healthy(3) | healthy(6, "b")
    for window in windows.values():
        window.measured = 0  # it writes no health records: silence says nothing
    assert judged(windows).severity == 0
    late = healthy(3) | healthy(3, "b")
    late["a", FIRST + 2].last = late["b", FIRST + 2].last = FIRST * HEALTH_WINDOW + 300.0
    late["a", FIRST + 2].last -= LOST_AFTER - 1.0
    assert judged(late).severity == 0


def test_too_few_and_too_many_records_are_a_signal_but_not_at_a_runs_ends() -> None:
    windows = healthy()
    windows["a", FIRST + 2].records = 5
    assert judged(windows).signals == {"log": 5.0}
    gap = healthy()
    del gap["a", FIRST + 2]  # it stood still for two minutes
    assert judged(gap).signals == {"log": 0.0}
    ends = healthy()
    ends["a", FIRST].records = ends["a", FIRST + 4].records = 2
    ends["a", FIRST].first = FIRST * HEALTH_WINDOW + 100.0
    assert judged(ends).severity == 0
    flood = healthy()
    flood["a", FIRST + 4].records = 1_000_001
    assert judged(flood).signals == {"log": 1_000_001.0}


def test_what_is_older_than_half_an_hour_counts_no_more() -> None:
    windows = healthy(16)
    windows["a", FIRST].worst["disk"] = 99.0
    assert judged(windows).severity == 0
    windows["a", FIRST + 1].worst["disk"] = 99.0
    assert judged(windows).signals == {"disk": 99.0}
    assert judged(windows, Thresholds(window=600)).severity == 0


def test_rounds_say_what_one_look_at_everything_says() -> None:
    whole = healthy(9) | healthy(9, "b")
    whole["a", FIRST + 3].worst["disk"] = 97.0
    whole["b", FIRST + 4].starts = (FIRST * HEALTH_WINDOW + 555.0,)
    rounds = History(LIMITS.window)
    for key, window in whole.items():
        half = NodeWindow(
            records=window.records // 2, measured=6, last=window.last, worst=dict(window.worst)
        )
        rounds.add({key: half})
        rest = NodeWindow(
            window.records - half.records, 6, window.first, window.first, {}, (0, 0), {},
            window.starts, window.stops,
        )  # fmt: skip
        rounds.add({key: rest})
    for node in "ab":
        assert find(rounds.nodes[node], rounds.until, LIMITS) == judged(whole, node=node)


def test_the_history_is_bounded_by_time() -> None:
    history = History(LIMITS.window)
    for number in range(FIRST, FIRST + 200):
        window = healthy(1, first=number)
        window["a", number].starts = tuple(number * HEALTH_WINDOW + n / 10 for n in range(100))
        history.add(window)
    assert len(history.nodes["a"].windows) == 16
    assert len(history.nodes["a"].lives) <= LIVES_KEPT
    history.add(healthy(1, "b", FIRST + 300))
    assert list(history.nodes) == ["b"]


def test_only_whole_lines_that_are_new_are_read(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    file = traces / "date=2026-01-01" / "node=a" / "1.jsonl"
    file.parent.mkdir(parents=True)
    now = [file.parent.stat().st_mtime]
    tails = TraceTails(traces, 1_800.0, lambda: now[0])

    def new(name: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        size = tails.copy_new(folder)
        text = "".join(path.read_text() for path in sorted(folder.glob("*.jsonl")))
        assert len(text) == size
        return text

    assert new("none") == ""
    file.write_text('\n{"a": 1}\n{"a": 2')
    assert new("first") == '\n{"a": 1}\n'
    assert new("unchanged") == ""
    with file.open("a") as more:
        more.write('}\n{"a": 3}\n')
    other = file.with_name("2.jsonl")
    other.write_text('{"b": 1}\n')
    assert new("second") == '{"a": 2}\n{"a": 3}\n{"b": 1}\n'
    now[0] += 4_000.0  # and nothing was written since
    other.with_name("3.jsonl").write_text("old\n")
    assert new("old") == ""


def test_the_learnt_tree_tells_faults_that_it_was_trained_on() -> None:
    tree = model().tree
    history = History(LIMITS.window)
    windows = healthy()
    for name, value in (("disk", 98.0), ("memory", 98.0), ("cpu", 99.0), ("clients", 200.0)):
        assert classify(tree, features(windows["a", FIRST + 2], 0)) == NONE
        before = windows["a", FIRST + 2].worst[name]
        windows["a", FIRST + 2].worst[name] = value
        assert classify(tree, features(windows["a", FIRST + 2], 0)) == name
        windows["a", FIRST + 2].worst[name] = before
    windows["a", FIRST + 2].worst["disk"] = 98.0
    history.add(windows)
    assert judge(tree, history.nodes["a"], history.until, LIMITS.window) == "disk"
    found = findings(history, LIMITS, by_learnt=True).nodes["a"]
    assert (found.severity, found.reason) == (1, "disk, by the learnt tree")
    assert (found.learnt, findings(history, LIMITS).nodes["a"].learnt) == ("disk", "disk")
