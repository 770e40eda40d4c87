"""What routing cost in a run: messages and hops per event, and registrations per host.

From the trace records that were kept: what each event cost, how far it went, and how many copies of
it a node sent; from the nodes: how many registrations each host matches.
"""

from __future__ import annotations

import msgspec

from canopy.sim.checks.oracle import Expectation
from canopy.sim.world.world import World
from overlay.upper_tree.shards import lies_in

FIRST = 5
"""Events of a publisher after which its events count as steady: by then it has asked for the trees
that they visit. Not measured; would be measured by the share of events that ask an owner, by
their number at the publisher."""


class RoutingCost(msgspec.Struct, frozen=True):
    """Messages, hops, load and state together: any one alone is trivial."""

    ratio_to_lower_bound: float | None  # data messages of the whole run; None: no events
    ratio_steady: float | None  # of events after each publisher's first; None: there are none
    hops_p50: int
    hops_p99: int
    most_copies: int  # of one event that one node sent
    registrations: int
    hosts: int
    entries_mean: float  # registrations in the virtual nodes of one host
    entries_max: int


def ways(world: World, expected: Expectation, messages: int) -> RoutingCost:
    """What routing cost in a world at its end, from its trace records. `messages`: of the data
    plane."""
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
    """Registrations that a node matches for others, once per virtual node that they overlap."""
    return sum(
        1
        for tree in world.node(name).hosting.trees.values()
        for interval in tree.intervals
        for registration, _ in tree.registrations.values()
        if lies_in(registration, interval)
    )
