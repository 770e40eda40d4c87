"""`bench.experiments scaling`: throughput over the nodes that host, and a burst (C6).

`bench.experiments.scaling` computes it; here are its options, its tables and its picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bench.experiments.options import ExperimentOutput, output_options, seed_option
from canopy.cli.output import console, table
from canopy.cli.parameters import changed, set_option

if TYPE_CHECKING:
    from bench.experiments.scaling.report import Burst, Scaling


@click.command(short_help="Measure how throughput grows with the nodes that host.")
@output_options("scaling")
@seed_option
@set_option
def scaling(seed: int, changes: tuple[str, ...], output: ExperimentOutput) -> None:
    """Measure how throughput grows with the nodes that host, with the product's own nodes.

    For one hot attribute, and for 100 attributes by a Zipf law: the most events per second of which
    99 % are delivered within 100 ms, with 1, 2, 4 … 64 nodes whose work takes simulated time. Then
    a burst of twenty times the load. docs/lab/scaling.md has the results. Takes some minutes.

    \b
    python -m bench.experiments scaling --out build/scaling
    python -m bench.experiments scaling --set hosts=[1,2,4] --set loads=[one] --set burst_hosts=0
    """
    from bench.experiments.scaling.experiment import experiment
    from bench.experiments.scaling.picture import draw
    from bench.experiments.scaling.plan import ScalingPlan
    from canopy.wire.transport.codec import WireCodec

    plan = changed(ScalingPlan(), changes)
    found = experiment(plan, seed, WireCodec(), output.progress)
    output.write(found, "scaling", draw, print_report)


def print_report(found: Scaling) -> None:
    """Print a table of the points, and one of the burst."""
    columns = (
        ">hosts",
        ">events\nper second",
        ">of\nlinear",
        ">p99\nms",
        ">virtual\nnodes",
        ">used",
    )
    for load in found.parameters.loads:
        shown = table(*columns, title=f"events in time, load {load}")
        for point in found.points:
            if point.load == load:
                shown.add_row(
                    str(point.hosts),
                    f"{point.events_per_second:,.0f}",
                    f"{point.linear:.2f}",
                    f"{point.p99_ms:.1f}",
                    str(point.virtual_nodes),
                    str(point.used),
                )
        console().print(shown)
    if found.burst is not None:
        print_burst(found.burst)


def print_burst(burst: Burst) -> None:
    """Print what became of a burst, line by line."""
    shown = table("=what", ">value", title=f"a burst, {burst.hosts} hosts")
    nodes, used = (" → ".join(map(str, each)) for each in (burst.virtual_nodes, burst.used))
    for what, value in (
        ("events per second before and in the burst", f"{burst.base:,.0f}, {burst.peak:,.0f}"),
        ("seconds until 99 % were in time again", f"{burst.in_time_after_s:g}"),
        ("delivered of expected", f"{burst.delivered:,} of {burst.expected:,}"),
        ("virtual nodes before, during, after", nodes),
        ("hosts before, during, after", used),
        ("changes of maps; the last so many seconds after the burst",
         f"{burst.changes}; {burst.last_change_s:g}"),
    ):  # fmt: skip
        shown.add_row(what, value)
    console().print(shown)
