"""How wide ranges have to be for a wanted number of matches per event.

A subscription matches if the event has all of its attributes and each value lies in its range. The
second is `width` to the power of the number of attributes, so it is enough to count, on a sample,
how many pairs of a subscription and an event pass the first, by number of attributes.
"""

from __future__ import annotations

from random import Random

import msgspec

from canopy.sim.scenario.range_load import LoadShape, RangeLoad

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
    width of 1 where even that does not. Its kinds are those of a load of the same `seed`."""
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
