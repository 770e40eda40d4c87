"""Recovery over rates of events and kinds of loss: medians of several seeds, as JSON.

The paper's Phoenix recovers in 19 to 30 seconds, as far as its figures can be read (papers/phoenix,
whose text is damaged): `PAPER`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bench.experiments.frame import Experiment, Panel, Picture, Table, builtins
from bench.experiments.recovery.trial import Trial
from bench.experiments.running import Progress, no_progress
from canopy.sim.world.cost import collector_at_rest
from harness.recovery.plan import CUTS, KILLS, TrialError
from harness.recovery.verdict import Row, is_good, summary
from overlay.links.events import Codec

PAPER = (19.0, 30.0)
"""Seconds."""


Loss = Literal["primary", "standby", "broker", "cluster", "link", "last-link"]


class RecoveryPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to measure: sizes, seeds and faults."""

    kills: tuple[Loss, ...] = (*KILLS, *CUTS)
    rates: tuple[Annotated[float, Meta(ge=1, le=100_000)], ...] = (500.0, 1000.0, 2000.0, 4000.0)
    # events per second
    nodes: Annotated[int, Meta(ge=8)] = 12
    times: Annotated[int, Meta(ge=1)] = 3  # seeds: seed, seed + 1, …
    seed: int = 1
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


def facts(found: RecoveryReport) -> Row:
    """The result, with a row for each trial that could not be measured."""
    return builtins(found) | {"missing": [{"why": text} for text in found.not_measured]}


RECOVERY = Experiment(
    "recovery",
    "Measure the recovery from losses.",
    """A primary, a standby, a match broker, a whole cluster or a link is lost while events are
    published: how long until deliveries that depend on it are made again, and which are lost? With
    `silent` whole machines fail, and no connection is reset (a power cut). docs/lab/recovery.md
    describes the measurement; `python -m bench.recovery.measure` does the same with real processes.
    The exit code is 1 if something did not recover, or was delivered twice or without a match.""",
    RecoveryPlan(),
    measure,
    tables=(
        Table(
            "kill: lost | rate g: rate | {first_s.median:.2f} ≤ {first_s.most:.2f}: first"
            " | {all_s.median:.2f} ≤ {all_s.most:.2f}: all"
            " | {subscribe_s.median:.2f} ≤ {subscribe_s.most:.2f}: new subscription"
            " | {gap_s.median:.2f} ≤ {gap_s.most:.2f}: longest gap"
            " | {late_until_s.median:.2f} ≤ {late_until_s.most:.2f}: late until"
            " | {lost_before}, {lost_after}: events lost before, after | duplicates: twice"
            " | spurious: spurious | {failed} of {times}: not recovered",
            each=("rows",),
            title="Seconds, median ≤ longest; events",
        ),
        Table("why: not measured", each=("missing",)),
    ),
    picture=Picture(
        (
            (
                Panel(
                    "rate",
                    "all_s.median",
                    "kill",
                    "events per second",
                    "s until all that needed the lost is delivered again\n"
                    "(median, and the longest)",
                    each=("rows",),
                    y_log=True,
                    most="all_s.most",
                    span=(*PAPER, "the paper's Phoenix"),
                ),
            ),
        ),
        "Recovery: {parameters.nodes} nodes, {parameters.times} seeds, silent: {parameters.silent}",
        (8.0, 4.8),
    ),
    is_good=lambda found: all(map(is_good, found.rows)),
    facts=facts,
)
