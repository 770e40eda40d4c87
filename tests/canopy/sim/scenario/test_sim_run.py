"""Scenarios: what is read, what is refused, what a run reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from canopy.cli.sim.command import opener, sim
from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import (
    Fault,
    FirstSubscription,
    Scenario,
    ScenarioError,
    parse_scenario,
)
from canopy.sim.scenario.workload import Workload
from canopy.sim.world.network import Conditions
from canopy.sim.world.world import World
from matching import compile_selector
from tests.support.fake_node import FakeNode

SMALL = Scenario(nodes=5, subscriptions=20, events=60)


def run(scenario: Scenario, **more: object) -> object:
    return ScenarioRun(scenario, None, build=FakeNode, **more).result(check_state=False)  # type: ignore[arg-type]


def test_a_run_without_faults_is_green() -> None:
    result = run(SMALL)
    assert result.violations == ()
    assert result.published == 60
    assert result.expected == result.delivered > 10
    assert result.lower_bound > 60


def test_a_run_is_repeatable_and_seeds_differ() -> None:
    one, two = run(SMALL), run(SMALL)
    assert one == two
    assert run(msgspec.structs.replace(SMALL, seed=2)).trace_hash != one.trace_hash


def test_losses_of_a_node_that_does_not_repeat_are_found_and_reported() -> None:
    result = run(msgspec.structs.replace(SMALL, network=Conditions(loss=0.2)))
    assert result.missing > 0
    assert not result.green
    assert any("publish" in line for line in result.stories[0])


def test_faults_happen_when_they_should() -> None:
    faults = (
        Fault(0.2, "crash", nodes=(4,)),
        Fault(0.3, "join"),
        Fault(0.4, "network", network=Conditions(loss=1)),
        Fault(0.6, "network", network=Conditions()),
        Fault(0.7, "drain", nodes=(3,)),
        Fault(30, "restart", nodes=(4,)),
    )
    result = run(msgspec.structs.replace(SMALL, faults=faults))
    assert result.frames_lost > 0
    assert result.simulated_s > 30
    assert result.records["start"] == 7
    assert result.allowed > 0


def test_late_subscriptions_come_and_go() -> None:
    result = run(
        msgspec.structs.replace(
            SMALL, events=300, late_subscriptions=15, late_unsubscriptions=10, rate=10
        )
    )
    assert result.violations == ()
    assert result.subscriptions == 35


def test_the_workload_is_valid_and_the_same_for_a_seed() -> None:
    def draw(seed: int) -> tuple[list[str], list[object]]:
        workload = Workload(World(seed, None, build=FakeNode).generator("w"))  # type: ignore[arg-type]
        return [workload.selector() for _ in range(300)], [workload.event() for _ in range(300)]

    selectors, events = draw(1)
    assert draw(1) == (selectors, events)
    assert draw(2) != (selectors, events)
    assert len(set(selectors)) > 250
    predicates = [compile_selector(selector) for selector in selectors]
    matches = sum(p.matches(e) for p in predicates for e in events)
    assert 0.01 < matches / 90_000 < 0.3
    for words in ("BETWEEN", " IN ", "LIKE", " OR ", "NOT ", "IS NULL", " + "):
        assert any(words in selector for selector in selectors), words


def test_a_scenario_is_read_with_flags_over_the_file() -> None:
    scenario = parse_scenario(
        """
        nodes: 3
        subscriptions: [{where: "x > 1", node: 2}]
        events: [{x: 1, y: null}, {x: 2.5}]
        settings: {tree: {routing: counting}}
        faults: [{at: 1, do: crash, nodes: [3]}]
        """,
        nodes=4,
    )
    assert scenario.nodes == 4
    assert scenario.subscriptions == (FirstSubscription("x > 1", 2),)
    assert scenario.events == ({"x": 1, "y": None}, {"x": 2.5})
    assert scenario.settings.tree.routing == "counting"
    assert parse_scenario("", None, None) == Scenario()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodse: 3", "nodse"),
        ("nodes: many", "nodes"),
        ("nodes: 0", "nodes"),
        ("[", "not YAML"),
        ("faults: [{at: 1, do: explode}]", "explode"),
        ("faults: [{at: 1, do: crash, nodes: [12]}]", "node 12"),
        ("faults: [{at: 1, do: cut, nodes: [1]}]", "exactly two"),
        ("faults: [{at: 1, do: network}]", "network"),
        ("faults: [{at: 1, do: disk}]", "needs `disk`"),
        ("faults: [{at: 1, do: throttle}]", "one node or two"),
        ("disk: {fail: 2}", "disk.fail"),
        ("{nodes: 1, subscriptions: [{where: x, node: 1}]}", "node 1"),
        ("settings: {tree: {split: 1}}", "split"),
    ],
)
def test_a_bad_scenario_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        parse_scenario(text)


def test_a_run_can_leave_traces_in_the_real_format(tmp_path: Path) -> None:
    run(SMALL, traces=opener(tmp_path))
    files = sorted(tmp_path.glob("date=2026-01-01/node=*/*.jsonl"))
    assert len(files) == 5
    lines = [line for line in files[0].read_bytes().split(b"\n") if line]
    records = [msgspec.json.decode(line) for line in lines]
    assert [record["kind"] for record in records[:2]] == ["file", "start"]
    assert 1_767_225_600 <= records[1]["time"] < 1_767_225_700


def test_the_command_line_refuses_a_bad_scenario(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("nodse: 3")
    program = "from canopy.cli.sim.command import sim; sim()"
    done = subprocess.run(
        [sys.executable, "-c", program, "run", str(path)], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "nodse" in done.stderr
    assert "Traceback" not in done.stderr


FACTS = [
    "trace_hash",
    "steps",
    "simulated_s",
    "published",
    "expected",
    "delivered",
    "messages",
    "lower_bound",
    "violations",
]


def test_the_command_line_prints_one_object_and_succeeds() -> None:
    done = CliRunner().invoke(sim, ["run", "--nodes", "3", "--seed", "4", "--json"])
    assert done.exit_code == 0, done.stderr
    facts = msgspec.json.decode(done.stdout)
    assert [name for name in FACTS if name not in facts] == []
    assert facts["expected"] == facts["delivered"] > 100
    assert facts["violations"] == []
    assert "publish" in done.stderr  # progress


def test_a_failing_seed_reports_how_to_see_it_again(tmp_path: Path) -> None:
    path = tmp_path / "apart.yaml"
    path.write_text("{events: 20, faults: [{at: 0, do: partition, groups: [[0], [1]]}]}")
    done = CliRunner().invoke(sim, ["run", str(path), "--nodes", "2", "--quiet", "--shrink", "0"])
    assert done.exit_code == 1
    assert f"again: canopy sim run {path} --nodes 2 --seed 1 --routing pivot" in done.stderr
    assert "missing: " in done.stderr
    assert " publish " in done.stderr  # a story
