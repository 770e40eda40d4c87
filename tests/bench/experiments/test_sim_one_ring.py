"""The measurement of a cut ring: what it cuts, and that a row says what came of it."""

from __future__ import annotations

from bench.experiments.one_ring import OVERLAYS, Cut, cut, measured
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec

NAMES = ["n0", "n1", "n2", "n3", "n4"]


def reached(kind: Cut) -> list[int]:
    """How many others each node reaches."""
    world = World(1, WireCodec())
    for name in NAMES:
        world.add_node()
        assert name in world.drivers
    cut(world, kind, NAMES)
    return [sum(world.network.reachable(one, other) for other in NAMES) - 1 for one in NAMES]


def test_a_bridge_reaches_both_sides_and_the_sides_not_each_other() -> None:
    assert reached("bridge") == [4, 2, 2, 2, 2]
    assert reached("halves") == [2, 1, 2, 1, 2]


def test_a_ring_that_was_cut_into_thirds_is_one_again() -> None:
    row = measured(OVERLAYS[0], "thirds", [1])
    assert (row["failed"], row["wrong"]) == (0, 0)
    assert 0 < row["one_ring_s"]["most"] <= row["registered_s"]["most"] < 60
