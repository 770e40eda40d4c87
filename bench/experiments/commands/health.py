"""`bench.experiments health`: what it is worth in an election that sick nodes are known.

`bench.experiments.health` simulates it; the traces of each trial are analysed by Spark, as
`canopy trace health` does, and what it finds goes back to the simulated nodes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.experiments.options import ExperimentOutput, output_options
from canopy.cli.extras import require
from canopy.cli.output import console, table
from canopy.cli.parameters import changed, set_option

if TYPE_CHECKING:
    from bench.experiments.health.report import HealthExperiment
    from overlay.health import HealthReport

VALID_FOR = 600.0
"""Virtual seconds for which a file holds: the default of `health.max_age`."""


class TraceAnalysis:
    """The traces of one trial, below `folder`, and Spark's analysis of them."""

    def __init__(self, folder: Path, session: Any) -> None:
        """`session`: an open Spark session."""
        self._folder = folder
        self._session = session

    def open(self, path: str) -> Any:
        """Open a trace file for appending."""
        place = self._folder / "traces" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.open("ab", buffering=0)

    def report(self) -> HealthReport:
        """Write a health file and read it as a node does."""
        from canopy.traces.analysis import find_health
        from canopy.traces.health_file import decode_health
        from overlay.health import HealthReport, NodeHealth

        out = self._folder / "health.json"
        find_health(self._folder / "traces", out, session=self._session)
        found = decode_health(out.read_bytes()).nodes.items()
        sick = {node: NodeHealth(each.severity, each.reason) for node, each in found}
        return HealthReport({n: each for n, each in sick.items() if each.severity}, VALID_FOR)


@contextmanager
def analyses() -> Iterator[Any]:
    """Makes an analysis for each trial, all in one Spark session."""
    from canopy.traces.analysis import spark_session

    with tempfile.TemporaryDirectory() as name, spark_session() as session:
        made: list[TraceAnalysis] = []

        def make() -> TraceAnalysis:
            made.append(TraceAnalysis(Path(name) / str(len(made)), session))
            return made[-1]

        yield make


@click.command(short_help="Elect a primary where sick nodes are known, and are not.")
@set_option
@output_options("health")
def health(changes: tuple[str, ...], output: ExperimentOutput) -> None:
    """Lose the primary of a cluster whose standby is slow and near its disk's end: who leads then,
    and how long, where nobody judges the nodes' health, where each judges itself (the default), and
    with a health file?

    The traces of each trial are analysed by Spark, and what it finds goes to the simulated nodes
    shortly before the loss. docs/lab/health.md has the results. Takes some minutes.

    \b
    python -m bench.experiments health
    python -m bench.experiments health --set trials=3 --set seed=7 --json
    """
    require("analysis")
    from bench.experiments.health.picture import draw
    from bench.experiments.health.report import measure
    from bench.experiments.health.trial import HealthPlan
    from canopy.wire.transport.codec import WireCodec

    plan = changed(HealthPlan(), changes)
    with analyses() as make:
        found = measure(plan, WireCodec(), make, output.progress)
    output.write(found, "health", draw, print_report)


def print_report(found: HealthExperiment) -> None:
    """Print a line for each who judges."""
    names = (">trials", ">sick one named", ">sick one leads", ">elected after", ">failed again")
    more = (">until then", ">without a primary", ">SUBACK ms", ">worst")
    shown = table("judged by", *names, *more, title="Medians, in virtual seconds")
    for row in found.rows:
        times = (row.failure_s, row.leaderless_s, row.suback_ms, row.suback_worst_ms)
        shown.add_row(
            row.by,
            *map(str, (row.trials, row.sick_named, row.sick_leads)),
            "-" if row.elected_s is None else f"{row.elected_s:.2f}",
            str(row.failed),
            *("-" if value is None else f"{value:,.2f}" for value in times),
        )
    console().print(shown)
