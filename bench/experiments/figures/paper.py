"""The five figures: which parameter varies, and how a curve follows from costs (CBDLO 5.3, 5.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from bench.experiments.figures.full_nodes import NodeCost, full_nodes
from bench.experiments.figures.model import Figure, FigureCurve, FigurePlan
from bench.experiments.figures.points import (
    ForwardingCost,
    SimpleCost,
    TeraCost,
    cbdlo,
    forwarding,
    simple,
    tera,
)
from bench.experiments.routing_model.counting_routing import EventCost, effective
from bench.experiments.running import Progress, no_progress
from overlay.links.events import Codec

SIMPLE_SHARE = 0.1
"""Figures 8 and 9: factor on *Simple*'s curve, as the paper has it ("0.1")."""

CBDLO_SHARE = 1 / 8
"""… and on CBDLO's: one of 8 attributes, so the cost of a single walk ("1/8")."""

MODEL = "CBDLO in the routing model"

WITH_LISTS = "CBDLO with the messages of the node lists"
WITHOUT_LISTS = "CBDLO without the messages of the node lists"
FORWARDING = "One copy forwarded at random, counted by events"

Facts = dict[str, tuple[float | None, ...]]
Vary = Callable[[FigurePlan, int], FigurePlan]
Measure = Callable[[FigurePlan, str, Codec], NodeCost]
"""What a point costs in whole nodes, by its plan and the name of its load."""

LOAD = FigurePlan(x=()).load

PLANS = {
    5: FigurePlan(x=(500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 10_000)),
    6: FigurePlan(x=(2, 4, 6, 8, 10, 15, 20, 30)),
    7: FigurePlan(x=(100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)),
    8: FigurePlan(
        x=(250, 500, 1_000, 2_000, 3_000, 5_000, 8_000, 10_000),
        view=20,
        access_points=20,
        hops=30,
        load=msgspec.structs.replace(LOAD, attributes=100),
    ),
    9: FigurePlan(
        x=(25, 50, 100, 150, 200, 300, 400, 500),
        view=20,
        access_points=20,
        hops=30,
        subscriptions=3_000,
    ),
}
"""The paper's parameters where it gives them (view, table, hops, nodes); else
docs/lab/figures.md."""


FULL_NODES: dict[int, dict[str, Any]] = {
    5: {"x": (100, 200)},
    6: {"x": (2, 10, 30)},
    7: {"x": (12, 30, 100)},
    8: {"x": (100, 400)},
    9: {"x": (50, 200)},
}
"""With whole nodes: what an overlay of 100 of them shows in a minute or so a point."""

FULL_NODES_ALL = {
    "full_nodes": True,
    "nodes": 100,
    "subscriptions": 200,
    "events": 100,
}
"""… in all figures."""


def plan_of(number: int, full_nodes: bool = False) -> FigurePlan:
    """The parameters of the figure with this number, in a size for whole nodes if these make it."""
    changes = {**FULL_NODES_ALL, **FULL_NODES[number]} if full_nodes else {}
    return msgspec.structs.replace(PLANS[number], **changes)


def make(
    number: int,
    plan: FigurePlan,
    codec: Codec,
    progress: Progress = no_progress,
    measure: Measure = full_nodes,
) -> Figure:
    """The figure with this number: 5 to 9. `codec`: of whole nodes, if these make it; `measure`:
    how they do."""
    make_it = {5: _five, 6: _six, 7: _seven, 8: _eight, 9: _nine}[number]
    return make_it(Points(plan, codec, progress, measure))


def load_name(plan: FigurePlan, x: int) -> str:
    """Names the chance of a point: its graph, its subscriptions and its events."""
    return str(plan.seed) if plan.one_load else f"{plan.seed}/{x}"


class Costs(NamedTuple):
    """What one point costs in CBDLO."""

    curve: EventCost
    """In whole nodes or in the routing model, as the plan says."""
    model: EventCost | None
    """In the model, where `curve` is of whole nodes."""


class Points:
    """Finds what the points of a figure cost, each with a graph and load of its own, unless the
    plan says that they have one."""

    def __init__(
        self, plan: FigurePlan, codec: Codec, progress: Progress, measure: Measure
    ) -> None:
        self.plan = plan
        self._codec = codec
        self._progress = progress
        self._measure = measure

    def ours(self, vary: Vary) -> list[Costs]:
        """CBDLO at every x."""
        found = []
        for place, x in enumerate(self.plan.x):
            self._progress("", place / len(self.plan.x))
            here, name = vary(self.plan, x), self._name(x)
            model = cbdlo(here, name)
            if here.full_nodes:
                found.append(Costs(self._measure(here, name, self._codec), model))
            else:
                found.append(Costs(model, None))
        return found

    def simple(self, vary: Vary) -> list[SimpleCost]:
        """*Simple* with the same loads."""
        plan = self.plan
        return [simple(vary(plan, x), self._name(x)) for x in plan.x]

    def forwarding(self, vary: Vary) -> list[ForwardingCost]:
        """One copy that is forwarded at random, with the same loads."""
        plan = self.plan
        return [forwarding(vary(plan, x), self._name(x)) for x in plan.x]

    def tera(self, vary: Vary) -> list[TeraCost]:
        """*TERA* on as many nodes."""
        plan = self.plan
        return [tera(vary(plan, x), self._name(x)) for x in plan.x]

    def _name(self, x: int) -> str:
        return load_name(self.plan, x)


def _facts(ours: list[Costs]) -> Facts:
    """What CBDLO's curve is made of; of whole nodes also what the model has."""
    costs = [each.curve for each in ours]
    facts: Facts = {
        "walk": tuple(float(c.walk) for c in costs),
        "tree": tuple(float(c.tree) for c in costs),
        "lists": tuple(float(c.lists) for c in costs),
        "expected": tuple(float(c.expected) for c in costs),
        "delivered": tuple(float(c.delivered) for c in costs),
        **_rates("", costs),
    }
    nodes = [cost for cost in costs if isinstance(cost, NodeCost)]
    if nodes:
        facts["shown"] = tuple(float(c.shown) for c in nodes)
        facts["asked"] = tuple(float(c.asked) for c in nodes)
        facts["known"] = tuple(c.known for c in nodes)
        facts["at_subscribers"] = tuple(c.at_subscribers for c in nodes)
        facts |= _rates("model_", [each.model for each in ours if each.model is not None])
    return facts


def _rates(prefix: str, costs: list[EventCost]) -> Facts:
    """How the walks and trees of an attribute went on average."""
    return {
        f"{prefix}hit_rate": tuple(c.found / c.attributes if c.attributes else None for c in costs),
        f"{prefix}walk_hops": tuple(c.walk / max(c.attributes, 1) for c in costs),
        f"{prefix}tree_hops": tuple(c.tree / max(c.found, 1) for c in costs),
        f"{prefix}list_messages": tuple(c.lists / max(c.found, 1) for c in costs),
    }


def _in_model(ours: list[Costs], y: Callable[[EventCost], float | None]) -> tuple[FigureCurve, ...]:
    """The routing model's curve, where whole nodes made CBDLO's."""
    models = [each.model for each in ours if each.model is not None]
    return (FigureCurve(MODEL, tuple(map(y, models)), paper=False),) if models else ()


def _effective_series(points: Points, vary: Vary) -> tuple[FigureCurve, ...]:
    ours, simples, forwarded = points.ours(vary), points.simple(vary), points.forwarding(vary)
    theirs: Facts = {
        "messages": tuple(float(c.messages) for c in simples),
        "expected": tuple(float(c.expected) for c in simples),
        "delivered": tuple(float(c.delivered) for c in simples),
    }
    at_random: Facts = {
        "messages": tuple(float(c.messages) for c in forwarded),
        "expected": tuple(float(c.wanted) for c in forwarded),
        "delivered": tuple(c.met for c in forwarded),
    }

    def cost(each: EventCost) -> float | None:
        return effective(each.routing, each.delivered, each.expected)

    return (
        FigureCurve(
            "Simple",
            tuple(effective(c.messages, c.delivered, c.expected) for c in simples),
            facts=theirs,
        ),
        FigureCurve("CBDLO (CRAWL)", tuple(cost(c.curve) for c in ours), facts=_facts(ours)),
        FigureCurve(
            WITH_LISTS,
            tuple(effective(c.messages, c.delivered, c.expected) for c, _ in ours),
            paper=False,
        ),
        FigureCurve(
            FORWARDING,
            tuple(effective(c.messages, c.met, c.wanted) for c in forwarded),
            paper=False,
            facts=at_random,
        ),
        *_in_model(ours, cost),
    )


def _figure(number: int, title: str, labels: tuple[str, str], series: tuple[FigureCurve, ...],
            points: Points, x_log: bool = False) -> Figure:  # fmt: skip
    parameters = msgspec.to_builtins(points.plan)
    x, seed = tuple(parameters.pop("x")), parameters.pop("seed")
    return Figure(number, title, *labels, x, series, parameters, seed, x_log, y_log=True)


def _by_subscriptions(plan: FigurePlan, x: int) -> FigurePlan:
    return msgspec.structs.replace(plan, subscriptions=x)


def _by_hops(plan: FigurePlan, x: int) -> FigurePlan:
    return msgspec.structs.replace(plan, hops=x)


def _by_nodes(plan: FigurePlan, x: int) -> FigurePlan:
    return msgspec.structs.replace(plan, nodes=x, subscriptions=x)


def _by_attributes(plan: FigurePlan, x: int) -> FigurePlan:
    load = msgspec.structs.replace(plan.load, attributes=x)
    return msgspec.structs.replace(plan, load=load)


VARY: dict[int, Vary] = {
    5: _by_subscriptions,
    6: _by_hops,
    7: _by_nodes,
    8: _by_subscriptions,
    9: _by_attributes,
}
"""What varies along the x of each figure."""


def _five(points: Points) -> Figure:
    series = _effective_series(points, _by_subscriptions)
    labels = ("subscriptions", "effective cost, messages")
    title = "Effective distribution cost against the number of subscriptions"
    return _figure(5, title, labels, series, points)


def _six(points: Points) -> Figure:
    series = _effective_series(points, _by_hops)
    labels = ("largest number of hops", "effective cost, messages")
    title = "Effective distribution cost against the hop limit"
    return _figure(6, title, labels, series, points)


def _seven(points: Points) -> Figure:
    """One subscription per node, so that both overlays grow alike. Both curves count the messages
    that deliver: the broadcast of a topic, and the copies that a node list is sent."""

    def cost(each: EventCost) -> float:
        return each.messages / each.events

    ours, theirs = points.ours(_by_nodes), points.tera(_by_nodes)
    series = (
        FigureCurve(
            "TERA",
            tuple((c.walk + c.broadcast) / c.events for c in theirs),
            facts={
                "walk": tuple(c.walk / c.events for c in theirs),
                "broadcast": tuple(c.broadcast / c.events for c in theirs),
                "hit_rate": tuple(c.found / c.events for c in theirs),
                "delivered": tuple(c.reached / c.events for c in theirs),
            },
        ),
        FigureCurve("CBDLO", tuple(cost(c.curve) for c in ours), facts=_facts(ours)),
        FigureCurve(WITHOUT_LISTS, tuple(c.routing / c.events for c, _ in ours), paper=False),
        FigureCurve(
            "TERA without its broadcast", tuple(c.walk / c.events for c in theirs), paper=False
        ),
        *_in_model(ours, cost),
    )
    labels = ("nodes", "messages per event")
    title = "Messages per event against the number of nodes"
    return _figure(7, title, labels, series, points, x_log=True)


def _matching_series(points: Points, vary: Vary) -> tuple[FigureCurve, ...]:
    ours, simples = points.ours(vary), points.simple(vary)

    def cost(each: EventCost) -> float:
        return CBDLO_SHARE * each.matching / each.events

    return (
        FigureCurve(
            "Simple, times 0.1",
            tuple(SIMPLE_SHARE * each.matching / points.plan.events for each in simples),
        ),
        FigureCurve("CBDLO, times 1/8", tuple(cost(c.curve) for c in ours), facts=_facts(ours)),
        *_in_model(ours, cost),
    )


def _eight(points: Points) -> Figure:
    series = _matching_series(points, _by_subscriptions)
    labels = ("subscriptions", "matching cost, comparisons per event")
    title = "Matching cost against the number of subscriptions"
    return _figure(8, title, labels, series, points)


def _nine(points: Points) -> Figure:
    series = _matching_series(points, _by_attributes)
    labels = ("attributes", "matching cost, comparisons per event")
    title = "Matching cost against the number of attributes"
    return _figure(9, title, labels, series, points)
