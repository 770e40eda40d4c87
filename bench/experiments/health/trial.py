"""One trial: a cluster whose standby is slow and near its disk's end loses its primary.

Subscriptions come all the time, so that the log grows on every voter's disk and the sick node's is
full some time after the primary was lost. Without a health file the standby becomes the primary,
is a slow one, and dies of its disk: another election. Where it says of itself that it is sick
(`judged`), as nodes do by default, or a health file says so, another node leads, and the sick one
dies as a mere voter. All begin alike; the file comes after the traces were analysed, shortly before
the loss.
"""

from __future__ import annotations

from statistics import median
from typing import Protocol

import msgspec

from bench.experiments.frame import run_until_ready
from bench.experiments.health.records import HealthRecords, SimulatedMachine
from canopy.sim.world.disk import DiskConditions
from canopy.sim.world.world import World
from canopy.traces.writer import OpenFile
from canopy.wire.transport.codec import WireCodec
from overlay.health import HealthReport
from overlay.machine import NodeId

NODES = 9
ATTRIBUTE = "mag"
FIRST = 20
"""Subscriptions before the trial, so that the tree is there."""

TICK = 0.05
"""Virtual seconds between two looks at who leads."""

SYNC = (0.05, 0.3)
"""Seconds that a sync of the sick node's disk takes; that of the others takes none."""

FULL_AT = 95.5
"""Percent of the sick node's disk in use at the beginning: over Tensor's threshold."""


class HealthPlan(msgspec.Struct, frozen=True):
    """The parameters: how many trials, how sick the one node is, and for how long each is watched
    before and after its primary is lost (simulated seconds)."""

    trials: int = 10  # each with the file and without it
    seed: int = 1  # of the first
    free: int = 50_000  # bytes that are free on the sick node's disk at the beginning
    rate: float = 1.0  # subscriptions per second
    watched: float = 250.0  # seconds before the primary is lost: two windows of the analysis
    after: float = 300.0  # seconds after it


class Analysis(Protocol):
    """Who analyses the traces of a trial: Spark, outside of the simulator."""

    open: OpenFile
    """Opens the trace files."""

    def report(self) -> HealthReport:
        """What the traces that were written so far say of the nodes' health."""


class Outcome(msgspec.Struct, frozen=True):
    """How one trial went. Times are virtual seconds; None: not within `HealthPlan.after`."""

    seed: int
    by: str  # who judges the nodes' health: "nobody", "itself", or "file", by the traces of all
    sick_leads: bool  # after the loss
    sub_healthy: int  # nodes that are called so
    sick_named: bool  # whether the sick one is among them
    elected_s: float | None  # from the loss until another leads
    failure_s: float | None  # from then until that one does not lead any more
    leaderless_s: float  # altogether without a primary, after the loss
    elections: int  # after the loss
    suback_ms: float | None  # median of subscriptions after the loss
    suback_worst_ms: float | None


class HealthTrial:
    """Runs one trial. `analysis`: makes the health file; None: there is none. `judged`: each node
    judges itself."""

    def __init__(
        self,
        plan: HealthPlan,
        seed: int,
        analysis: Analysis | None,
        *,
        judged: bool = False,
    ) -> None:
        self.plan = plan
        self.seed = seed
        self.analysis = analysis
        self.world = World(seed, WireCodec(), traces=None if analysis is None else analysis.open)
        self.records = HealthRecords(self.world, judged=judged)
        self.by = "itself" if judged else "nobody" if analysis is None else "file"
        self._rng = self.world.generator("health")
        self._subscribed = 0

    def run(self) -> Outcome:
        """Grow the cluster, make its standby sick, lose the primary, and watch."""
        world, plan = self.world, self.plan
        self._grow()
        sick = self._member("standby")
        self._sicken(sick)
        self.records.begin()
        self._subscribe_on()
        world.run(plan.watched)
        report = self._report()
        named = self._named(report)
        for name in world.names() if report else ():
            world.node(name).update_health(report)
        world.run(2.0)
        lost_at = world.now
        lost = self._leader()
        assert lost is not None, "the cluster is led before the loss"
        made = len(world.clients.subscriptions)
        world.crash(lost)
        elected, failed, leaderless, elections, first = self._watch(lost_at)
        waits = [
            1_000.0 * (one.acknowledged - one.asked)
            for one in world.clients.subscriptions[made:]
            if one.acknowledged is not None
        ]
        sick_id = world.drivers[sick].disk.node
        return Outcome(
            seed=self.seed,
            by=self.by,
            sick_leads=first == sick,
            sub_healthy=len(named),
            sick_named=sick_id in named,
            elected_s=elected,
            failure_s=failed,
            leaderless_s=round(leaderless, 3),
            elections=elections,
            suback_ms=round(median(waits), 1) if waits else None,
            suback_worst_ms=round(max(waits), 1) if waits else None,
        )

    def _grow(self) -> None:
        world = self.world
        for _ in range(NODES):
            world.add_node(world.names()[:1])
            world.run(0.2)
        run_until_ready(world, world.ready)
        for _ in range(FIRST):
            self._subscribe()
        run_until_ready(world, world.acknowledged)
        run_until_ready(world, self._stands)

    def _stands(self) -> bool:
        leader = self._leader()
        return leader is not None and len(self.world.node(leader).clusters.log.voters) == 5

    def _sicken(self, name: str) -> None:
        """Slow the node's disk down, and leave it little room."""
        disk, free = self.world.drivers[name].disk, self.plan.free
        room = len(disk.data) + free
        low, high = SYNC
        disk.conditions = DiskConditions(sync_low=low, sync_high=high, room=room)
        self.records.machines[name] = SimulatedMachine(capacity=free / (1.0 - FULL_AT / 100.0))

    def _report(self) -> HealthReport | None:
        if self.analysis is None:
            return None
        self.world.recorder.close()
        return self.analysis.report()

    def _named(self, report: HealthReport | None) -> list[NodeId]:
        """The nodes that are called sub-healthy."""
        if report is not None:
            return list(report.nodes)
        nodes = [self.world.node(name) for name in self.world.names()]
        return [node.me.id for node in nodes if node.health.own is not None]

    def _subscribe(self) -> None:
        self._subscribed += 1
        bound = self._rng.randint(0, 1_000_000)
        name = self._rng.choice(self.world.names())
        self.world.subscribe(name, f"{ATTRIBUTE} > {bound}")

    def _subscribe_on(self) -> None:
        self.world.at(self.world.now + self._rng.expovariate(self.plan.rate), self._subscribe_on)
        self._subscribe()

    def _leader(self) -> str | None:
        """The node that leads the one cluster and is followed."""
        world = self.world
        found = [name for name in world.names() if world.node(name).clusters.is_followed]
        return found[0] if found else None

    def _member(self, role: str) -> str:
        return next(n for n in self.world.names() if self.world.node(n).clusters.role == role)

    def _watch(self, lost_at: float) -> tuple[float | None, float | None, float, int, str | None]:
        """Look who leads until the trial is over: seconds until one did, seconds until that one
        did no more, seconds without any, elections, and who was first."""
        world = self.world
        first: str | None = None
        elected = failed = None
        leaderless, elections, before = 0.0, 0, None
        while world.now < lost_at + self.plan.after:
            world.run(TICK)
            leader = self._leader()
            leaderless += TICK * (leader is None)
            if leader is not None and leader != before:
                elections += 1
                before = leader
            if first is None and leader is not None:
                first, elected = leader, round(world.now - lost_at, 2)
            elif failed is None and elected is not None and self._is_over(first, leader):
                failed = round(world.now - lost_at - elected, 2)
        return elected, failed, leaderless, elections, first

    def _is_over(self, first: str | None, leader: str | None) -> bool:
        """Whether the time of the primary `first` has ended: it died, or another leads."""
        return first not in self.world.names() or leader not in (first, None)
