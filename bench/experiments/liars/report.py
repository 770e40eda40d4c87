"""Trials over shares of liars, with and without each defence."""

from __future__ import annotations

import msgspec

from bench.experiments.liars.attacks import ATTACKS
from bench.experiments.liars.defences import DEFENCES
from bench.experiments.liars.trial import LiarsPlan, Outcome, Trial
from bench.experiments.liars.voter_trial import VoterTrial
from bench.experiments.running import Progress, no_progress
from canopy.sim.world.cost import collector_at_rest
from overlay.links.events import Codec


class LiarsExperiment(msgspec.Struct, frozen=True):
    """The experiment's result, which `liars.json` has: what was asked for, and each trial."""

    parameters: LiarsPlan
    rows: tuple[Outcome, ...]


def measure(plan: LiarsPlan, codec: Codec, progress: Progress = no_progress) -> LiarsExperiment:
    """Run one trial for each share of liars and each defence against the attack of the plan.
    Raises ValueError for an unknown attack or an impossible share."""
    if plan.attack not in ATTACKS:
        raise ValueError(f"there is no attack {plan.attack!r}; known are {', '.join(ATTACKS)}")
    if not all(0 <= share <= 0.8 for share in plan.malicious):
        raise ValueError("a share of liars is at least 0 and at most 0.8")
    defences = DEFENCES[plan.attack]
    if plan.attack == "voter":
        return LiarsExperiment(plan, _voters(plan, codec, progress))
    rows: list[Outcome] = []
    with collector_at_rest():
        for share in plan.malicious:
            for defence in defences:
                done = len(rows) / (len(plan.malicious) * len(defences))
                progress(f"{plan.attack}, {share:.0%} liars, {defence.name}", done)
                rows.append(Trial(plan, defence, share, codec).run())
    return LiarsExperiment(plan, tuple(rows))


def _voters(plan: LiarsPlan, codec: Codec, progress: Progress) -> tuple[Outcome, ...]:
    """One voter of five lies, whatever share was asked for."""
    rows = []
    with collector_at_rest():
        for number, defence in enumerate(DEFENCES[plan.attack]):
            progress(f"one voter of five, {defence.name}", number / len(DEFENCES[plan.attack]))
            rows.append(VoterTrial(plan, defence, codec).run())
    return tuple(rows)
