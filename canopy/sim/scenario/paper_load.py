"""The load of the papers' figures for full nodes: `load:` in a scenario, `--load paper`.

The same draws as in the routing model (canopy/sim/scenario/range_load.py): attributes by a Zipf
law, one-sided ranges of integers, as selectors and events that the real nodes take.
"""

from __future__ import annotations

from random import Random

import msgspec

from canopy.sim.scenario.range_load import (
    MOST_VALUE,
    LoadShape,
    RangeLoad,
    RangeSubscription,
    attribute_name,
)
from matching import Value

SUBSCRIPTIONS = 20_000
"""Sampled: some dozens of pairs per event at the paper's shape, where one in 400 passes."""
EVENTS = 400
"""Sampled: the mean is then good to a few per cent."""
STEPS = 40
"""Halvings of the interval that the width lies in."""


def passing(load: RangeLoad, rng: Random) -> list[float]:
    """By number of attributes, the share of (subscription, event) pairs in which the event has all
    attributes of the subscription."""
    by_rarest: dict[int, list[frozenset[int]]] = {}
    for _ in range(SUBSCRIPTIONS):
        names = load.names(rng)
        by_rarest.setdefault(max(names), []).append(frozenset(names))
    share = [0.0] * (load.shape.attributes + 1)
    for _ in range(EVENTS):
        event = frozenset(load.names(rng))
        for name in sorted(event):
            for asked in by_rarest.get(name, ()):
                if asked <= event:
                    share[len(asked)] += 1 / (SUBSCRIPTIONS * EVENTS)
    return share


def fitted(
    shape: LoadShape, subscriptions: int, nodes: int, matching: float, seed: str
) -> LoadShape:
    """The shape with the width that makes an event interest `matching` nodes on average; with a
    width of 1 where even that does not. A subscription matches if the event has all of its
    attributes (counted on a sample) and each value lies in its range (`width` to the power of their
    number). Its kinds are those of a load of the same `seed`."""
    share = passing(RangeLoad(Random(seed), shape, nodes), Random(f"{seed}/fit"))

    def interested(width: float) -> float:
        matches = subscriptions * sum(part * width**number for number, part in enumerate(share))
        return nodes * (1.0 - (1.0 - 1.0 / nodes) ** matches)

    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        if interested(middle) < matching:
            low = middle
        else:
            high = middle
    return msgspec.structs.replace(shape, width=high)


MATCHING = 10.0
"""Interested nodes per event of `--load paper`; the papers leave it open."""

PAPER = LoadShape(attributes=100, kinds=0)
"""100 attributes, Zipf 0.8, 8 each on average; subscriptions and events draw for themselves."""


def paper_load(subscriptions: int, nodes: int, seed: int) -> LoadShape:
    """The shape whose ranges are as wide as `MATCHING` interested nodes per event need."""
    return fitted(PAPER, subscriptions, nodes, MATCHING, f"{seed}/paper")


def selector_of(subscription: RangeSubscription) -> str:
    """The text of a subscription's ranges."""
    terms = []
    for number, (low, high) in subscription.ranges.items():
        name = attribute_name(number)
        if low > 0 and high < MOST_VALUE:
            terms.append(f"{name} BETWEEN {low} AND {high}")
        else:
            terms.append(f"{name} >= {low}" if low > 0 else f"{name} <= {high}")
    return " AND ".join(terms)


class PaperWorkload:
    """Draws selectors and events, as `canopy.sim.scenario.workload.Workload` does."""

    def __init__(self, rng: Random, shape: LoadShape) -> None:
        self._load = RangeLoad(rng, shape, 1)
        self._number = 0

    def selector(self) -> str:
        """The text of one selector."""
        self._number += 1
        return selector_of(self._load.subscription(self._number))

    def event(self) -> dict[str, Value | None]:
        """The attributes of one event."""
        return {attribute_name(name): value for name, value in self._load.event().items()}
