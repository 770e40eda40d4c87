"""Trials with and without the health file, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from canopy.sim.experiments.health.trial import Analysis, HealthPlan, HealthTrial, Outcome
from canopy.sim.experiments.running import Progress, no_progress
from canopy.sim.world.cost import collector_at_rest
from overlay.links.events import Codec


class Row(msgspec.Struct, frozen=True):
    """All trials with the file, or all without it. Times are medians over the trials, in virtual
    seconds; None: there is none."""

    file: str  # "with" or "without"
    trials: int
    sick_named: int  # trials in which the file calls the sick node sub-healthy …
    healthy_named: int  # … and healthy nodes that files call so, altogether
    sick_leads: int  # trials in which the sick node leads after the loss
    elected_s: float | None
    failed: int  # trials in which the next primary failed as well
    failure_s: float | None  # until it did, of these
    leaderless_s: float | None
    elections: int  # altogether
    suback_ms: float | None
    suback_worst_ms: float | None


class HealthExperiment(msgspec.Struct, frozen=True):
    """The experiment's result, which `health.json` has: what was asked for, the means with and
    without the health file, and each trial."""

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
            for with_file in (False, True):
                words = "with" if with_file else "without"
                progress(f"seed {seed}, {words} the file", len(found) / (2 * plan.trials))
                trial = HealthTrial(plan, seed, codec, analysis() if with_file else None)
                found.append(trial.run())
    rows = tuple(
        summed_up(words, [one for one in found if one.with_file is with_file])
        for words, with_file in (("without", False), ("with", True))
    )
    return HealthExperiment(plan, rows, tuple(found))


def summed_up(file: str, trials: Sequence[Outcome]) -> Row:
    """One row for these trials."""
    failed = [one.failure_s for one in trials if one.failure_s is not None]
    return Row(
        file=file,
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
