"""A fleet of sensors in two regions, and who hears what of it.

    canopy node --data eu-1 --region eu --listen 127.0.0.1:4470 &
    canopy node --data eu-2 --region eu --listen 127.0.0.1:4471 --peer 127.0.0.1:4470 &
    canopy node --data us-1 --region us --listen 127.0.0.1:4472 --peer 127.0.0.1:4470 &
    canopy node --data us-2 --region us --listen 127.0.0.1:4473 --peer 127.0.0.1:4470 &
    python examples/fleet/fleet.py eu-1,eu-2 us-1,us-2

Each argument is a region: the data folders of its nodes, with commas. At the first node of each
region forty sensors report a temperature and a battery, fifty times. At every node a control room
asks for what concerns it: sensors of its own region whose battery is low, and heat anywhere. An
event that several nodes of a region want crosses into the region once, and is passed on there
(docs/design/regions.md). Printed for each room: what it asked for, how many events it was owed and
got, and how many hops they took.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from random import Random
from statistics import median

import canopy
from matching import compile_selector

SENSORS, ROUNDS, SEED = 40, 50, 1
PATIENCE = 60.0
"""Seconds for the nodes to start, and for an event to come."""


def readings(region: str, draw: Random) -> list[dict[str, str | int | float]]:
    """What the sensors of a region report, round by round."""
    return [
        {
            "type": "reading",
            "region": region,
            "sensor": f"{region}-{number}",
            "celsius": round(draw.gauss(21, 6), 1),
            "battery": round(draw.uniform(0, 1), 2),
        }
        for _ in range(ROUNDS)
        for number in range(SENSORS)
    ]


def main(regions: Sequence[str]) -> int:
    """Return 0 if every room got what it was owed."""
    if len(regions) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    draw, whole = Random(SEED), True
    with ExitStack() as open_ones:
        rooms, sensors = [], []
        for names in regions:
            folders = names.split(",")
            region = folders[0].partition("-")[0]
            clients = [
                open_ones.enter_context(canopy.connect(folder, timeout=PATIENCE))
                for folder in folders
            ]
            sensors.append((clients[0], readings(region, draw)))
            for folder, client in zip(folders, clients, strict=True):
                selector = f"(region = '{region}' AND battery < 0.1) OR celsius > 36"
                rooms.append((folder, selector, client.subscribe(selector, timeout=PATIENCE)))
        for client, reported in sensors:
            client.publish_many(reported, receipt=True)
        everything = [event for _, reported in sensors for event in reported]
        print("room     owed   got  median hops  selector")
        for folder, selector, subscription in rooms:
            wanted = compile_selector(selector)
            owed = sum(wanted.matches(event) is True for event in everything)
            got: list[canopy.Delivery] = []
            while len(got) < owed and (more := subscription.receive(timeout=PATIENCE)):
                got += [each for each in more if isinstance(each, canopy.Delivery)]
            hops = median(event.hops for event in got) if got else 0
            print(f"{folder:7} {owed:5} {len(got):5}  {hops:11}  {selector}")
            whole = whole and len(got) == owed
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
