"""CBDLO's figures 5 to 9 in whole nodes, and in the routing model beside them (C12).

    python -m bench.simulator.figures 5 6 7 8 9

The points of `canopy sim figure N --full-nodes` as rows, a function of the seed; `--json` prints
one list of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from canopy.cli.sim.figure import PaperBaselines
from canopy.sim.experiments.figures.paper import make, plan_of
from canopy.sim.world.cost import collector_at_rest
from canopy.wire.transport.codec import WireCodec

CURVES = {"Simple": "simple", "TERA": "tera", "CBDLO in the routing model": "model"}
"""Name of a row's value by how the curve's name begins; the others are CBDLO's in whole nodes."""


def rows(number: int, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each x of a figure."""
    plan = plan_of(number, full_nodes=True)
    for x in plan.x:  # one at a time, so that each is there when it is measured
        here = msgspec.structs.replace(plan, x=(x,))
        figure = make(number, seed, PaperBaselines(), WireCodec(), here)
        row: dict[str, Any] = {"figure": number, "x": x, "nodes": plan.nodes, "seed": seed}
        if number == 7:
            row["nodes"] = x
        for series in figure.series:
            name = next(
                (word for start, word in CURVES.items() if series.name.startswith(start)), ""
            )
            if not name:
                name = "with_lists" if "node lists" in series.name else "cbdlo"
            row[name] = rounded(series.y[0])
            if name == "cbdlo":
                row |= {fact: rounded(values[0]) for fact, values in series.facts.items()}
        yield row


def rounded(value: float | None) -> float | None:
    """A value with four digits behind the point."""
    return None if value is None else round(value, 4)


def main(args: Sequence[str] | None = None) -> int:
    """Make the figures that are named and print a row for each of their points."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulator.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figures", nargs="+", type=int, choices=range(5, 10), metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    given = parser.parse_args(args)
    found = []
    with collector_at_rest():
        for number in given.figures:
            for row in rows(number, given.seed):
                found.append(row)
                shown = "  ".join(f"{name} {value}" for name, value in row.items())
                print(shown, file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
