"""A rolling upgrade: nodes of two versions of the protocol are one overlay that loses nothing."""

from __future__ import annotations

from itertools import count

from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, settings, wait
from overlay.links.messages import OLDEST_PROTOCOL, PROTOCOL
from overlay.operator_commands import Clocks, GetClocks
from overlay.settings import Settings

NODES = 5


def versions(world: World) -> set[int]:
    """Of all links that are up."""
    return {
        link.version
        for name in world.names()
        for link in world.node(name).links.sessions()
        if link.state == "CONNECTED"
    }


def clocks(world: World, name: str) -> Clocks:
    reply = world.ask(name, GetClocks(world.clients.request()))
    assert isinstance(reply, Clocks)
    return reply


def test_nodes_are_upgraded_one_by_one_under_load_and_nothing_is_lost() -> None:
    before = settings(links={"protocol": OLDEST_PROTOCOL})
    world = grown(NODES, chosen=before)
    numbers = count()

    def publish(events: int) -> None:
        for number in range(events):
            publisher = world.names()[number % len(world.names())]
            world.publish(publisher, [{"load": next(numbers) % 7, "from": publisher}])
            world.run(0.05)

    for name in world.names():
        world.subscribe(name, "load >= 3")
    acknowledged(world)
    assert versions(world) == {OLDEST_PROTOCOL}
    assert clocks(world, "n0").clocks
    assert {each.state for each in clocks(world, "n0").clocks} == {"older"}

    world.settings = Settings()
    for number, name in enumerate(list(world.names())):
        publish(5)
        world.drain(name)
        wait(world, lambda name=name: not world.drivers[name].alive, 30.0, f"{name} drained")  # type: ignore[misc]
        publish(3)
        world.restart(name)
        wait(world, world.ready, 60.0, f"{name} ready again")
        world.subscribe(name, "load >= 3")
        acknowledged(world)
        if 0 < number < NODES - 1:
            assert versions(world) == {OLDEST_PROTOCOL, PROTOCOL}, "both versions side by side"
    publish(10)
    assert_exact(world)
    assert versions(world) == {PROTOCOL}

    found = clocks(world, "n0").clocks
    assert {each.state for each in found} == {"answered"}
    assert all(abs(each.offset) <= each.round_trip / 2 for each in found)


def test_a_clock_that_is_wrong_is_seen_by_its_neighbours() -> None:
    world = grown(3)
    world.turn_clock("n2", 30.0)
    wrong = world.drivers["n2"].disk.node
    offsets = {each.node: each.offset for each in clocks(world, "n0").clocks}
    assert 29.5 < offsets.pop(wrong) < 30.5
    assert all(abs(offset) < 0.5 for offset in offsets.values())
    world.crash("n1", silent=True)
    states = {each.node: each.state for each in clocks(world, "n0").clocks}
    assert states[wrong] == "answered"
    assert sorted(states.values()) == ["answered", "silent"]
