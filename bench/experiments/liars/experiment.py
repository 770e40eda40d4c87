"""Trials over shares of liars, with and without each defence."""

from __future__ import annotations

import msgspec

from bench.experiments.frame import Experiment, Panel, Picture, Table
from bench.experiments.liars.defences import DEFENCES
from bench.experiments.liars.trial import LiarsPlan, Outcome, Trial
from bench.experiments.liars.voter_trial import VoterTrial
from bench.experiments.running import PlanError, Progress, no_progress
from canopy.sim.world.cost import collector_at_rest
from harness.attacks import ATTACKS
from overlay.links.events import Codec


class LiarsExperiment(msgspec.Struct, frozen=True):
    """The experiment's result, which `liars.json` has: what was asked for, and each trial."""

    parameters: LiarsPlan
    rows: tuple[Outcome, ...]


def measure(plan: LiarsPlan, codec: Codec, progress: Progress = no_progress) -> LiarsExperiment:
    """Run one trial for each share of liars and each defence against the attack of the plan.
    Raises PlanError for an unknown attack or an impossible share."""
    if plan.attack not in ATTACKS:
        raise PlanError(f"there is no attack {plan.attack!r}; known are {', '.join(ATTACKS)}")
    if not all(0 <= share <= 0.8 for share in plan.malicious):
        raise PlanError("a share of liars is at least 0 and at most 0.8")
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


SHARES = (
    ("delivered", "delivered within 10 s, share"),
    ("walk_hits", "walks that hit, share"),
    ("liars_in_views", "of honest nodes' views, share that lies"),
)
"""What is drawn, a chart each."""

LIARS = Experiment(
    "liars",
    "Let a share of the nodes lie, with and without each defence.",
    """An overlay grows of which a share of the members lies: what do honest programs still get?
    Each `attack` is tried without keys, with keys, and with each defence that nodes with keys have
    by default. docs/lab/security.md has the results. Takes some minutes.

    \b
    poisoning      name only liars in exchanges of neighbours, pushed at everybody; drop walks
    made-up        name nodes that do not exist, by thousands, at their own addresses
    eclipse        the same as poisoning at nodes that have just come
    access-points  claim to be the access point of every tree; accept events and drop them
    black-hole     drop walks, lookups, events and copies that are to be passed on
    push-and-drop  both poisoning and black-hole
    nobody-there   say that trees have no subscribers
    owners         claim to lead every cluster, under a later epoch
    voter          one voter of five acknowledges and does not store, votes twice, claims epochs
    """,
    LiarsPlan(),
    measure,
    tables=(
        Table(
            "malicious .0%: liars | defence: defences | delivered .1%: delivered"
            " | newcomers_delivered .1%: to newcomers | walk_hits .1%: walks hit"
            " | liars_in_views .1%: in views | isolated: isolated",
            each=("rows",),
            title="attack: {parameters.attack}",
        ),
    ),
    picture=Picture(
        (
            tuple(
                Panel("malicious", y, "defence", "share of nodes that lie", label, each=("rows",))
                for y, label in SHARES
            ),
        ),
        "{parameters.attack}: {parameters.nodes} nodes, seed {parameters.seed}",
        (10.0, 3.6),
    ),
)
