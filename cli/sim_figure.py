"""`canopy sim figure`: a figure of the CBDLO paper, from the product's own code.

Writes `figure-N.json` (series, parameters, seed) and `figure-N.svg`. The baselines are in bench/,
which is no part of the product; they are handed to sim/figures here.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from msgspec import Struct

    from sim.figures.model import Broadcaster, Figure, Neighbours, Wanderer

AnyPlan = TypeVar("AnyPlan", bound="Struct")
"""What an experiment depends on: a struct of values and groups of values."""

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
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to write figure-N.json and figure-N.svg to.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="What everything follows from."
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another parameter, as it is called in the JSON: nodes=1000, load.zipf=0.9, x=[100,200].",
)
@click.option("--json", "as_json", is_flag=True, help="Print the JSON as well.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def figure(
    number: str, out: Path, seed: int, changes: tuple[str, ...], as_json: bool, quiet: bool
) -> None:
    """Compute figure NUMBER (5 to 9) of the CBDLO paper and draw it.

    docs/figures.md says what the figures show, and what was chosen where the paper is silent.

    \b
    canopy sim figure 5 --out build/figures
    canopy sim figure 7 --out build/figures --seed 2 --set "x=[100,1000,10000]"
    canopy sim figure 6 --out build/figures --set load.attributes=100 --set events=500
    """
    import msgspec

    from sim.figures.draw import draw
    from sim.figures.paper import PLANS, make

    plan = changed(PLANS[int(number)], changes)
    out.mkdir(parents=True, exist_ok=True)
    made = make(int(number), seed, PaperBaselines(), plan, None if quiet else show)
    text = msgspec.json.format(msgspec.json.encode(made), indent=2)
    (out / f"figure-{number}.json").write_bytes(text + b"\n")
    with (out / f"figure-{number}.svg").open("wb") as file:
        draw(made, file)
    if as_json:
        click.echo(text.decode())
    else:
        print_figure(made)
        click.echo(f"written to {out / f'figure-{number}.json'} and .svg")


def changed(plan: AnyPlan, changes: tuple[str, ...]) -> AnyPlan:
    """The plan with `name=value` changes. UsageError for what it has not, or of another type."""
    import msgspec
    import yaml

    facts = msgspec.to_builtins(plan)
    for change in changes:
        name, _, value = change.partition("=")
        group, _, leaf = name.rpartition(".")
        place = facts.get(group) if group else facts
        if not isinstance(place, dict) or leaf not in place:
            groups = [(name, inner) for name, inner in facts.items() if isinstance(inner, dict)]
            names = [*facts, *(f"{name}.{leaf}" for name, inner in groups for leaf in inner)]
            raise click.UsageError(f"--set {change}: there is no {name!r}; there are {names}")
        place[leaf] = yaml.safe_load(value)
    try:
        return msgspec.convert(facts, type(plan))
    except msgspec.ValidationError as error:
        raise click.UsageError(f"--set: {error}") from None


def show(share: float) -> None:
    """Progress."""
    click.echo(f"{share:4.0%}", err=True)


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
