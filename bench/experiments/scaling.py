"""How throughput grows with the nodes that host, and how fast trees follow a burst (C6).

The product's own nodes. `hosts` nodes may serve, and their work takes simulated time. Publishers
and subscribers are nodes of their own that may not serve and whose work takes no time, so that what
is measured is what hosts can do. A publisher gives its node what it has every `TICK` seconds, as a
program does that publishes in batches. Each load is tried at each number of hosts; then there is a
burst of the first load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from bench.experiments.frame import Experiment, Progress, run_until_ready
from bench.experiments.pictures import Picture
from canopy.sim.world.clients import Publication
from canopy.sim.world.network import Conditions
from canopy.sim.world.processor import Processor
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from matching import Value
from overlay.settings import ClusterSettings, Settings

SLOWER = 50
"""How many times slower than a real node's (canopy/sim/world/processor.py) the simulated processors
are: as many times fewer events bring them to their limit."""

LoadName = Literal["one", "zipf", "value", "crowd"]
"""`one`: every event has one attribute, and each value is as likely. `zipf`: an event has some of
100 attributes, drawn by a Zipf law with exponent 0.8, and each value is as likely. `value`: every
event has the same value of one attribute, which a few nodes want; `crowd`: many want it, so that
one event takes a host long."""

Seconds = Annotated[float, Meta(gt=0, le=600)]


class ScalingPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the experiment depends on, beside the code."""

    hosts: tuple[Annotated[int, Meta(ge=1, le=512)], ...] = (1, 2, 4, 8, 16, 32, 64)
    loads: tuple[LoadName, ...] = ("one", "zipf")
    attributes: Annotated[int, Meta(ge=1)] = 100  # of `zipf`
    per_event: Annotated[int, Meta(ge=1)] = 3  # attributes of one event of `zipf`
    zipf: Annotated[float, Meta(ge=0)] = 0.8
    parts: Annotated[int, Meta(ge=1)] = (
        64  # subscriptions to one attribute of `one`, each to as many
    )
    # values; four to each of `zipf`
    audience: Annotated[int, Meta(ge=1)] = 4  # nodes that want the one value of `value` …
    crowd: Annotated[int, Meta(ge=1)] = 100  # … and of `crowd`
    publishers: Annotated[int, Meta(ge=1)] = 16  # whose own work takes no time
    subscribers: Annotated[int, Meta(ge=1)] = 16  # as well
    p99_ms: Annotated[float, Meta(gt=0)] = 100.0  # 99 % of deliveries are to be made within
    shares: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of what `hosts` times one host can
    # do: the rates that are tried, from the middle
    one_host: tuple[float, ...] = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7)  # of a processor's
    # time for events alone, without frames: the rates that are tried with one host
    settle: Seconds = 20.0  # until a rate is measured: at most
    calm: Seconds = 3.0  # … or until no map has changed for so long
    measured: Seconds = 2.0  # deliveries of events that are published within so long, or longer, …
    measured_events: Annotated[int, Meta(ge=1)] = 400  # … so that there are so many of them
    burst_hosts: int = 32  # nodes of the burst; 0: no burst
    burst_base: Annotated[float, Meta(gt=0)] = 0.4  # of one host's time before it
    burst_factor: Annotated[float, Meta(gt=1)] = 20.0
    burst_seconds: Seconds = 12.0
    after_burst: Seconds = 60.0  # in which maps are to settle
    processor: Processor = Processor(
        per_input=SLOWER * 0.000_02,
        per_match=SLOWER * 0.000_02,
        per_further=SLOWER * 0.000_002,
        per_recipient=SLOWER * 0.000_01,
    )
    network: Conditions = Conditions(latency_low=0.000_2, latency_high=0.000_6)  # a local network's
    seed: int = 1

    def deliveries(self, load: LoadName) -> int:
        """How many deliveries one event of a load should have."""
        match load:
            case "one":
                return 1
            case "zipf":
                return min(self.per_event, self.attributes)
            case "value":
                return self.audience
            case "crowd":
                return self.crowd


TICK = 0.01
"""Virtual seconds between two batches of one publisher."""

GAP = 0.1
"""Virtual seconds between the starts of two nodes."""

DRAIN_SLACK = 0.05
"""Virtual seconds beside the limit after which what was measured should be there."""


class Stage:
    """A number of hosts under one kind of load, at one rate after another."""

    def __init__(self, plan: ScalingPlan, load: LoadName, hosts: int) -> None:
        self.plan = plan
        self.load = load
        self.world = World(plan.seed, WireCodec(), Settings())
        self.world.network.conditions = plan.network
        self.world.recorder.listen = self._note
        self.hosts = [f"h{number}" for number in range(hosts)]
        self.changes: list[tuple[float, str]] = []
        """When a map changed, and why."""
        self._rng = self.world.generator("scaling")
        self._rate = 0.0
        self.published: list[Publication] = []
        """What was published since `forget`."""
        weights = [1 / rank**plan.zipf for rank in range(1, plan.attributes + 1)]
        self._weights = list(accumulate(weights))
        self._build()

    def _build(self) -> None:
        world, plan = self.world, self.plan
        for name in self.hosts:
            self._add(name)
        world.settings = msgspec.structs.replace(
            world.settings, cluster=ClusterSettings(serve=False)
        )
        publishers = [f"p{number}" for number in range(plan.publishers)]
        count = self.deliveries_per_event if self._is_one_value else plan.subscribers
        subscribers = [f"s{number}" for number in range(count)]
        for name in (*publishers, *subscribers):
            self._add(name)
        run_until_ready(world, world.ready)
        for number, selector in enumerate(self._selectors()):
            world.subscribe(subscribers[number % len(subscribers)], selector)
        run_until_ready(world, world.acknowledged)
        for name in self.hosts:
            world.drivers[name].processor = plan.processor
        for number, name in enumerate(publishers):
            world.at(world.now + TICK * number / len(publishers), self._publish, name)

    def _add(self, name: str) -> None:
        self.world.add_node(self.hosts[:1] if name != self.hosts[0] else (), name)
        self.world.run(GAP)

    def _selectors(self) -> list[str]:
        """Subscriptions that part the values of each attribute: an event matches one for each of
        its attributes. To one value: each subscriber wants all events."""
        if self._is_one_value:
            return ["kind = 'quake'"] * self.deliveries_per_event
        if self.load == "one":
            return [_between("x", n, self.plan.parts) for n in range(self.plan.parts)]
        names = [f"a{number}" for number in range(self.plan.attributes)]
        return [_between(name, n, 4) for n in range(4) for name in names]

    def event(self) -> dict[str, Value | None]:
        """The attributes of one event."""
        if self._is_one_value:
            return {"kind": "quake"}
        if self.load == "one":
            return {"x": self._rng.random()}
        found: dict[str, Value | None] = {}
        numbers = range(self.plan.attributes)
        while len(found) < min(self.plan.per_event, self.plan.attributes):
            (number,) = self._rng.choices(numbers, cum_weights=self._weights)
            found[f"a{number}"] = self._rng.random()
        return found

    @property
    def deliveries_per_event(self) -> int:
        """How many each event should have."""
        return self.plan.deliveries(self.load)

    @property
    def _is_one_value(self) -> bool:
        return self.load in ("value", "crowd")

    # --- load ---

    def publish_at(self, rate: float) -> None:
        """Publish `rate` events per second from now on."""
        self._rate = rate

    def _publish(self, publisher: str) -> None:
        world = self.world
        world.at(world.now + TICK, self._publish, publisher)
        wanted = self._rate * TICK / self.plan.publishers
        count = int(wanted) + (self._rng.random() < wanted % 1.0)
        if count:
            events = [self.event() for _ in range(count)]
            self.published += world.publish(publisher, *events)

    def measure(self, seconds: float) -> tuple[int, list[float]]:
        """How many deliveries the events that are published from now on should have, and within
        how many seconds each was made that was made in time or nearly so."""
        clients = self.world.clients
        self.forget()
        self.world.run(seconds)
        mine = list(self.published)
        self.world.run(self.plan.p99_ms / 1000 + DRAIN_SLACK)
        published = {each.identity: each.published for each in mine if each.identity}
        times = [
            shown.time - published[shown.delivery.event.identity]
            for shown in clients.deliveries
            if shown.delivery.event.identity in published
        ]
        return len(mine) * self.deliveries_per_event, times

    def forget(self) -> None:
        """Forget what was published and delivered so far."""
        self.published.clear()
        self.world.clients.publications.clear()
        self.world.clients.deliveries.clear()

    def settle(self) -> float:
        """Run until no map has changed for a while; the seconds until the last change."""
        world, plan = self.world, self.plan
        began = world.now
        while world.now < began + plan.settle:
            world.run(0.5)
            self.forget()
            if world.now - self._last_change(began) >= plan.calm:
                break
        return self._last_change(began) - began

    def _last_change(self, since: float) -> float:
        return max(since, self.changes[-1][0] if self.changes else 0.0)

    def drain(self) -> None:
        """Publish nothing until everything is delivered."""
        self.publish_at(0.0)
        self.world.settle(60.0, 1.0)
        self.forget()

    # --- what there is ---

    def size(self) -> tuple[int, int]:
        """(virtual nodes, hosts that the maps name)."""
        count, hosts = 0, dict[str, None]()
        for name in self.hosts:
            node = self.world.node(name)
            for owned in node.owner.trees.values():
                count += len(owned.tree.map.entries)
                hosts.update(dict.fromkeys(owned.tree.map.hosts()))
        return count, len(hosts)

    def _note(self, node: str, kind: str, fields: Mapping[str, Any]) -> None:
        if kind == "map":
            self.changes.append((self.world.now, fields["reason"]))


def _between(name: str, number: int, parts: int) -> str:
    low, high = number / parts, (number + 1) / parts
    return f"{name} >= {low} AND {name} < {high}"


RAMP = 1.0
"""Virtual seconds in which a burst comes, in steps of a tenth."""

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


class ScalingPoint(msgspec.Struct, frozen=True):
    """The highest rate that a number of hosts sustains in time."""

    load: str
    hosts: int
    seed: int
    events_per_second: float
    linear: float  # of what so many times one host can do
    p99_ms: float
    virtual_nodes: int
    used: int  # hosts that the maps name
    settled_s: float  # the longest of all rates that were tried


class Burst(msgspec.Struct, frozen=True):
    """A load that rises by a factor within a second, and falls again."""

    load: str
    hosts: int
    seed: int
    base: float  # events per second
    peak: float
    in_time_after_s: float  # from the burst's beginning until 99 % were in time again; -1: never
    expected: int  # deliveries of all events
    delivered: int
    virtual_nodes: tuple[int, int, int]  # before, at the end of the burst, at the end
    used: tuple[int, int, int]  # hosts, then
    changes: int  # of maps in all
    last_change_s: float  # from the burst's end until the last change of a map


class Scale:
    """Measures all points, each in an overlay of its own."""

    def __init__(self, plan: ScalingPlan, progress: Progress) -> None:
        self.plan = plan
        self._progress = progress
        self._total = len(plan.loads) * len(plan.hosts) + bool(plan.burst_hosts)
        self._done = 0

    def points(self, load: LoadName) -> list[ScalingPoint]:
        """The most that each number of hosts can do."""
        found: list[ScalingPoint] = []
        one = 0.0
        name = f"zipf, {self.plan.per_event} an event" if load == "zipf" else load
        for hosts in sorted({1, *self.plan.hosts}):
            if found and not one:
                break  # not even the least rate was in time: nothing to count from
            stage = Stage(self.plan, load, hosts)
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
                    name,
                    hosts,
                    self.plan.seed,
                    round(rate, 1),
                    round(rate / (hosts * one), 3) if one else 0.0,
                    shown.p99_ms,
                    shown.virtual_nodes,
                    shown.hosts,
                    max(each.settled_s for each in tried),
                )
            )
            self._done += 1
        return [point for point in found if point.hosts in self.plan.hosts]

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
        expected, times = stage.measure(max(self.plan.measured, self.plan.measured_events / rate))
        nodes, hosts = stage.size()
        found = Measured(
            round(rate, 1),
            expected,
            len(times),
            p99_ms(times, expected),
            nodes,
            hosts,
            round(settled, 2),
        )
        stage.drain()
        return found

    def _is_in_time(self, measured: Measured) -> bool:
        return 0 <= measured.p99_ms <= self.plan.p99_ms

    def burst(self, load: LoadName) -> Burst:
        """A load that grows within a second and goes away."""
        plan = self.plan
        self._progress(f"burst, {plan.burst_hosts} hosts", self._done / self._total)
        stage = Stage(plan, load, plan.burst_hosts)
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
            "burst", plan.burst_hosts, plan.seed, round(base, 1), round(peak, 1),
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


def trials(plan: ScalingPlan, progress: Progress) -> Iterator[ScalingPoint | Burst]:
    """All points, and the burst."""
    run = Scale(plan, progress)
    for load in plan.loads:
        yield from run.points(load)
    if plan.burst_hosts:
        yield run.burst("one")


SCALING = Experiment(
    "scaling",
    "Measure how throughput grows with the nodes that host.",
    """For one hot attribute, and for 100 attributes by a Zipf law: the most events per second of
    which 99 % are delivered within 100 ms, with 1, 2, 4 … 64 nodes whose work takes simulated time.
    Then a burst of twenty times the load. docs/lab/scaling.md has the results. Takes some minutes.
    """,
    ScalingPlan(),
    trials,
    "load: load | hosts: hosts | events_per_second ,.0f: events/s in time | linear .2f: of linear"
    " | p99_ms .1f: p99, ms | virtual_nodes: virtual nodes | used: hosts used"
    " | {base:,.0f}, {peak:,.0f}: events/s before and in the burst"
    " | in_time_after_s g: s until 99 % in time | {delivered:,} of {expected:,}: delivered"
    " | changes: changes of maps | last_change_s g: last change, s after the burst",
    (
        Picture(
            "lines",
            "hosts",
            "events_per_second",
            {"load": ""},
            "nodes that may host",
            "events per second in time",
            log=True,
        ),
    ),
)
