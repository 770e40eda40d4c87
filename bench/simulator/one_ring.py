"""How long a ring that a partition has cut takes to be one again, in virtual seconds (P5).

`python -m bench.simulator.one_ring --json` cuts overlays into halves, into thirds, or so that one
node reaches both sides and the sides not each other, for long enough that each side recovers what
it misses of the other; then it heals. A row has, by cut and size, the median and the longest of all
seeds from the heal until every node leads, owns and lists what it should (`one_ring_s`), and until
all registrations are where they belong (`registered_s`); and how many deliveries were missing,
spurious or twice of the events that were published when that was so (`wrong`). A seed that takes
longer than `GIVE_UP` counts in `failed`. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random
from statistics import median
from typing import Any, Final, NamedTuple

from canopy.sim.checks.deliveries import check_deliveries
from canopy.sim.checks.node_state import check_ring, check_trees, led
from canopy.sim.checks.ownership import check_arcs
from canopy.sim.world.cost import collector_at_rest
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from overlay.settings import ClusterSettings, Settings, TreeSettings

GIVE_UP: Final = 120.0
"""Virtual seconds after the heal; several times what was ever seen."""

ATTRIBUTES: Final = "abcdefgh"


class Overlay(NamedTuple):
    """One size: how many nodes and clusters, and for how long it is cut."""

    name: str
    nodes: int
    cluster: ClusterSettings
    apart: float


OVERLAYS: Final = (
    Overlay("one cluster of five", 16, ClusterSettings(size=5), 30.0),
    Overlay("clusters of three", 24, ClusterSettings(size=3, split_trees=2), 60.0),
)

CUTS: Final = ("halves", "thirds", "bridge")


class OneRingError(Exception):
    """The overlay did not come into the state that is measured."""


def cut(world: World, kind: str, mixed: Sequence[str]) -> None:
    """Cut the nodes, which are in random order, into sides."""
    if kind != "bridge":
        sides = {"halves": 2, "thirds": 3}[kind]
        world.network.partition([mixed[side::sides] for side in range(sides)])
        return
    _, *others = mixed  # the first one reaches all
    side = {name: place % 2 for place, name in enumerate(others)}
    for one, other in combinations(others, 2):
        if side[one] != side[other]:
            world.network.sever(one, other)


def is_one(world: World) -> bool:
    """Whether every node leads, owns and lists what it should."""
    return led(world) and not check_arcs(world) and not check_ring(world)


def trial(overlay: Overlay, kind: str, seed: int) -> tuple[float, float, int] | None:
    """Seconds until the ring is one, until all is registered, and how many deliveries were wrong
    then; None if it took longer than `GIVE_UP`."""
    settings = Settings(cluster=overlay.cluster, tree=TreeSettings(split_at=16))
    world = World(seed, WireCodec(), settings)
    for number in range(overlay.nodes):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.1)
    need(world, world.ready, "ready")
    names = world.names()
    world.introduce("n0", ["n1"])
    for number in range(2 * overlay.nodes):
        where = f"{ATTRIBUTES[number % 8]} BETWEEN {number % 50} AND {number % 50 + 20}"
        world.subscribe(names[number % len(names)], where)
    need(world, world.acknowledged, "acknowledged")
    need(world, lambda: is_one(world), "one ring before the cut")
    world.run(12.0)
    mixed = list(names)
    Random(seed).shuffle(mixed)
    cut(world, kind, mixed)
    world.run(overlay.apart)
    world.network.heal()
    healed = world.now
    if not world.run_until(lambda: is_one(world), GIVE_UP, 0.1):
        return None
    one = world.now - healed
    if not world.run_until(lambda: is_one(world) and not check_trees(world), GIVE_UP, 0.1):
        return None
    registered = world.now - healed
    world.clients.publications.clear()
    world.clients.deliveries.clear()
    for number in range(40):
        event = {ATTRIBUTES[number % 8]: number % 60, ATTRIBUTES[number * 3 % 8]: number}
        world.publish(names[number % len(names)], event)
        world.run(0.02)
    world.settle()
    return one, registered, len(check_deliveries(world))


def need(world: World, condition: Callable[[], bool], what: str) -> None:
    """Raise OneRingError where the overlay does not come to this."""
    if not world.run_until(condition, GIVE_UP):
        raise OneRingError(f"not within {GIVE_UP:.0f} s: {what}")


def measure(overlay: Overlay, kind: str, seeds: Sequence[int]) -> dict[str, Any]:
    """One row: all seeds of one cut of one size."""
    found = []
    for seed in seeds:
        with collector_at_rest():
            found.append(trial(overlay, kind, seed))
        print(f"{overlay.name}, {kind}, seed {seed}: {found[-1]}", file=sys.stderr, flush=True)
    good = [each for each in found if each is not None]
    one, registered = [each[0] for each in good], [each[1] for each in good]
    return {
        "overlay": overlay.name,
        "nodes": overlay.nodes,
        "cut": kind,
        "apart_s": overlay.apart,
        "seeds": len(seeds),
        "failed": len(found) - len(good),
        "one_ring_s": middle_and_most(one),
        "registered_s": middle_and_most(registered),
        "wrong": sum(each[2] for each in good),
    }


def middle_and_most(values: Sequence[float]) -> dict[str, float] | None:
    """Median and longest; None of none."""
    if not values:
        return None
    return {"median": round(median(values), 2), "most": round(max(values), 2)}


def main(args: Sequence[str] | None = None) -> int:
    """Run the measurement and print a row for each cut of each size."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulator.one_ring",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cuts", nargs="+", choices=CUTS, default=list(CUTS))
    parser.add_argument("--seeds", type=int, default=5, help="seeds 1, 2, … of each (5)")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    given = parser.parse_args(args)
    seeds = range(1, given.seeds + 1)
    rows = [measure(overlay, kind, seeds) for overlay in OVERLAYS for kind in given.cuts]
    if given.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print("  ".join(f"{name} {value}" for name, value in row.items()))
    return 1 if any(row["failed"] or row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
