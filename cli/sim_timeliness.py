"""`canopy sim timeliness`: what priority and the choice of hosts do for latency (P6, P7).

The computation is sim/timeliness'; here are its options, its table and its picture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.sim_figure import changed

if TYPE_CHECKING:
    from sim.timeliness.report import Series


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for timeliness.json and timeliness.svg.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="What everything follows from."
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another parameter, as it is called in the JSON: events=500, rates=[1000,4000].",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def timeliness(
    out: Path | None, seed: int, changes: tuple[str, ...], as_json: bool, quiet: bool
) -> None:
    """Run the timeliness experiment of the Phoenix paper with the product's own nodes.

    Four modes (neither, priority only, choice only, both) over rates of events, and over numbers of
    matching subscriptions. docs/timeliness.md says what came out, and what was chosen where the
    paper is silent or cannot be read. Takes some minutes.

    \b
    canopy sim timeliness --out build/timeliness
    canopy sim timeliness --set rates=[2000,4000] --set matching=[10] --set events=500
    canopy sim timeliness --set replicas=2 --set processor.per_match=0.0005 --json
    """
    import msgspec

    from sim.timeliness.experiment import experiment
    from sim.timeliness.plan import TimelinessPlan
    from sim.timeliness.point import NotReadyError
    from wire.codec import WireCodec

    plan = changed(TimelinessPlan(), changes)
    try:
        found = experiment(plan, seed, WireCodec(), None if quiet else show)
    except NotReadyError as error:
        raise click.ClickException(str(error)) from None
    text = msgspec.json.format(msgspec.json.encode(found), indent=2)
    if out is not None:
        from sim.timeliness.picture import draw

        out.mkdir(parents=True, exist_ok=True)
        (out / "timeliness.json").write_bytes(text + b"\n")
        with (out / "timeliness.svg").open("wb") as file:
            draw(found, file)
    if as_json:
        click.echo(text.decode())
        return
    for series in found.series:
        print_series(series)
    if out is not None:
        click.echo(f"written to {out / 'timeliness.json'} and .svg")


def show(stage: str, share: float) -> None:
    """Progress."""
    click.echo(f"{share:4.0%}  {stage}", err=True)


def print_series(series: Series) -> None:
    """A table for a person: a line per load and mode."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"latency in ms over {series.over}", title_justify="left")
    last = len(series.curves[0].points[0].levels)
    names = ["by urgency", "mean", "p99"]
    names += [f"level {n} {what}" for n in (1, last) for what in ("mean", "p99")]
    for name in (series.over, "mode", *names):
        table.add_column(name, justify="left" if name == "mode" else "right")
    for place, x in enumerate(series.x):
        for curve in series.curves:
            point = curve.points[place]
            parts = (point.all, point.levels[0], point.levels[-1])
            values = [v for each in parts for v in (each.mean_ms, each.p99_ms)]
            table.add_row(
                str(x),
                curve.mode,
                *(f"{value:.2f}" for value in (point.urgency_ms, *values)),
                end_section=curve is series.curves[-1],
            )
    Console(highlight=False).print(table)
