"""One ring that a partition cut, whose sides recovered each other's arcs (P5): one again, soon."""

from __future__ import annotations

from random import Random

import pytest

from canopy.sim.checks.cluster_logs import check_voters
from canopy.sim.checks.node_state import Watch, check_ring, check_trees, led
from canopy.sim.checks.ownership import check_arcs
from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, settings, wait, with_role
from tests.support.examples import overlay_seeds

WITHIN = 15.0
"""Seconds in which there has to be one ring."""


def is_one(world: World) -> bool:
    return led(world) and not check_arcs(world) and not check_ring(world)


PARTITIONS = [(1, 12, 3, 40.0, 3), (3, 16, 3, 20.0, 1), (4, 12, 2, 60.0, 2)]
"""Seed, nodes, sides, how long they are apart, clusters."""


@pytest.mark.parametrize(
    ("seed", "nodes", "sides", "apart", "clusters"), PARTITIONS[: len(overlay_seeds(3))]
)
def test_a_healed_partition_is_one_ring_within_15_seconds(
    seed: int, nodes: int, sides: int, apart: float, clusters: int
) -> None:
    many = clusters > 1
    chosen = settings(
        tree={"split_at": 16},
        cluster={"split_trees": 6 // clusters if many else 1_000, "size": 3 if many else 5},
    )
    world = grown(nodes, seed, chosen, gap=0.1)
    watch = Watch(world)
    names = world.names()
    world.introduce("n0", ["n1"])
    for number in range(2 * nodes):
        where = f"{'abcdefgh'[number % 8]} BETWEEN {number % 50} AND {number % 50 + 20}"
        world.subscribe(names[number % nodes], where)
    acknowledged(world)
    world.run(12)
    mixed = list(names)
    Random(seed).shuffle(mixed)
    world.network.partition([mixed[side::sides] for side in range(sides)])
    world.run(apart)
    assert not is_one(world), "each side goes on by itself"
    world.network.heal()
    wait(world, lambda: is_one(world), WITHIN, "one ring")
    wait(world, lambda: not check_trees(world), 30, "all is registered in it")
    world.run(3)
    assert is_one(world)
    world.clients.publications.clear()
    world.clients.deliveries.clear()
    for number in range(40):
        event = {"abcdefgh"[number % 8]: number % 60, "abcdefgh"[number * 3 % 8]: number}
        world.publish(names[number % nodes], event)
        world.run(0.02)
    assert_exact(world)
    assert check_voters(world) == []
    assert not [v for v in watch.violations.values() if v.kind == "epoch"]


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_of_two_sides_that_both_went_on_each_hears_that_it_lacks_what_the_other_published(
    seed: int,
) -> None:
    """A third of the voters is gone when the others are divided: neither side has a majority."""
    world = grown(7, seed=seed, chosen=settings(cluster={"size": 3}))
    world.run(15.0)
    (primary,) = with_role(world, "primary")
    by_id = {world.drivers[name].disk.node: name for name in world.names()}
    cluster = world.node(primary).clusters.cluster
    other, gone = [by_id[peer.id] for peer in cluster.others()][:2]
    rest = [name for name in world.names() if name not in (primary, other, gone)]
    sides = [[primary, *rest[:2]], [other, *rest[2:]]]
    for side in sides:
        world.subscribe(side[1], "x > 0 AND old = 1")
    acknowledged(world)
    world.run(5.0)
    world.crash(gone)
    world.network.partition(sides)
    world.run(25.0)
    assert sorted(with_role(world, "primary")) == sorted([primary, other]), "both went on"
    late = [world.subscribe(side[2], "x > 0", client=2) for side in sides]
    acknowledged(world)
    world.run(35.0)  # what was reported when they went on is reported no more
    events = [(world.publish(side[1], {"x": 1}), side[1])[0][0] for side in sides for _ in range(3)]
    world.run(1.0)
    healed = world.now
    world.network.heal()
    world.run(30.0)
    assert len(with_role(world, "primary")) == 1
    shown = {
        (one.delivery.subscription, one.delivery.event.identity) for one in world.clients.deliveries
    }
    for one in late:
        missing = [e for e in events if (one.identity, e.identity) not in shown]
        assert len(missing) == 3, "what the other side published"
        told = [n for n in world.clients.notices if n.node == one.node and n.time > healed]
        assert any(notice.code == "lapsed" for notice in told), one
