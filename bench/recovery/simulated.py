"""One loss in a simulated overlay, and how deliveries come back (P3 to P5).

The same as bench/recovery/trial.py does to real processes, in virtual time and by a seed, with two
more faults: `link`, after which the publisher's node and a host do not reach each other, whoever
else they reach (P3), and a *silent* loss, where the machine dies with its process, so that
no link is closed (a power cut). `harness.recovery` has whom a loss hits, and how it is judged.
"""

from __future__ import annotations

import itertools
from typing import Any

from canopy.sim.scenario.fault_injector import FaultInjector
from canopy.sim.world.clients import SimulatedSubscription
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.recovery.plan import (
    AFTER,
    CUTS,
    FLOWS,
    GIVE_UP,
    OUTSIDE,
    PLANTED,
    PROBED,
    QUIET,
    TICK,
    WARM,
    TrialError,
    TrialPlan,
    check_arc,
    event,
    members,
    names,
    plan,
    probe,
    selector,
    settings,
    shape,
)
from harness.recovery.verdict import (
    DeliveredEvent,
    PublishedEvent,
    RecoveryVerdict,
    Row,
    ToldGap,
    judge,
)
from overlay.client import GetRing, Located, RingClusters, Where
from overlay.info import ClusterInfo

SETTLE = 120.0
"""Virtual seconds for clusters to fill, and for trees to find their hosts."""

GAP = 0.3
"""Virtual seconds between two joins."""

LOOK = 0.2
"""Virtual seconds between two looks at what has come."""

PROBER = 1
"""The client that subscribes after the fault; 0 has the others."""


class Trial:
    """A world, what is done to it, and what came of that."""

    def __init__(
        self, kill: str, rate: float, nodes: int, seed: str, *, silent: bool = False
    ) -> None:
        self.kill = kill
        self.rate = rate
        self.silent = silent
        self.clusters, self.size = shape(kill)
        self.nodes = max(nodes, self.clusters * self.size + OUTSIDE)
        self.world = World(seed, WireCodec(), settings(kill))
        self.population = FaultInjector(self.world, self.world.generator("run"))
        self.sent: dict[str, PublishedEvent] = {}
        self._late: SimulatedSubscription | None = None
        self._published = 0
        self._stopped = False

    def run(self) -> Row:
        """Run the trial and return its row. Raises TrialError where there is nothing to measure."""
        world = self.world
        for _ in range(self.nodes):
            self.population.join()
            world.run(GAP)
        cluster, outside = self._clusters()
        source, *subscribers = outside
        flows = list(itertools.islice(names(cluster, "flow"), FLOWS))
        lookup, late = next(names(cluster, "lookup")), next(names(cluster, "subscribe"))
        for number, flow in enumerate([*flows, lookup]):
            world.subscribe(subscribers[number % len(subscribers)], selector(flow), flow)
        self._need(world.acknowledged, "SUBACKs")
        found = plan(self.kill, cluster, self._hosts(source, flows))
        self._publish(source, flows, world.now)
        world.run(WARM)
        check_arc(cluster, self._ring())
        killed_at = world.now
        self._inflict(found, source, subscribers[0])
        self._probe(source, lookup)
        self._late = world.subscribe(source, selector(late), late, PROBER)
        needing = (*found.needing, *((lookup,) if self.kill in PROBED else ()))
        recovered = world.run_until(
            lambda: self._done(source, late, killed_at, needing), GIVE_UP, LOOK
        )
        world.run_to(max(world.now, killed_at + AFTER))
        self._stopped = True
        world.settle(GIVE_UP, QUIET)
        return {"recovered": recovered, **self._verdict(killed_at, needing, late).as_row()}

    # -- the fault -------------------------------------------------------------------------------

    def _inflict(self, found: TrialPlan, source: str, subscriber: str) -> None:
        for node in found.victims:
            name = self.world.identities[node]
            if self.kill in CUTS:
                self.world.network.sever(source if self.kill == "link" else subscriber, name)
            else:
                self.world.crash(name, silent=self.silent)

    def _done(self, source: str, late: str, killed_at: float, needing: tuple[str, ...]) -> bool:
        if self._late is not None and self._late.acknowledged is not None:
            self._late = None
            self._probe(source, late)
        verdict = self._verdict(killed_at, needing, late)
        return verdict.all_s is not None and verdict.subscribe_s is not None

    def _verdict(self, killed_at: float, needing: tuple[str, ...], late: str) -> RecoveryVerdict:
        flow_of = {s.identity: s.name for s in self.world.clients.subscriptions}
        arrivals = [
            DeliveredEvent(
                shown.time,
                flow_of[shown.delivery.subscription],
                str(shown.delivery.event.attributes["id"]),
            )
            for shown in self.world.clients.deliveries
        ]
        return judge(self.sent, arrivals, killed_at, needing, late, self._gaps())

    def _gaps(self) -> list[ToldGap]:
        """What the subscribers were told, in virtual time."""
        clients = self.world.clients
        flows: dict[tuple[str, int], tuple[str, ...]] = {}
        for each in clients.subscriptions:
            program = each.node, each.client
            flows[program] = (*flows.get(program, ()), each.name)
        found = []
        for notice in clients.notices:
            ahead = self.world.wall(notice.node) - self.world.now
            since = float("-inf") if notice.since is None else notice.since - ahead
            until = notice.time if notice.until is None else notice.until - ahead
            found.append(ToldGap(flows[notice.node, notice.client], since, until))
        return found

    # -- publishing ------------------------------------------------------------------------------

    def _publish(self, source: str, flows: list[str], began: float) -> None:
        """What is due; and again in a tick."""
        if self._stopped:
            return
        now = self.world.now
        due = int((now - began + TICK) * self.rate) - self._published
        made = [event(self._published + n, flows, now) for n in range(due)]
        self._published += due
        self.sent.update((str(attributes["id"]), sent) for attributes, sent in made)
        if made:
            self.world.publish(source, *(attributes for attributes, _ in made))
        self.world.after(TICK, self._publish, source, flows, began)

    def _probe(self, source: str, flow: str) -> None:
        attributes, self.sent[flow] = probe(flow, self.world.now)
        self.world.publish(source, attributes)

    # -- before the fault ------------------------------------------------------------------------

    def _clusters(self) -> tuple[ClusterInfo, list[str]]:
        """The cluster to hit, and nodes that are in none, once all clusters are full."""
        world, founder = self.world, self.population.names[0]
        self._need(world.ready, "nodes")
        if self.clusters > 1:  # trees enough for a split
            for number in range(PLANTED):
                world.subscribe(founder, selector(f"split{number}"), f"split{number}")
        found: tuple[ClusterInfo, ...] = ()
        for _ in range(int(SETTLE)):
            world.run(1.0)
            found = self._ring()
            sizes = [len(members(cluster)) for cluster in found]
            if len(sizes) == self.clusters and min(sizes) >= self.size:
                break
        else:
            raise TrialError(f"no {self.clusters} full clusters in {SETTLE:g} s")
        inside = {world.identities[node] for cluster in found for node in members(cluster)}
        outside = [name for name in self.population.names if name not in inside]
        return found[-1], outside[:OUTSIDE]

    def _ring(self) -> tuple[ClusterInfo, ...]:
        request = GetRing(self.world.clients.request())
        found: tuple[ClusterInfo, ...] = self._ask(
            self.population.names[0], request, RingClusters
        ).clusters
        return found

    def _hosts(self, source: str, flows: list[str]) -> dict[str, str]:
        """flow -> the host of its tree, once they have come to rest."""
        before: dict[str, str] = {}
        for _ in range(int(SETTLE)):
            found: dict[str, str] = {}
            for flow in flows:
                request = self.world.clients.request()
                tree = self._ask(source, Where(request, flow), Located).virtual_nodes
                found[flow] = tree[0].host if tree else ""
            if found == before and all(found.values()):
                return found
            before = found
            self.world.run(2.0)
        raise TrialError("the trees do not come to rest")

    def _ask(self, node: str, command: Any, kind: type[Any]) -> Any:
        reply = self.world.ask(node, command)
        if not isinstance(reply, kind):
            raise TrialError(f"{node} answered {reply!r}")
        return reply

    def _need(self, condition: Any, what: str) -> None:
        if not self.world.run_until(condition, SETTLE):
            raise TrialError(f"no {what} in {SETTLE:g} s")
