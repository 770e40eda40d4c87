"""The figures as experiments: in the routing model, and in whole nodes with the model beside."""

from __future__ import annotations

from functools import partial

from bench.experiments.figures.model import Figure, FigurePlan
from bench.experiments.figures.paper import PLANS, make, plan_of
from bench.experiments.frame import Experiment, Panel, Picture, Table, builtins
from bench.lab.tables import Row


def facts(found: Figure) -> Row:
    """The figure, with a row for each point of each curve."""
    points = [
        {"x": x, "curve": each.name, "y": y}
        for each in found.series
        for x, y in zip(found.x, each.y, strict=True)
    ]
    return builtins(found) | {"points": points}


def figure(
    number: int, plan: FigurePlan, suffix: str, about: str
) -> Experiment[FigurePlan, Figure]:
    """One figure under one plan."""
    over = Panel(
        "x",
        "y",
        "curve",
        "{x_label}",
        "{y_label}",
        each=("points",),
        x_base=10 if number == 7 else 0,
        y_log=True,
    )
    return Experiment(
        f"figure-{number}{suffix}",
        f"Compute figure {number} of the CBDLO paper{about}.",
        """Walks and trees are the product's, beside the paper's baselines. docs/lab/figures.md
        explains the figures, and the choices where the paper says nothing.""",
        plan,
        partial(make, number),
        tables=(
            Table(
                "x: {x_label} | y ,.0f: {y_label}",
                each=("points",),
                across="curve",
                title="Figure {figure}: {title}",
            ),
        ),
        picture=Picture(((over,),), "Figure {figure}: {title}", (7.0, 4.4)),
        facts=facts,
    )


FIGURES = tuple(
    figure(number, plan_of(number, full_nodes=bool(suffix)), suffix, about)
    for suffix, about in (("", ""), ("-nodes", " in whole nodes"))
    for number in PLANS
)
