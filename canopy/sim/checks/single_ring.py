"""Two rings that meet, and the sides of a partition that heals, are one ring soon (P2, P5)."""

from __future__ import annotations

from canopy.sim.checks.node_state import led
from canopy.sim.checks.ownership import check_arcs
from canopy.sim.checks.violation import Violation
from canopy.sim.world.world import World

LOOK_AGAIN = 0.25
"""Virtual seconds between two looks. Shorter would find one ring earlier and cost more."""


def is_one(world: World) -> bool:
    """Whether all nodes belong to the same ring, and each key has one owner, who may decide."""
    rings = {world.node(name).ring.id for name in world.names()}
    return len(rings) == 1 and led(world) and not check_arcs(world)


def one_ring(world: World, violations: list[Violation], within: float) -> None:
    """Look now and again, for so many virtual seconds; one moment with one ring will do."""
    if is_one(world):
        return
    if within <= 0.0:
        rings = sorted({world.node(name).ring.id for name in world.names()})
        arcs = "; ".join(violation.text for violation in check_arcs(world)[:2])
        text = f"not one ring in time, at {world.now:.1f} s: {', '.join(rings)}; {arcs}"
        violations.append(Violation("rings", text))
        return
    world.after(LOOK_AGAIN, one_ring, world, violations, within - LOOK_AGAIN)
