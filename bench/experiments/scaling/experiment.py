"""The whole experiment: what so many hosts can do in time, for each load, and a burst."""

from __future__ import annotations

from collections.abc import Sequence

from bench.experiments.running import Progress, no_progress
from bench.experiments.scaling.plan import LoadName, ScalingPlan
from bench.experiments.scaling.report import Burst, Measured, Scaling, ScalingPoint
from bench.experiments.scaling.stage import Stage
from canopy.sim.world.cost import collector_at_rest
from overlay.links.events import Codec

RAMP = 1.0
"""Virtual seconds in which a burst comes, in steps of a tenth."""

IDLE = 0.05
"""A host is idle that works for less than this share of its time."""

WINDOW = 0.5
"""Virtual seconds of events by which a burst is judged."""


def experiment(
    plan: ScalingPlan, seed: int, codec: Codec, progress: Progress = no_progress
) -> Scaling:
    """All points and the burst."""
    run = Experiment(plan, seed, codec, progress)
    with collector_at_rest():
        points = [point for load in plan.loads for point in run.points(load)]
        burst = run.burst("one") if plan.burst_hosts else None
    return Scaling(seed, plan, tuple(points), burst)


class Experiment:
    """Measures all points, each in an overlay of its own."""

    def __init__(self, plan: ScalingPlan, seed: int, codec: Codec, progress: Progress) -> None:
        self.plan = plan
        self.seed = seed
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
            stage = Stage(self.plan, load, hosts, self.seed, self.codec)
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
        stage = Stage(plan, load, plan.burst_hosts, self.seed, self.codec)
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
