"""One mode under one load: an overlay whose hosts of one tree have as much to do as they can.

All events go to the tree of `type`, which `plan.replicas` hosts serve. There are `plan.types` types
of events per latency level, equally frequent, at random times (a Poisson stream) from all
publishers. Each node that subscribes has a subscription to each type, which names that type's
level; so an event matches one subscription of each of these nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bench.experiments.running import run_until_ready
from bench.experiments.timeliness.plan import Mode, TimelinessPlan
from canopy.sim.world.clients import Clients, Publication
from canopy.sim.world.world import World
from overlay.client import LEVELS
from overlay.links.events import Codec
from overlay.settings import Settings, TreeSettings
from overlay.upper_tree.host.urgency import TYPE

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

    rate: int  # events per second
    matching: int  # subscriptions that an event matches
    expected: int  # deliveries
    delivered: int
    all: Latency
    levels: tuple[Latency, ...]  # of the subscribers of level 1, 2, …
    urgency_ms: float  # the mean, weighted by urgency (`weighted_latency`)
    waited: int  # events that a host put into its queue
    served: tuple[int, ...]  # events that each host matched, the busiest first


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

    def __init__(self, mode: Mode, plan: TimelinessPlan, codec: Codec) -> None:
        self.mode = mode
        self.plan = plan
        self.world = World(plan.seed, codec, settings_of(mode, plan))
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
        self._publish(rate, self.plan.warm_up)
        self._matched.clear()
        queued = self._count("visits_queued")
        found = DeliveryTimes(self.world.clients, self._levels)
        for first in range(0, self.plan.events, AT_ONCE):
            found.expect(self._publish(rate, min(AT_ONCE, self.plan.events - first)))
            found.take()
        expected = self.plan.events * self.matching
        self.world.run_until(lambda: found.take() >= expected, DRAINED_WITHIN, DRAINED_LOOK)
        waited = self._count("visits_queued") - queued
        times = found.times
        levels = tuple(map(latency_of, times))
        everything = [second for level in times for second in level]
        served = sorted((n for n in self._matched.values() if n), reverse=True)
        return Point(
            rate, self.matching, expected, len(everything), latency_of(everything), levels,
            weighted_latency(levels), waited, tuple(served),
        )  # fmt: skip

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

    def _count(self, name: str) -> int:
        return sum(self.world.node(n).counters.get(name, 0) for n in self._names)


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
