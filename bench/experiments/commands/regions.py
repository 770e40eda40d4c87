"""`bench.experiments regions`: how often events cross between regions (M1).

`bench.experiments.regions` computes it; here are its options and its table.
"""

from __future__ import annotations

import json
from typing import Any

import click

from bench.experiments.options import progress_of, seed_option
from canopy.cli.connect import json_option, quiet_option
from canopy.cli.output import console, table
from canopy.cli.parameters import changed, set_option


@click.command(short_help="Measure how often events cross between regions.")
@seed_option
@set_option
@json_option
@quiet_option
def regions(seed: int, changes: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Measure how often an event crosses from one region to another, and how long it takes, where
    nodes know their region and where they do not, in the same network.

    Five regions of 200 nodes, 1 ms inside and 80 ms between, 1 % loss; docs/lab/regions.md has the
    results. Takes some minutes, and about a gigabyte. The exit code is 1 if a delivery is missing
    or was made twice.

    \b
    python -m bench.experiments regions
    python -m bench.experiments regions --set nodes=20 --set events=100 --json
    """
    from bench.experiments.regions import RegionsPlan, rows
    from canopy.sim.world.cost import collector_at_rest
    from canopy.wire.transport.codec import WireCodec

    plan = changed(RegionsPlan(), changes)
    with collector_at_rest():
        found = rows(plan, seed, WireCodec(), progress_of(quiet))
    if as_json:
        print(json.dumps(found))
    else:
        print_rows(found)
    return int(any(row["delivered"] != row["expected"] or row["twice"] for row in found))


def print_rows(found: list[dict[str, Any]]) -> None:
    """Print a line for each figure, with regions and without."""
    shown = table("=what", *(f">{'with' if row['known'] else 'without'} regions" for row in found))
    for what in found[0]:
        if what != "known":
            shown.add_row(what.replace("_", " "), *(str(row[what]) for row in found))
    console().print(shown)
