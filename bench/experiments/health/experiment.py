"""What it is worth in an election that sick nodes are known (T6): trials by who judges.

The traces of each trial are analysed by Spark, as `canopy trace health` does, and what it finds
goes back to the simulated nodes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench.experiments.frame import Experiment, Progress
from bench.experiments.health.trial import HealthPlan, HealthTrial, Outcome
from canopy.cli.extras import require
from overlay.health import HealthReport, NodeHealth

VALID_FOR = 600.0
"""Virtual seconds for which a file holds: the default of `health.max_age`."""


class TraceAnalysis:
    """The traces of one trial, below `folder`, and Spark's analysis of them."""

    def __init__(self, folder: Path, session: Any) -> None:
        """`session`: an open Spark session."""
        self._folder = folder
        self._session = session

    def open(self, path: str) -> Any:
        """Open a trace file for appending."""
        place = self._folder / "traces" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.open("ab", buffering=0)

    def report(self) -> HealthReport:
        """Write a health file and read it as a node does."""
        from canopy.traces.analysis import find_health
        from canopy.traces.health_file import decode_health

        out = self._folder / "health.json"
        find_health(self._folder / "traces", out, session=self._session)
        found = decode_health(out.read_bytes()).nodes.items()
        sick = {node: NodeHealth(each.severity, each.reason) for node, each in found}
        return HealthReport({n: each for n, each in sick.items() if each.severity}, VALID_FOR)


@contextmanager
def analyses() -> Iterator[Any]:
    """Makes an analysis for each trial, all in one Spark session."""
    from canopy.traces.analysis import spark_session

    with tempfile.TemporaryDirectory() as name, spark_session() as session:
        made: list[TraceAnalysis] = []

        def make() -> TraceAnalysis:
            made.append(TraceAnalysis(Path(name) / str(len(made)), session))
            return made[-1]

        yield make


JUDGES = ("nobody", "itself", "file")
"""Who judges the nodes' health."""


class JudgeRow(msgspec.Struct, frozen=True):
    """All trials in which the same judge. Times are medians over the trials, in virtual seconds;
    None: there is none."""

    by: str  # who judges the nodes' health: "nobody", each "itself" (the default), or the "file"
    trials: int
    sick_named: int  # trials in which the sick node is called sub-healthy …
    healthy_named: int  # … and healthy nodes that are called so, altogether
    sick_leads: int  # trials in which the sick node leads after the loss
    elected_s: float | None
    failed: int  # trials in which the next primary failed as well
    failure_s: float | None  # until it did, of these
    leaderless_s: float | None
    elections: int  # altogether
    suback_ms: float | None
    suback_worst_ms: float | None


def summed_up(by: str, trials: Sequence[Outcome]) -> JudgeRow:
    """One row for these trials."""
    failed = [one.failure_s for one in trials if one.failure_s is not None]
    return JudgeRow(
        by=by,
        trials=len(trials),
        sick_named=sum(one.sick_named for one in trials),
        healthy_named=sum(one.sub_healthy - one.sick_named for one in trials),
        sick_leads=sum(one.sick_leads for one in trials),
        elected_s=middle([one.elected_s for one in trials]),
        failed=len(failed),
        failure_s=middle(failed),
        leaderless_s=middle([one.leaderless_s for one in trials]),
        elections=sum(one.elections for one in trials),
        suback_ms=middle([one.suback_ms for one in trials]),
        suback_worst_ms=middle([one.suback_worst_ms for one in trials]),
    )


def middle(values: Sequence[float | None]) -> float | None:
    """The median of those that are there."""
    known = [value for value in values if value is not None]
    return round(median(known), 2) if known else None


def trials(plan: HealthPlan, progress: Progress) -> Iterator[JudgeRow]:
    """A row for each judge over all seeds, their traces analysed by Spark."""
    require("analysis")
    found: dict[str, list[Outcome]] = {by: [] for by in JUDGES}
    with analyses() as make:
        for done in range(plan.trials):
            seed = plan.seed + done
            for by in JUDGES:
                progress(f"seed {seed}, by {by}", done / plan.trials)
                made = make() if by == "file" else None
                found[by].append(HealthTrial(plan, seed, made, judged=by == "itself").run())
    for by in JUDGES:
        yield summed_up(by, found[by])


HEALTH = Experiment(
    "health",
    "Elect a primary where sick nodes are known, and are not.",
    """The primary of a cluster is lost whose standby is slow and near its disk's end: who leads
    then, and how long, where nobody judges the nodes' health, where each judges itself (the
    default), and with a health file? docs/lab/health.md has the results. Takes some minutes.""",
    HealthPlan(),
    trials,
    "by: judged by | trials: trials | sick_named: sick one named | sick_leads: sick one leads"
    " | elected_s .2f: elected after, s | failed: failed again | failure_s ,.2f: after, s"
    " | leaderless_s ,.2f: without a primary, s | suback_ms ,.2f: SUBACK, ms"
    " | suback_worst_ms ,.2f: worst",
)
