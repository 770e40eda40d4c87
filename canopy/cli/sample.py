"""`canopy sample`: made-up events to try commands with."""

from __future__ import annotations

import click

from canopy.feeds.samples import SAMPLES


@click.command()
@click.argument("name", type=click.Choice(list(SAMPLES)))
@click.option("--events", type=click.IntRange(min=1), default=200, help="How many.")
@click.option("--seed", type=int, default=1, help="Another seed, other events.")
def sample(name: str, events: int, seed: int) -> None:
    """Print made-up events, the same ones each time: earthquakes as GeoJSON, orders as JSON lines,
    readings of sensors as CSV.

    \b
    canopy sample earthquakes > earthquakes.geojson
    canopy sample orders --events 1000 | canopy pub -
    canopy sample readings > readings.csv && canopy pub readings.csv
    """
    for line in SAMPLES[name](events, seed):
        click.echo(line)
