"""How throughput grows with the nodes that host (C6): each load at each number, and a burst."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.experiments.frame import Experiment, Panel, Picture, Table, builtins
from bench.experiments.running import Progress, no_progress
from bench.experiments.scaling.plan import LoadName, ScalingPlan
from bench.experiments.scaling.stage import Stage
from bench.lab.tables import Row
from canopy.sim.world.cost import collector_at_rest
from overlay.links.events import Codec

RAMP = 1.0
"""Virtual seconds in which a burst comes, in steps of a tenth."""

IDLE = 0.05
"""A host is idle that works for less than this share of its time."""

WINDOW = 0.5
"""Virtual seconds of events by which a burst is judged."""


class Measured(msgspec.Struct, frozen=True):
    """The result at one rate and one number of nodes."""

    rate: float  # events per second
    expected: int  # deliveries of the events that were published while it was measured
    delivered: int  # … within the limit and the network's time
    p99_ms: float  # of these; what is missing counts as later than all
    virtual_nodes: int
    hosts: int  # that the maps name
    settled_s: float  # from the first event until no map changed any more
    busiest: float  # share of its time that the busiest host worked, …
    busy: float  # … that a host worked on average,
    idle: int  # and how many worked for less than a twentieth of it


class ScalingPoint(msgspec.Struct, frozen=True):
    """The highest rate that a number of hosts sustains in time."""

    load: LoadName
    hosts: int
    events_per_second: float
    linear: float  # of what so many times one host can do
    p99_ms: float
    virtual_nodes: int
    used: int  # hosts that the maps name
    busiest: float  # of `Measured`
    busy: float
    idle: int
    tried: tuple[Measured, ...]


class Burst(msgspec.Struct, frozen=True):
    """A load that rises by a factor within a second, and falls again."""

    hosts: int
    base: float  # events per second
    peak: float
    in_time_after_s: float  # from the burst's beginning until 99 % were in time again; -1: never
    expected: int  # deliveries of all events
    delivered: int
    virtual_nodes: tuple[int, int, int]  # before, at the end of the burst, at the end
    used: tuple[int, int, int]  # hosts, then
    changes: int  # of maps in all
    last_change_s: float  # from the burst's end until the last change of a map


class Scaling(msgspec.Struct, frozen=True):
    """All of the experiment."""

    parameters: ScalingPlan
    points: tuple[ScalingPoint, ...]
    burst: Burst | None


def measure(plan: ScalingPlan, codec: Codec, progress: Progress = no_progress) -> Scaling:
    """All points and the burst."""
    run = Scale(plan, codec, progress)
    with collector_at_rest():
        points = [point for load in plan.loads for point in run.points(load)]
        burst = run.burst("one") if plan.burst_hosts else None
    return Scaling(plan, tuple(points), burst)


class Scale:
    """Measures all points, each in an overlay of its own."""

    def __init__(self, plan: ScalingPlan, codec: Codec, progress: Progress) -> None:
        self.plan = plan
        self.codec = codec
        self._progress = progress
        self._total = len(plan.loads) * len(plan.hosts) + bool(plan.burst_hosts)
        self._done = 0

    def points(self, load: LoadName) -> list[ScalingPoint]:
        """The most that each number of hosts can do."""
        found: list[ScalingPoint] = []
        one = 0.0
        for hosts in sorted({1, *self.plan.hosts}):
            if found and not one:
                break  # not even the least rate was in time: nothing to count from
            stage = Stage(self.plan, load, hosts, self.codec)
            if hosts == 1:
                shares = [share / self._cost(load) for share in self.plan.one_host]
            else:
                shares = [share * hosts * one for share in self.plan.shares]
            tried = self._search(stage, shares, f"{load}, {hosts} hosts")
            good = [each for each in tried if self._is_in_time(each)]
            best = max(good, key=lambda each: each.rate) if good else None
            rate = 0.0 if best is None else best.rate
            one = one or rate
            shown = best or tried[-1]
            found.append(
                ScalingPoint(
                    load,
                    hosts,
                    round(rate, 1),
                    round(rate / (hosts * one), 3) if one else 0.0,
                    shown.p99_ms,
                    shown.virtual_nodes,
                    shown.hosts,
                    shown.busiest,
                    shown.busy,
                    shown.idle,
                    tuple(tried),
                )
            )
            self._done += 1
        return found

    def _cost(self, load: LoadName) -> float:
        """Seconds of one host's time that an event takes, without frames."""
        processor = self.plan.processor
        trees = self.plan.per_event if load == "zipf" else 1
        further = (trees - 1) * processor.per_further
        recipients = self.plan.deliveries(load) * processor.per_recipient
        return processor.per_match + further + recipients

    def _search(self, stage: Stage, rates: Sequence[float], what: str) -> list[Measured]:
        """Try rates from the middle, upwards while they are in time, else downwards."""
        ordered = sorted(rates)
        at = len(ordered) // 2
        tried = [self._try(stage, ordered[at], what)]
        step = 1 if self._is_in_time(tried[0]) else -1
        while 0 <= at + step < len(ordered):
            at += step
            tried.append(self._try(stage, ordered[at], what))
            if self._is_in_time(tried[-1]) != (step > 0):
                break
        return tried

    def _try(self, stage: Stage, rate: float, what: str) -> Measured:
        self._progress(f"{what}: {rate:.0f} events/s", self._done / self._total)
        stage.publish_at(rate)
        settled = stage.settle()
        before, began = stage.worked(), stage.world.now
        expected, times = stage.measure(max(self.plan.measured, self.plan.measured_events / rate))
        passed = stage.world.now - began
        busy = [(now - then) / passed for now, then in zip(stage.worked(), before, strict=True)]
        nodes, hosts = stage.size()
        found = Measured(
            round(rate, 1), expected, len(times), p99_ms(times, expected), nodes, hosts,
            round(settled, 2), round(max(busy), 2), round(sum(busy) / len(busy), 2),
            sum(each < IDLE for each in busy),
        )  # fmt: skip
        stage.drain()
        return found

    def _is_in_time(self, measured: Measured) -> bool:
        return 0 <= measured.p99_ms <= self.plan.p99_ms

    def burst(self, load: LoadName) -> Burst:
        """A load that grows within a second and goes away."""
        plan = self.plan
        self._progress(f"burst, {plan.burst_hosts} hosts", self._done / self._total)
        stage = Stage(plan, load, plan.burst_hosts, self.codec)
        world = stage.world
        base = plan.burst_base / self._cost(load)
        peak = plan.burst_factor * base
        stage.publish_at(base)
        stage.settle()
        before = stage.size()
        stage.forget()
        began = world.now
        changes = len(stage.changes)
        for step in range(1, 11):
            stage.publish_at(base + (peak - base) * step / 10)
            world.run(RAMP / 10)
        world.run(plan.burst_seconds - RAMP)
        during = stage.size()
        stage.publish_at(0.0)
        ended = world.now
        world.run(plan.after_burst)
        published = [(each.published - began, each.identity) for each in stage.published]
        mine = {identity for _, identity in published}
        delivered = sum(shown.delivery.event.identity in mine for shown in world.clients.deliveries)
        made = {
            shown.delivery.event.identity: shown.time - began for shown in world.clients.deliveries
        }
        return Burst(
            plan.burst_hosts, round(base, 1), round(peak, 1),
            _in_time_after(published, made, plan.p99_ms / 1000),
            len(published) * stage.deliveries_per_event, delivered,
            (before[0], during[0], stage.size()[0]), (before[1], during[1], stage.size()[1]),
            len(stage.changes) - changes,
            round(max([0.0, *(at - ended for at, _ in stage.changes)]), 1),
        )  # fmt: skip


def p99_ms(times: Sequence[float], expected: int) -> float:
    """The 99th percentile of `expected` deliveries in milliseconds (nearest rank), of which these
    were made; -1 if more than one in a hundred was not, or there is none."""
    rank = -(-99 * expected // 100)
    if not rank or len(times) < rank:
        return -1.0
    return round(1000 * sorted(times)[rank - 1], 1)


def _in_time_after(
    published: Sequence[tuple[float, str]], made: dict[str, float], limit: float
) -> float:
    """From when on 99 % of the events of every window were in time; -1: not by the end."""
    windows: dict[int, list[bool]] = {}
    for at, identity in published:
        in_time = identity in made and made[identity] - at <= limit
        windows.setdefault(int(at / WINDOW), []).append(in_time)
    late = [number for number, each in windows.items() if sum(each) < 0.99 * len(each)]
    if not late:
        return 0.0
    return -1.0 if max(late) == max(windows) else (max(late) + 1) * WINDOW


def facts(found: Scaling) -> Row:
    """Return the result with, at each point, the rate of one host times the number of hosts, and
    how late the maps settled."""
    shown = builtins(found)
    first = {point.load: point.events_per_second for point in reversed(found.points)}
    for point in shown["points"]:
        point["if_linear"] = point["hosts"] * first[point["load"]]
    shown["bursts"] = [shown["burst"]] if shown["burst"] else []
    return shown


SCALING = Experiment(
    "scaling",
    "Measure how throughput grows with the nodes that host.",
    """For one hot attribute, and for 100 attributes by a Zipf law: the most events per second of
    which 99 % are delivered within 100 ms, with 1, 2, 4 … 64 nodes whose work takes simulated time.
    Then a burst of twenty times the load. docs/lab/scaling.md has the results. Takes some minutes.
    """,
    ScalingPlan(),
    measure,
    tables=(
        Table(
            "hosts: hosts | events_per_second ,.0f: events per second | linear .2f: of linear"
            " | p99_ms .1f: p99, ms | virtual_nodes: virtual nodes | used: used",
            each=("points",),
            by="load",
            title="events in time, load {load}",
        ),
        Table(
            "hosts: a burst, hosts | {base:,.0f}, {peak:,.0f}: events per second before and in it"
            " | in_time_after_s g: seconds until 99 % were in time again"
            " | {delivered:,} of {expected:,}: delivered"
            " | {virtual_nodes.0} → {virtual_nodes.1} → {virtual_nodes.2}: virtual nodes"
            " | {used.0} → {used.1} → {used.2}: hosts that are used | changes: changes of maps"
            " | last_change_s g: the last so many seconds after the burst",
            each=("bursts",),
            transposed=True,
        ),
    ),
    picture=Picture(
        (
            (
                Panel(
                    "hosts",
                    "events_per_second",
                    "load",
                    "nodes that may host (dotted: linear)",
                    "events per second in time",
                    each=("points",),
                    x_base=2,
                    y_log=True,
                    dotted="if_linear",
                ),
            ),
        ),
        "99 % within {parameters.p99_ms:g} ms, seed {parameters.seed}",
        (6.0, 4.4),
    ),
    facts=facts,
)
