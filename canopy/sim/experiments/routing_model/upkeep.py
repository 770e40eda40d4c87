"""What routing costs while nothing is published: views, access points, leases, summaries (C1, C5).

Worked out from the product's settings and from what was placed, not played through:

* views: each node begins one shuffle per `view.period`, two messages; access points travel in them;
* leases: each subscriber sends one message per owner of its registrations, three times per lease;
* summaries: each publisher asks each owner whose trees it uses once per term, two messages; whole
  summaries are counted although most will not have changed;
* recalls: a registration that no summary covers is kept back until the holders of summaries have
  acknowledged, two messages each, or until the term is over, which costs none. So an owner recalls
  where there are few holders, and waits where there are many.

An owner is a cluster; it owns `cluster.split_trees` trees on average, as many as it may.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from canopy.sim.experiments.routing_model.pivot_placement import Placing, conjunction_of, number_of
from canopy.sim.scenario.range_load import RangeLoad, RangeSubscription, attribute_name
from overlay.chord.keys import attribute_key
from overlay.settings import Settings
from overlay.upper_tree.summary import box_of

PROBES = 1_000
"""New subscriptions that are held against the summaries."""


class Upkeep(msgspec.Struct, frozen=True):
    """Messages per node and second, and what they are worked out from."""

    owners: int
    publishers: int
    first_contact: int  # messages per publisher, once: a question and an answer per owner
    views: float  # messages per node and second; access points included
    leases: float  # messages per node and second
    summaries: float  # messages per node and second
    summary_bytes: float  # bytes per publisher and second, with whole summaries
    covered: float | None  # share of new subscriptions that the summaries out there cover
    recall: float | None  # messages per new subscription, if all holders are recalled
    wait_s: float  # how long it may wait instead
    term_s: float
    lease_s: float
    shuffle_s: float


def upkeep(
    placing: Placing,
    subscriptions: Sequence[RangeSubscription],
    load: RangeLoad,
    nodes: int,
    publishers: int,
    settings: Settings,
) -> Upkeep:
    """`publishers`: how many of the nodes publish often enough to keep what they know fresh."""
    term, lease, period = settings.tree.summary_term, settings.tree.lease, settings.view.period
    owners = max(1, -(-len(placing.trees) // settings.cluster.split_trees))
    ring = {name: number for number, name in enumerate(sorted(placing.trees, key=_key))}
    owner_of = {name: number * owners // len(ring) for name, number in ring.items()}
    renewals: dict[tuple[int, int], None] = {}
    for one, (name, _) in zip(subscriptions, placing.pivots, strict=True):
        renewals[one.node, owner_of[number_of(name)]] = None
    has_summaries = placing.style.summaries
    least = placing.style.pivot == "least"  # where else a new one would go is not worked out
    covered = _covered(placing, load, len(subscriptions)) if has_summaries and least else None
    return Upkeep(
        owners=owners,
        publishers=publishers,
        first_contact=2 * owners,
        views=2 / period,
        leases=len(renewals) * 3 / lease / nodes,
        summaries=2 * owners / term * publishers / nodes if has_summaries else 0.0,
        summary_bytes=summary_bytes(placing) / term,
        covered=covered,
        recall=None if covered is None else (1 - covered) * 2 * publishers,
        wait_s=term if has_summaries else 0.0,
        term_s=term,
        lease_s=lease,
        shuffle_s=period,
    )


def _key(name: int) -> str:
    return attribute_key(attribute_name(name))


def summary_bytes(placing: Placing) -> int:
    """Encoded bytes of the summaries of all trees."""
    return sum(
        len(msgspec.msgpack.encode(part.summary))
        for part in placing.parts
        if part.summary is not None
    )


def _covered(placing: Placing, load: RangeLoad, first: int) -> float:
    """Of new subscriptions: how many lie in the summaries where they would be registered."""
    hits = 0
    for number in range(first, first + PROBES):
        conjunction = conjunction_of(load.subscription(number))
        box = box_of(conjunction)
        hits += all(
            any(summary.covers(box) for part in cell if (summary := placing.parts[part].summary))
            for cell in placing.cells_for(conjunction)
        )
    return hits / PROBES
