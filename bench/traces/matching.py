"""What matching costs in the analysis: the matcher alone, in this process.

``python -m bench.traces.matching --selectors 10000`` prints one JSON object: processor microseconds
per event, matches per event, and pairs of conjunction and event that were checked per event.
"""

from __future__ import annotations

import json
import random
import time

import click

from bench.traces.analysis import NAMES, NETWORKS, selectors
from canopy.traces.analysis.selection.matcher import Matcher
from matching import compile_selector

BATCH = 10_000  # Spark's records per Arrow batch


@click.command()
@click.option("--events", default=20_000)
@click.option("--selectors", "count", default=10_000)
@click.option("--width", default=0.02, help="The share of values in a narrow range.")
def main(events: int, count: int, width: float) -> None:
    """Match events with selectors and print the cost."""
    rng = random.Random(1)
    texts = [json.dumps(compile_selector(text).tree()) for text in selectors(count, width, rng)]
    seen = [
        {name: rng.random() for name in NAMES} | {"net": rng.choice(NETWORKS)}
        for _ in range(events)
    ]
    began = time.process_time()
    matcher = Matcher(texts)
    made = time.process_time()
    found = sum(
        len(places)
        for first in range(0, events, BATCH)
        for places, _ in matcher.matches(seen[first : first + BATCH])
    )
    row = {
        "selectors": count,
        "events": events,
        "preparing_cpu_s": round(made - began, 2),
        "event_cpu_us": round((time.process_time() - made) / events * 1e6, 1),
        "matches_per_event": round(found / events, 1),
        "checked_per_event": round(matcher.checked / events, 1),
    }
    click.echo(json.dumps(row))


if __name__ == "__main__":
    main()
