"""How the curves of the five figures follow from costs (CBDLO 5.3, 5.4): a row for each point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.experiments.figures.full_nodes import NodeCost, full_nodes
from bench.experiments.figures.plan import FigurePlan, Point
from bench.experiments.figures.points import cbdlo, forwarding, simple, tera
from bench.experiments.routing_model.counting_routing import EventCost, effective

SIMPLE_SHARE = 0.1
"""Figures 8 and 9: factor on *Simple*'s curve, as the paper has it ("0.1")."""

CBDLO_SHARE = 1 / 8
"""… and on CBDLO's: one of 8 attributes, so the cost of a single walk ("1/8")."""

Measure = Callable[[FigurePlan, str], NodeCost]
"""What a point costs in whole nodes, by its plan and the name of its load."""


def row_of(point: Point, measure: Measure = full_nodes) -> dict[str, Any]:
    """The row of one point: the y of each curve, and what CBDLO's is made of. `measure`: what the
    point costs in whole nodes."""
    plan, load = point.plan, point.load
    model = cbdlo(plan, load)
    ours: EventCost = measure(plan, load) if plan.whole_nodes else model
    found: dict[str, float | None]
    if point.figure in (5, 6):

        def y(cost: EventCost) -> float | None:
            return effective(cost.routing, cost.delivered, cost.expected)

        theirs, at_random = simple(plan, load), forwarding(plan, load)
        found = {
            "simple": effective(theirs.messages, theirs.delivered, theirs.expected),
            "with_lists": effective(ours.messages, ours.delivered, ours.expected),
            "forwarded": effective(at_random.messages, at_random.met, at_random.wanted),
        }
    elif point.figure == 7:
        # One subscription per node, so that both overlays grow alike. Both curves count the
        # messages that deliver: the broadcast of a topic, and the copies to a node list.

        def y(cost: EventCost) -> float | None:
            return cost.messages / cost.events

        topics = tera(plan, load)
        found = {
            "tera": (topics.walk + topics.broadcast) / topics.events,
            "tera_walks": topics.walk / topics.events,
            "without_lists": ours.routing / ours.events,
        }
    else:

        def y(cost: EventCost) -> float | None:
            return CBDLO_SHARE * cost.matching / cost.events

        found = {"simple": SIMPLE_SHARE * simple(plan, load).matching / plan.events}
    found = {"cbdlo": y(ours), **facts(ours, model if plan.whole_nodes else None), **found}
    if plan.whole_nodes:
        found["model"] = y(model)
    return point.row | {
        name: None if value is None else round(value, 4) for name, value in found.items()
    }


def facts(ours: EventCost, model: EventCost | None) -> dict[str, float | None]:
    """What CBDLO's curve is made of; of whole nodes also what the model has."""
    found: dict[str, float | None] = {
        "walk": ours.walk,
        "tree": ours.tree,
        "lists": ours.lists,
        "expected": ours.expected,
        "delivered": ours.delivered,
        **rates("", ours),
    }
    if isinstance(ours, NodeCost):
        found |= {"shown": ours.shown, "asked": ours.asked, "known": ours.known}
        found["at_subscribers"] = ours.at_subscribers
    return found | (rates("model_", model) if model is not None else {})


def rates(prefix: str, cost: EventCost) -> dict[str, float | None]:
    """How the walks and trees of an attribute went on average."""
    return {
        f"{prefix}hit_rate": cost.found / cost.attributes if cost.attributes else None,
        f"{prefix}walk_hops": cost.walk / max(cost.attributes, 1),
        f"{prefix}tree_hops": cost.tree / max(cost.found, 1),
        f"{prefix}list_messages": cost.lists / max(cost.found, 1),
    }
