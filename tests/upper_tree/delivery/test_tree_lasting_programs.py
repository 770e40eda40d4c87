"""What programs miss whose nodes are killed, stopped and sent away, by seed against an oracle."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from harness.overlays import READY, wait
from overlay.settings import ClusterSettings, Settings
from tests.support.examples import seeds
from tests.upper_tree.delivery.lasting_programs import LastingWorld, churn


@cache
def churned(seed: int) -> tuple[LastingWorld, float]:
    """Six nodes with two programs each after 40 seconds of faults, and when the last of what was
    published has its receipt."""
    world = LastingWorld(seed, Settings(cluster=ClusterSettings(size=3)))
    for number in range(6):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "ready")
    names = world.names()
    programs = [world.add_program(name, text) for name in names for text in ("x >= 0", "y = 3")]
    wait(world, lambda: all(each.sessions for each in programs), READY, "acknowledged")
    churn(world, Random(seed), names, 40.0)
    end = world.now
    world.run(60.0)
    return world, end


@pytest.mark.parametrize("seed", seeds(3, first=12))
def test_what_programs_miss_is_in_a_gap_whatever_becomes_of_their_nodes(seed: int) -> None:
    world, end = churned(seed)
    untold = {each.client: found for each in world.programs.values() if (found := each.untold(end))}
    assert not untold, (world.happened, untold)
    assert any(each.gaps for each in world.programs.values())


@pytest.mark.parametrize("seed", seeds(3, first=12))
def test_nothing_comes_that_was_accepted_before_it_was_subscribed(seed: int) -> None:
    world, _ = churned(seed)
    early = {each.client: found for each in world.programs.values() if (found := each.early())}
    assert not early, (world.happened, early)
