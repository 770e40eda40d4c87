"""Certificates are revoked in a running overlay: how soon is every link to their nodes closed?

The overlay grows and subscribes, then the operators revoke the certificates of some nodes at one
node, the issuer. The list goes from node to node; each looks at the certificates of its connections
within `world.RECHECK` and cuts the revoked ones off. These go on as if nothing had happened: they
dial those they know, and are refused by whoever has the list.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bench.experiments.frame import Experiment, PlanError, Progress
from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import Scenario
from canopy.wire.transport.codec import WireCodec
from overlay.rights import Role
from overlay.settings import Settings

LOOK_EVERY = 0.05
"""Virtual seconds between two looks at all connections."""


class RevocationPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters. Times are simulated seconds."""

    nodes: int = 1_000
    voters: int = 200  # of them at most, the first ones; the others are members
    revoked: int = 5  # nodes at once, one of them the primary of a cluster
    subscriptions: int = 500
    settle: float = 20.0  # before that
    watch: float = 15.0  # and after it
    seed: int = 1
    settings: Settings = Settings()


class RevocationReport(msgspec.Struct):
    """What became of the links of the revoked nodes. Times in seconds since the operators' command;
    None: not within `watch`."""

    plan: RevocationPlan
    connections: int  # that were open in the whole overlay
    links: int  # of them, with a revoked node at one end and one that is not at the other
    half_closed_s: float | None  # of these
    closed_s: float | None  # all of them
    half_listed_s: float | None  # of the nodes that are not revoked have the list
    listed_s: float | None  # all of them
    reopened: int  # links of revoked nodes that were seen after that
    refused: int  # connections that revoked nodes tried to open, at nodes with the list
    primaries: int  # clusters that a revoked node led
    led: bool  # whether each arc is led by a node that is not revoked, at the end


class Revocation:
    """One run of the experiment: a key is revoked, and its links end."""

    def __init__(self, plan: RevocationPlan, progress: Progress) -> None:
        self.plan = plan
        scenario = Scenario(
            nodes=plan.nodes,
            seed=plan.seed,
            subscriptions=plan.subscriptions,
            settings=plan.settings,
            keys=True,
        )
        self.first = ScenarioRun(
            scenario, WireCodec(), lambda stage, time, share: progress(stage, share)
        )
        self.world = self.first.world
        self.world.roles = {
            f"n{number}": Role.VOTER if number < plan.voters else Role.MEMBER
            for number in range(plan.nodes)
        }
        self.progress = progress
        self.revoked: dict[str, None] = {}
        self.issuer = ""

    def run(self) -> RevocationReport:
        """Grow the overlay, revoke, and watch the connections."""
        world, plan = self.world, self.plan
        self.first.grow()
        self.first.subscribe()
        world.run(plan.settle)
        self._choose()
        leading = self._leading()
        connections, links = world.network.open_connections(), self._links()
        began, refused = world.now, self._refused()
        world.revoke(self.issuer, *self.revoked)
        left, listed, reopened = links, 0, 0
        half_closed = closed = half_listed = all_listed = None
        honest = [name for name in world.names() if name not in self.revoked]
        while world.now < began + plan.watch - LOOK_EVERY / 2:
            world.run(LOOK_EVERY)
            took = round(world.now - began, 2)
            self.progress("watch", took / plan.watch)
            left = self._links()
            if closed is not None:
                reopened += left
            if left <= links / 2 and half_closed is None:
                half_closed = took
            if not left and closed is None:
                closed = took
            listed = sum(world.revocation_stores[name].version > 0 for name in honest)
            if listed >= len(honest) / 2 and half_listed is None:
                half_listed = took
            if listed == len(honest) and all_listed is None:
                all_listed = took
        return RevocationReport(
            plan,
            connections,
            links,
            half_closed,
            closed,
            half_listed,
            all_listed,
            reopened,
            self._refused() - refused,
            sum(name in self.revoked for name in leading),
            self._is_led(),
        )

    # --- parts ---

    def _choose(self) -> None:
        """Of those who are revoked a primary and others, by chance; and another node as the one at
        which that is done."""
        rng = self.world.generator("revocation")
        primaries = self._leading()
        self.revoked = dict.fromkeys(rng.sample(primaries, min(1, len(primaries))))
        rest = [name for name in self.world.names() if name not in self.revoked]
        more = self.plan.revoked - len(self.revoked)
        self.issuer, *others = rng.sample(rest, more + 1)
        self.revoked |= dict.fromkeys(others)

    def _leading(self) -> list[str]:
        nodes = ((name, self.world.node(name).clusters) for name in self.world.names())
        return [name for name, clusters in nodes if clusters.is_followed]

    def _links(self) -> int:
        """Connections that nodes have with a revoked one and take for good."""
        drivers = self.world.drivers
        ids = dict.fromkeys(drivers[name].disk.node for name in self.revoked)
        return sum(
            principal.id in ids
            for name, driver in drivers.items()
            if driver.alive and name not in self.revoked
            for principal, _ in driver.admitted.values()
        )

    def _refused(self) -> int:
        return sum(
            driver.refused
            for name, driver in self.world.drivers.items()
            if name not in self.revoked
        )

    def _is_led(self) -> bool:
        """Whether those who lead, and are not revoked, have all keys between them."""
        arcs = sorted(
            (cluster.key, cluster.start)
            for name in self._leading()
            if name not in self.revoked
            for cluster in [self.world.node(name).clusters.cluster]
        )
        return bool(arcs) and all(
            start == arcs[number - 1][0] for number, (_, start) in enumerate(arcs)
        )


def trials(plan: RevocationPlan, progress: Progress) -> Iterator[RevocationReport]:
    """One run. Raises PlanError if there are too few nodes for what is asked."""
    if not 0 < plan.revoked < plan.nodes or plan.voters < 1:
        raise PlanError("at least one node is revoked, and at least one is not")
    yield Revocation(plan, progress).run()


REVOKE = Experiment(
    "revoke",
    "Revoke certificates, and see when all links are closed.",
    """Of an overlay with keys the certificates of some nodes are revoked at once, one of which
    leads a cluster: how soon is the last link to one of them closed? The exit code is 1 if links
    were left, or were opened again. docs/lab/security.md has the results.""",
    RevocationPlan(),
    trials,
    "transposed | {plan.revoked} of {plan.nodes}: revoked | primaries: of them primaries"
    " | {links} of {connections}: their connections | half_closed_s .2f: half of these closed, s"
    " | closed_s .2f: all closed, s | reopened: seen again | refused: refused"
    " | half_listed_s .2f: half of the nodes have the list, s | listed_s .2f: all have it, s"
    " | led: every key is led in the end",
    is_good=lambda row: row["closed_s"] is not None and not row["reopened"],
)
