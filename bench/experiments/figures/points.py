"""What one point of a curve costs: the same overlay, load and sources for all curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import msgspec

from bench.baselines.simple import Forwarding, Neighbours, Simple
from bench.baselines.tera import Tera
from bench.experiments.figures.plan import FigurePlan
from bench.experiments.routing_model.counting_routing import EventCost, ModelOverlay
from bench.experiments.routing_model.random_graph import LowerLayer
from canopy.sim.scenario.range_load import RangeLoad, RangeSubscription
from overlay.settings import ViewSettings, WalkSettings


class SimpleCost(msgspec.Struct):
    """What *Simple* spent on some events."""

    messages: int = 0
    expected: int = 0
    delivered: int = 0
    matching: float = 0.0  # attributes compared: all of all subscriptions of each visited node


class ForwardingCost(msgspec.Struct):
    """What forwarding to one random neighbour spent on some events."""

    messages: int = 0
    wanted: int = 0  # events that some subscription matches
    met: float = 0.0  # … and of these, on average, those that came to a node with one


class TeraCost(msgspec.Struct):
    """What *TERA* spent on some events."""

    events: int = 0
    walk: int = 0
    broadcast: int = 0
    found: int = 0
    reached: int = 0  # subscribers


def overlay(plan: FigurePlan, seed: str) -> ModelOverlay:
    """A CBDLO overlay with the figure's parameters, in the routing model."""
    return ModelOverlay(
        seed,
        plan.nodes,
        plan.subscriptions,
        plan.load,
        ViewSettings(size=plan.view, access_points=plan.access_points),
        WalkSettings(hops=plan.hops, trace=plan.trace),
    )


def cbdlo(plan: FigurePlan, seed: str) -> EventCost:
    """Publish the figure's events through CBDLO, and count what they cost."""
    return overlay(plan, seed).run(plan.events)


def graph(plan: FigurePlan, seed: str) -> Neighbours:
    """The random graph below, without anything on it."""
    view = ViewSettings(size=plan.view)
    layer = LowerLayer(seed, plan.nodes, (), lambda name, rng: None, {}, view, WalkSettings())
    return layer.neighbours


def simple(plan: FigurePlan, seed: str) -> SimpleCost:
    """Publish the same events from the same sources through *Simple*, and count what they cost."""
    load = PublishedLoad(plan, seed)
    flood = Simple(graph(plan, seed))
    compared = Counter[int]()  # at each node
    for subscription in load.subscriptions:
        compared[subscription.node] += len(subscription.ranges)
    cost = SimpleCost()
    for source, matching in load.events():
        seen, messages = flood.publish(source, plan.hops)
        cost.messages += messages
        cost.expected += len(matching)
        cost.delivered += sum(subscription.node in seen for subscription in matching)
        cost.matching += sum(compared[node] for node in seen)
    return cost


def forwarding(plan: FigurePlan, seed: str) -> ForwardingCost:
    """Forward the same events from the same sources at random, each `plan.forwardings` times, and
    count which of them meet a node that wants them."""
    load = PublishedLoad(plan, seed)
    walk = Forwarding(graph(plan, seed), Random(f"{seed}/forwarding"))
    cost = ForwardingCost()
    for source, matching in load.events():
        wanting = {subscription.node for subscription in matching}
        went = [walk.publish(source, plan.hops) for _ in range(plan.forwardings)]
        cost.messages += went[0][1]
        cost.wanted += bool(wanting)
        cost.met += sum(not wanting.isdisjoint(seen) for seen, _ in went) / len(went)
    return cost


class PublishedLoad:
    """The subscriptions and events of a point, exactly as `ModelOverlay` draws them."""

    def __init__(self, plan: FigurePlan, seed: str) -> None:
        self._plan = plan
        self._load = RangeLoad(Random(f"{seed}/load"), plan.load, plan.nodes)
        self._sources = Random(f"{seed}/sources")
        self.subscriptions = [self._load.subscription(n) for n in range(plan.subscriptions)]

    def events(self) -> Iterator[tuple[int, list[RangeSubscription]]]:
        """The source of each event, and the subscriptions that match it."""
        for _ in range(self._plan.events):
            source, event = self._sources.randrange(self._plan.nodes), self._load.event()
            yield source, [each for each in self.subscriptions if each.matches(event)]


def tera(plan: FigurePlan, seed: str) -> TeraCost:
    """Publish as many events through *TERA* on the same random graph, and count what they cost."""
    rng = Random(f"{seed}/tera")
    broadcaster = Tera(graph(plan, seed), plan.nodes, rng, seed)
    cost = TeraCost()
    for _ in range(plan.events):
        source = rng.randrange(plan.nodes)
        topic = rng.choice(broadcaster.subscribed)
        walk, broadcast, reached = broadcaster.publish(source, topic, plan.hops)
        cost.events += 1
        cost.walk += walk
        cost.broadcast += broadcast
        cost.found += reached > 0
        cost.reached += reached
    return cost
