"""`canopy trace analyze`: the Spark analysis of the traces of all nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from canopy.cli.connect import json_option
from canopy.cli.errors import FAILURE, OK
from canopy.cli.extras import require
from canopy.cli.output import console, print_json
from overlay.wording import counted

if TYPE_CHECKING:
    from canopy.traces.analysis import AnalysisSummary


@click.group()
def trace() -> None:
    """Analyse the traces of all nodes with Spark."""


@trace.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the report.")
@click.option("--master", metavar="URL", help="A Spark cluster; by default this machine.")
@click.option("--overwrite", is_flag=True, help="Write to a folder that has other files, too.")
@json_option
def analyze(folder: Path, out: Path, master: str | None, overwrite: bool, as_json: bool) -> int:
    """Read the trace records under DIR and write report.html, summary.json and Parquet tables.

    Spark computes which deliveries were expected from the subscriptions and publications alone, so
    that the report checks the overlay independently. The exit code is 0 only if the run was exact:
    each of them was made once, and no others were. Needs Java 17 or newer, or the one that came
    with the installation.

    \b
    canopy trace analyze ~/.local/share/canopy/default/traces --out report
    canopy trace analyze /shared/traces --out /shared/report --master spark://host:7077
    """
    require("analysis")
    from canopy.cli.bars import Bars
    from canopy.traces.analysis import STAGES, analyze

    with Bars() as bars:
        bars.begin("analysis", len(STAGES))
        found = analyze(
            *(folder, out, master),
            lambda stage, done, total: bars.show(done, total, stage),
            overwrite=overwrite,
        )
    if as_json:
        print_json(found.to_dict(), indent=2)
    else:
        _show(found, out)
    return OK if found.exact else FAILURE


def _show(found: AnalysisSummary, out: Path) -> None:
    from canopy.traces.analysis.report.wording import verdict_line

    read = f"{counted(found.published, 'event')} from {counted(found.nodes, 'node')}"
    console().print(f"{read}; {verdict_line(found)}", soft_wrap=True)
    if found.corrupt_lines:
        lines = counted(found.corrupt_lines, "line")
        print(f"! {lines} could not be read; the report shows some", file=sys.stderr)
    click.echo(f"report: {out / 'report.html'}")
