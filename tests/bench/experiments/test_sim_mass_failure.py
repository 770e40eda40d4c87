"""Many nodes fail at one moment: what is counted, and that survivors get everything."""

from __future__ import annotations

import msgspec
from click.testing import CliRunner

from bench.experiments.__main__ import experiments
from bench.experiments.frame import Progress, no_progress
from bench.experiments.mass_failure import (
    FAILURE,
    Band,
    Failure,
    FailurePlan,
    FailureReport,
    trials,
)
from canopy.sim.world.clients import Publication

SMALL = FailurePlan(
    nodes=12, share=0.25, subscriptions=30, publishers=3, rate=5.0, seconds=12.0, warm=4.0,
    paper=False,
)  # fmt: skip


def measure(plan: FailurePlan, progress: Progress = no_progress) -> FailureReport:
    (report,) = trials(plan, progress)
    return report


def deliveries(report: FailureReport) -> tuple[int, int]:
    after = report.bands[1:]
    return sum(b.delivered for b in after), sum(b.expected for b in after)


def test_survivors_get_everything_when_a_fifth_is_killed() -> None:
    report = measure(SMALL)
    assert report.failed == 3
    delivered, expected = deliveries(report)
    assert delivered == expected > 20
    assert [band.events for band in report.bands] == [20, 10, 40, 10, 0]
    assert (report.twice, report.spurious, report.led) == (0, 0, True)


def test_a_node_that_stands_still_costs_the_others_nothing() -> None:
    stages: list[str] = []
    plan = msgspec.structs.replace(SMALL, pause=3.0)
    report = measure(plan, lambda stage, share: stages.append(stage))
    delivered, expected = deliveries(report)
    assert delivered == expected > 20
    assert report.doubted == 0, "no healthy node is taken for dead"
    assert (report.twice, report.spurious) == (0, 0)
    assert stages[-1] == "after"


def test_what_does_not_arrive_is_expected_all_the_same() -> None:
    band, event = Band(2.0), Publication("n1", {"x": 1}, published=10.0)
    assert Failure._count(band, event, 10.4)
    assert Failure._count(band, event, 17.0)
    assert not Failure._count(band, event, None)
    assert (band.expected, band.delivered, band.worst_s) == (3, 2, 7.0)


def test_the_command_reports_what_was_measured() -> None:
    sets = ("nodes=8", "subscriptions=9", "publishers=2", "rate=2", "seconds=1")
    arguments = ["failure", *(f"--set={one}" for one in sets), "--quiet", "--json"]
    said = CliRunner().invoke(experiments, [*arguments, "--set=settings.tree.replicas=2"])
    assert said.exit_code == 0, said.output
    (report,) = msgspec.json.decode(said.output, type=list[FailureReport])
    assert (report.failed, report.plan.settings.tree.replicas) == (2, 2)
    assert "| | 2 of 8 fail |" in FAILURE.shown(msgspec.json.decode(said.output))
