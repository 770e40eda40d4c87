"""`canopy sim figure`: a figure of the CBDLO paper, from the product's own code.

Writes `figure-N.json` (series, parameters, seed) and `figure-N.svg`. The baselines are in bench/,
which is no part of the product; they are handed to sim/figures here.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import click

from canopy.cli.experiment import (
    changed,
    json_option,
    out_option,
    quiet_option,
    report,
    seed_option,
    set_option,
    show,
)

if TYPE_CHECKING:
    from canopy.sim.experiments.figures.model import Broadcaster, Figure, Neighbours, Wanderer

NUMBERS = ("5", "6", "7", "8", "9")


class PaperBaselines:
    """*Simple* and *TERA* (bench/baselines)."""

    def simple(self, neighbours: Neighbours, rng: Random, walkers: int) -> Wanderer:
        """Walkers that match wherever they come."""
        from bench.baselines.simple import Simple

        return Simple(neighbours, rng, walkers)

    def tera(self, neighbours: Neighbours, nodes: int, rng: Random, seed: str) -> Broadcaster:
        """Topic overlays with broadcast."""
        from bench.baselines.tera import Tera

        return Tera(neighbours, nodes, rng, seed)


@click.command()
@click.argument("number", type=click.Choice(NUMBERS))
@out_option("figure-NUMBER", required=True)
@seed_option
@set_option
@json_option
@quiet_option
def figure(
    number: str, out: Path, seed: int, changes: tuple[str, ...], as_json: bool, quiet: bool
) -> None:
    """Compute figure NUMBER (5 to 9) of the CBDLO paper and draw it.

    docs/lab/figures.md says what the figures show, and what was chosen where the paper is silent.

    \b
    canopy sim figure 5 --out build/figures
    canopy sim figure 7 --out build/figures --seed 2 --set "x=[100,1000,10000]"
    canopy sim figure 6 --out build/figures --set load.attributes=100 --set events=500
    """
    from canopy.sim.experiments.figures.draw import draw
    from canopy.sim.experiments.figures.paper import PLANS, make

    plan = changed(PLANS[int(number)], changes)
    made = make(int(number), seed, PaperBaselines(), plan, None if quiet else tell)
    report(made, f"figure-{number}", out, as_json, draw, print_figure)


def tell(share: float) -> None:
    """Progress: a figure has one stage."""
    show("", share)


def print_figure(figure: Figure) -> None:
    """A table for a person."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Figure {figure.figure}: {figure.title}", title_justify="left")
    table.add_column(figure.x_label, justify="right")
    for series in figure.series:
        table.add_column(series.name, justify="right")
    for place, x in enumerate(figure.x):
        values = [series.y[place] for series in figure.series]
        table.add_row(str(x), *("-" if y is None else f"{y:,.0f}" for y in values))
    Console(highlight=False).print(table)
