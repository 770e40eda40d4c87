"""The timeliness experiment of the Phoenix paper (P6, P7), with the product's own nodes.

Four modes, over rates of events (its figure 9) and over numbers of matching subscriptions (figure
10). All events go to the tree of `type`, which `plan.replicas` hosts serve. There are `plan.types`
types of events per latency level, equally frequent, at random times (a Poisson stream) from all
publishers. Each node that subscribes has a subscription to each type, which names that type's
level; so an event matches one subscription of each of these nodes. All modes get the same events at
the same times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from bench.experiments.frame import Experiment, Progress, run_until_ready
from bench.experiments.pictures import Picture
from bench.lab.tables import Row
from canopy.sim.world.clients import Clients, Publication
from canopy.sim.world.cost import collector_at_rest
from canopy.sim.world.network import Conditions
from canopy.sim.world.processor import Processor
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from overlay.client import LEVELS
from overlay.settings import Settings, TreeSettings
from overlay.upper_tree.host.urgency import TYPE


class Mode(NamedTuple):
    """One of the paper's four combinations of priority and choice of host."""

    name: str  # in a row
    choice: bool  # hosts are chosen by predicted time (P7), else by a hash
    priority: bool  # hosts serve the urgent first (P6), else first in, first out


MODES = (
    Mode("neither", choice=False, priority=False),
    Mode("priority", choice=False, priority=True),
    Mode("choice", choice=True, priority=False),
    Mode("both", choice=True, priority=True),
)
"""Phoenix 4.2, table 1."""

Counts = tuple[Annotated[int, Meta(ge=1)], ...]


class TimelinessPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the experiment depends on, beside the code."""

    rates: Counts = (500, 1_000, 1_500, 2_000, 2_500, 3_000, 3_500, 4_000)  # events per second;
    # Phoenix, figure 9
    matching: Counts = (6, 10, 14, 18, 22, 26)  # subscriptions that an event matches, each on a
    # node of its own
    types: Annotated[int, Meta(ge=1)] = 200  # of events, for each level; each node subscribes to
    # all of them, so that there are 6,000 to 26,000 subscriptions, as in Phoenix, figure 10
    rate: Annotated[int, Meta(ge=1)] = 2_000  # of the second series, as in the paper
    matched: Annotated[int, Meta(ge=1)] = 10  # subscriptions per event in the first series; open
    events: Annotated[int, Meta(ge=10)] = 2_000  # measured at each point; the paper has 200,000
    warm_up: Annotated[int, Meta(ge=0)] = 200  # events before those, at the same rate
    publishers: Annotated[int, Meta(ge=1)] = 12  # open in the paper; a few to each host
    replicas: Annotated[int, Meta(ge=1)] = 3  # of the one virtual node: the match brokers, as in
    # the paper's figure of a cluster
    processor: Processor = Processor(per_input=0.000_01, per_match=0.000_3, per_recipient=0.000_04)
    # of every node: so that three hosts are nearly busy at 4,000 events a second
    network: Conditions = Conditions(latency_low=0.000_2, latency_high=0.000_6)  # a local network's
    jobs: Annotated[int, Meta(ge=1)] = 1  # modes that are measured at a time, each in a process
    seed: int = 1


SPARE = 3
"""Nodes that neither subscribe nor publish, and are there first."""

GAP = 0.2
"""Virtual seconds between the starts of two nodes."""

CALM = 10.0
"""Virtual seconds between the last SUBACK and the first event: the tree has its hosts by then."""

AT_ONCE = 1_000
"""Events that are drawn, published and judged together, which bounds the memory they need."""

DRAINED_LOOK = 0.1
"""Virtual seconds between two looks whether all are delivered."""

DRAINED_WITHIN = 60.0
"""Virtual seconds after the last event in which all are delivered."""


class Latency(msgspec.Struct, frozen=True):
    """Latencies of deliveries, in milliseconds from the publisher's client to the subscriber's."""

    deliveries: int
    mean_ms: float
    p99_ms: float


class Point(msgspec.Struct, frozen=True):
    """The results of one mode under one load."""

    mean_ms: float  # of all deliveries: the paper's measure
    urgency_ms: float  # weighted by urgency (`weighted_latency`)
    p99_ms: float
    urgent_p99_ms: float  # of level 1
    patient_p99_ms: float  # of the least urgent level
    missing: int  # deliveries
    busiest: float  # share of its time that the busiest host works
    served: tuple[int, ...]  # events that each host matched, the busiest first
    levels: tuple[Latency, ...]  # of the subscribers of level 1, 2, …


def settings_of(mode: Mode, plan: TimelinessPlan) -> Settings:
    """The product's settings for a mode. An event goes to all of its nodes without delegates: the
    paper has none."""
    most = max((*plan.matching, plan.matched))
    room = max(TreeSettings().host_entries, 2 * most * LEVELS * plan.types)
    tree = {
        "priority": mode.priority,
        "choice": "time" if mode.choice else "hash",
        "replicas": plan.replicas,
        "fan_out": max(16, most),
        "host_entries": room,  # one virtual node, whatever the number of subscriptions
        "split_at": room,
    }
    return msgspec.convert({"tree": tree}, Settings)


class ModeOverlay:
    """An overlay in one mode, in which points are measured one after the other."""

    def __init__(self, mode: Mode, plan: TimelinessPlan) -> None:
        self.mode = mode
        self.plan = plan
        self.world = World(plan.seed, WireCodec(), settings_of(mode, plan))
        self.world.network.conditions = plan.network
        self.world.recorder.listen = self._note
        self.matching = 0
        self._rng = self.world.generator("timeliness")
        self._levels: dict[str, int] = {}  # by the subscription's identity
        self._matched: dict[str, int] = {}  # events, by node
        self._publishers = [f"p{number}" for number in range(plan.publishers)]
        self._names: list[str] = []

    # --- setting up ---

    def grow(self, subscribers: int) -> None:
        """Start all nodes. Their work takes time only once the overlay stands, so that this is the
        same in all modes."""
        spare = [f"n{number}" for number in range(SPARE)]
        for name in (*spare, *self._publishers, *map(subscriber, range(subscribers))):
            self.world.add_node(self._names[:1], name)
            self._names.append(name)
            self.world.run(GAP)
        run_until_ready(self.world, self.world.ready)
        self.world.processor = self.plan.processor
        for driver in self.world.drivers.values():
            driver.processor = self.plan.processor

    def subscribe(self, matching: int) -> None:
        """Make subscriptions until `matching` of them match each event, each with its type's
        level."""
        world = self.world
        for number in range(self.matching, matching):
            for level in range(1, LEVELS + 1):
                for kind in range(self.plan.types):
                    selector = f"{TYPE} = '{kind_of(level, kind)}'"
                    world.subscribe(subscriber(number), selector, level=level)
        run_until_ready(world, world.acknowledged)
        for made in world.clients.subscriptions:
            self._levels[made.identity] = made.level
        self.matching = max(matching, self.matching)
        world.run(CALM)

    # --- measuring ---

    def measure(self, rate: int) -> Point:
        """Publish at this rate, and wait for the deliveries."""
        drivers = self.world.drivers
        before, began = {n: driver.worked for n, driver in drivers.items()}, self.world.now
        self._publish(rate, self.plan.warm_up)
        self._matched.clear()
        found = DeliveryTimes(self.world.clients, self._levels)
        for first in range(0, self.plan.events, AT_ONCE):
            found.expect(self._publish(rate, min(AT_ONCE, self.plan.events - first)))
            found.take()
        expected = self.plan.events * self.matching
        self.world.run_until(lambda: found.take() >= expected, DRAINED_WITHIN, DRAINED_LOOK)
        levels = tuple(map(latency_of, found.times))
        everything = latency_of([second for level in found.times for second in level])
        worked = max(driver.worked - before[n] for n, driver in drivers.items())
        return Point(
            everything.mean_ms,
            weighted_latency(levels),
            everything.p99_ms,
            levels[0].p99_ms,
            levels[-1].p99_ms,
            expected - everything.deliveries,
            round(worked / (self.world.now - began), 4),
            tuple(sorted((n for n in self._matched.values() if n), reverse=True)),
            levels,
        )

    def _publish(self, rate: int, count: int) -> list[Publication]:
        """Publish `count` events at random times, at `rate` per second on average."""
        world, made = self.world, list[Publication]()
        at = world.now

        def one(publisher: str, level: int, kind: int) -> None:
            made.extend(world.publish(publisher, {TYPE: kind_of(level, kind)}))

        for _ in range(count):
            at += self._rng.expovariate(rate)
            publisher = self._rng.choice(self._publishers)
            level, kind = self._rng.randint(1, LEVELS), self._rng.randrange(self.plan.types)
            world.at(at, one, publisher, level, kind)
        world.run_to(at)
        return made

    def _note(self, node: str, kind: str, fields: Mapping[str, Any]) -> None:
        if kind == "match":
            self._matched[node] = self._matched.get(node, 0) + 1
        elif kind == "unmatched":
            self._matched[node] = self._matched.get(node, 0) + int(fields["size"])


class DeliveryTimes:
    """How long the deliveries of a point's events took; of the world's own record of deliveries
    nothing is kept."""

    def __init__(self, clients: Clients, levels: Mapping[str, int]) -> None:
        """`levels`: by the identity of a subscription."""
        self.times: list[list[float]] = [[] for _ in range(LEVELS)]
        """Latencies in seconds, by level of urgency."""
        self._clients = clients
        self._levels = levels
        self._unnamed: list[Publication] = []  # the node has not answered yet
        self._published: dict[str, float] = {}  # by the identity of an event: when

    def expect(self, made: Sequence[Publication]) -> None:
        """These events were published."""
        self._unnamed += made

    def take(self) -> int:
        """Take what was delivered since the last call. How many deliveries there were by now."""
        unnamed, self._unnamed = self._unnamed, []
        for each in unnamed:
            if each.identity:
                self._published[each.identity] = each.published
            else:
                self._unnamed.append(each)
        for shown in self._clients.deliveries:
            since = self._published.get(shown.delivery.event.identity)
            if since is not None:
                level = self._levels[shown.delivery.subscription]
                self.times[level - 1].append(shown.time - since)
        self._clients.deliveries.clear()
        self._clients.publications.clear()
        return sum(map(len, self.times))


def subscriber(number: int) -> str:
    """A node that subscribes."""
    return f"s{number}"


def kind_of(level: int, kind: int) -> str:
    """A type of events that are subscribed to with a level."""
    return f"t{level}.{kind}"


def latency_of(seconds: Sequence[float]) -> Latency:
    """Mean and 99th percentile (nearest rank); zeros if there is none."""
    if not seconds:
        return Latency(0, 0.0, 0.0)
    ordered = sorted(seconds)
    rank = -(-99 * len(ordered) // 100)
    mean = sum(ordered) / len(ordered)
    return Latency(len(ordered), round(1000 * mean, 4), round(1000 * ordered[rank - 1], 4))


def weighted_latency(levels: Sequence[Latency]) -> float:
    """The mean latency where a delivery of level l counts LEVELS + 1 - l times.

    Which of several events of the same cost is served first changes nothing about their mean
    (Kleinrock's conservation law for queues that are never idle while something waits), so the
    plain mean cannot show what priority is for.
    """
    weights = [(LEVELS - number) * each.deliveries for number, each in enumerate(levels)]
    total = sum(weights)
    if not total:
        return 0.0
    mean = sum(w * each.mean_ms for w, each in zip(weights, levels, strict=True)) / total
    return round(mean, 4)


def series(plan: TimelinessPlan, figure: int, mode: Mode) -> list[Row]:
    """One mode over all loads of a figure, each load in the same overlay: a row for each."""
    overlay, found = ModeOverlay(mode, plan), []
    counts = sorted(plan.matching) if figure == 10 else [plan.matched]
    loads = [(each, each) for each in sorted(plan.rates)]
    with collector_at_rest():
        overlay.grow(counts[-1])
        for matching in counts:
            overlay.subscribe(matching)
            for x, rate in [(matching, plan.rate)] if figure == 10 else loads:
                began = time.process_time()
                point = overlay.measure(rate)
                found.append(
                    {
                        "figure": figure,
                        "x": x,
                        "rate": rate,
                        "events": plan.events,
                        "seed": plan.seed,
                        "subscriptions": len(overlay.world.clients.subscriptions),
                        "cpu_s": round(time.process_time() - began, 1),
                        mode.name: msgspec.to_builtins(point),
                    }
                )
    return found


def trials(plan: TimelinessPlan, progress: Progress) -> Iterator[Row]:
    """A row for each load, with what each mode made of it."""
    figures = [figure for figure, over in ((9, plan.rates), (10, plan.matching)) if over]
    with ProcessPoolExecutor(plan.jobs) as pool:
        for figure in figures:
            progress(f"figure {figure}", figures.index(figure) / len(figures))
            each = pool.map(partial(series, plan, figure), MODES)
            for rows in zip(*each, strict=True):
                took = round(sum(row["cpu_s"] for row in rows), 1)
                yield {key: item for row in rows for key, item in row.items()} | {"cpu_s": took}


def _picture(figure: int, over: str) -> Picture:
    curves = {f"{mode.name}.urgency_ms": mode.name for mode in MODES}
    label = "mean latency by urgency, ms"
    return Picture("lines", "x", "", {}, over, label, {"figure": figure}, log=True, curves=curves)


TIMELINESS = Experiment(
    "timeliness",
    "Run the timeliness experiment of the Phoenix paper.",
    """Four modes (neither, priority only, choice only, both) over rates of events, and over numbers
    of matching subscriptions, with the product's own nodes. docs/lab/timeliness.md has the results,
    and the choices where the paper says nothing or cannot be read. Takes some minutes. The exit
    code is 1 if a delivery is missing.""",
    TimelinessPlan(),
    trials,
    "figure: figure | x ,: events/s (9), matching subscriptions (10) | "
    + " | ".join(
        f"{{{mode.name}.mean_ms:.1f}} ({{{mode.name}.urgency_ms:.1f}}): {mode.name}: mean, ms "
        "(by urgency)"
        for mode in MODES
    )
    + " | both.urgent_p99_ms .1f: both: p99 of level 1 | both.patient_p99_ms .1f: of level 5",
    (
        _picture(9, "events per second"),
        _picture(10, "subscriptions that an event matches"),
    ),
    is_good=lambda row: not any(row[mode.name]["missing"] for mode in MODES),
)
