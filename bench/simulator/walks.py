"""What it costs and buys that a tree is walked for before its owner is asked (C3, C5).

    python -m bench.simulator.walks contact    # the first events of each publisher, and later ones
    python -m bench.simulator.walks outage     # a primary is paused, and a newcomer publishes
    python -m bench.simulator.walks loss       # a host is lost, and trees new to a publisher follow
    python -m bench.simulator.walks hits       # how many walks find their tree (CBDLO section 5.3)

Full nodes in the simulator, with access points that they learnt by gossip; every figure is a
function of the seed. `contact` and `outage` run the same scenario both ways: walk first, and
*owner first* (`walk.first: false`, `tree.summary_visits: 1`), where whoever is known to own a tree
is asked at once. `--json` prints one list of rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from statistics import mean
from typing import Any

from canopy.sim.scenario.range_load import LoadShape, PaperWorkload
from canopy.sim.scenario.workload import Workload
from canopy.sim.world.clients import Publication
from canopy.sim.world.cost import collector_at_rest
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from matching import Value
from overlay.settings import Settings, TreeSettings, ViewSettings, WalkSettings

Row = dict[str, Any]
Draw = Workload | PaperWorkload

SETTINGS: dict[str, Settings] = {
    "walk first": Settings(),
    "owner first": Settings(walk=WalkSettings(first=False), tree=TreeSettings(summary_visits=1)),
}
"""The two ways that are compared."""

QUIET = 20.0
"""Seconds between the last SUBACK and the first event: ten shuffles."""

EACH = 5
"""Events of each publisher in an outage …"""

BEFORE_ELECTION = 0.9
"""… all of them within so many seconds of its beginning: less than `election.suspect_after`."""


TREES = 80
"""Trees when a host is lost: more than events, so that each event is the first for its tree."""

SINCE_LOSS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Between each two of these times, in seconds since a host was lost, …"""

PUBLISHERS = 12
"""… so many nodes publish an event each."""


def grown(seed: int, nodes: int, settings: Settings) -> World:
    """An overlay in which all nodes are ready; all know the first one."""
    world = World(seed, WireCodec(), settings)
    for number in range(nodes):
        world.add_node(seeds=["n0"] if number else [])
        world.run(min(0.2, 60.0 / nodes))
    expect(world.run_until(world.ready, 120.0), "all nodes are ready")
    return world


def subscribed(
    world: World, draw: Draw, subscriptions: int, names: Sequence[str], quiet: float = QUIET
) -> None:
    """These nodes in turn have subscribed; then some seconds pass, in which gossip goes on."""
    for number in range(subscriptions):
        world.subscribe(names[number % len(names)], draw.selector())
        world.run(0.01)
    expect(world.run_until(world.acknowledged, 120.0), "all subscriptions are acknowledged")
    world.run(quiet)


def expect(holds: bool, what: str) -> None:
    """Raises RuntimeError if the simulation did not come to where it is measured."""
    if not holds:
        raise RuntimeError(f"not so in time: {what}")


def counted(world: World) -> Counter[str]:
    """The counters of all nodes together."""
    return sum((Counter(world.node(name).counters) for name in world.names()), Counter())


def first_deliveries(world: World, since: int) -> list[float]:
    """Seconds from the publication of each event from the number `since` on to its first delivery
    anywhere; events that nobody wants are left out."""
    shown: dict[str, float] = {}
    for one in world.clients.deliveries:
        shown.setdefault(one.delivery.event.identity, one.time)
    return [
        shown[each.identity] - each.published
        for each in world.clients.publications[since:]
        if each.identity in shown
    ]


# --- the first events of each publisher, and later ones ---


def contact(seed: int, nodes: int, rate: float, events: int) -> Iterator[Row]:
    """Each node publishes one event, then `events` at `rate` per second in which it meets most
    attributes, then as many again: the steady state."""
    for way, settings in SETTINGS.items():
        world = grown(seed, nodes, settings)
        draw = Workload(world.generator("workload"))
        subscribed(world, draw, 2 * nodes, world.names())
        drawn = [draw.event() for _ in range(nodes * (1 + 2 * events))]
        gap, many = 1.0 / (rate * nodes), nodes * events
        yield {
            "way": way,
            "nodes": nodes,
            "rate": rate,
            "seed": seed,
            "first": publish(world, drawn[:nodes], 0.05),
            "then": publish(world, drawn[nodes : nodes + many], gap),
            "steady": publish(world, drawn[nodes + many :], gap),
            "delivered": len(world.clients.deliveries),
        }


def publish(world: World, events: Sequence[Mapping[str, Value | None]], gap: float) -> Row:
    """Publish events from all nodes in turn, and wait until they have arrived. Returns what an
    event cost, and what owners were asked."""
    names, before, since = world.names(), counted(world), len(world.clients.publications)
    messages, records, about = dict(world.traffic.messages), len(world.recorder.records), 0
    for number, event in enumerate(events):
        about += 1 + sum(value is not None for value in event.values())  # and `$event`
        world.publish(names[number % len(names)], event)
        world.run(gap)
    expect(world.settle(), "nothing is pending")
    spent = Counter(world.traffic.messages)
    spent.subtract(messages)
    found = counted(world)
    found.subtract(before)
    count = len(events)
    latency = sorted(first_deliveries(world, since))
    return {
        "events": count,
        "asked_per_attribute": round(found["owners_asked"] / about, 3),
        "by_walk": found["lookups_by_walk"],
        "by_ring": found["lookups_by_ring"],
        "absent": found["lookups_absent"],
        "visits": round(spent["Visit"] / count, 3),
        "delivers": round(spent["Deliver"] / count, 3),
        "walk_attributes": round(spent["Walk"] / count, 3),
        "walk_messages": round(walk_messages(world, records) / count, 3),
        "questions": round((spent["AskTree"] + spent["TreeAnswer"]) / count, 3),
        "recalls": round((spent["Invalidate"] + spent["Invalidated"]) / count, 3),
        "latency_ms": round(1_000 * mean(latency), 1) if latency else None,
        "latency_p99_ms": round(1_000 * latency[len(latency) * 99 // 100], 1) if latency else None,
    }


def walk_messages(world: World, since: int) -> int:
    """Steps of walks in the records from the number `since` on; one may carry many attributes."""
    steps = {
        (record.fields["walk"], record.fields["hop"])
        for record in islice(world.recorder.records, since, None)
        if record.kind in ("walk_hop", "walk_recovered")
    }
    return len(steps)


# --- a primary is paused ---


def outage(seed: int, nodes: int, pause: float) -> Iterator[Row]:
    """The primary of the only cluster stands still, and nodes that have never published do."""
    for way, settings in SETTINGS.items():
        yield {"way": way, "nodes": nodes, "seed": seed, **outage_row(seed, nodes, pause, settings)}


def outage_row(seed: int, nodes: int, pause: float, settings: Settings) -> Row:
    """How long events take while the primary stands still for `pause` seconds."""
    world = grown(seed, nodes, settings)
    draw = Workload(world.generator("workload"))
    (primary,) = (name for name in world.names() if world.node(name).clusters.is_primary)
    others = [name for name in world.names() if name != primary]
    subscribed(world, draw, 4 * nodes, others)
    idle = [name for name in others if world.node(name).clusters.role == "none"]
    before, stopped = counted(world), world.now
    world.drivers[primary].pause()
    for number in range(EACH * len(idle)):
        at = stopped + BEFORE_ELECTION * number / (EACH * len(idle))
        world.at(at, world.publish, idle[number % len(idle)], draw.event())

    def is_replaced() -> bool:
        return any(world.node(name).clusters.is_primary for name in others)

    expect(world.run_until(is_replaced, pause), "another primary is elected")
    elected = world.now - stopped
    world.run_to(stopped + pause)
    world.drivers[primary].resume()
    expect(world.settle(), "nothing is pending")
    took = sorted(first_deliveries(world, 0))
    found = counted(world)
    found.subtract(before)
    return {
        "publishers": len(idle),
        "elected_s": round(elected, 2),
        "events": len(took),
        "within_100_ms": sum(each <= 0.1 for each in took),
        "within_500_ms": sum(each <= 0.5 for each in took),
        "median_ms": round(1_000 * took[len(took) // 2], 1),
        "p90_ms": round(1_000 * took[len(took) * 9 // 10], 1),
        "most_ms": round(1_000 * took[-1], 1),
        "delivered": len(world.clients.deliveries),
        "walks_unanswered": found["walks_unanswered"],
    }


# --- while a host is lost ---


def loss(seed: int, nodes: int) -> Iterator[Row]:
    """A host is lost, and publishers meet trees that they did not know before."""
    for kind in ("killed", "silent"):
        for row in loss_rows(seed, nodes, kind == "silent"):
            yield {"host": kind, "nodes": nodes, "seed": seed, **row}


def loss_rows(seed: int, nodes: int, silent: bool) -> Iterator[Row]:
    """How long the first event of a publisher for a tree takes, so long after a host was lost.
    `silent`: its machine is gone, and nobody says so; else its process is, and dials are
    refused."""
    world = grown(seed, nodes, Settings())
    trees = [f"a{number}" for number in range(TREES)]
    subscribers = [name for name in world.names() if world.node(name).clusters.role == "none"]
    for number, tree in enumerate(trees):
        world.subscribe(subscribers[number % len(subscribers)], f"{tree} > 0")
    expect(world.run_until(world.acknowledged, 120.0), "all subscriptions are acknowledged")
    world.run(QUIET)
    hosts = [
        name
        for name in world.names()
        if name not in subscribers and len(world.node(name).hosting.index)
        and not world.node(name).clusters.is_primary
    ]  # fmt: skip
    world.crash(hosts[0], silent=silent)
    lost, new = world.now, itertools.cycle(trees)
    spans: dict[float, list[Publication]] = {}
    for since, until in itertools.pairwise(SINCE_LOSS):
        spans[until] = published = []
        for number, name in enumerate(subscribers[:PUBLISHERS]):
            world.run_to(lost + since + (until - since) * number / PUBLISHERS)
            published += world.publish(name, {next(new): 1})
    expect(world.settle(), "nothing is pending")
    made = {one.delivery.event.identity: one.time for one in world.clients.deliveries}
    for until, published in spans.items():
        took = sorted(made[one.identity] - one.published for one in published if one.identity)
        yield {
            "until_s": until,
            "events": len(published),
            "within_100_ms": sum(each <= 0.1 for each in took),
            "median_ms": round(1_000 * took[len(took) // 2], 1),
            "most_ms": round(1_000 * took[-1], 1),
        }


# --- how many walks find their tree ---


def hits(seed: int, nodes: int, attributes: int, quiet: float) -> Iterator[Row]:
    """Every node walks for some attributes that have a tree."""
    for routing in ("counting", "pivot"):
        for points in (50, 100):
            for hops in (10, 30):
                settings = Settings(
                    view=ViewSettings(size=10, access_points=points),
                    walk=WalkSettings(hops=hops, trace=hops),
                    tree=TreeSettings(routing=routing),
                )
                yield hit_row(seed, nodes, attributes, quiet, settings)


def hit_row(seed: int, nodes: int, attributes: int, quiet: float, settings: Settings) -> Row:
    """The share of walks that find their tree."""
    world = grown(seed, nodes, settings)
    draw = PaperWorkload(world.generator("workload"), LoadShape(attributes=attributes))
    subscribed(world, draw, 2 * nodes, world.names(), quiet)
    planted = {name for n in world.names() for name in world.node(n).owner.trees}
    table = mean(world.node(name).access_points.cached for name in world.names())
    before = len(world.recorder.records)
    for name in world.names():
        for _ in range(3):
            world.publish(name, draw.event())
    expect(world.settle(), "nothing is pending")
    made = [
        record
        for record in islice(world.recorder.records, before, None)
        if record.kind.startswith("walk_") and record.fields["attribute"] in planted
    ]
    hops = [record.fields["hop"] for record in made if record.kind == "walk_hit"]
    kinds = Counter(record.kind for record in made)
    walks = kinds["walk_hit"] + kinds["walk_miss"]
    walked = walks - hops.count(0)
    return {
        "routing": settings.tree.routing,
        "access_points": settings.view.access_points,
        "hops": settings.walk.hops,
        "nodes": nodes,
        "trees": len(planted),
        "known": round(table, 1),
        "walks": walks,
        "at_once": hops.count(0),
        "hit_rate": round(kinds["walk_hit"] / walks, 4),
        "walked": walked,
        "hit_rate_walked": round(1 - kinds["walk_miss"] / walked, 4) if walked else None,
        "mean_hops": round(sum(hops) / (walked - kinds["walk_miss"]), 2) if walked else None,
        "blocked": kinds["walk_blocked"],
        "recovered": kinds["walk_recovered"],
        "seed": seed,
    }


def main(args: Sequence[str] | None = None) -> int:
    """Run the measurement that is named and print a row for each of its runs."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulator.walks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("contact", "outage", "loss", "hits"))
    parser.add_argument("--nodes", type=int, help="24, for hits 100")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 1, 2, … (1)")
    parser.add_argument("--rate", type=float, default=1.0, help="contact: a node's later events/s")
    parser.add_argument("--events", type=int, default=20, help="contact: a node's later events")
    parser.add_argument("--pause", type=float, default=3.0, help="outage: seconds")
    parser.add_argument("--attributes", type=int, default=486, help="hits")
    parser.add_argument("--quiet", type=float, default=60.0, help="hits: seconds of gossip before")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    given = parser.parse_args(args)
    rows: list[Row] = []
    for seed in range(1, given.seeds + 1):
        nodes = given.nodes or (100 if given.what == "hits" else 24)
        if given.what == "contact":
            found = contact(seed, nodes, given.rate, given.events)
        elif given.what == "outage":
            found = outage(seed, nodes, given.pause)
        elif given.what == "loss":
            found = loss(seed, nodes)
        else:
            found = hits(seed, nodes, given.attributes, given.quiet)
        with collector_at_rest():
            for row in found:
                rows.append(row)
                shown = "  ".join(f"{name} {value}" for name, value in row.items())
                print(shown, file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
