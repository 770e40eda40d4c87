"""A node makes no cycles of objects that live long: its process does not look for them
(canopy/wire/process/machine_load.py)."""

from __future__ import annotations

import gc
from collections import Counter

from canopy.sim.world.world import World
from harness.overlays import acknowledged, grown


def use(world: World, client: int) -> None:
    """Subscriptions and events of a program that comes and goes, and a link that is lost."""
    for number in range(50):
        world.subscribe("n1", f"x > {number} AND y = {client} OR z LIKE 'a%'", client=client)
    acknowledged(world)
    for number in range(50):
        world.publish("n2", {"x": number, "y": client, "z": "abc"})
    world.run(5.0)
    world.network.partition([["n3"], ["n0", "n1", "n2"]])
    world.publish("n2", {"x": 50, "z": "abc"})
    world.run(10.0)
    world.network.heal()
    world.client_gone("n1", client=client)
    world.run(20.0)


def test_nothing_that_comes_and_goes_at_a_node_is_left_to_the_collector() -> None:
    world = grown(4)
    use(world, 7)
    gc.collect()
    gc.disable()
    try:
        use(world, 8)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = Counter(type(one).__module__ for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    simulator = [name for name in found if name.startswith("canopy.sim")]
    assert not {name: found[name] for name in found if name not in simulator}, found
