"""The load of the papers' figures for full nodes: `load:` in a scenario, `--load paper`.

The same draws as in the routing model (canopy/sim/scenario/range_load.py): attributes by a Zipf
law, one-sided ranges of integers, as selectors and events that the real nodes take.
"""

from __future__ import annotations

from random import Random

from canopy.sim.scenario.range_load import (
    MOST_VALUE,
    LoadShape,
    RangeLoad,
    RangeSubscription,
    attribute_name,
)
from canopy.sim.scenario.range_width import fitted
from matching import Value

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
