"""One voter of five lies, and primaries die: what was acknowledged, and who leads?

Each round a program subscribes to an attribute that nobody had, and as soon as that is acknowledged
the primary dies. In two of three rounds nothing comes through to one or two honest voters
meanwhile: they lack the entry, and the liar has said that it has it; then the primary dies half a
second later at the latest. When there is another primary an event is published for what was
acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from bench.experiments.frame import Experiment, Progress, run_until_ready
from bench.experiments.liars import NONE, PUSH_EVERY, WITHIN, Defence
from canopy.sim.world.clients import SimulatedSubscription
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.attacks import ATTACKS
from harness.lying_node import Band, LyingNode
from overlay.rights import Role

HALF = 0.5
"""Virtual seconds after which the primary dies even if nothing was acknowledged."""

ELECT_WITHIN = 30.0
"""Virtual seconds for which another primary is waited for."""

SETTLE = 20.0
"""Virtual seconds between rounds, in which the cluster has five voters again."""

VOTERS = 5


MAJORITY = Defence("keys, a majority stores", True, {"cluster": {"commit": "majority"}})
MORE = Defence("keys, one more stores", True, {"cluster": {"commit": "more"}})
DEFENCES = (NONE, MAJORITY, MORE)


class VoterPlan(msgspec.Struct, frozen=True):
    """The parameters of the experiment: how often a primary dies beside a voter that lies."""

    rounds: int = 12  # primaries that die in one trial
    seed: int = 1


class VoterOutcome(msgspec.Struct, frozen=True):
    """How one trial went."""

    defence: str
    acknowledged: int  # subscriptions while it lied
    lost: int  # those of them that saw nothing, within `WITHIN` of a new primary
    new_primary: float  # the longest time from a primary's death to the next
    led_by_liar: float  # share of honest nodes that took the liar for the primary


class VoterTrial:
    """One run: a voter of a cluster lies, and the honest members are measured."""

    def __init__(self, plan: VoterPlan, defence: Defence) -> None:
        self.plan, self.defence = plan, defence
        self.world = World(f"voter {plan.seed}", WireCodec(), defence.chosen(), build=self._build)
        self._rng = self.world.generator("liars")
        self.band = Band(self.world.generator("band"))
        self._attack = ATTACKS["voter"](self.band)
        self._slowest = 0.0
        self._taken_in = 0.0
        if defence.keys:
            self.world.roles = {}

    def run(self) -> VoterOutcome:
        """Grow an overlay with one cluster, let one of its voters lie, and end primaries."""
        world = self.world
        for number in range(2 * VOTERS + 2):
            name = f"n{number}"
            if world.roles is not None:
                world.roles[name] = Role.VOTER
            world.add_node(["n0"] if number else [], name)
            world.run(0.2)
        run_until_ready(world, world.ready)
        run_until_ready(world, lambda: len(self._voters()) == VOTERS)
        self._choose()
        expected: list[SimulatedSubscription] = []
        for number in range(self.plan.rounds):
            made = self._round(number)
            if made is not None:
                expected.append(made)
        lost = self._lost(expected)
        return VoterOutcome(
            self.defence.name,
            len(expected),
            lost,
            round(self._slowest, 2),
            round(self._taken_in, 2),
        )

    # --- parts ---

    def _build(self, *arguments: Any, **options: Any) -> LyingNode:
        return LyingNode(self._attack, *arguments, **options)

    def _honest(self) -> list[str]:
        return [
            name for name in self.world.names() if self.world.node(name).me not in self.band.liars
        ]

    def _primary(self) -> str | None:
        """The honest node that leads, and that a majority follows."""
        nodes = ((name, self.world.node(name).clusters) for name in self._honest())
        leading = [name for name, clusters in nodes if clusters.is_followed]
        return leading[0] if leading else None

    def _voters(self) -> list[str]:
        primary = self._primary()
        if primary is None:
            return []
        voters = self.world.node(primary).clusters.log.voters
        return [self.world.identities[peer.id] for peer in voters]

    def _choose(self) -> None:
        """The liar: a voter that does not lead, and not the first in rank."""
        primary = self._primary()
        assert primary is not None
        own = self.world.node(primary).clusters.cluster
        liar = self.world.identities[own.brokers[-1].id]
        self.band.liars.append(self.world.node(liar).me)
        self.band.victims = [self.world.node(name).me for name in self._honest()]
        self.band.lies = True
        self.world.at(self.world.now + PUSH_EVERY, self._push, liar)

    def _push(self, name: str) -> None:
        self.world.drivers[name].act("push")
        self._taken_in = max(self._taken_in, self._taken_in_now())
        self.world.at(self.world.now + PUSH_EVERY, self._push, name)

    def _taken_in_now(self) -> float:
        """The share of honest nodes that know the liar as a primary."""
        liar, honest = self.band.liars[0].id, self._honest()
        known = (self.world.node(name).ring.state.known for name in honest)
        return sum(any(c.primary.id == liar for c in each) for each in known) / len(honest)

    def _round(self, number: int) -> SimulatedSubscription | None:
        """What was acknowledged before its primary died, if anything was."""
        world = self.world
        if not world.run_until(lambda: self._primary() is not None, ELECT_WITHIN):
            self._slowest = ELECT_WITHIN
            return None
        world.run_until(lambda: len(self._voters()) == VOTERS, SETTLE)
        primary = self._primary()
        assert primary is not None
        own = world.node(primary).clusters.cluster
        honest = [world.identities[p.id] for p in own.others() if p not in self.band.liars]
        slow = honest[: number % 3]
        for name in slow:
            world.network.block(primary, name)
        outside = [name for name in self._honest() if name not in (primary, *honest)]
        made = world.subscribe(self._rng.choice(outside), f"v{number} >= 0")
        world.run_until(lambda: made.acknowledged is not None, HALF if slow else SETTLE)
        acknowledged = made.acknowledged is not None
        world.crash(primary, silent=True)
        died = world.now
        world.network.heal()
        if not world.run_until(lambda: self._primary() is not None, ELECT_WITHIN):
            self._slowest = ELECT_WITHIN
        self._slowest = max(self._slowest, world.now - died)
        self._probe(made)
        world.run(WITHIN)
        world.restart(primary)
        return made if acknowledged else None

    def _probe(self, subscription: SimulatedSubscription) -> None:
        """Publish one event for it, at another honest node."""
        others = [name for name in self._honest() if name != subscription.node]
        attribute = subscription.selector.split()[0]
        self.world.publish(self._rng.choice(others), {attribute: 1})

    def _lost(self, expected: list[SimulatedSubscription]) -> int:
        shown = {each.delivery.subscription for each in self.world.clients.deliveries}
        return sum(each.identity not in shown for each in expected)


def trials(plan: VoterPlan, progress: Progress) -> Iterator[VoterOutcome]:
    """One trial with each defence."""
    for number, defence in enumerate(DEFENCES):
        progress(f"one voter of five, {defence.name}", number / len(DEFENCES))
        yield VoterTrial(plan, defence).run()


VOTER = Experiment(
    "voter",
    "Let one voter of five lie while primaries die.",
    """It acknowledges and does not store, votes twice, and claims epochs, without keys and with
    them: what that was acknowledged is lost, and who leads? docs/lab/security.md has the
    results.""",
    VoterPlan(),
    trials,
    "defence: defence | acknowledged: acknowledged | lost: lost"
    " | new_primary .2f: next primary after, s, at most"
    " | led_by_liar .2f: share of honest nodes that took the liar for a primary",
)
