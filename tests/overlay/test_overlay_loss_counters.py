"""Counters that name a loss are zero where nothing was lost, whatever happened to the links."""

from __future__ import annotations

from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, settings, wait, with_role

LONGER_THAN_DEATH = 10.0
"""Seconds: a peer counts as dead after `links.dead_after`, 6."""


def total(world: World, name: str) -> int:
    return sum(world.status(node).counters.get(name, 0) for node in world.names())


def test_links_that_break_without_a_loss_leave_every_loss_counter_at_zero() -> None:
    """Three subscribers are cut off from all others, for longer than a session lasts; the events
    that were under way come again when the links are mended."""
    world = grown(8, 3, settings(cluster={"size": 3}))
    wait(world, lambda: len(with_role(world, "none")) == 5, 30, "a full cluster")
    others = with_role(world, "none")
    for number in range(20):
        world.subscribe(others[number % 5], f"x BETWEEN {number} AND {number + 9}")
    acknowledged(world)
    world.network.partition([others[:3]])
    for value in range(30):
        world.publish(others[value % 5], {"x": value})
        world.run(LONGER_THAN_DEATH / 30)
    world.run(LONGER_THAN_DEATH)
    world.network.heal()
    world.run(LONGER_THAN_DEATH)
    for value in range(30):
        world.publish(others[value % 5], {"x": value})
    assert_exact(world)
    assert total(world, "data_messages_unacknowledged") > 0, "messages were in doubt"
    assert total(world, "deliveries_relayed") > 0
    down = total(world, "incidents_link_down")
    assert 0 < down <= 2 * 3 * 5, "one for each end of a link that broke, not per dial"
    lost = {
        (node, name): number
        for node in world.names()
        for name, number in world.status(node).counters.items()
        if name.endswith("_lost") and number
    }
    assert lost == {}
