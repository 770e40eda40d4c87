"""Trials by who judges the nodes' health, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from bench.experiments.health.trial import Analysis, HealthPlan, HealthTrial, Outcome
from bench.experiments.running import Progress, no_progress
from canopy.sim.world.cost import collector_at_rest
from overlay.links.events import Codec

JUDGES = ("nobody", "itself", "file")
"""Who judges the nodes' health."""


class Row(msgspec.Struct, frozen=True):
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


class HealthExperiment(msgspec.Struct, frozen=True):
    """The experiment's result, which `health.json` has: what was asked for, the medians by who
    judges, and each trial."""

    parameters: HealthPlan
    rows: tuple[Row, ...]
    trials: tuple[Outcome, ...]


def measure(
    plan: HealthPlan,
    codec: Codec,
    analysis: Callable[[], Analysis],
    progress: Progress = no_progress,
) -> HealthExperiment:
    """Run all trials. `analysis` makes what analyses the traces of one trial."""
    found: list[Outcome] = []
    with collector_at_rest():
        for seed in range(plan.seed, plan.seed + plan.trials):
            for by in JUDGES:
                progress(f"seed {seed}, by {by}", len(found) / (len(JUDGES) * plan.trials))
                made = analysis() if by == "file" else None
                trial = HealthTrial(plan, seed, codec, made, judged=by == "itself")
                found.append(trial.run())
    rows = tuple(summed_up(by, [one for one in found if one.by == by]) for by in JUDGES)
    return HealthExperiment(plan, rows, tuple(found))


def summed_up(by: str, trials: Sequence[Outcome]) -> Row:
    """One row for these trials."""
    failed = [one.failure_s for one in trials if one.failure_s is not None]
    return Row(
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
