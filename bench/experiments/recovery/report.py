"""Recovery over rates of events and kinds of loss: medians of several seeds, as JSON.

The paper's Phoenix recovers in 19 to 30 seconds, as far as its figures can be read (papers/phoenix,
whose text is damaged): `PAPER`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.experiments.recovery.plan import TrialError
from bench.experiments.recovery.trial import Trial
from bench.experiments.recovery.verdict import Row, summary
from bench.experiments.running import Progress, no_progress
from canopy.sim.world.cost import collector_at_rest
from overlay.links.events import Codec

PAPER = (19.0, 30.0)
"""Seconds."""


class RecoveryPlan(msgspec.Struct, frozen=True):
    """What to measure: sizes, seeds and faults."""

    kills: tuple[str, ...]
    rates: tuple[float, ...]  # events per second
    nodes: int
    times: int  # seeds: seed, seed + 1, …
    seed: int
    silent: bool = False  # the machine dies, too: no link is closed


class RecoveryReport(msgspec.Struct):
    """The results; `rows` are one per kind of loss and rate, with every repetition."""

    parameters: RecoveryPlan
    rows: list[Row]
    not_measured: list[str]


def measure(plan: RecoveryPlan, codec: Codec, progress: Progress = no_progress) -> RecoveryReport:
    """Run all trials of the plan, one after the other."""
    report = RecoveryReport(plan, [], [])
    total, done = len(plan.kills) * len(plan.rates) * plan.times, 0
    for kill in plan.kills:
        for rate in plan.rates:
            trials: list[Row] = []
            for seed in range(plan.seed, plan.seed + plan.times):
                name = f"{kill}, {rate:g} events/s, seed {seed}"
                progress(name, done / total)
                done += 1
                with collector_at_rest():
                    try:
                        trial = Trial(kill, rate, plan.nodes, str(seed), codec, silent=plan.silent)
                        trials.append(trial.run())
                    except TrialError as error:
                        report.not_measured.append(f"{name}: {error}")
            report.rows.append(summary(kill, rate, trials))
    return report


def rows_of(report: RecoveryReport, kill: str) -> Sequence[Row]:
    """The rows of one kind of loss, by rate."""
    return [row for row in report.rows if row["kill"] == kill]
