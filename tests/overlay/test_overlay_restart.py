"""P1 in whole overlays: clusters that are stopped and started again serve with what they had."""

from __future__ import annotations

import pytest

from canopy.sim.checks.cluster_logs import check_voters
from canopy.sim.world.disk import DiskConditions
from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, settings, wait, with_role
from tests.support.examples import overlay_seeds

SPREAD = settings(tree={"split_at": 6}, cluster={"split_trees": 100_000})


def served(seed: int, nodes: int) -> World:
    """An overlay with subscriptions everywhere, and its one cluster complete."""
    world = grown(nodes, seed, SPREAD)
    size = min(nodes, 5)
    wait(world, lambda: len(members(world)) == size, 30, "a full cluster")
    for number in range(30):
        attribute = "xy"[number % 2]
        world.subscribe(f"n{number % nodes}", f"{attribute} BETWEEN {number} AND {number + 9}")
    acknowledged(world)
    world.run(5)
    return world


def members(world: World) -> list[str]:
    return [n for n in world.names() if world.node(n).clusters.role != "none"]


def subscribe_again(world: World) -> None:
    """The clients of processes that died ask again."""
    for number, name in enumerate(world.names()):
        for attribute in "xy":
            low = 7 * number
            world.subscribe(name, f"{attribute} BETWEEN {low} AND {low + 20}")
    acknowledged(world)


def publish(world: World, count: int = 40) -> None:
    names = world.names()
    for number in range(count):
        world.publish(names[number % len(names)], {"x": number, "y": 50 - number})
        world.run(0.02)


def registered(world: World) -> dict[str, list[str]]:
    """What the owners hold, by attribute."""
    return {
        attribute: sorted(owned.tree.registrations)
        for name in with_role(world, "primary")
        for attribute, owned in world.node(name).owner.trees.items()
    }


@pytest.mark.parametrize("nodes", [1, 2, 3, 7])
@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_all_nodes_at_once_are_killed_and_started_again(seed: int, nodes: int) -> None:
    world = served(seed, nodes)
    held = registered(world)
    ring = world.node("n0").ring.id
    for name in world.names():
        world.crash(name)
    world.run(1)
    for number in range(nodes):
        world.restart(f"n{number}")
    wait(world, lambda: len(with_role(world, "primary")) == 1, 10, "a primary")
    assert registered(world) == held
    wait(world, world.ready, 30, "all ready")
    assert {world.node(name).ring.id for name in world.names()} == {ring}
    subscribe_again(world)
    publish(world)
    assert_exact(world)
    assert check_voters(world) == []


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_a_whole_cluster_is_killed_and_started_again_while_the_others_live(seed: int) -> None:
    """Subscribers outside the cluster need not know: their registrations are there again."""
    world = served(seed, 8)
    cluster = members(world)
    for name in cluster:
        world.crash(name)
    world.run(4)
    for name in cluster:
        world.restart(name)
    wait(world, lambda: len(with_role(world, "primary")) == 1, 10, "a primary")
    world.run(25)
    publish(world)
    assert_exact(world)
    assert check_voters(world) == []


def test_who_died_while_its_disk_wrote_comes_back_and_votes() -> None:
    world = served(3, 5)
    slow = DiskConditions(sync_low=0.02, sync_high=0.3)
    for name in world.names():
        world.drivers[name].disk.conditions = slow
    for number in range(10):
        world.subscribe(f"n{number % 5}", f"z > {number}")
        world.run(0.05)
    for name in world.names():
        world.drivers[name].doom(silent=False, within=0.5)
    world.run(1)
    assert world.names() == []
    for number in range(5):
        world.restart(f"n{number}")
    wait(world, lambda: len(with_role(world, "primary")) == 1, 15, "a primary")
    subscribe_again(world)
    publish(world)
    assert_exact(world)


def test_a_member_with_a_damaged_disk_is_another_node_and_is_given_everything() -> None:
    world = served(4, 5)
    victim = with_role(world, "standby")[0]
    before = world.node(victim).me.id
    world.crash(victim)
    world.run(2)
    world.restart(victim, damaged=True)
    assert world.node(victim).me.id != before
    wait(world, lambda: victim in members(world), 30, "it serves again")
    world.run(15)
    (leader,) = with_role(world, "primary")
    voters = [peer.id for peer in world.node(leader).clusters.log.voters]
    assert before not in voters
    assert world.node(victim).me.id in voters
    assert check_voters(world) == []


def test_who_publishes_before_its_host_was_given_the_tree_again_waits_a_moment() -> None:
    world = served(5, 1)
    world.crash("n0")
    world.restart("n0")
    world.run_until(lambda: with_role(world, "primary") == ["n0"], 5, every=0.001)
    events = world.publish("n0", {"x": 5}, {"y": 6})
    world.run(3)
    assert all(event.identity for event in events)
    assert world.status("n0").pending == 0


# --- copied data folders: one of the two processes ends, and a restart is never taken for one ---


@pytest.mark.parametrize("role", ["primary", "broker", "none"])
def test_of_a_node_and_its_copy_one_ends_and_nothing_is_lost_in_silence(role: str) -> None:
    world = grown(6, 4, settings(cluster={"size": 3}))
    wait(world, lambda: len(with_role(world, "none")) == 3, 30, "a full cluster")
    (original, *_) = with_role(world, role)
    world.introduce(original, [name for name in world.names() if name != original])
    copy = world.copy(original)
    wait(world, lambda: not world.drivers[original].alive, 10, "the end of the earlier one")
    assert [text for _, text in world.happened] == [f"{original} is superseded"]
    wait(world, world.ready, 60, "the copy is ready")
    assert copy in world.names()
    for number, name in enumerate(world.names()):
        world.subscribe(name, f"x >= {number}")
    acknowledged(world)
    for value in range(10):
        for name in world.names():
            world.publish(name, {"x": value})
    assert_exact(world)
    world.run(30)
    assert len(world.names()) == 6, "no other one has ended"


def test_nodes_that_are_killed_and_started_again_go_on() -> None:
    world = grown(6, 5, settings(cluster={"size": 3}))
    wait(world, lambda: len(with_role(world, "none")) == 3, 30, "a full cluster")
    for turn in range(3):
        for name in world.names():
            world.crash(name, silent=turn % 2 == 0)
            world.run(0.5 * turn)
            world.restart(name)
            world.run(1.0)
    world.run(30)
    assert len(world.names()) == 6
    counters = [world.status(name).counters for name in world.names()]
    assert not [one for one in counters if "incidents_identity_conflict" in one]
