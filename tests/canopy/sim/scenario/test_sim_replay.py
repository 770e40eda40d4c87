"""A trace folder is read rightly, run again, and put beside what it would have cost otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from canopy.cli.sim.command import opener, sim
from canopy.cli.sim.replay import configurations, trace_lines
from canopy.sim.scenario.recorded_run import RecordedRun, RunTally, TracesError, quantile
from canopy.sim.scenario.replay import SETTLE, ReplayConfiguration, replay, replay_scenario
from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import Scenario
from canopy.wire.transport.codec import WireCodec
from overlay.settings import Settings

SCENARIO = Scenario(nodes=6, seed=3, subscriptions=20, events=80, late_subscriptions=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Traces of a simulated run, and its result."""
    path = tmp_path_factory.mktemp("traces")
    return path, ScenarioRun(SCENARIO, WireCodec(), traces=opener(path)).result()


@pytest.fixture
def recorded(folder: tuple[Path, Any]) -> RecordedRun:
    return RecordedRun(trace_lines(folder[0]))


def test_what_was_recorded_is_what_happened(
    folder: tuple[Path, Any], recorded: RecordedRun
) -> None:
    result, expense = folder[1], recorded.expense()
    assert (expense.nodes, expense.routing) == (6, "pivot")
    assert (expense.published, expense.subscriptions) == (80, 25)
    assert (expense.expected, expense.delivered) == (result.expected, result.delivered)
    assert (expense.missing, expense.duplicates) == (0, 0)
    assert expense.messages == result.messages
    assert expense.lower_bound == result.lower_bound
    assert expense.other_messages == result.other_messages
    flows = result.traffic.data
    assert expense.by_kind == {
        kind: flows[kind].messages if kind in flows else 0 for kind in expense.by_kind
    }
    assert expense.sent.mean == pytest.approx(result.messages / 6, abs=0.01)
    assert expense.matched.nodes <= 6
    assert 1 <= expense.hops_median <= expense.hops_99 <= 6
    assert 5 < expense.latency_median_ms < 100


def test_the_same_configuration_does_the_same_work_again(recorded: RecordedRun) -> None:
    then = recorded.expense()
    now, violations = replay(recorded, ReplayConfiguration("again", 6, Settings()), WireCodec())
    assert violations == ()
    assert (now.published, now.subscriptions) == (then.published, then.subscriptions)
    assert (now.missing, now.duplicates) == (0, 0)
    assert abs(now.expected - then.expected) < 0.2 * then.expected  # late ones race with events
    assert now.other_messages is not None
    assert 0.5 < now.messages / then.messages < 1.5


def test_moments_keep_their_nodes_their_order_and_their_distances(recorded: RecordedRun) -> None:
    timeline = replay_scenario(recorded, ReplayConfiguration("", 4, Settings())).timeline
    events = [m for m in timeline if m.publish is not None]
    assert [m.publish for m in events] == [p.attributes for p in recorded.clients.publications]
    first, last = (recorded.clients.publications[place].published for place in (0, -1))
    assert events[-1].at - events[0].at == pytest.approx(last - first, abs=0.002)
    early = [m.at for m in timeline if m.subscribe][:20]
    assert early[0] == 0
    assert events[0].at == pytest.approx(early[-1] + SETTLE, abs=0.002)
    assert {m.node for m in timeline} == {0, 1, 2, 3}
    numbers = {node: place % 4 for place, node in enumerate(recorded.nodes)}
    assert [m.node for m in events] == [numbers[p.node] for p in recorded.clients.publications]


def record(kind: str, time: float, node: str = "a", **fields: Any) -> tuple[str, bytes]:
    return "f:1", json.dumps({"v": 1, "time": time, "node": node, "kind": kind, **fields}).encode()


def subscribe(time: float, identity: str, node: str = "a", **more: Any) -> Any:
    return record("subscribe", time, node, subscription=identity, **{"selector": "x > 1", **more})


def publish(time: float, event: str, x: int = 2) -> Any:
    return record("publish", time, event=event, id=event, attributes=f'{{"x": {x}}}')


def test_subscriptions_end_when_they_did_but_not_after_the_last_event() -> None:
    lines = [
        record("start", 0, routing="counting"),
        subscribe(1, "a.1"),
        subscribe(1, "a.2"),
        subscribe(1, "b.1", "b"),
        *(record("suback", 2, subscription=name) for name in ("a.1", "a.2", "b.1")),
        publish(3, "e.1"),
        record("unsubscribe", 4, subscription="a.1"),
        record("start", 5, "b"),  # it came back: what it had subscribed to is over
        publish(90, "e.2"),
        record("unsubscribe", 91, subscription="a.2"),
    ]
    recorded = RecordedRun(lines)
    timeline = replay_scenario(recorded, ReplayConfiguration("", 2, Settings())).timeline
    assert [(m.at, m.unsubscribe) for m in timeline if m.unsubscribe] == [
        (SETTLE + 1, "s0"),
        (SETTLE + 2, "s2"),
    ]
    assert recorded.tally.routing == "counting"
    assert recorded.expense().other_messages is None  # no node said goodbye


def test_latency_levels_are_replayed_and_none_where_none_was_recorded() -> None:
    lines = [
        record("start", 0),
        subscribe(1, "a.1", level=2),
        subscribe(1, "a.2"),  # a trace of before
        *(record("suback", 2, subscription=name) for name in ("a.1", "a.2")),
        publish(3, "e.1"),
    ]
    timeline = replay_scenario(RecordedRun(lines), ReplayConfiguration("", 2, Settings())).timeline
    assert [m.level for m in timeline if m.subscribe] == [2, 0]


def test_messages_to_oneself_are_none_and_shares_are_counted() -> None:
    tally = RunTally()
    tally.add("a", "visit", {"peer": "a"})
    tally.add("a", "visit", {"peer": "b"})
    tally.add("a", "forward", {"peer": "b"})
    assert tally.by_kind == {"walk": 0, "visit": 1, "deliver": 1}
    assert [quantile(list(range(100)), share) for share in (0.5, 0.99)] == [50, 99]
    assert quantile([], 0.5) == 0


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "no trace records"),
        ([("f:1", b"{")], "no trace records; 1 lines could not be read: f:1"),
        ([record("start", 1)], "no event was published"),
        ([("f:7", b'{"v": 99, "time": 1, "node": "a", "kind": "start"}')], "f:7 is of version 99"),
        ([subscribe(1, "a.1", selector="x >")], "f:1: 'x >'"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_its_reason(
    lines: list[tuple[str, bytes]], words: str
) -> None:
    with pytest.raises(TracesError, match=words):
        RecordedRun(lines)


def test_lines_that_cannot_be_read_are_counted_and_reported() -> None:
    lines = [
        publish(1, "e.1"),
        ("f:2", b"nonsense"),
        ("f:3", b'{"time": "never", "node": "a", "kind": "start"}'),
        record("publish", 2, event="e.2"),
        ("f:5", b"\n"),
    ]
    recorded = RecordedRun(lines)
    assert recorded.unread == 3
    assert [text.split(":")[1] for text in recorded.unreadable] == ["2", "3", "1"]
    assert recorded.expense().published == 1


def test_every_combination_is_run(recorded: RecordedRun, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text("tree: {split_at: 8}")
    found = configurations(recorded, (3, 5), ("pivot", "counting"), (file,), 7)
    assert [(one.nodes, one.settings.tree.routing) for one in found] == [
        (3, "pivot"), (3, "counting"), (5, "pivot"), (5, "counting"),
    ]  # fmt: skip
    assert {(one.settings.tree.split_at, one.seed) for one in found} == {(8, 7)}
    (as_it_was,) = configurations(recorded, (), (), (), 1)
    assert (as_it_was.nodes, as_it_was.settings) == (6, Settings())


def test_the_command_puts_all_side_by_side(folder: tuple[Path, Any], tmp_path: Path) -> None:
    command = ["replay", str(folder[0]), "--routing", "counting", "--quiet"]
    done = CliRunner().invoke(sim, [*command, "--json"])
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    (counting,) = facts["configurations"]
    assert facts["recorded"]["routing"] == "pivot"
    assert counting["routing"] == "counting"
    assert counting["by_kind"]["deliver"] > facts["recorded"]["by_kind"]["deliver"]
    done = CliRunner().invoke(sim, command)
    for word in ("recorded", "counting, 6", "times that", "matched/node"):
        assert word in done.stdout


def test_bad_input_is_reported_without_a_traceback(tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "canopy", "sim", "replay", *arguments],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[4],
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    code, said = run(str(tmp_path))
    assert code == 1
    assert "no trace files" in said
    assert run(str(tmp_path / "absent"))[0] == 2
    (tmp_path / "a.jsonl").write_bytes(publish(1, "e.1")[1])
    (tmp_path / "bad.yaml").write_text("tree: {split: 8}")
    code, said = run(str(tmp_path), "--settings", str(tmp_path / "bad.yaml"))
    assert code == 2
    assert "split" in said
