"""CBDLO's figures 5 to 9 in whole nodes, and in the routing model beside them (C12).

    python -m bench.simulator.figures 5 6 7 8 9 --model --json
    python -m bench.simulator.figures 5 6 7 8 9 --json
    python -m bench.simulator.figures 5 6 7 8 9 --nodes 3000 --kept build/figures.jsonl --json

The points of `bench.experiments figure N` (`--model`), or with `--full-nodes`, as rows, a
function of the seed, each measured in a process of its own, with the processor time and the
memory that it took. With `--nodes` the points in whole nodes are the paper's, which has 3,000; in a
smaller overlay there are fewer subscriptions in the same share. `--kept` keeps each row as soon as
it is measured: the same command goes on where it was stopped. `--json` prints one list of all rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.experiments.figures.model import FigurePlan
from bench.experiments.figures.paper import (
    FORWARDING,
    MODEL,
    PLANS,
    WITH_LISTS,
    WITHOUT_LISTS,
    make,
    plan_of,
)
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


class Point(msgspec.Struct, frozen=True):
    """One point to measure."""

    figure: int
    plan: FigurePlan

    @property
    def is_of(self) -> tuple[int, int, int, int]:
        """What tells it from other points: figure, x, nodes, seed."""
        (x,) = self.plan.x
        return self.figure, x, x if self.figure == 7 else self.plan.nodes, self.plan.seed


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
            yield Point(number, msgspec.structs.replace(plan, x=(x,), seed=given.seed))


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


def measure(point: Point) -> dict[str, Any]:
    """The row of one point, measured in this process."""
    began, wall = time.process_time(), time.monotonic()
    with collector_at_rest():
        figure = make(point.figure, point.plan, WireCodec())
    number, x, nodes, seed = point.is_of
    row: dict[str, Any] = {"figure": number, "x": x, "nodes": nodes, "seed": seed}
    for series in figure.series:
        name = CURVES[series.name]
        row[name] = rounded(series.y[0])
        if name == "cbdlo":
            row |= {fact: rounded(values[0]) for fact, values in series.facts.items()}
    row["cpu_s"] = round(time.process_time() - began, 1)
    row["wall_s"] = round(time.monotonic() - wall, 1)
    row["peak_bytes"] = peak()
    return row


def rounded(value: float | None) -> float | None:
    """A value with four digits behind the point."""
    return None if value is None else round(value, 4)


def measured_apart(point: Point) -> dict[str, Any]:
    """The row of one point, measured in another process, whose memory goes with it. RuntimeError
    where it prints none."""
    command = [sys.executable, "-m", "bench.simulator.figures", "--point", encoded(point)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"figure {point.figure}, x {point.plan.x[0]}: not measured")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def encoded(point: Point) -> str:
    """A point as the text of an argument."""
    return msgspec.json.encode(point).decode()


def kept_rows(path: Path | None) -> dict[tuple[int, int, int, int], dict[str, Any]]:
    """The rows that an earlier run has kept, by figure, x, nodes and seed."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(row["figure"], row["x"], row["nodes"], row["seed"]): row for row in rows}


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
    parser.add_argument("--point", help=argparse.SUPPRESS)
    given = parser.parse_args(args)
    if given.point is not None:
        print(json.dumps(measure(msgspec.json.decode(given.point, type=Point))))
        return 0
    if not given.figures or not set(given.figures) <= set(PLANS):
        parser.error("name some of the figures 5 to 9")
    wanted = [point for number in given.figures for point in points(number, given)]
    kept, found = kept_rows(given.kept), []
    left = [point for point in wanted if point.is_of not in kept]
    with ThreadPoolExecutor(given.jobs) as pool:
        measured_now = pool.map(measured_apart, left)
        for point in wanted:
            row = kept.get(point.is_of)
            if row is None:
                row = next(measured_now)
                keep(given.kept, row)
            found.append(row)
            shown = "  ".join(f"{name} {value}" for name, value in row.items())
            print(shown, file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
