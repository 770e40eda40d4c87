"""What `canopy sim routing` reports: messages, state and load of each style, together (C9, C11).

Any one of them alone is trivial: one host that knows everything needs no second visit, a publisher
that knows everything needs no host. So each style has all of them in one record.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from canopy.sim.experiments.routing_model.host_assignment import Fleet
from canopy.sim.experiments.routing_model.pivot_placement import Placing
from canopy.sim.experiments.routing_model.pivot_routing import RoutingTally
from canopy.sim.experiments.routing_model.upkeep import Upkeep, summary_bytes
from canopy.sim.scenario.range_load import LoadShape


class Spread(msgspec.Struct, frozen=True):
    """The distribution of a quantity over nodes."""

    mean: float
    max: float
    max_over_mean: float
    nodes: int  # over how many nodes the mean is taken


class StyleReport(msgspec.Struct, frozen=True):
    """What one style of routing cost, over all events."""

    name: str
    events: int
    ratio: float  # messages / lower bound
    messages: int
    lower_bound: int
    visits_per_event: float
    copies_per_event: float
    retries_per_event: float
    fallback_messages: int
    expected: int
    delivered: int
    delivered_share: float
    without_fallback: float  # delivered share, had there been none
    hops_p50: int
    hops_p99: int
    most_copies: int
    trees: int
    runs: int
    hosts: int
    registrations: int  # of all replicas
    per_s_log_s: float  # registrations / (S log2 S)
    entries: Spread | None  # index entries, over the nodes that host
    entries_per_node: float  # … over all nodes
    summary_bytes: int  # what a publisher knows at most
    summary_boxes: int
    hosting: Spread | None  # messages handled for others, over the hosts
    serving: Spread | None  # … over all that handled any, delegates too
    traffic: Spread | None  # all messages sent and received, over the nodes that have any
    demand: Spread | None  # … of these, the least that a node must have: own events and interests
    replanted: int  # runs whose replicas were all dead
    upkeep: Upkeep | None


class RoutingReport(msgspec.Struct, frozen=True):
    """The results of all styles of routing under the same load, side by side."""

    seed: int
    parameters: dict[str, Any]
    load: LoadShape
    dead: int
    interested_per_event: float
    styles: tuple[StyleReport, ...]


def spread_of(values: NDArray[np.int64]) -> Spread | None:
    """Mean and maximum; None if all are 0."""
    if not values.any():
        return None
    mean, most = float(values.mean()), float(values.max())
    return Spread(round(mean, 3), most, round(most / mean, 2), len(values))


def percentile(counts: Counter[int], share: float) -> int:
    """The smallest value that `share` of all do not exceed; 0 of nothing."""
    left = share * counts.total()
    for value in sorted(counts):
        left -= counts[value]
        if left <= 1e-9:
            return value
    return 0


def style_report(
    placing: Placing, fleet: Fleet, tally: RoutingTally, subscriptions: int, kept: Upkeep
) -> StyleReport:
    """The report of one style of routing, from what was counted."""
    hosted = fleet.entries()
    entries = np.array(list(hosted.values()), dtype=np.int64)
    registrations = int(entries.sum())
    expected = max(1, tally.interested)
    events = max(1, tally.events)
    return StyleReport(
        name=placing.style.name,
        events=tally.events,
        ratio=round(tally.messages / max(1, tally.lower_bound), 4),
        messages=tally.messages,
        lower_bound=tally.lower_bound,
        visits_per_event=round(tally.visits / events, 3),
        copies_per_event=round(tally.copies / events, 3),
        retries_per_event=round(tally.retries / events, 3),
        fallback_messages=tally.fallback,
        expected=tally.interested,
        delivered=tally.delivered,
        delivered_share=tally.delivered / expected,
        without_fallback=(tally.delivered - tally.rescued) / expected,
        hops_p50=percentile(tally.hops, 0.5),
        hops_p99=percentile(tally.hops, 0.99),
        most_copies=tally.most_copies,
        trees=len(placing.trees),
        runs=len(placing.runs),
        hosts=len(entries),
        registrations=registrations,
        per_s_log_s=round(registrations / s_log_s(subscriptions), 3),
        entries=spread_of(entries),
        entries_per_node=round(registrations / tally.nodes, 2),
        summary_bytes=summary_bytes(placing),
        summary_boxes=sum(len(part.summary.boxes) for part in placing.parts if part.summary),
        hosting=spread_of(tally.serving[list(hosted)]),
        serving=spread_of(tally.serving[tally.serving > 0]),
        traffic=spread_of(tally.traffic[tally.traffic > 0]),
        demand=spread_of(tally.demand[tally.demand > 0]),
        replanted=len(fleet.planted),
        upkeep=kept,
    )


def s_log_s(subscriptions: int) -> float:
    """S log2 S, the bound on registrations; at least S."""
    return subscriptions * max(1.0, math.log2(max(1, subscriptions)))
