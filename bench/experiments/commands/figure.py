"""`bench.experiments figure`: a figure of the CBDLO paper, from the product's own code.

Writes `figure-N.json` (series, parameters, seed) and `figure-N.svg`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import click

from bench.experiments.options import ExperimentOutput, output_options, seed_option
from canopy.cli.output import console, table
from canopy.cli.parameters import changed, set_option

if TYPE_CHECKING:
    from bench.experiments.figures.model import Broadcaster, Figure, Neighbours, Spreading

NUMBERS = ("5", "6", "7", "8", "9")


class PaperBaselines:
    """The paper's baselines *Simple* and *TERA* (bench/baselines)."""

    def simple(self, neighbours: Neighbours) -> Spreading:
        """*Simple*: a flood that is matched at every node it reaches."""
        from bench.baselines.simple import Simple

        return Simple(neighbours)

    def forwarding(self, neighbours: Neighbours, rng: Random) -> Spreading:
        """*Simple* read as forwarding to one random neighbour."""
        from bench.baselines.simple import Forwarding

        return Forwarding(neighbours, rng)

    def tera(self, neighbours: Neighbours, nodes: int, rng: Random, seed: str) -> Broadcaster:
        """*TERA*: an overlay per topic, with broadcast."""
        from bench.baselines.tera import Tera

        return Tera(neighbours, nodes, rng, seed)


@click.command(short_help="Compute and draw a figure of the CBDLO paper.")
@click.argument("number", type=click.Choice(NUMBERS))
@output_options("figure-NUMBER", required=True)
@seed_option
@set_option
@click.option(
    "--full-nodes",
    is_flag=True,
    help="Run whole nodes with learnt access points, in a size in which they can.",
)
def figure(
    number: str, seed: int, changes: tuple[str, ...], full_nodes: bool, output: ExperimentOutput
) -> None:
    """Compute figure NUMBER (5 to 9) of the CBDLO paper and draw it.

    docs/lab/figures.md explains the figures, and the choices where the paper says nothing.

    Walks and trees are the product's, without links, timers and gossip. With --full-nodes the
    overlay is one of 100 whole nodes in the simulator, and the former stands beside it.

    \b
    python -m bench.experiments figure 5 --out build/figures
    python -m bench.experiments figure 7 --out build/figures --seed 2 --set "x=[100,1000,10000]"
    python -m bench.experiments figure 6 --out build/figures --set events=500
    python -m bench.experiments figure 5 --out build/figures --full-nodes --set "x=[100]"
    """
    from bench.experiments.figures.draw import draw
    from bench.experiments.figures.paper import make, plan_of
    from canopy.sim.world.cost import collector_at_rest
    from canopy.wire.transport.codec import WireCodec

    plan = changed(plan_of(int(number), full_nodes), changes)
    with collector_at_rest():
        made = make(int(number), seed, PaperBaselines(), WireCodec(), plan, output.progress)
    output.write(made, f"figure-{number}", draw, print_figure)


def print_figure(figure: Figure) -> None:
    """Print the figure's series as a table."""
    columns = [figure.x_label, *(series.name for series in figure.series)]
    title = f"Figure {figure.figure}: {figure.title}"
    shown = table(*(f">{name}" for name in columns), title=title)
    for place, x in enumerate(figure.x):
        values = [series.y[place] for series in figure.series]
        shown.add_row(str(x), *("-" if y is None else f"{y:,.0f}" for y in values))
    console().print(shown)
