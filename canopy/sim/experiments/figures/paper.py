"""The five figures: which parameter varies, and how a curve follows from costs (CBDLO 5.3, 5.4)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from canopy.sim.experiments.figures.model import (
    Baselines,
    Figure,
    FigureCurve,
    FigurePlan,
)
from canopy.sim.experiments.figures.points import SimpleCost, cbdlo, simple, tera
from canopy.sim.experiments.routing_model.counting_routing import EventCost, effective
from canopy.sim.experiments.running import Progress, no_progress

SIMPLE_SHARE = 0.1
"""Figures 8 and 9: factor on *Simple*'s curve, as the paper has it ("0.1")."""

CBDLO_SHARE = 1 / 8
"""… and on CBDLO's: one of 8 attributes, so the cost of a single walk ("1/8")."""

LOAD = FigurePlan(x=()).load

PLANS = {
    5: FigurePlan(x=(500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 10_000)),
    6: FigurePlan(x=(2, 4, 6, 8, 10, 15, 20, 30)),
    7: FigurePlan(x=(100, 300, 1_000, 3_000, 10_000, 30_000)),
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


def make(
    number: int, seed: int, baselines: Baselines, plan: FigurePlan, progress: Progress = no_progress
) -> Figure:
    """The figure with this number: 5 to 9."""
    make_it = {5: _five, 6: _six, 7: _seven, 8: _eight, 9: _nine}[number]
    return make_it(plan, seed, baselines, progress)


Facts = dict[str, tuple[float | None, ...]]
Vary = Callable[[FigurePlan, int], FigurePlan]


def _points(
    plan: FigurePlan, seed: int, vary: Vary, baselines: Baselines, progress: Progress
) -> list[tuple[EventCost, SimpleCost]]:
    """CBDLO and *Simple* at every x, each with a graph and load of its own."""
    found = []
    for place, x in enumerate(plan.x):
        progress("", place / len(plan.x))
        here = vary(plan, x)
        name = f"{seed}/{x}"
        found.append((cbdlo(here, name), simple(here, name, baselines)))
    return found


def _effective_series(points: list[tuple[EventCost, SimpleCost]]) -> tuple[FigureCurve, ...]:
    ours = [cost for cost, _ in points]
    simples = [cost for _, cost in points]
    facts: Facts = {
        "walk": tuple(float(c.walk) for c in ours),
        "tree": tuple(float(c.tree) for c in ours),
        "lists": tuple(float(c.lists) for c in ours),
        "expected": tuple(float(c.expected) for c in ours),
        "delivered": tuple(float(c.delivered) for c in ours),
        "hit_rate": tuple(c.found / c.attributes if c.attributes else None for c in ours),
    }
    theirs: Facts = {
        "messages": tuple(float(c.messages) for c in simples),
        "expected": tuple(float(c.expected) for c in simples),
        "delivered": tuple(float(c.delivered) for c in simples),
    }
    return (
        FigureCurve(
            "Simple",
            tuple(effective(c.messages, c.delivered, c.expected) for c in simples),
            facts=theirs,
        ),
        FigureCurve(
            "CBDLO (CRAWL)",
            tuple(effective(c.routing, c.delivered, c.expected) for c in ours),
            facts=facts,
        ),
        FigureCurve(
            "CBDLO with the messages of the node lists",
            tuple(effective(c.messages, c.delivered, c.expected) for c in ours),
            paper=False,
        ),
    )


def _figure(number: int, title: str, labels: tuple[str, str], series: tuple[FigureCurve, ...],
            plan: FigurePlan, seed: int, x_log: bool = False) -> Figure:  # fmt: skip
    parameters = msgspec.to_builtins(plan)
    x = parameters.pop("x")
    return Figure(number, title, *labels, tuple(x), series, parameters, seed, x_log, y_log=True)


def _five(plan: FigurePlan, seed: int, baselines: Baselines, progress: Progress) -> Figure:
    def vary(plan: FigurePlan, x: int) -> FigurePlan:
        return msgspec.structs.replace(plan, subscriptions=x)

    series = _effective_series(_points(plan, seed, vary, baselines, progress))
    labels = ("subscriptions", "effective cost, messages")
    title = "Effective distribution cost against the number of subscriptions"
    return _figure(5, title, labels, series, plan, seed)


def _six(plan: FigurePlan, seed: int, baselines: Baselines, progress: Progress) -> Figure:
    def vary(plan: FigurePlan, x: int) -> FigurePlan:
        return msgspec.structs.replace(plan, hops=x)

    series = _effective_series(_points(plan, seed, vary, baselines, progress))
    labels = ("largest number of hops", "effective cost, messages")
    title = "Effective distribution cost against the hop limit"
    return _figure(6, title, labels, series, plan, seed)


def _seven(plan: FigurePlan, seed: int, baselines: Baselines, progress: Progress) -> Figure:
    """One subscription per node, so that both overlays grow alike."""
    ours, theirs = [], []
    for place, x in enumerate(plan.x):
        progress("", place / len(plan.x))
        here = msgspec.structs.replace(plan, nodes=x, subscriptions=x)
        ours.append(cbdlo(here, f"{seed}/{x}"))
        theirs.append(tera(here, f"{seed}/{x}", baselines))
    series = (
        FigureCurve(
            "TERA",
            tuple((c.walk + c.broadcast) / c.events for c in theirs),
            facts={
                "walk": tuple(c.walk / c.events for c in theirs),
                "broadcast": tuple(c.broadcast / c.events for c in theirs),
                "hit_rate": tuple(c.found / c.events for c in theirs),
            },
        ),
        FigureCurve(
            "CBDLO",
            tuple(c.routing / c.events for c in ours),
            facts={
                "walk": tuple(c.walk / c.events for c in ours),
                "tree": tuple(c.tree / c.events for c in ours),
                "hit_rate": tuple(c.found / c.attributes for c in ours),
            },
        ),
        FigureCurve(
            "CBDLO with the messages of the node lists",
            tuple(c.messages / c.events for c in ours),
            paper=False,
        ),
    )
    labels = ("nodes", "messages per event")
    title = "Messages per event against the number of nodes"
    return _figure(7, title, labels, series, plan, seed, x_log=True)


def _matching_series(
    plan: FigurePlan, points: list[tuple[EventCost, SimpleCost]]
) -> tuple[FigureCurve, ...]:
    ours = [cost for cost, _ in points]
    return (
        FigureCurve(
            "Simple, times 0.1",
            tuple(SIMPLE_SHARE * cost.matching / plan.events for _, cost in points),
        ),
        FigureCurve(
            "CBDLO, times 1/8",
            tuple(CBDLO_SHARE * cost.matching / plan.events for cost in ours),
            facts={
                "stage_1_hops": tuple(c.walk / c.attributes for c in ours),
                "stage_2_hops": tuple(c.tree / max(c.found, 1) for c in ours),
                "hit_rate": tuple(c.found / c.attributes for c in ours),
            },
        ),
    )


def _eight(plan: FigurePlan, seed: int, baselines: Baselines, progress: Progress) -> Figure:
    def vary(plan: FigurePlan, x: int) -> FigurePlan:
        return msgspec.structs.replace(plan, subscriptions=x)

    series = _matching_series(plan, _points(plan, seed, vary, baselines, progress))
    labels = ("subscriptions", "matching cost, comparisons per event")
    title = "Matching cost against the number of subscriptions"
    return _figure(8, title, labels, series, plan, seed)


def _nine(plan: FigurePlan, seed: int, baselines: Baselines, progress: Progress) -> Figure:
    def vary(plan: FigurePlan, x: int) -> FigurePlan:
        load = msgspec.structs.replace(plan.load, attributes=x)
        return msgspec.structs.replace(plan, load=load)

    series = _matching_series(plan, _points(plan, seed, vary, baselines, progress))
    labels = ("attributes", "matching cost, comparisons per event")
    title = "Matching cost against the number of attributes"
    return _figure(9, title, labels, series, plan, seed)
