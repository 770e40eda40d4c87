"""CBDLO's figures 5 to 9 in the routing model, and in whole nodes with the model beside (C12)."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from bench.experiments.figures.curves import row_of
from bench.experiments.figures.plan import PLANS, FiguresPlan, Point, is_of, keep, kept_rows, points
from bench.experiments.figures.shared_world import SharedWorld, grouped, nodes_of
from bench.experiments.frame import Experiment, PlanError, Progress
from bench.experiments.pictures import Picture
from bench.lab.tables import Row
from canopy.sim.world.cost import collector_at_rest, peak


def measure(together: Sequence[Point], kept: Path) -> None:
    """Measure points in this process, and keep a row of each."""
    (point, *others) = together
    if point.shares_nodes:
        SharedWorld(together, kept).measure()
        return
    assert not others
    began = time.process_time()
    with collector_at_rest():
        row = row_of(point)
    row["cpu_s"] = round(time.process_time() - began, 1)
    row["peak_bytes"] = peak()
    keep(kept, row)


def trials(plan: FiguresPlan, progress: Progress) -> Iterator[Row]:
    """A row for each point, measured in a process of its own, whose memory goes with it; points
    that share nodes together in one. Raises PlanError for another figure."""
    if not set(plan.figures) <= set(PLANS):
        raise PlanError("the figures are 5 to 9")
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(plan.kept or folder) / ("" if plan.kept else "rows.jsonl")
        wanted = list(points(plan))
        there = kept_rows(kept)
        left = [point for point in wanted if is_of(point.row) not in there]
        shared = grouped([point for point in left if point.shares_nodes], nodes_of)
        work = [[point] for point in left if not point.shares_nodes] + list(shared.values())
        apart = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(plan.jobs, apart, max_tasks_per_child=1) as pool:
            running = [pool.submit(measure, together, kept) for together in work]
            for done, each in enumerate(as_completed(running)):
                progress("", done / len(work))
                each.result()
        found = kept_rows(kept)
        yield from (found[is_of(point.row)] for point in wanted)


def _picture(number: int, x: str, y: str, **curves: str) -> Picture:
    return Picture("lines", "x", "", {}, x, y, {"figure": number}, log=True, curves=curves)


_COST = {
    "simple": "Simple",
    "forwarded": "one copy at random",
    "with_lists": "CBDLO with its node lists",
    "cbdlo": "CBDLO",
}
_COMPARED = {"simple": "Simple x 0.1", "cbdlo": "CBDLO / 8"}

PICTURES = {
    5: _picture(5, "subscriptions", "effective cost", **_COST),
    6: _picture(6, "hops", "effective cost", **_COST),
    7: _picture(
        *(7, "nodes", "messages of an event"),
        tera="TERA",
        cbdlo="CBDLO",
        without_lists="CBDLO's walks and trees",
    ),
    8: _picture(8, "subscriptions", "comparisons", **_COMPARED),
    9: _picture(9, "attributes", "comparisons", **_COMPARED),
}

FIGURES = Experiment(
    "figures",
    "Compute figures 5 to 9 of the CBDLO paper.",
    """Walks and trees are the product's, beside the paper's baselines; with `whole_nodes`, so many
    of the product's nodes, which learn by gossip. With `one_load` all points have one graph and the
    first of the same subscriptions, and points in whole nodes share the nodes. `kept` names a file
    that keeps each row as soon as it is measured: the same command goes on where it was stopped.
    docs/lab/figures.md explains the figures, and the choices where the paper says nothing.""",
    FiguresPlan(),
    trials,
    "figure: figure | x ,: x | cbdlo ,.0f: CBDLO | model ,.0f: … in the model"
    " | simple ,.0f: Simple | tera ,.0f: TERA | forwarded ,.0f: one copy at random"
    " | with_lists ,.0f: CBDLO with its node lists | without_lists ,.0f: … its walks and trees"
    " | hit_rate .1%: walks that hit | {delivered:,.0f} of {expected:,.0f}: delivered",
    tuple(PICTURES.values()),
)
