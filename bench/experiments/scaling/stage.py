"""One overlay whose trees are under a load.

`hosts` nodes may serve, and their work takes time. Publishers and subscribers are nodes of their
own that may not serve and whose work takes no time, so that what is measured is what hosts can do.
A publisher gives its node what it has every `TICK` seconds, as a program does that publishes in
batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import msgspec

from bench.experiments.running import run_until_ready
from bench.experiments.scaling.plan import LoadName, ScalingPlan
from canopy.sim.world.clients import Publication
from canopy.sim.world.world import World
from matching import Value
from overlay.links.events import Codec
from overlay.settings import ClusterSettings, Settings

TICK = 0.01
"""Virtual seconds between two batches of one publisher."""

GAP = 0.1
"""Virtual seconds between the starts of two nodes."""

DRAIN_SLACK = 0.05
"""Virtual seconds beside the limit after which what was measured should be there."""


class Stage:
    """A number of hosts under one kind of load, at one rate after another."""

    def __init__(self, plan: ScalingPlan, load: LoadName, hosts: int, codec: Codec) -> None:
        self.plan = plan
        self.load = load
        self.world = World(plan.seed, codec, Settings())
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

    def worked(self) -> list[float]:
        """Seconds of its processor that each host has used so far."""
        return [self.world.drivers[name].worked for name in self.hosts]

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
