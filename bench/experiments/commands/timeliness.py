"""`bench.experiments timeliness`: how priority and the choice of hosts affect latency (P6, P7).

`bench.experiments.timeliness` computes it; here are its options, its table and its picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bench.experiments.options import ExperimentOutput, output_options, seed_option
from canopy.cli.output import console, table
from canopy.cli.parameters import changed, set_option

if TYPE_CHECKING:
    from bench.experiments.timeliness.report import Series, Timeliness


@click.command(short_help="Run the timeliness experiment of the Phoenix paper.")
@output_options("timeliness")
@seed_option
@set_option
def timeliness(seed: int, changes: tuple[str, ...], output: ExperimentOutput) -> None:
    """Run the timeliness experiment of the Phoenix paper with the product's own nodes.

    Four modes (neither, priority only, choice only, both) over rates of events, and over numbers of
    matching subscriptions. docs/lab/timeliness.md has the results, and the choices where the paper
    says nothing or cannot be read. Takes some minutes.

    \b
    python -m bench.experiments timeliness --out build/timeliness
    python -m bench.experiments timeliness --set rates=[2000] --set events=500
    python -m bench.experiments timeliness --set replicas=2 --set processor.per_match=0.0005 --json
    """
    from bench.experiments.timeliness.experiment import experiment
    from bench.experiments.timeliness.picture import draw
    from bench.experiments.timeliness.plan import TimelinessPlan
    from canopy.wire.transport.codec import WireCodec

    plan = changed(TimelinessPlan(), changes)
    found = experiment(plan, seed, WireCodec(), output.progress)
    output.write(found, "timeliness", draw, print_report)


def print_report(found: Timeliness) -> None:
    """Print one table per series of the experiment, a row per load."""
    for series in found.series:
        print_series(series)


def print_series(series: Series) -> None:
    """Print a table with a line per load and mode."""
    last = len(series.curves[0].points[0].levels)
    names = [f"level {n}\n{what}" for n in (1, last) for what in ("mean", "p99")]
    columns = (f">{series.over}", "=mode", ">by\nurgency", ">mean", ">p99")
    title = f"latency in ms over {series.over}"
    shown = table(*columns, *(f">{name}" for name in names), title=title)
    for place, x in enumerate(series.x):
        for curve in series.curves:
            point = curve.points[place]
            parts = (point.all, point.levels[0], point.levels[-1])
            values = [v for each in parts for v in (each.mean_ms, each.p99_ms)]
            shown.add_row(
                str(x),
                curve.mode,
                *(f"{value:.2f}" for value in (point.urgency_ms, *values)),
                end_section=curve is series.curves[-1],
            )
    console().print(shown)
