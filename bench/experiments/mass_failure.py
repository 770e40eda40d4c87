"""Many nodes fail at one moment: what the survivors still get, and what it costs.

A share of the nodes is killed without notice, or stands still for a while, all at once,
while events flow. Each delivery that a live subscriber should get is counted by when its event was
published, and how long it took:

    before ──── the moment ──── 0 … 2 s ──── 2 … 10 s ──── 10 … 30 s ──── later

Nothing is repaired in the first seconds (silence counts as death after `links.dead_after`):
what arrives then arrives by other replicas. An event that is not accepted anywhere waits at its
publisher, so what takes longer is late and not lost. What is not there at the end was lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from bench.experiments.frame import Experiment, Progress
from canopy.sim.checks.node_state import led
from canopy.sim.scenario.range_load import paper_load
from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import Scenario
from canopy.sim.world.clients import Publication
from canopy.wire.transport.codec import WireCodec
from matching import Index, compile_selector
from overlay.settings import Settings

BANDS = (0.0, 2.0, 10.0, 30.0)
"""Seconds after the failure that the issues name."""

REST = 20.0
"""Seconds after the last event: longer than any retry or lease."""


class FailurePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes there are, which share fails and how, and what is published meanwhile."""

    nodes: Annotated[int, Meta(ge=8)] = 1_000
    share: Annotated[float, Meta(ge=0, le=0.95)] = 0.2
    pause: Annotated[float, Meta(ge=0, le=120)] = 0.0  # seconds that nodes stand still at most,
    # one at least; 0: they are killed
    subscriptions: int | None = None  # absent: one per node
    publishers: Annotated[int, Meta(ge=1)] = 20  # of the nodes that stay
    rate: Annotated[float, Meta(gt=0)] = 20.0  # events per second
    seconds: Annotated[float, Meta(ge=1)] = 40.0  # of events after the failure
    warm: float = 10.0  # … and before it, by which publishers know where trees are (not measured)
    paper: bool = True  # the papers' load; False: the built-in one, for few nodes
    seed: int = 1
    settings: Settings = Settings()


class Band(msgspec.Struct):
    """Events that were published in some time. Deliveries to nodes that were up all the time."""

    since: float | None  # seconds after the failure; None: before it
    events: int = 0
    expected: int = 0
    delivered: int = 0
    worst_s: float = 0.0  # the longest that a delivery took


class FailureReport(msgspec.Struct):
    """Which deliveries the surviving nodes got after the failure, and how soon; times in
    seconds."""

    plan: FailurePlan
    failed: int
    members_failed: int  # of those, members of clusters
    led: bool  # whether every cluster that has members decides at the end
    bands: list[Band]
    twice: int  # deliveries that were shown again
    spurious: int  # … that were not expected
    messages_per_event: float  # data plane, before …
    messages_per_event_after: float  # … and after
    doubted: int  # healthy nodes that some node took for dead after the failure


class Failure:
    """One run: the overlay grows, publishes, loses the nodes, and what was delivered is counted."""

    def __init__(self, plan: FailurePlan, progress: Progress) -> None:
        self.plan = plan
        self.progress = progress
        count = plan.nodes if plan.subscriptions is None else plan.subscriptions
        scenario = Scenario(
            nodes=plan.nodes,
            seed=plan.seed,
            subscriptions=count,
            load=paper_load(count, plan.nodes, plan.seed) if plan.paper else None,
            settings=plan.settings,
        )
        self.first = ScenarioRun(
            scenario, WireCodec(), lambda stage, time, share: progress(stage, share)
        )
        self.world = self.first.world
        rng = self.world.generator("failure")
        names = [f"n{number}" for number in range(plan.nodes)]
        self.failing = sorted(rng.sample(names, round(plan.share * plan.nodes)))
        lost = dict.fromkeys(self.failing)
        self.up = [name for name in names if name not in lost]
        self.sources = rng.sample(self.up, min(plan.publishers, len(self.up)))
        self.rng = rng
        self._published = 0

    def run(self) -> FailureReport:
        """Grow the overlay, publish, fail the nodes, publish on, and count what arrived when."""
        world, plan = self.world, self.plan
        self.first.grow()
        self.first.subscribe()
        start = self._messages()
        self._publish(plan.warm, "before")
        middle = self._messages()
        members = [n for n in self.failing if world.node(n).clusters.role != "none"]
        failed_at = world.now
        self._fail()
        self._publish(plan.seconds, "after")
        world.run(REST)
        end = self._messages()
        return FailureReport(
            plan,
            len(self.failing),
            len(members),
            led(world),
            *self._verdict(failed_at),
            messages_per_event=round((middle - start) / (plan.warm * plan.rate), 2),
            messages_per_event_after=round((end - middle) / (plan.seconds * plan.rate), 2),
            doubted=self._doubted(failed_at),
        )

    # --- what happens ---

    def _fail(self) -> None:
        for name in self.failing:
            if not self.plan.pause:
                self.world.crash(name, silent=True)
            else:
                driver = self.world.drivers[name]
                driver.pause()
                self.world.after(self.rng.uniform(1.0, self.plan.pause), driver.resume)

    def _publish(self, seconds: float, stage: str) -> None:
        begin, count = self.world.now, round(seconds * self.plan.rate)
        for number in range(count):
            self.progress(stage, number / count)
            source = self.sources[self._published % len(self.sources)]
            self._published += 1
            self.world.publish(source, self.first.workload.event())
            self.world.run_to(begin + (number + 1) / self.plan.rate)

    # --- what came of it ---

    def _messages(self) -> int:
        """Data-plane messages that the nodes that stay have sent."""
        return sum(self.world.node(n).counters.get("data_messages", 0) for n in self.up)

    def _verdict(self, failed_at: float) -> tuple[list[Band], int, int]:
        clients, up = self.world.clients, dict.fromkeys(self.up)
        index: Index[str] = Index()
        for subscription in clients.subscriptions:
            if subscription.node in up:
                index.add(subscription.identity, compile_selector(subscription.selector))
        shown: dict[tuple[str, str], float] = {}
        twice = 0
        for each in clients.deliveries:
            pair = (each.delivery.event.identity, each.delivery.subscription)
            twice += pair in shown
            shown.setdefault(pair, each.time)
        lost = {s.identity: None for s in clients.subscriptions if s.node not in up}
        spurious = sum(1 for _, subscription in shown if subscription not in lost)
        bands = [Band(None), *(Band(since) for since in BANDS)]
        for event in clients.publications:
            after = event.published - failed_at
            band = bands[sum(1 for since in BANDS if since <= after)]
            band.events += 1
            for wanted in index.match(event.attributes):
                spurious -= self._count(band, event, shown.get((event.identity, wanted)))
        return bands, twice, spurious

    @staticmethod
    def _count(band: Band, event: Publication, at: float | None) -> bool:
        band.expected += 1
        if at is None:
            return False
        took = at - event.published
        band.delivered += 1
        band.worst_s = round(max(band.worst_s, took), 3)
        return True

    def _doubted(self, failed_at: float) -> int:
        up = dict.fromkeys(self.up)
        names = self.world.identities
        return len(
            {
                names[record.fields["peer"]]: None
                for record in self.world.recorder.records
                if record.time >= failed_at
                and record.kind == "link"
                and record.fields["reason"].startswith("down:")
                and names.get(record.fields["peer"]) in up
            }
        )


def trials(plan: FailurePlan, progress: Progress) -> Iterator[FailureReport]:
    """One run. It takes about as long as `canopy sim run --load paper` of that size."""
    yield Failure(plan, progress).run()


FAILURE = Experiment(
    "failure",
    "Kill or pause a share of the nodes at once.",
    """Events are published meanwhile: how many deliveries do the survivors still get, and how
    soon? With `pause` nodes stand still for one to so many seconds and are not killed.
    docs/lab/routing.md has the results. The exit code is 1 if something was delivered twice, or
    without a match.""",
    FailurePlan(),
    trials,
    "transposed | {failed} of {plan.nodes} fail: "
    + "".join(
        f" | {{bands.{n}.delivered}} of {{bands.{n}.expected}}: delivered of what was published "
        f"{since} | bands.{n}.worst_s .2f: … slowest, s"
        for n, since in enumerate(("before", *(f"from {since:g} s on" for since in BANDS)))
    )
    + " | messages_per_event: messages per event before | messages_per_event_after: … and after"
    " | members_failed: members of clusters that failed"
    " | led: every cluster has a primary in the end | twice: delivered twice"
    " | spurious: spurious | doubted: healthy nodes suspected",
    is_good=lambda row: not (row["twice"] or row["spurious"]),
)
