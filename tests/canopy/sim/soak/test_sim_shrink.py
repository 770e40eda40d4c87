"""A bad seed is made small, reported in a few lines, and comes with the command that repeats it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from canopy.cli.sim.command import sim
from canopy.sim.checks import Violation
from canopy.sim.checks.failure_report import AFTER
from canopy.sim.scenario.run import Verdict, judge_scenario
from canopy.sim.scenario.scenario import (
    ClientAction,
    Fault,
    FirstSubscription,
    Scenario,
    parse_scenario,
)
from canopy.sim.soak.shrink import Shrinker, non_defaults, signature, without
from canopy.sim.world.disk import DiskConditions
from canopy.sim.world.network import Conditions
from canopy.wire.transport.codec import WireCodec
from overlay.settings import Settings, TreeSettings
from overlay.upper_tree.delivery import relays
from overlay.upper_tree.delivery.hold import Holding
from overlay.upper_tree.host.hosted_tree import HostedTree

APART = Scenario(
    nodes=3,
    subscriptions=(FirstSubscription("x > 1", 2), FirstSubscription("y = 2", 0)),
    events=tuple({"x": number, "y": number % 3} for number in range(8)),
    settings=Settings(tree=TreeSettings(split_at=4)),
    network=Conditions(latency_high=0.03),
    faults=(
        Fault(0.1, "cut", nodes=(0, 1)),
        Fault(0.1, "partition", groups=((0, 1), (2,))),
        Fault(0.2, "join"),
        Fault(12, "heal"),
    ),
)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_sent_again() -> Iterator[None]:
    """The fault of these tests: a link that is lost for good costs what was under way on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relays.Relays, "is_worth_retrying", lambda self, node: False)
        patch.setattr(relays.Relays, "relay", lambda self, node, region: None)
        patch.setattr(Holding, "put_back", lambda self, peer, messages: None)
        yield


def runs(most: int) -> Callable[[], bool]:
    left = iter(range(most))
    return lambda: next(left, None) is not None


@pytest.fixture(scope="module")
def bad() -> Verdict:
    return judge_scenario(APART, WireCodec())


@pytest.fixture(scope="module")
def small(bad: Verdict) -> Verdict:
    return Shrinker(bad, WireCodec(), runs(60)).shrink()


def test_the_smallest_has_one_of_everything_that_is_needed(small: Verdict) -> None:
    scenario = small.scenario
    done = [[bool(m.subscribe), bool(m.publish)] for m in scenario.timeline]
    assert done == [[True, False], [False, True]]
    assert [fault.do for fault in scenario.faults] == ["partition"]
    assert scenario.nodes == 2
    assert (scenario.settings, scenario.network) == (Settings(), Conditions())


def test_what_fails_is_the_same_and_fails_again(bad: Verdict, small: Verdict) -> None:
    assert bad.violations[0].kind == "missing"
    assert "missing" in [violation.kind for violation in small.violations]
    assert "did not reach" in small.stories[0][0]
    again = judge_scenario(small.scenario, WireCodec())
    assert again.violations == small.violations
    assert again.result is not None
    assert small.result is not None
    assert again.result.trace_hash == small.result.trace_hash


def test_it_can_be_written_down_and_read_again(small: Verdict) -> None:
    text = msgspec.yaml.encode(non_defaults(small.scenario)).decode()
    assert parse_scenario(text) == small.scenario
    assert "latency" not in text  # only what differs
    assert non_defaults(Scenario()) == {"nodes": 12, "seed": 1}


@pytest.mark.parametrize("most", [1, 5, 20])
def test_no_run_is_begun_when_time_is_up(bad: Verdict, most: int) -> None:
    enough, begun = runs(most), []

    def more() -> bool:
        begun.append(shrinker.runs)
        return enough()

    shrinker = Shrinker(bad, WireCodec(), more)
    assert "missing" in [violation.kind for violation in shrinker.shrink().violations]
    assert len(begun) > most, "time was up before it was done"
    assert shrinker.runs == begun[most] <= most
    shrinker = Shrinker(bad, WireCodec(), lambda: False)
    assert shrinker.shrink() is bad


def test_the_story_is_the_way_of_the_event_and_what_was_done_meanwhile(bad: Verdict) -> None:
    violation, (text, *lines) = bad.violations[0], bad.stories[0]
    assert "did not reach n" in text
    kinds = [line.split()[2] for line in lines if "***" not in line]
    assert {"publish", "subscribe", "suback"} <= set(kinds)
    times = [float(line.split()[0]) for line in lines if not line.startswith("…")]
    assert times == sorted(times)
    event = text.split()[0]
    last = max(float(line.split()[0]) for line in lines if f"event={event} " in line)
    done = {
        line.split("***")[1].split()[0]: float(line.split()[0]) for line in lines if "***" in line
    }
    grown = done["partition"] - 0.1
    assert list(done) == [fault.do for fault in APART.faults if grown + fault.at <= last + AFTER]
    assert violation.about[0].split(".")[0] not in "".join(lines)  # nodes have their names
    subscriber = text.split(" at ")[1].split(":")[0]
    for line in lines:
        if " forward " in line:
            assert f"peer={subscriber}" in line


def test_removed_nodes_take_their_faults_along() -> None:
    scenario = Scenario(
        nodes=4,
        faults=(
            Fault(1, "cut", nodes=(1, 3)),
            Fault(2, "crash", nodes=(2,)),
            Fault(3, "partition", groups=((0, 3), (2,))),
            Fault(4, "heal"),
        ),
        timeline=(ClientAction(1, 3, publish={}), ClientAction(1, 2, publish={})),
    )
    less = without(scenario, range(2, 3))
    assert less.nodes == 3
    assert less.timeline == (ClientAction(1, 2, publish={}),)
    assert less.faults == (
        Fault(1, "cut", nodes=(1, 2)),
        Fault(3, "partition", groups=((0, 2), ())),
        Fault(4, "heal"),
    )


def test_an_exception_is_the_same_by_type_and_place() -> None:
    one = Violation("exception", "KeyError: 'a' (Hosting.on, line 3) at 1.000 s")
    two = Violation("exception", "KeyError: 'b' (Hosting.on, line 3) at 7.000 s")
    three = Violation("exception", "KeyError: 'b' (Hosting.on, line 4) at 7.000 s")
    assert signature(one) == signature(two) != signature(three)
    silent = Violation("unanswered", "no SUBACK at n1 for 'x', asked at 3 s")
    busy = Violation("unanswered", "not at rest 300 s after the last event")
    assert signature(silent) != signature(busy)


def test_the_command_shrinks_saves_and_reports(tmp_path: Path) -> None:
    path, less = tmp_path / "apart.yaml", tmp_path / "less.yaml"
    path.write_text("{events: 20, faults: [{at: 0, do: partition, groups: [[0], [1]]}]}")
    command = ["run", str(path), "--nodes", "2", "--quiet", "--shrink", "2", "--save", str(less)]
    done = CliRunner().invoke(sim, command)
    assert done.exit_code == 1
    assert "the smallest scenario found in " in done.stderr
    assert "what happened:" in done.stderr
    assert f"again: canopy sim run {path} --nodes 2 --seed 1 --routing pivot" in done.stderr
    command = ["run", str(less), "--quiet", "--json", "--shrink", "0"]
    again = CliRunner().invoke(sim, command)
    assert again.exit_code == 1
    kinds = [violation["kind"] for violation in msgspec.json.decode(again.stdout)["violations"]]
    assert "missing" in kinds


def test_a_node_that_raises_is_reported_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: HostedTree, *arguments: Any) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(HostedTree, "install", broken)
    command = ["run", "--nodes", "2", "--quiet", "--json", "--shrink", "1"]
    done = CliRunner().invoke(sim, command)
    assert done.exit_code == 1
    facts = msgspec.json.decode(done.stdout)
    assert facts["violations"][0]["kind"] == "exception"
    assert facts["replay"].startswith("canopy sim run --nodes 2 --seed 1")
    assert "what happened:" in done.stderr


def test_a_timeline_is_followed_and_checked() -> None:
    text = """
    {nodes: 2, subscriptions: 0, events: 0, timeline: [
      {at: 1, node: 0, subscribe: x > 1, name: a}, {at: 2, node: 1, publish: {x: 2}},
      {at: 3, node: 0, unsubscribe: a}, {at: 9, node: 1, publish: {x: 3}}]}
    """
    verdict = judge_scenario(parse_scenario(text), WireCodec())
    assert verdict.green
    assert verdict.result is not None
    assert (verdict.result.published, verdict.result.delivered) == (2, 1)
    with pytest.raises(ValueError, match="names node 5"):
        parse_scenario("timeline: [{at: 1, node: 5, publish: {}}]", nodes=2)
    with pytest.raises(ValueError, match="needs one of"):
        parse_scenario("timeline: [{at: 1, node: 0}]")


def test_disks_that_refuse_are_reported() -> None:
    faults = (Fault(0.1, "disk", nodes=(1,), disk=DiskConditions(room=0)),)
    run = judge_scenario(Scenario(nodes=2, events=10, faults=faults), WireCodec())
    assert run.green
