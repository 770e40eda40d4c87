"""CBDLO's figures 5 to 9 in whole nodes, and in the routing model beside them (C12).

    python -m bench.simulator.figures 5 6 7 8 9 --model --json
    python -m bench.simulator.figures 5 6 7 8 9 --json
    python -m bench.simulator.figures 5 6 7 8 9 --nodes 3000 --one-load --kept rows.jsonl --json

The points of `bench.experiments figure N` (`--model`), or with `--full-nodes`, as rows, a
function of the seed, each measured in a process of its own, with the processor time and the
memory that it took. With `--nodes` the points in whole nodes are the paper's, which has 3,000; in a
smaller overlay there are fewer subscriptions in the same share. `--kept` keeps each row as soon as
it is measured: the same command goes on where it was stopped. `--json` prints one list of all rows.

With `--one-load` all points have one graph and the first of the same subscriptions, in place of a
graph and load of their own. Then points in whole nodes share what comes before the stage in which
they differ: nodes that are started once get more and more subscriptions, and for each point the
process is copied (fork), and the copy goes on with gossip and events. What one point publishes no
other one sees, so that each has the row that it has when it is measured alone. `cpu_s` is what the
copy took, `shared_cpu_s` what the world took until then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.experiments.figures.full_nodes import NodeOverlay, full_nodes
from bench.experiments.figures.model import FigurePlan
from bench.experiments.figures.paper import (
    FORWARDING,
    MODEL,
    PLANS,
    VARY,
    WITH_LISTS,
    WITHOUT_LISTS,
    Measure,
    load_name,
    make,
    plan_of,
)
from bench.experiments.figures.sharing import SharingCodec
from canopy.sim.world.cost import collector_at_rest, peak
from canopy.wire.transport.codec import WireCodec

PAPER_NODES: Final = 3_000
"""CBDLO 5.3."""

CURVES: Final = {
    "Simple": "simple",
    "TERA": "tera",
    "TERA without its broadcast": "tera_walks",
    "Simple, times 0.1": "simple",
    "CBDLO": "cbdlo",
    "CBDLO (CRAWL)": "cbdlo",
    "CBDLO, times 1/8": "cbdlo",
    WITH_LISTS: "with_lists",
    WITHOUT_LISTS: "without_lists",
    FORWARDING: "forwarded",
    MODEL: "model",
}
"""Name of a row's value by the name of its curve."""


IsOf = tuple[int, int, int, int, bool]


class Point(msgspec.Struct, frozen=True):
    """One point to measure."""

    figure: int
    plan: FigurePlan

    @property
    def x(self) -> int:
        """The place of the point on the figure's axis."""
        (x,) = self.plan.x
        return x

    @property
    def varied(self) -> FigurePlan:
        """The plan, with what varies along the figure's x."""
        return VARY[self.figure](self.plan, self.x)

    @property
    def row(self) -> dict[str, Any]:
        """What tells its row from others'."""
        plan = self.varied
        row = {"figure": self.figure, "x": self.x, "nodes": plan.nodes, "seed": plan.seed}
        return {**row, "one_load": True} if plan.one_load else row

    @property
    def is_of(self) -> IsOf:
        """The same as a key."""
        return identity_of(self.row)


def identity_of(row: Mapping[str, Any]) -> IsOf:
    """What tells a row from others: figure, x, nodes, seed, and whether points have one load."""
    return row["figure"], row["x"], row["nodes"], row["seed"], row.get("one_load", False)


def points(number: int, given: argparse.Namespace) -> Iterator[Point]:
    """The points of a figure: in the model, in 100 nodes, or the paper's in so many."""
    if given.model:
        plan = PLANS[number]
    elif given.nodes is None:
        plan = plan_of(number, full_nodes=True)
    else:
        plan = paper_plan(number, given.nodes)
    for x in plan.x:
        if not given.x or x in given.x:
            of_point = {"x": (x,), "seed": given.seed, "one_load": given.one_load}
            yield Point(number, msgspec.structs.replace(plan, **of_point))


def paper_plan(number: int, nodes: int) -> FigurePlan:
    """The paper's points in so many whole nodes, with as many subscriptions for each node."""
    plan = PLANS[number]

    def scaled(count: int) -> int:
        return max(1, count * nodes // PAPER_NODES)

    x = plan.x
    if number == 7:
        x = tuple(count for count in x if count <= nodes)
    elif number in (5, 8):
        x = tuple(map(scaled, x))
    return msgspec.structs.replace(
        plan,
        x=x,
        nodes=nodes,
        subscriptions=scaled(plan.subscriptions),
        full_nodes=True,
        forwardings=8,
    )


class Spent:
    """The processor time of this process and of those that it is a copy of."""

    def __init__(self) -> None:
        self._before = 0.0

    def seconds(self) -> float:
        """Return the processor seconds spent until now."""
        return self._before + time.process_time()

    def of_copy(self, before: float) -> None:
        """Note that this is a copy of a process that had spent `before` seconds."""
        self._before = before


def row_of(point: Point, whole: Measure = full_nodes) -> dict[str, Any]:
    """The row of one point; `whole`: what it costs in whole nodes."""
    figure = make(point.figure, point.plan, WireCodec(), measure=whole)
    row = point.row
    for series in figure.series:
        name = CURVES[series.name]
        row[name] = rounded(series.y[0])
        if name == "cbdlo":
            row |= {fact: rounded(values[0]) for fact, values in series.facts.items()}
    return row


def measure(point: Point) -> dict[str, Any]:
    """The row of one point, measured in this process."""
    began, wall = time.process_time(), time.monotonic()
    with collector_at_rest():
        row = row_of(point)
    row["cpu_s"] = round(time.process_time() - began, 1)
    row["wall_s"] = round(time.monotonic() - wall, 1)
    row["peak_bytes"] = peak()
    return row


class SharedWorld:
    """Measures points that share nodes: in stages, from each of which this process goes on in
    copies of itself. Rows are printed as they come."""

    def __init__(self, points: Sequence[Point]) -> None:
        """All of them with the same nodes and settings (`nodes_of`), and the same seed."""
        self._points = points
        self._spent = Spent()
        plan = points[0].varied
        self._overlay = NodeOverlay(plan, load_name(plan, points[0].x), SharingCodec())

    def measure(self) -> None:
        """Start the nodes, then go through the loads. RuntimeError where a point is not
        measured."""
        with collector_at_rest():
            self._overlay.grow()
            self._in_copies(self._points, lambda plan: plan.load, self._measure_load)

    def _measure_load(self, points: Sequence[Point]) -> None:
        """Subscribe more and more to what one load has."""
        self._overlay.draw(points[0].varied)
        found = grouped(points, lambda plan: plan.subscriptions)
        *others, last = sorted(found)
        for count in others:
            self._overlay.subscribe(count)
            self._in_copy(self._measure_count, found[count])
        self._overlay.subscribe(last)
        self._measure_count(found[last])

    def _measure_count(self, points: Sequence[Point]) -> None:
        """Wait for gossip, and publish under each hop limit."""
        before = self._spent.seconds()
        self._overlay.gossip()

        def published(some: Sequence[Point]) -> None:
            plan = some[0].varied
            cost = self._overlay.publish(plan.events, plan.hops)
            for point in some:
                row = row_of(point, lambda *_: cost)
                row["cpu_s"] = round(self._spent.seconds() - before, 1)
                row["shared_cpu_s"] = round(before, 1)
                row["peak_bytes"] = peak()
                print(json.dumps(row), flush=True)

        self._in_copies(points, lambda plan: plan.hops, published)

    def _in_copies(
        self,
        points: Sequence[Point],
        key: Callable[[FigurePlan], Any],
        work: Callable[[Sequence[Point]], None],
    ) -> None:
        """Do the work for each group of points in a copy of this process, for the last in this
        one."""
        *others, last = grouped(points, key).values()
        for group in others:
            self._in_copy(work, group)
        work(last)

    def _in_copy(self, work: Callable[[Sequence[Point]], None], points: Sequence[Point]) -> None:
        sys.stdout.flush()
        before, child = self._spent.seconds(), os.fork()
        if child:
            if os.waitpid(child, 0)[1]:
                raise RuntimeError(f"not measured: {', '.join(str(each.row) for each in points)}")
            return
        code = 1
        try:
            self._spent.of_copy(before)
            work(points)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def grouped(points: Sequence[Point], key: Callable[[FigurePlan], Any]) -> dict[Any, list[Point]]:
    """The points by what this says of their plans."""
    found: dict[Any, list[Point]] = {}
    for point in points:
        found.setdefault(key(point.varied), []).append(point)
    return found


def nodes_of(plan: FigurePlan) -> FigurePlan:
    """What the nodes of a plan depend on, before the first subscription."""
    none = FigurePlan(x=())
    return msgspec.structs.replace(
        plan, x=(), load=none.load, subscriptions=0, hops=1, events=0, forwardings=0
    )


def rounded(value: float | None) -> float | None:
    """A value with four digits behind the point."""
    return None if value is None else round(value, 4)


def together(points: Sequence[Point]) -> list[list[Point]]:
    """Which of them are measured by one process: those that share nodes, else each alone."""
    shared = [point for point in points if point.plan.one_load and point.plan.full_nodes]
    alone = [[point] for point in points if point not in shared]
    return alone + list(grouped(shared, nodes_of).values())


def measured_apart(points: Sequence[Point]) -> Iterator[dict[str, Any]]:
    """The rows of some points as another process prints them, whose memory goes with it.
    RuntimeError where it does not end well."""
    argument = msgspec.json.encode(points).decode()
    command = [sys.executable, "-m", "bench.simulator.figures", "--points", argument]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        named = ", ".join(f"figure {point.figure}, x {point.x}" for point in points)
        raise RuntimeError(f"not all of these were measured: {named}")


def print_measured(points: Sequence[Point]) -> None:
    """Measure points in this process, and print a line for each."""
    if len(points) == 1 and not (points[0].plan.one_load and points[0].plan.full_nodes):
        print(json.dumps(measure(points[0])))
    else:
        SharedWorld(points).measure()


def kept_rows(path: Path | None) -> dict[IsOf, dict[str, Any]]:
    """The rows that an earlier run has kept, by what tells them apart."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {identity_of(row): row for row in rows}


def keep(path: Path | None, row: dict[str, Any]) -> None:
    """Append a row to the file of those that are measured."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as out:
            print(json.dumps(row), file=out)


def main(args: Sequence[str] | None = None) -> int:
    """Measure the figures that are named and print a row for each of their points."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulator.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figures", nargs="*", type=int, metavar="N", help="5 to 9")
    parser.add_argument("--model", action="store_true", help="in the routing model")
    parser.add_argument("--nodes", type=int, help="the paper's points, in so many whole nodes")
    parser.add_argument("--x", type=int, action="append", help="only this point (repeatable)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="points at a time (1)")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="rows that are there already")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--one-load", action="store_true", help="one graph and load for all points")
    parser.add_argument("--points", help=argparse.SUPPRESS)
    given = parser.parse_args(args)
    if given.points is not None:
        print_measured(msgspec.json.decode(given.points, type=list[Point]))
        return 0
    if not given.figures or not set(given.figures) <= set(PLANS):
        parser.error("name some of the figures 5 to 9")
    wanted = [point for number in given.figures for point in points(number, given)]
    found = kept_rows(given.kept)
    left = together([point for point in wanted if point.is_of not in found])

    def run(points: Sequence[Point]) -> None:
        for row in measured_apart(points):
            keep(given.kept, row)
            found[identity_of(row)] = row
            shown = "  ".join(f"{name} {value}" for name, value in row.items())
            print(shown, file=sys.stderr, flush=True)

    with ThreadPoolExecutor(given.jobs) as pool:
        running = [pool.submit(run, points) for points in left]
    if given.json:
        print(json.dumps([found[point.is_of] for point in wanted if point.is_of in found]))
    failed = [error for each in running if (error := each.exception()) is not None]
    for error in failed:
        print(error, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
