"""Overlays that are two for a while, for the soak: founded apart, or cut by a partition (P5).

Some nodes found an overlay of their own, and later a node joins that knows both; or two or three
groups do not reach each other, for shorter or longer than a cluster needs to be taken for lost.
"""

from __future__ import annotations

from random import Random

from canopy.sim.scenario.scenario import Fault

FIRST = 1.0
"""Seconds after the first event."""

APART = (2.0, 8.0, 20.0, 40.0)
"""Seconds of a partition: shorter than a patience for a lost cluster, about as long, and longer.
Not measured."""


def divisions(rng: Random, nodes: int) -> tuple[tuple[Fault, ...], int]:
    """Faults that divide an overlay of `nodes`, and how many of the nodes are founded apart."""
    at = FIRST + 4.0 * rng.random()
    if rng.random() < 0.5:
        return (Fault(at, "meet"),), rng.randint(1, nodes - 1)
    mixed = list(range(nodes))
    rng.shuffle(mixed)
    sides = rng.choice((2, 2, 3))
    groups = tuple(tuple(sorted(mixed[side::sides])) for side in range(sides))
    heal = Fault(at + rng.choice(APART), "heal")
    return (Fault(at, "partition", groups=groups), heal), 0
