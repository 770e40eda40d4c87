"""What it costs and buys that a tree is walked for before its owner is asked (C3, C5).

Full nodes in the simulator, with access points that they learnt by gossip. `contact` (the first
events of each publisher, and later ones) and `outage` (a primary is paused, and a newcomer
publishes) run the same scenario both ways: walk first, and *owner first* (`walk.first: false`,
`tree.summary_visits: 1`), where whoever is known to own a tree is asked at once. `hits`: how many
walks find their tree (CBDLO section 5.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from statistics import mean
from typing import Literal

import msgspec

from bench.experiments.frame import (
    Experiment,
    NotReadyError,
    Progress,
    grown,
    run_until_ready,
)
from bench.lab.tables import Row
from canopy.sim.scenario.range_load import LoadShape, PaperWorkload
from canopy.sim.scenario.workload import Workload
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from matching import Value
from overlay.settings import Settings, TreeSettings, ViewSettings, WalkSettings

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


class WalksPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is measured, and of which size."""

    what: Literal["contact", "outage", "hits"] = "contact"
    nodes: int = 0  # 0: 24, of hits 100
    times: int = 1  # seeds: seed, seed + 1, …
    rate: float = 1.0  # contact: a node's later events a second …
    events: int = 20  # … and how many
    pause: float = 3.0  # outage: seconds
    attributes: int = 486  # hits
    quiet: float = 60.0  # hits: seconds of gossip before
    seed: int = 1


def subscribed(
    world: World, draw: Draw, subscriptions: int, names: Sequence[str], quiet: float = QUIET
) -> None:
    """These nodes in turn have subscribed; then some seconds pass, in which gossip goes on."""
    for number in range(subscriptions):
        world.subscribe(names[number % len(names)], draw.selector())
        world.run(0.01)
    run_until_ready(world, world.acknowledged)
    world.run(quiet)


def settle(world: World) -> None:
    """Raises NotReadyError if events are still pending."""
    if not world.settle():
        raise NotReadyError("events are still pending")


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


def contact(plan: WalksPlan, seed: int, nodes: int) -> Iterator[Row]:
    """Each node publishes one event, then `plan.events` at `plan.rate` per second, so that it meets
    most attributes, then as many again: the steady state."""
    for way, settings in SETTINGS.items():
        world = grown(World(seed, WireCodec(), settings), nodes)
        draw = Workload(world.generator("workload"))
        subscribed(world, draw, 2 * nodes, world.names())
        drawn = [draw.event() for _ in range(nodes * (1 + 2 * plan.events))]
        gap, many = 1.0 / (plan.rate * nodes), nodes * plan.events
        yield {
            "way": way,
            "nodes": nodes,
            "rate": plan.rate,
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
    settle(world)
    spent = Counter(world.traffic.messages)
    spent.subtract(messages)
    found = counted(world)
    found.subtract(before)
    count = len(events)
    latency = sorted(first_deliveries(world, since))
    return {
        "events": count,
        "asked_per_attribute": round(found["owners_asked"] / about, 3),
        "visits": round(spent["Visit"] / count, 3),
        "delivers": round(spent["Deliver"] / count, 3),
        "walk_attributes": round(spent["Walk"] / count, 3),
        "walk_messages": round(walk_messages(world, records) / count, 3),
        "questions": round((spent["AskTree"] + spent["TreeAnswer"]) / count, 3),
        "latency_ms": round(1_000 * mean(latency), 1) if latency else None,
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


def outage(plan: WalksPlan, seed: int, nodes: int) -> Iterator[Row]:
    """The primary of the only cluster stands still, and nodes that have never published do."""
    for way, settings in SETTINGS.items():
        yield {
            "way": way,
            "nodes": nodes,
            "seed": seed,
            **outage_row(seed, nodes, plan.pause, settings),
        }


def outage_row(seed: int, nodes: int, pause: float, settings: Settings) -> Row:
    """How long events take while the primary stands still for `pause` seconds."""
    world = grown(World(seed, WireCodec(), settings), nodes)
    draw = Workload(world.generator("workload"))
    (primary,) = (name for name in world.names() if world.node(name).clusters.is_primary)
    others = [name for name in world.names() if name != primary]
    subscribed(world, draw, 4 * nodes, others)
    idle = [name for name in others if world.node(name).clusters.role == "none"]
    stopped = world.now
    world.drivers[primary].pause()
    for number in range(EACH * len(idle)):
        at = stopped + BEFORE_ELECTION * number / (EACH * len(idle))
        world.at(at, world.publish, idle[number % len(idle)], draw.event())

    def is_replaced() -> bool:
        return any(world.node(name).clusters.is_primary for name in others)

    if not world.run_until(is_replaced, pause):
        raise NotReadyError("no other primary is elected")
    elected = world.now - stopped
    world.run_to(stopped + pause)
    world.drivers[primary].resume()
    settle(world)
    took = sorted(first_deliveries(world, 0))
    return {
        "publishers": len(idle),
        "elected_s": round(elected, 2),
        "events": len(took),
        "within_100_ms": sum(each <= 0.1 for each in took),
        "within_500_ms": sum(each <= 0.5 for each in took),
        "median_ms": round(1_000 * took[len(took) // 2], 1),
        "most_ms": round(1_000 * took[-1], 1),
        "delivered": len(world.clients.deliveries),
    }


# --- how many walks find their tree ---


def hits(plan: WalksPlan, seed: int, nodes: int) -> Iterator[Row]:
    """Every node walks for some attributes that have a tree."""
    for routing in ("counting", "pivot"):
        for points in (50, 100):
            for hops in (10, 30):
                settings = Settings(
                    view=ViewSettings(size=10, access_points=points),
                    walk=WalkSettings(hops=hops, trace=hops),
                    tree=TreeSettings(routing=routing),
                )
                yield hit_row(plan, seed, nodes, settings)


def hit_row(plan: WalksPlan, seed: int, nodes: int, settings: Settings) -> Row:
    """The share of walks that find their tree."""
    world = grown(World(seed, WireCodec(), settings), nodes)
    draw = PaperWorkload(world.generator("workload"), LoadShape(attributes=plan.attributes))
    subscribed(world, draw, 2 * nodes, world.names(), plan.quiet)
    planted = {name for n in world.names() for name in world.node(n).owner.trees}
    table = mean(world.node(name).access_points.cached for name in world.names())
    before = len(world.recorder.records)
    for name in world.names():
        for _ in range(3):
            world.publish(name, draw.event())
    settle(world)
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


def trials(plan: WalksPlan, progress: Progress) -> Iterator[Row]:
    """The rows of each seed."""
    run = {"contact": contact, "outage": outage, "hits": hits}[plan.what]
    for done in range(plan.times):
        progress(f"seed {plan.seed + done}", done / plan.times)
        yield from run(plan, plan.seed + done, plan.nodes or (100 if plan.what == "hits" else 24))


WALKS = Experiment(
    "walks",
    "Measure what walking for a tree costs and buys.",
    """`what=contact`: the first events of each publisher, and later ones, walking first and asking
    the owner first. `what=outage`: the same while the primary stands still. `what=hits`: the share
    of walks that find their tree. docs/lab/walks.md has the results.""",
    WalksPlan(),
    trials,
    "way: way | first.asked_per_attribute .2f: asked | first.latency_ms .0f: latency, ms"
    " | steady.visits .3f: visits, later | steady.questions .3f: questions, later"
    " | elected_s .2f: elected after, s | {within_100_ms} of {events}: within 100 ms"
    " | median_ms .0f: median, ms | routing: routing | access_points: access points | hops: hops"
    " | hit_rate .1%: hit | hit_rate_walked .1%: of those that walked | seed: seed",
)
