"""What one point of a curve costs: the same overlay, load and sources for all curves."""

from __future__ import annotations

from random import Random
from typing import Literal, cast

import msgspec

from canopy.sim.experiments.figures.model import Baselines, FigurePlan, Neighbours
from canopy.sim.experiments.routing_model.counting_routing import EventCost, ModelOverlay
from canopy.sim.experiments.routing_model.random_graph import LowerLayer
from canopy.sim.scenario.range_load import RangeLoad
from overlay.settings import ViewSettings, WalkSettings


class SimpleCost(msgspec.Struct):
    """What *Simple* spent on some events."""

    messages: int = 0
    expected: int = 0
    delivered: int = 0
    matching: float = 0.0  # attributes compared: all of all subscriptions of each visited node


class TeraCost(msgspec.Struct):
    """What *TERA* spent on some events."""

    events: int = 0
    walk: int = 0
    broadcast: int = 0
    found: int = 0


def overlay(plan: FigurePlan, seed: str) -> ModelOverlay:
    """A CBDLO overlay with the figure's parameters, in the routing model."""
    return ModelOverlay(
        seed,
        plan.nodes,
        plan.subscriptions,
        plan.load,
        ViewSettings(size=plan.view, access_points=plan.access_points),
        WalkSettings(hops=plan.hops, trace=plan.trace),
        cast(Literal["subscribers", "cluster"], plan.placement),
    )


def cbdlo(plan: FigurePlan, seed: str) -> EventCost:
    """Publish the figure's events through CBDLO, and count what they cost."""
    return overlay(plan, seed).run(plan.events)


def graph(plan: FigurePlan, seed: str) -> Neighbours:
    """The random graph below, without anything on it."""
    view = ViewSettings(size=plan.view)
    layer = LowerLayer(seed, plan.nodes, (), lambda name, rng: None, {}, view, WalkSettings())
    return layer.neighbours


def simple(plan: FigurePlan, seed: str, baselines: Baselines) -> SimpleCost:
    """Publish the same events from the same sources through *Simple*, and count what they cost."""
    load = RangeLoad(Random(f"{seed}/load"), plan.load, plan.nodes)  # exactly as in ModelOverlay
    subscriptions = [load.subscription(number) for number in range(plan.subscriptions)]
    wanderer = baselines.simple(graph(plan, seed), Random(f"{seed}/simple"), plan.walkers)
    at: dict[int, list[int]] = {}
    for subscription in subscriptions:
        at.setdefault(subscription.node, []).append(subscription.number)
    cost = SimpleCost()
    sources = Random(f"{seed}/sources")
    for _ in range(plan.events):
        source, event = sources.randrange(plan.nodes), load.event()
        seen, messages = wanderer.publish(source, plan.hops)
        matching = {s.number for s in subscriptions if s.matches(event)}
        cost.messages += messages
        cost.expected += len(matching)
        for node in seen:
            for number in at.get(node, ()):
                cost.matching += len(subscriptions[number].ranges)
                cost.delivered += number in matching
    return cost


def tera(plan: FigurePlan, seed: str, baselines: Baselines) -> TeraCost:
    """Publish as many events through *TERA* on the same random graph, and count what they cost."""
    rng = Random(f"{seed}/tera")
    broadcaster = baselines.tera(graph(plan, seed), plan.nodes, rng, seed)
    cost = TeraCost()
    for _ in range(plan.events):
        source = rng.randrange(plan.nodes)
        topic = rng.choice(broadcaster.subscribed)
        walk, broadcast, reached = broadcaster.publish(source, topic, plan.hops)
        cost.events += 1
        cost.walk += walk
        cost.broadcast += broadcast
        cost.found += reached > 0
    return cost
