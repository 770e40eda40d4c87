"""The result of a run: one flat object, as `canopy sim run --json` prints it."""

from __future__ import annotations

import msgspec

from canopy.sim.checks import Violation
from canopy.sim.checks.deliveries import check_deliveries, reported_gaps
from canopy.sim.checks.failure_report import explainable_first, trace_violation
from canopy.sim.checks.oracle import Expectation, expectation
from canopy.sim.scenario.scenario import Scenario
from canopy.sim.world.traffic import TrafficReport
from canopy.sim.world.world import World
from overlay.upper_tree.shards import lies_in

MOST_STORIES = 5
"""The most violations for which the explaining trace records are kept."""

FIRST = 5
"""The number of a publisher's events after which its events count as steady: by then it has asked
for the trees that they visit. Not measured; would be measured by the share of events that ask an
owner, by their number at the publisher."""


class RoutingCost(msgspec.Struct, frozen=True):
    """The cost of routing in a run: messages, hops, load and state together, since each one alone
    is easily minimised."""

    ratio_to_lower_bound: float | None  # data messages of the whole run; None: no events
    ratio_steady: float | None  # of events after each publisher's first; None: there are none
    hops_p50: int
    hops_p99: int
    most_copies: int  # of one event that one node sent
    registrations: int
    hosts: int
    entries_mean: float  # registrations in the virtual nodes of one host
    entries_max: int


class Result(msgspec.Struct, frozen=True):
    """The results of a run, printed as JSON."""

    seed: int
    nodes: int
    trace_hash: str
    steps: int
    simulated_s: float
    subscriptions: int
    published: int
    refused: int
    expected: int
    owed: int  # pairs that are to be delivered, or reported as a gap
    reported: int  # of those, reported as a gap
    allowed: int  # pairs that may be delivered, or not
    delivered: int
    missing: int
    duplicates: int
    spurious: int
    messages: int  # data plane, as the nodes count them
    other_messages: int
    lower_bound: int
    frames: int
    frames_lost: int
    clusters: int
    records: dict[str, int]  # trace records of each kind
    ways: RoutingCost | None  # what the way of events cost; None: nodes that are no real ones
    traffic: TrafficReport  # all messages and bytes by purpose, of all processes
    violations: tuple[Violation, ...]
    stories: tuple[tuple[str, ...], ...]  # the records that explain the first violations

    @property
    def green(self) -> bool:
        """Whether no check found a violation."""
        return not self.violations


def summarise_run(
    world: World,
    scenario: Scenario,
    before: list[Violation],
    after: list[Violation],
    clusters: int,
    *,
    real: bool,
) -> Result:
    """Judge the deliveries, and put everything into one object. `before` and `after`: further
    violations, listed before and after those of deliveries."""
    clients = world.clients
    expected = expectation(clients)
    violations = [*before, *check_deliveries(world, expected), *after]
    shown = {(d.delivery.subscription, d.delivery.event.identity) for d in clients.deliveries}
    counters = [world.status(name).counters for name in world.names()]
    messages = sum(c.get("data_messages", 0) for c in counters)
    for name in world.names():
        world.drivers[name].sum_up("the run is over")
    kinds = [violation.kind for violation in violations]
    world.recorder.close()
    return Result(
        seed=scenario.seed,
        nodes=scenario.nodes,
        trace_hash=world.recorder.trace_hash,
        steps=world.steps,
        simulated_s=round(world.now, 6),
        subscriptions=len(clients.subscriptions),
        published=sum(1 for p in clients.publications if p.identity),
        refused=sum(1 for p in clients.publications if p.refused),
        expected=len(expected.expected),
        owed=len(expected.owed),
        reported=len(reported_gaps(world, expected)),
        allowed=len(expected.allowed),
        delivered=len(shown),
        missing=kinds.count("missing"),
        duplicates=kinds.count("duplicate"),
        spurious=kinds.count("spurious"),
        messages=messages,
        other_messages=sum(c.get("other_messages", 0) for c in counters),
        lower_bound=expected.lower_bound,
        frames=world.network.frames,
        frames_lost=world.network.lost,
        clusters=clusters,
        records=dict(sorted(world.recorder.counted.items())),
        ways=ways(world, expected, messages) if real else None,
        traffic=world.traffic.report(world.node_seconds),
        violations=tuple(violations),
        stories=tuple(
            trace_violation(world, violation)
            for violation in explainable_first(violations)[:MOST_STORIES]
        ),
    )


def ways(world: World, expected: Expectation, messages: int) -> RoutingCost:
    """Return the cost of routing in a world at its end, from its trace records. `messages`: those
    of the data plane."""
    cost: dict[str, int] = {}
    copies: dict[tuple[str, str], int] = {}
    hops: list[int] = []
    for record in world.recorder.records:
        if record.kind in ("visit", "forward"):
            event = record.fields["event"]
            cost[event] = cost.get(event, 0) + 1
            copies[record.node, event] = copies.get((record.node, event), 0) + 1
        elif record.kind == "deliver":
            hops.append(record.fields["hops"])
    hops.sort()
    seen: dict[str, int] = {}
    steady: list[str] = []
    for publication in world.clients.publications:
        if publication.identity:
            seen[publication.node] = seen.get(publication.node, 0) + 1
            if seen[publication.node] > FIRST:
                steady.append(publication.identity)
    bound = sum(1 + len(expected.interested[event]) for event in steady)
    spent = sum(cost.get(event, 0) for event in steady)
    entries = [count for name in world.names() if (count := hosted(world, name))]
    whole = expected.lower_bound
    return RoutingCost(
        ratio_to_lower_bound=round(messages / whole, 4) if whole else None,
        ratio_steady=round(spent / bound, 4) if bound else None,
        hops_p50=hops[len(hops) // 2] if hops else 0,
        hops_p99=hops[len(hops) * 99 // 100] if hops else 0,
        most_copies=max(copies.values(), default=0),
        registrations=sum(len(world.node(name).registrar.registrations) for name in world.names()),
        hosts=len(entries),
        entries_mean=round(sum(entries) / len(entries), 1) if entries else 0.0,
        entries_max=max(entries, default=0),
    )


def hosted(world: World, name: str) -> int:
    """Return the number of registrations that a node matches for others, once per virtual node that
    they overlap."""
    return sum(
        1
        for tree in world.node(name).hosting.trees.values()
        for interval in tree.served.intervals
        for registration, _ in tree.registrations.values()
        if lies_in(registration, interval)
    )
