"""Nodes that stood still for longer than links and leases last (SIGSTOP, a suspended machine): soon
after they wake everything published reaches them, and their programs know what they missed."""

from __future__ import annotations

import pytest

from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, with_role
from overlay.client import GetSubscriptions, Subscriptions

SOON = 3.0
"""Seconds after waking by which a subscription is what its node says of it: a lost link is found,
dialled again, and a renewal answered (`tree.retry` where it got lost)."""


def info(world: World, node: str) -> tuple[bool, ...]:
    """Which subscriptions of a node count as acknowledged."""
    answer = world.ask(node, GetSubscriptions(world.clients.request()))
    assert isinstance(answer, Subscriptions)
    return tuple(one.acknowledged for one in answer.subscriptions)


@pytest.mark.parametrize("role", ["broker", "primary"])
@pytest.mark.parametrize("pause", [43.0, 70.0])
@pytest.mark.parametrize("is_suspended", [False, True])
def test_who_wakes_is_registered_soon_and_knows_what_it_missed(
    pause: float, role: str, is_suspended: bool
) -> None:
    """Where its machine was suspended it does not even hear that its connections were closed."""
    world = grown(8, seed=int(pause))
    sleeper = with_role(world, role)[0]
    other = next(name for name in world.names() if name != sleeper)
    for attribute in "abcdefgh":
        world.subscribe(sleeper, f"{attribute} > 5")
        world.subscribe(other, f"{attribute} > 5")
    acknowledged(world)
    world.run(25)  # between two renewals
    world.drivers[sleeper].pause()
    if is_suspended:
        world.network.partition([[sleeper]])
    world.run(pause)
    world.network.heal()
    world.drivers[sleeper].resume()
    world.run(SOON + (2.0 if is_suspended else 0.0))  # and STALL_ANSWER
    assert all(info(world, sleeper)), "registered again"
    world.clients.publications.clear()
    for number in range(40):
        world.publish(other, {"abcdefgh"[number % 8]: number})
        world.run(0.02)
    assert_exact(world)
