"""Members that lie: what they can do, and what each defence is worth.

An overlay grows of which a share of the nodes will lie, they begin, and events are published. Liars
join and behave as all others do until the overlay is ready; none of them is a seed of an honest
node but of newcomers, which have one liar and two honest nodes in their peer lists. What is
published later is judged by what honest programs see within `WITHIN`. Liars are one adversary: they
know each other and all honest nodes, and agree on what they say (`harness.attacks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev
from typing import Any

import msgspec
from msgspec.structs import replace

from bench.experiments.frame import Experiment, PlanError, Progress, run_until_ready
from bench.experiments.pictures import Picture
from bench.lab.tables import Row
from canopy.sim.world.clients import Publication, SimulatedSubscription
from canopy.sim.world.world import MeteredNode, World
from canopy.wire.transport.codec import WireCodec
from harness.attacks import ATTACKS
from harness.lying_node import Band, LyingNode
from overlay.rights import Role
from overlay.settings import Settings


class Defence(msgspec.Struct, frozen=True):
    """How honest nodes are set up (liars, too). `keys`: they have certificates, and those of liars
    say *member*, so that liars are no voters. `certified`: an entry of a view needs its node's
    certificate, and not a signature alone."""

    name: str
    keys: bool
    settings: dict[str, dict[str, Any]] = {}
    certified: bool = True

    def chosen(self) -> Settings:
        """Return the nodes' settings: the defaults with those of the plan."""
        return msgspec.convert(self.settings, Settings)


NOT_RANKED = {"sampling": "shuffle"}
BELIEVING = {"confirm": "never"}

NONE = Defence("none", False, {"view": NOT_RANKED, "walk": BELIEVING})
"""Nodes as they are without keys."""

KEYS = Defence("keys", True, {"view": NOT_RANKED, "walk": BELIEVING})
"""With roles, and what follows from these."""

RANKED = Defence("ranked views", True, {"walk": BELIEVING})
SIGNED = Defence("ranked views, signed", True, {"walk": BELIEVING}, certified=False)
CONFIRMED = Defence("confirmed hosts", True, {"view": NOT_RANKED})
ALL = Defence("all", True)
"""What nodes with keys do by default."""

ANY_DELEGATES = Defence("all, members are delegates", True, {"tree": {"delegates": "members"}})
NO_DELEGATES = Defence("all, no delegates", True, {"tree": {"fan_out": 1_000_000}})

DEFENCES: dict[str, tuple[Defence, ...]] = {
    "poisoning": (NONE, KEYS, RANKED),
    "made-up": (NONE, SIGNED, RANKED),
    "eclipse": (NONE, KEYS, RANKED),
    "access-points": (NONE, KEYS, CONFIRMED),
    "black-hole": (NONE, ANY_DELEGATES, ALL, NO_DELEGATES),
    "push-and-drop": (NONE, KEYS, ALL),
    "nobody-there": (NONE, KEYS),
    "owners": (NONE, KEYS),
}
"""By attack, from the least to the most."""


PUSH_EVERY = 0.5
"""Virtual seconds between two pushes of a liar."""

WITHIN = 10.0
"""Virtual seconds in which a delivery counts."""

LOOK_EVERY = 5.0
"""Virtual seconds between two looks at all views."""

FOUNDERS = 10
"""Honest nodes at the beginning, which are voters where nodes have keys."""


class LiarsPlan(msgspec.Struct, frozen=True):
    """The parameters. Times are simulated seconds."""

    attack: str = "poisoning"
    malicious: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.3)  # shares of all nodes that lie
    nodes: int = 100  # liars included, newcomers not
    newcomers: int = 10  # honest nodes that join after the liars have begun
    trees: int = 10  # attributes, of which each honest node subscribes to one
    lies: float = 60.0  # for which they lie before events are published
    events: int = 200  # that honest nodes publish
    rate: float = 10.0  # of them per second
    access_points: int = 3  # `view.access_points`: fewer than trees, so that nodes have to walk
    view: int = 10  # `view.size`: with fewer liars than that none could fill a view
    defence: str = ""  # the only one that is tried; "": all that are there for the attack
    times: int = 1  # seeds: seed, seed + 1, …; with several, a row for all of them
    seed: int = 1


class Look(msgspec.Struct, frozen=True):
    """The views of honest nodes at one time, in seconds since the lies began."""

    at: float
    liars: float  # share of all entries of their views that are liars
    isolated: int  # honest nodes without an honest neighbour


class Outcome(msgspec.Struct, frozen=True):
    """How one trial went."""

    attack: str
    defence: str
    malicious: float
    seed: int
    expected: int  # deliveries
    delivered: float  # share of them within `WITHIN`
    newcomers_delivered: float | None  # the same of newcomers' subscriptions
    not_ready: int  # newcomers
    walks: int  # of honest publishers, per attribute
    walk_hits: float | None  # share of them
    liars_in_views: float  # at the end
    isolated: int  # at the end, of all honest nodes
    messages: int  # per honest node and second, while events are published
    looks: tuple[Look, ...]


class Trial:
    """One run: an overlay with a share of liars, and what newcomers find in it."""

    def __init__(self, plan: LiarsPlan, defence: Defence, share: float, seed: int) -> None:
        self.plan, self.defence, self.share, self.seed = plan, defence, share, seed
        self.world = World(f"liars {seed}", WireCodec(), self._settings(), build=self._build)
        self._rng = self.world.generator("liars")
        self.band = Band(self.world.generator("band"), str(self.world.seed))
        self.band.attributes = tuple(f"t{number}" for number in range(plan.trees))
        self._attack = ATTACKS[plan.attack](self.band)
        names = [f"n{number}" for number in range(FOUNDERS, plan.nodes)]
        self.liars = dict.fromkeys(self._rng.sample(names, round(share * plan.nodes)))
        self._looks: list[Look] = []
        self._began = 0.0
        if defence.keys:
            self.world.roles = {}
            self.world.certificates.are_asked_for = defence.certified

    def run(self) -> Outcome:
        """Grow the overlay, have the liars lie, publish, and count."""
        world, plan = self.world, self.plan
        for number in range(plan.nodes):
            self._add(f"n{number}", self._seeds(number))
            world.run(0.2)
        run_until_ready(world, world.ready)
        everybody = {name: self._subscribe(name) for name in world.names()}
        subscriptions = [everybody[name] for name in everybody if self._is_honest(name)]
        run_until_ready(world, world.acknowledged)
        self._begin_lies()
        newcomers = [self._newcomer(number) for number in range(plan.newcomers)]
        world.run(plan.lies / 2)
        late = [self._subscribe(name) for name in newcomers]
        world.run(plan.lies / 2)
        walked = self._count("lookups_by_walk"), self._count("lookups_by_ring")
        said = self._count("other_messages") + self._count("data_messages")
        since = world.now
        published = self._publish()
        world.run(WITHIN)
        honest = [name for name in world.names() if self._is_honest(name)]
        messages = self._count("other_messages") + self._count("data_messages") - said
        hits = self._count("lookups_by_walk") - walked[0]
        walks = hits + self._count("lookups_by_ring") - walked[1]
        expected, delivered = self._delivered([*subscriptions, *late], published)
        expected_late, delivered_late = self._delivered(late, published)
        return Outcome(
            attack=plan.attack,
            defence=self.defence.name,
            malicious=self.share,
            seed=self.seed,
            expected=expected,
            delivered=round(delivered / expected, 5),
            newcomers_delivered=round(delivered_late / expected_late, 5) if expected_late else None,
            not_ready=sum(not world.node(name).ready for name in newcomers),
            walks=walks,
            walk_hits=round(hits / walks, 3) if walks else None,
            liars_in_views=self._looks[-1].liars,
            isolated=self._looks[-1].isolated,
            messages=round(messages / len(honest) / (world.now - since)),
            looks=tuple(self._looks),
        )

    # --- parts ---

    def _settings(self) -> Settings:
        chosen = self.defence.chosen()
        return replace(
            chosen,
            view=replace(chosen.view, size=self.plan.view, access_points=self.plan.access_points),
        )

    def _build(self, *arguments: Any, **options: Any) -> MeteredNode:
        name = arguments[0].name
        if name in self.liars:
            return LyingNode(self._attack, *arguments, **options)
        return MeteredNode(*arguments, **options)

    def _is_honest(self, name: str) -> bool:
        return name not in self.liars

    def _seeds(self, number: int) -> list[str]:
        """Founders, so that no honest node depends on a liar at the beginning."""
        return self._rng.sample(
            [f"n{each}" for each in range(min(number, FOUNDERS))], 1 if number else 0
        )

    def _add(self, name: str, seeds: list[str]) -> None:
        world = self.world
        if world.roles is not None:
            world.roles[name] = Role.VOTER if int(name[1:]) < FOUNDERS else Role.MEMBER
        world.add_node(seeds, name)
        band = self.band.victims if self._is_honest(name) else self.band.liars
        band.append(world.node(name).me)

    def _newcomer(self, number: int) -> str:
        name = f"n{self.plan.nodes + number}"
        honest = [n for n in self.world.names() if self._is_honest(n)]
        one = self._rng.sample(list(self.liars), 1) if self.liars else []
        self._add(name, [*one, *self._rng.sample(honest, 3 - len(one))])
        self.band.newcomers.append(self.world.node(name).me)
        return name

    def _subscribe(self, name: str) -> SimulatedSubscription:
        attribute = self._rng.choice(self.band.attributes)
        return self.world.subscribe(name, f"{attribute} >= 0")

    def _begin_lies(self) -> None:
        self._began = self.world.now
        self.band.lies = True
        for name in self.liars:
            self.world.at(self.world.now + self._rng.random() * PUSH_EVERY, self._push, name)
        self._look()

    def _push(self, name: str) -> None:
        self.world.drivers[name].act("push")
        self.world.at(self.world.now + PUSH_EVERY, self._push, name)

    def _look(self) -> None:
        world = self.world
        honest = dict.fromkeys(peer.id for peer in self.band.victims)
        entries = bad = isolated = 0
        for name in filter(self._is_honest, world.names()):
            found = [peer.id not in honest for peer in world.node(name).view.peers()]
            entries, bad = entries + len(found), bad + sum(found)
            isolated += all(found)
        share = round(bad / entries, 4) if entries else 0.0
        self._looks.append(Look(round(world.now - self._began, 1), share, isolated))
        world.at(world.now + LOOK_EVERY, self._look)

    def _publish(self) -> list[Publication]:
        world, plan = self.world, self.plan
        honest = [name for name in world.names() if self._is_honest(name)]
        found: list[Publication] = []
        for number in range(plan.events):
            attributes = {self._rng.choice(self.band.attributes): number}
            found += world.publish(self._rng.choice(honest), attributes)
            world.run(1.0 / plan.rate)
        return found

    def _count(self, counter: str) -> int:
        honest = filter(self._is_honest, self.world.names())
        return sum(self.world.node(name).counters.get(counter, 0) for name in honest)

    def _delivered(
        self, subscriptions: list[SimulatedSubscription], published: list[Publication]
    ) -> tuple[int, int]:
        """How many deliveries these subscriptions are to have, and how many came in time."""
        shown: dict[tuple[str, str], float] = {}
        for each in self.world.clients.deliveries:
            delivery = each.delivery
            shown.setdefault((delivery.subscription, delivery.event.identity), each.time)
        expected = delivered = 0
        for subscription in subscriptions:
            attribute = subscription.selector.split()[0]
            for event in published:
                if attribute in event.attributes:
                    expected += 1
                    at = shown.get((subscription.identity, event.identity))
                    delivered += at is not None and at <= event.published + WITHIN
        return expected, delivered


def trials(plan: LiarsPlan, progress: Progress) -> Iterator[Outcome | Row]:
    """A row for each share of liars and each defence against the attack of the plan. Raises
    PlanError for an unknown attack or defence, or an impossible share."""
    if plan.attack not in DEFENCES:
        raise PlanError(f"there is no attack {plan.attack!r}; known are {', '.join(DEFENCES)}")
    if not all(0 <= share <= 0.8 for share in plan.malicious):
        raise PlanError("a share of liars is at least 0 and at most 0.8")
    known = {each.name: each for each in (*DEFENCES[plan.attack], ALL)}
    if plan.defence and plan.defence not in known:
        raise PlanError(f"defences against {plan.attack} are {', '.join(known)}")
    defences = (known[plan.defence],) if plan.defence else DEFENCES[plan.attack]
    pairs = [(share, defence) for share in plan.malicious for defence in defences]
    for done, (share, defence) in enumerate(pairs):
        progress(f"{plan.attack}, {share:.0%} liars, {defence.name}", done / len(pairs))
        seeds = range(plan.seed, plan.seed + plan.times)
        found = [Trial(plan, defence, share, seed).run() for seed in seeds]
        yield found[0] if len(found) == 1 else summed_up(plan, share, found)


def summed_up(plan: LiarsPlan, share: float, found: Sequence[Outcome]) -> Row:
    """One row for all seeds. `fair`: what a perfect sample of all ids would have in views."""
    shares = [each.liars_in_views for each in found]
    late = [each.newcomers_delivered for each in found]
    return {
        "attack": plan.attack,
        "defence": found[0].defence,
        "nodes": plan.nodes,
        "newcomers": plan.newcomers,
        "view": plan.view,
        "malicious": share,
        "seeds": len(found),
        "fair": round(round(share * plan.nodes) / (plan.nodes + plan.newcomers - 1), 4),
        "in_views": round(fmean(shares), 4),
        "in_views_sd": round(pstdev(shares), 4),
        "in_views_least": min(shares),
        "in_views_most": max(shares),
        "isolated": max(look.isolated for each in found for look in each.looks[1:]),
        "delivered_least": min(each.delivered for each in found),
        "newcomers_least": min((each for each in late if each is not None), default=None),
    }


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
    """,
    LiarsPlan(),
    trials,
    "attack: attack | malicious .0%: liars | defence: defence | delivered .1%: delivered"
    " | newcomers_delivered .1%: to newcomers | walk_hits .1%: walks hit"
    " | liars_in_views .1%: in views | isolated: isolated",
    tuple(
        Picture("lines", "malicious", y, {"defence": ""}, "share of nodes that lie", label)
        for y, label in SHARES
    ),
)
