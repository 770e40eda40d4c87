"""How long a ring that a partition has cut takes to be one again, in virtual seconds (P5).

Overlays are cut into halves, into thirds, or so that one node reaches both sides and the sides not
each other, for long enough that each side recovers what it misses of the other; then it heals. A
row has, by cut and size, the median and the longest of all seeds from the heal until every node
leads, owns and lists what it should (`one_ring_s`), and until all registrations are where they
belong (`registered_s`); and how many deliveries were missing, spurious or twice of the events that
were published when that was so (`wrong`). A seed that takes longer than `GIVE_UP` counts in
`failed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random
from statistics import median
from typing import Final, Literal, NamedTuple

import msgspec

from bench.experiments.frame import Experiment, Progress, grown, run_until_ready
from bench.lab.tables import Row
from canopy.sim.checks.deliveries import check_deliveries
from canopy.sim.checks.node_state import check_ring, check_trees, led
from canopy.sim.checks.ownership import check_arcs
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from overlay.settings import ClusterSettings, Settings, TreeSettings

GIVE_UP: Final = 120.0
"""Virtual seconds after the heal; several times what was ever seen."""

ATTRIBUTES: Final = "abcdefgh"

Cut = Literal["halves", "thirds", "bridge"]


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


class OneRingPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which cuts, and how many seeds of each."""

    cuts: tuple[Cut, ...] = ("halves", "thirds", "bridge")
    times: int = 5
    seed: int = 1  # the first


def cut(world: World, kind: Cut, mixed: Sequence[str]) -> None:
    """Cut the nodes, which are in random order, into sides."""
    if kind != "bridge":
        sides = 2 if kind == "halves" else 3
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


def trial(overlay: Overlay, kind: Cut, seed: int) -> tuple[float, float, int] | None:
    """Seconds until the ring is one, until all is registered, and how many deliveries were wrong
    then; None if it took longer than `GIVE_UP`."""
    settings = Settings(cluster=overlay.cluster, tree=TreeSettings(split_at=16))
    world = grown(World(seed, WireCodec(), settings), overlay.nodes)
    names = world.names()
    world.introduce("n0", ["n1"])
    for number in range(2 * overlay.nodes):
        where = f"{ATTRIBUTES[number % 8]} BETWEEN {number % 50} AND {number % 50 + 20}"
        world.subscribe(names[number % len(names)], where)
    run_until_ready(world, world.acknowledged)
    run_until_ready(world, lambda: is_one(world))
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


def measured(overlay: Overlay, kind: Cut, seeds: Sequence[int]) -> Row:
    """One row: all seeds of one cut of one size."""
    found = [trial(overlay, kind, seed) for seed in seeds]
    good = [each for each in found if each is not None]
    return {
        "overlay": overlay.name,
        "nodes": overlay.nodes,
        "cut": kind,
        "apart_s": overlay.apart,
        "seeds": len(seeds),
        "failed": len(found) - len(good),
        "one_ring_s": middle_and_most([each[0] for each in good]),
        "registered_s": middle_and_most([each[1] for each in good]),
        "wrong": sum(each[2] for each in good),
    }


def middle_and_most(values: Sequence[float]) -> dict[str, float] | None:
    """Median and longest; None of none."""
    if not values:
        return None
    return {"median": round(median(values), 2), "most": round(max(values), 2)}


def trials(plan: OneRingPlan, progress: Progress) -> Iterator[Row]:
    """A row for each cut of each size."""
    pairs = [(overlay, kind) for overlay in OVERLAYS for kind in plan.cuts]
    for done, (overlay, kind) in enumerate(pairs):
        progress(f"{overlay.name}, {kind}", done / len(pairs))
        yield measured(overlay, kind, range(plan.seed, plan.seed + plan.times))


ONE_RING = Experiment(
    "one-ring",
    "Cut a ring, heal it, and see when it is one again.",
    """Halves, thirds, or two sides of which one node reaches both; each side recovers the other's
    arcs meanwhile. docs/lab/recovery.md has the results. The exit code is 1 if a ring was not one
    again, or a delivery was wrong afterwards.""",
    OneRingPlan(),
    trials,
    "overlay: overlay | cut: cut into | apart_s .0f: for, s | seeds: seeds"
    " | {one_ring_s.median:.1f}, {one_ring_s.most:.1f}: one ring, s: median, most"
    " | {registered_s.median:.1f}, {registered_s.most:.1f}: all registered"
    " | failed: failed | wrong: wrong deliveries after that",
    is_good=lambda row: not (row["failed"] or row["wrong"]),
)
