"""`canopy sim routing`: the styles of placing side by side, on one load from one seed (C9, C11).

All styles get the same subscriptions, the same events from the same publishers, and the same dead
nodes. The first entry is counting as in the paper (C8), with known locations and without its walks:
what it sends to the node lists alone is hundreds of times the bound.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import msgspec

from canopy.sim.experiments.routing_model.brute_force_match import Audience
from canopy.sim.experiments.routing_model.host_assignment import Fleet, likely_work, replicas_for
from canopy.sim.experiments.routing_model.pivot_placement import (
    STYLES,
    Coarseness,
    Placing,
    Style,
    conjunction_of,
)
from canopy.sim.experiments.routing_model.pivot_routing import Course, recipients, wanted
from canopy.sim.experiments.routing_model.report import (
    RoutingReport,
    StyleReport,
    s_log_s,
    style_report,
)
from canopy.sim.experiments.routing_model.upkeep import upkeep
from canopy.sim.scenario.range_load import LoadShape, RangeLoad, RangeSubscription
from canopy.sim.scenario.range_width import fitted
from matching import Conjunction
from overlay.settings import Settings

Progress = Callable[[str, float], None]
"""Called with the stage and the share of it that is done."""

COUNTING = "counting (paper)"


class RoutingPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a report depends on, beside the code and the seed."""

    nodes: int = 3_000
    subscriptions: int = 3_000
    events: int = 2_000
    baseline_events: int = 300  # as many for all styles but the last: they are slow and do not vary
    counting_events: int = 50  # for counting: it varies still less
    load: LoadShape = LoadShape(attributes=100)
    matching: float | None = 10.0  # interested nodes per event, for which `load.width` is fitted
    entries: int = 1_000  # registrations per run
    summary: Coarseness = Coarseness()
    replicas: int = 6  # so that one of them survives where 30 % of the nodes fail
    fan_out: int = 16  # most copies of one event that a node sends (C11)
    host_load: float = 5.0  # what a host should do, in units of what a node does on average
    fail: float = 0.0  # share of the nodes that is dead
    publishers: int = 0  # how many nodes publish; 0: all
    warmup: int = 0  # events from which the runs' work is learnt; 0: a twentieth of the nodes
    styles: tuple[str, ...] = tuple(style.name for style in STYLES)

    def rehearsed(self) -> int:
        """How many events the runs' work is learnt from. With 100,000 nodes and 150 kinds of events
        500 are too few, 5,000 give the same as all; with 3,000 nodes 500 do."""
        return self.warmup or max(500, self.nodes // 20)


@dataclass(frozen=True)
class Scene:
    """The load and the nodes that all styles of routing are measured with."""

    plan: RoutingPlan
    seed: int
    load: RangeLoad
    subscriptions: Sequence[RangeSubscription]
    conjunctions: Sequence[Conjunction]
    rehearsal: Sequence[tuple[dict[int, int], list[int]]]
    events: Sequence[tuple[int, dict[int, int], list[int]]]
    alive: Sequence[bool]
    copies_of_counting: float  # per event


def measure(plan: RoutingPlan, seed: int, progress: Progress | None = None) -> RoutingReport:
    """Compute everything. Raises ValueError for a style that does not exist."""
    unknown = [name for name in plan.styles if name not in [style.name for style in STYLES]]
    if unknown:
        raise ValueError(f"there is no style {unknown[0]!r}")
    tell = progress or _silent
    with collector_off():
        scene = prepare(plan, seed, tell)
        chosen = [style for style in STYLES if style.name in plan.styles]
        reports = [_counting(scene)]
        for style in chosen:
            last = style is chosen[-1]
            events = scene.events if last else scene.events[: plan.baseline_events]
            reports.append(_course(scene, style, events, tell))
    interested = sum(
        len({scene.subscriptions[n].node for n in found}) for _, _, found in scene.events
    )
    return RoutingReport(
        seed=seed,
        parameters={k: v for k, v in msgspec.to_builtins(plan).items() if k != "load"},
        load=scene.load.shape,
        dead=plan.nodes - sum(scene.alive),
        interested_per_event=round(interested / max(1, len(scene.events)), 3),
        styles=tuple(reports),
    )


@contextmanager
def collector_off() -> Iterator[None]:
    """Hundreds of thousands of objects that live until the end: looking for cycles in them again
    and again would take a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def prepare(plan: RoutingPlan, seed: int, tell: Progress) -> Scene:
    """Draw subscriptions, events and who is dead."""
    shape, name = plan.load, f"{seed}/load"
    if plan.matching is not None:
        tell("fitting", 0.0)
        shape = fitted(shape, plan.subscriptions, plan.nodes, plan.matching, name)
    load = RangeLoad(Random(name), shape, plan.nodes)
    tell("subscribing", 0.0)
    subscriptions = [load.subscription(number) for number in range(plan.subscriptions)]
    conjunctions = [conjunction_of(one) for one in subscriptions]
    audience = Audience(subscriptions, shape.attributes)
    rng = Random(f"{seed}/nodes")
    alive = [True] * plan.nodes
    for number in rng.sample(range(plan.nodes), int(plan.fail * plan.nodes)):
        alive[number] = False
    sources = [number for number in range(plan.nodes) if alive[number]]
    if plan.publishers:
        sources = rng.sample(sources, min(plan.publishers, len(sources)))
    events: list[tuple[int, dict[int, int], list[int]]] = []
    warmup = plan.rehearsed()
    for number in range(warmup + plan.events):
        if number % 256 == 0:
            tell("asking who is interested", number / (warmup + plan.events))
        event = load.event()
        events.append((rng.choice(sources), event, audience.matching(event)))
    counted = events[: plan.counting_events]
    copies = sum(audience.copies(event) for _, event, _ in counted) / max(1, len(counted))
    rehearsal = [(event, found) for _, event, found in events[:warmup]]
    return Scene(
        plan,
        seed,
        load,
        subscriptions,
        conjunctions,
        rehearsal,
        events[warmup:],
        alive,
        copies,
    )


def _course(
    scene: Scene,
    style: Style,
    events: Sequence[tuple[int, dict[int, int], list[int]]],
    tell: Progress,
) -> StyleReport:
    plan = scene.plan
    tell(f"{style.name}: placing", 0.0)
    placing = Placing(style, scene.conjunctions, plan.entries, plan.summary)
    fleet = recruited(scene, placing)
    rng = Random(f"{scene.seed}/fallback")
    course = Course(
        placing, fleet, scene.subscriptions, scene.alive, plan.fan_out, plan.replicas, rng
    )
    for number, (publisher, event, found) in enumerate(events):
        if number % 256 == 0:
            tell(f"{style.name}: publishing", number / len(events))
        course.publish(publisher, event, found)
    probes = RangeLoad(Random(f"{scene.seed}/probes"), scene.load.shape, plan.nodes)
    probes.kinds = scene.load.kinds
    kept = upkeep(
        placing, scene.subscriptions, probes, plan.nodes, plan.publishers or plan.nodes, Settings()
    )
    return style_report(placing, fleet, course.tally, plan.subscriptions, kept)


def recruited(scene: Scene, placing: Placing) -> Fleet:
    """The fleet in which each run has as many hosts as its work in the rehearsal needs."""
    plan = scene.plan
    handled: list[list[int]] = [[] for _ in placing.runs]
    traffic = 0
    for event, found in scene.rehearsal:
        sends = recipients(placing, event, found, scene.subscriptions)
        for run in wanted(placing, event):
            handled[run].append(1 + min(len(sends.get(run, ())), plan.fan_out))
            traffic += 2 * (1 + len(sends.get(run, ())))  # each message is sent and received
    work = [likely_work(visits, 1 + plan.fan_out) for visits in handled]
    entries = [placing.entries(run) for run in range(len(placing.runs))]
    copies = replicas_for(
        work,
        entries,
        plan.replicas,
        plan.host_load * traffic / plan.nodes,
        s_log_s(plan.subscriptions),
    )
    return Fleet(copies, entries, plan.nodes, Random(f"{scene.seed}/hosts"))


def _counting(scene: Scene) -> StyleReport:
    """Counting sends one visit per attribute, and a copy to each node of its value's node list."""
    events = scene.events[: scene.plan.counting_events]
    visits = sum(len(event) for _, event, _ in events)
    nodes = sum(len({scene.subscriptions[n].node for n in found}) for _, _, found in events)
    messages = visits + round(scene.copies_of_counting * len(events))
    registrations = sum(len(one.ranges) for one in scene.subscriptions)
    number = max(1, len(events))
    return StyleReport(
        name=COUNTING,
        events=len(events),
        ratio=round(messages / max(1, len(events) + nodes), 4),
        messages=messages,
        lower_bound=len(events) + nodes,
        visits_per_event=round(visits / number, 3),
        copies_per_event=round(scene.copies_of_counting, 3),
        retries_per_event=0.0,
        fallback_messages=0,
        expected=nodes,
        delivered=nodes,
        delivered_share=1.0,
        without_fallback=1.0,
        hops_p50=2,
        hops_p99=2,
        most_copies=0,
        trees=scene.plan.load.attributes,
        runs=0,
        hosts=0,
        registrations=registrations,
        per_s_log_s=round(registrations / s_log_s(scene.plan.subscriptions), 3),
        entries=None,
        entries_per_node=round(registrations / scene.plan.nodes, 2),
        summary_bytes=0,
        summary_boxes=0,
        hosting=None,
        serving=None,
        traffic=None,
        demand=None,
        replanted=0,
        upkeep=None,
    )


def _silent(stage: str, share: float) -> None:
    """The progress callback where none was given."""
