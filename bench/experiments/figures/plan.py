"""What a figure varies, and everything else that its points depend on (CBDLO 5.3, 5.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from canopy.sim.scenario.range_load import LoadShape

PAPER_NODES = 3_000
"""CBDLO 5.3."""

FEW = 100
"""Whole nodes for which the points are others than the paper's."""


class FigurePlan(msgspec.Struct, frozen=True):
    """The parameters of one point, beside the code."""

    nodes: int = PAPER_NODES
    view: int = 10  # CBDLO 5.3
    access_points: int = 100  # CBDLO 5.3
    hops: int = 10  # CBDLO 5.3
    trace: int = 10  # open in the paper: as long as the walk
    subscriptions: int = 1_000  # open in the paper
    events: int = 125  # open in the paper; at 3.3 matches each they have its 408 expected
    forwardings: int = 40  # times that each event is forwarded at random, for a mean
    load: LoadShape = LoadShape()
    whole_nodes: bool = False  # in place of the routing model, which stands beside them
    gossip: float = 20.0  # whole nodes: virtual seconds from the last SUBACK to the first event
    one_load: bool = False  # all points have the first of the same subscriptions, and one graph
    seed: int = 1


class FiguresPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which points are measured."""

    figures: tuple[int, ...] = (5, 6, 7, 8, 9)
    whole_nodes: int = 0  # so many; 0: the routing model
    x: tuple[int, ...] = ()  # only these points; (): all
    one_load: bool = False
    kept: str = ""  # a file of rows that are there already, and where each is kept when it is there
    jobs: int = 1  # points at a time
    seed: int = 1


_FEW_ACCESS_POINTS = FigurePlan(view=20, access_points=20, hops=30)
PLANS = {
    5: FigurePlan(),
    6: FigurePlan(),
    7: FigurePlan(),
    8: replace(_FEW_ACCESS_POINTS, load=replace(LoadShape(), attributes=100)),
    9: replace(_FEW_ACCESS_POINTS, subscriptions=3_000),
}
"""The paper's parameters where it gives them (view, table, hops, nodes); else
docs/lab/figures.md."""

PAPERS = {
    5: (500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 10_000),
    6: (2, 4, 6, 8, 10, 15, 20, 30),
    7: (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000),
    8: (250, 500, 1_000, 2_000, 3_000, 5_000, 8_000, 10_000),
    9: (25, 50, 100, 150, 200, 300, 400, 500),
}
"""The points of each figure."""

OF_FEW = {5: (100, 200), 6: (2, 10, 30), 7: (12, 30, 100), 8: (100, 400), 9: (50, 200)}
"""… and what an overlay of `FEW` whole nodes shows in a minute or so a point."""

VARY: dict[int, Callable[[FigurePlan, int], FigurePlan]] = {
    5: lambda plan, x: replace(plan, subscriptions=x),
    6: lambda plan, x: replace(plan, hops=x),
    7: lambda plan, x: replace(plan, nodes=x, subscriptions=x),
    8: lambda plan, x: replace(plan, subscriptions=x),
    9: lambda plan, x: replace(plan, load=replace(plan.load, attributes=x)),
}
"""What varies along the x of each figure."""

IsOf = tuple[int, int, int, int, bool]


class Point(msgspec.Struct, frozen=True):
    """One point to measure."""

    figure: int
    x: int
    plan: FigurePlan
    """With the value that varies along the figure's x."""

    @property
    def load(self) -> str:
        """Names the chance of the point: its graph, its subscriptions and its events."""
        seed = str(self.plan.seed)
        return seed if self.plan.one_load else f"{seed}/{self.x}"

    @property
    def row(self) -> dict[str, Any]:
        """What tells its row from others'."""
        plan = self.plan
        row = {"figure": self.figure, "x": self.x, "nodes": plan.nodes, "seed": plan.seed}
        return {**row, "one_load": True} if plan.one_load else row

    @property
    def shares_nodes(self) -> bool:
        """Whether it is measured in a world that other points have as well."""
        return self.plan.one_load and self.plan.whole_nodes


def is_of(row: Mapping[str, Any]) -> IsOf:
    """What tells a row from others: figure, x, nodes, seed, and whether points have one load."""
    return row["figure"], row["x"], row["nodes"], row["seed"], row.get("one_load", False)


def points(plan: FiguresPlan) -> Iterator[Point]:
    """The points of all figures: in the model, in `FEW` whole nodes, or the paper's in so many,
    with as many subscriptions for each node."""
    for number in plan.figures:
        chosen = replace(PLANS[number], seed=plan.seed, one_load=plan.one_load)
        xs = PAPERS[number]
        if plan.whole_nodes == FEW:
            chosen = replace(chosen, nodes=FEW, subscriptions=200, events=100)
            xs = OF_FEW[number]
        elif plan.whole_nodes:
            share = plan.whole_nodes / PAPER_NODES
            few = max(1, int(chosen.subscriptions * share))
            chosen = replace(chosen, nodes=plan.whole_nodes, subscriptions=few, forwardings=8)
            if number == 7:
                xs = tuple(x for x in xs if x <= plan.whole_nodes)
            elif number in (5, 8):
                xs = tuple(max(1, int(x * share)) for x in xs)
        chosen = replace(chosen, whole_nodes=plan.whole_nodes > 0)
        for x in xs:
            if not plan.x or x in plan.x:
                yield Point(number, x, VARY[number](chosen, x))


def kept_rows(path: Path) -> dict[IsOf, dict[str, Any]]:
    """The rows that are in a file, a line each, by what tells them apart."""
    if not path.exists():
        return {}
    rows = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    return {is_of(row): row for row in rows}


def keep(path: Path, row: dict[str, Any]) -> None:
    """Append a row to the file of those that are measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as out:
        out.write(msgspec.json.encode(row) + b"\n")
