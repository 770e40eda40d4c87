"""C6: a host whose link was lost is not relied on: it gets everything again before it serves again.

A process that is started again at once knows nothing, while its owner has hardly noticed.
"""

from __future__ import annotations

import pytest

from canopy.sim.world.world import World
from harness.overlays import (
    acknowledged,
    assert_exact,
    grown,
    hosts,
    settings,
    wait,
    with_role,
)

SPREAD = settings(tree={"split_at": 6, "host_entries": 6}, cluster={"split_trees": 100_000})


def served(seed: int) -> World:
    """One full cluster, two trees cut over its match brokers."""
    world = grown(6, seed, SPREAD)
    wait(world, lambda: len(with_role(world, "broker")) == 3, 30, "a full cluster")
    for number in range(30):
        world.subscribe(f"n{number % 6}", f"{'xy'[number % 2]} BETWEEN {number} AND {number + 9}")
    acknowledged(world)
    world.run(10)
    return world


def publish(world: World) -> None:
    for number in range(40):
        world.publish(world.names()[number % 6], {"x": number, "y": 40 - number})
        world.run(0.02)


@pytest.mark.parametrize(("seed", "gap"), [(1, 0.0), (2, 0.1), (1, 0.3)])
def test_a_host_that_restarts_at_once_serves_only_what_it_was_given_again(
    seed: int, gap: float
) -> None:
    world = served(seed)
    for victim in with_role(world, "broker"):
        world.crash(victim)
        world.run(gap)
        world.restart(victim)
        world.run(1)
    world.run(20)
    world.clients.crashes.clear()  # long ago: everything is expected again
    publish(world)
    assert_exact(world)
    assert len(hosts(world)["x"]) > 1


@pytest.mark.parametrize("seconds", [3.0, 6.1, 15.0])
def test_a_host_that_was_cut_off_serves_what_was_registered_meanwhile(seconds: float) -> None:
    world = served(2)
    victim = with_role(world, "broker")[0]
    others = [name for name in world.names() if name != victim]
    world.network.partition([[victim], others])
    for number in range(15):
        world.subscribe(others[0], f"x BETWEEN {number * 3} AND {number * 3 + 4}")
    world.run(seconds)
    world.network.heal()
    acknowledged(world)
    world.run(20)
    publish(world)
    assert_exact(world)
