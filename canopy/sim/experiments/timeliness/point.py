"""One mode under one load: an overlay whose hosts of one tree have as much to do as they can.

All events go to the tree of `type`, which `plan.replicas` hosts serve. There is one type of event
per latency level, equally frequent, at random times (a Poisson stream) from all publishers. Each
event matches the same number of subscriptions, each on a node of its own; which of them subscribes
to a type names that type's level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from canopy.sim.experiments.running import run_until_ready
from canopy.sim.experiments.timeliness.plan import Mode, TimelinessPlan
from canopy.sim.experiments.timeliness.report import Point, latency_of, weighted_latency
from canopy.sim.world.clients import Publication
from canopy.sim.world.world import World
from overlay.client import LEVELS
from overlay.links.events import Codec
from overlay.settings import Settings
from overlay.upper_tree.host.urgency import TYPE

SPARE = 3
"""Nodes that neither subscribe nor publish, and are there first."""

GAP = 0.2
"""Virtual seconds between the starts of two nodes."""

CALM = 10.0
"""Virtual seconds between the last SUBACK and the first event: the tree has its hosts by then."""

DRAINED_WITHIN = 60.0
"""Virtual seconds after the last event in which all are delivered."""


def settings_of(mode: Mode, plan: TimelinessPlan) -> Settings:
    """The product's settings for a mode. An event goes to all of its nodes without delegates: the
    paper has none."""
    tree = {
        "priority": mode.priority,
        "choice": "time" if mode.choice else "hash",
        "replicas": plan.replicas,
        "fan_out": max(16, *plan.matching, plan.matched),
    }
    return msgspec.convert({"tree": tree}, Settings)


class ModeOverlay:
    """An overlay in one mode, in which points are measured one after the other."""

    def __init__(self, mode: Mode, plan: TimelinessPlan, seed: int, codec: Codec) -> None:
        self.mode = mode
        self.plan = plan
        self.world = World(seed, codec, settings_of(mode, plan))
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
        """Make subscriptions, so many of which match each event, each with its type's level."""
        world = self.world
        for number in range(self.matching, matching):
            for level in range(1, LEVELS + 1):
                world.subscribe(subscriber(number), f"{TYPE} = '{kind_of(level)}'", level=level)
        run_until_ready(world, world.acknowledged)
        for made in world.clients.subscriptions:
            self._levels[made.identity] = made.level
        self.matching = max(matching, self.matching)
        world.run(CALM)

    # --- measuring ---

    def measure(self, rate: int) -> Point:
        """Publish at this rate, and wait for the deliveries."""
        clients = self.world.clients
        clients.deliveries.clear()  # of the last point
        clients.publications.clear()
        self._publish(rate, self.plan.warm_up)
        self._matched.clear()
        queued = self._count("visits_queued")
        first = len(clients.deliveries)
        measured = self._publish(rate, self.plan.events)
        expected = len(measured) * self.matching
        most = expected + self.plan.warm_up * self.matching  # some of the warm-up are still to come
        self.world.run_until(lambda: len(clients.deliveries) - first >= most, DRAINED_WITHIN)
        waited = self._count("visits_queued") - queued
        times: list[list[float]] = [[] for _ in range(LEVELS)]
        published = {each.identity: each.published for each in measured}
        for shown in clients.deliveries[first:]:
            since = published.get(shown.delivery.event.identity)
            if since is not None:
                times[self._levels[shown.delivery.subscription] - 1].append(shown.time - since)
        levels = tuple(map(latency_of, times))
        everything = [second for level in times for second in level]
        served = sorted((n for n in self._matched.values() if n), reverse=True)
        return Point(
            rate, self.matching, expected, len(everything), latency_of(everything), levels,
            weighted_latency(levels), waited, tuple(served),
        )  # fmt: skip

    def _publish(self, rate: int, count: int) -> list[Publication]:
        """So many events at random times, all of which come into the world."""
        world, made = self.world, list[Publication]()
        at = world.now

        def one(publisher: str, level: int) -> None:
            made.extend(world.publish(publisher, {TYPE: kind_of(level)}))

        for _ in range(count):
            at += self._rng.expovariate(rate)
            publisher = self._rng.choice(self._publishers)
            world.at(at, one, publisher, self._rng.randint(1, LEVELS))
        world.run_to(at)
        return made

    def _note(self, node: str, kind: str, fields: Mapping[str, Any]) -> None:
        if kind == "match":
            self._matched[node] = self._matched.get(node, 0) + 1
        elif kind == "unmatched":
            self._matched[node] = self._matched.get(node, 0) + int(fields["size"])

    def _count(self, name: str) -> int:
        return sum(self.world.node(n).counters.get(name, 0) for n in self._names)


def subscriber(number: int) -> str:
    """A node that subscribes."""
    return f"s{number}"


def kind_of(level: int) -> str:
    """The type of the events that are subscribed to with a level."""
    return f"t{level}"
