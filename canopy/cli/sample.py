"""`canopy sample`: made-up events to try commands with, the same ones for a seed.
The guides publish them. Places are real and names plain, so that selectors are easy to read."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of the first event, fixed so that a sample is always the same."""

PLACES: Final = {
    "Nome, Alaska": (-165.4, 64.5),
    "Adak, Alaska": (-176.6, 51.9),
    "Sendai, Japan": (140.9, 38.3),
    "Kushiro, Japan": (144.4, 43.0),
    "Concepcion, Chile": (-73.0, -36.8),
    "Kathmandu, Nepal": (85.3, 27.7),
    "Reykjavik, Iceland": (-21.9, 64.1),
    "Wellington, New Zealand": (174.8, -41.3),
}
"""Places with longitude and latitude in degrees."""


def earthquakes(events: int, seed: int) -> Iterator[str]:
    """Yield the lines of one GeoJSON collection in the format of the USGS."""
    yield '{"type": "FeatureCollection", "features": ['
    for number, draw, time in _draws(events, seed, minutes=7):
        place = draw.choice(list(PLACES))
        longitude, latitude = (round(at + draw.uniform(-1, 1), 3) for at in PLACES[place])
        depth = round(draw.expovariate(1 / 30), 1)
        properties = {
            "mag": round(min(9.0, 2.5 + draw.expovariate(1.1)), 1),
            "place": f"{draw.randint(3, 140)} km {draw.choice('NESW')} of {place}",
            "time": int(time.timestamp() * 1000),
            "type": "earthquake",
        }
        feature = {
            "type": "Feature",
            "id": f"eq{number}",
            "properties": properties,
            "geometry": {"type": "Point", "coordinates": [longitude, latitude, depth]},
        }
        yield json.dumps(feature) + ("," if number < events else "")
    yield "]}"


def orders(events: int, seed: int) -> Iterator[str]:
    """Yield orders of a shop as JSON lines: customer, article, count, total, state."""
    for number, draw, time in _draws(events, seed, minutes=1):
        count = draw.randint(1, 5)
        yield json.dumps(
            {
                "id": f"order-{number}",
                "customer": draw.randint(1, 20),
                "article": draw.choice(("lamp", "chair", "table", "shelf")),
                "count": count,
                "total": round(count * draw.uniform(9, 120), 2),
                "state": draw.choice(("new", "new", "paid", "cancelled")),
                "time": time.isoformat(),
            }
        )


def readings(events: int, seed: int) -> Iterator[str]:
    """Yield readings of six sensors as CSV with a header: sensor, celsius, humidity."""
    yield "id,sensor,region,celsius,humidity,time"
    warmth = {f"s{sensor}": 15.0 + 3 * sensor for sensor in range(1, 7)}
    for number, draw, time in _draws(events, seed, minutes=0.5):
        sensor = draw.choice(list(warmth))
        warmth[sensor] += draw.gauss(0, 0.8)
        region = ("eu/de", "eu/fr", "us")[int(sensor[1:]) % 3]
        values: tuple[Any, ...] = (round(warmth[sensor], 1), draw.randint(20, 90), time.isoformat())
        yield ",".join(map(str, (f"r{number}", sensor, region, *values)))


SAMPLES: Final[dict[str, Callable[[int, int], Iterator[str]]]] = {
    "earthquakes": earthquakes,
    "orders": orders,
    "readings": readings,
}
"""The function of each sample by name. It yields the lines for a number of events and a seed."""


def _draws(events: int, seed: int, minutes: float) -> Iterator[tuple[int, random.Random, datetime]]:
    """Yield the number, generator and time of each event. Events are `minutes` minutes apart on
    average."""
    draw = random.Random(seed)
    time = BEGIN
    for number in range(1, events + 1):
        time += timedelta(minutes=round(draw.expovariate(1 / minutes), 3))
        yield number, draw, time


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
