"""Primaries that leave (P1): the standby goes on, and all members go in bounded time."""

from __future__ import annotations

import pytest

from overlay.chord.events import ArcGone, RoleChanged
from tests.support.examples import seeds
from tests.support.one_cluster import everything_is_there, one_cluster
from tests.support.rings import RingWorld, cluster_of, grown, slow_split


@pytest.mark.parametrize("seed", seeds(4))
def test_a_leaving_primary_hands_over_to_its_standby(seed: int) -> None:
    world, node = one_cluster(seed)
    old = cluster_of(node)
    node.clusters.leave()
    node.port.turn()
    world.run(3)
    assert node.clusters.left
    (new,) = world.arcs()
    assert new.primary == old.standby
    assert (new.key, new.start, new.version[0]) == (old.key, old.start, old.version[0] + 1)
    world.crash(node, left=True)
    world.run(10)
    world.members_agree()
    world.copies_agree()
    everything_is_there(world)
    assert len(world.arcs()[0].members()) == 5


def test_the_ring_hears_of_a_new_primary_at_once() -> None:
    world = grown(4, nodes=40, clusters=6)
    node = world.primaries()[2]
    node.clusters.leave()
    node.port.turn()
    world.run(2)
    assert node.clusters.left
    world.ring_is_whole()


def test_a_primary_does_not_hand_over_to_who_leaves_itself() -> None:
    world, node = one_cluster(2)
    standby = cluster_of(node).standby
    assert standby is not None
    node.registry.hosts_for_long = True
    going = world.member(standby.id)
    going.clusters.leave()
    going.port.turn()
    world.run(0.5)
    node.clusters.leave()
    node.port.turn()
    world.run(6)
    assert node.clusters.left
    assert going.clusters.left  # the new primary let it go
    (new,) = world.arcs()
    assert new.primary.id not in (node.peer.id, going.peer.id)
    everything_is_there(world)


def test_a_standby_that_starts_to_leave_meanwhile_refuses_and_another_takes_over() -> None:
    world, node = one_cluster(2)
    standby = cluster_of(node).standby
    assert standby is not None
    node.clusters.leave()
    world.member(standby.id).clusters.leave()
    node.port.turn()
    world.member(standby.id).port.turn()
    world.run(8)
    assert node.clusters.left
    assert world.member(standby.id).clusters.left
    (new,) = world.arcs()
    assert new.primary.id not in (node.peer.id, standby.id)
    everything_is_there(world)


def test_without_a_ring_neighbour_to_hand_over_to_the_primary_just_goes() -> None:
    world = RingWorld()
    node = world.add(founder=True)
    node.clusters.leave()
    node.port.turn()
    assert node.clusters.left
    assert [e.role for e in node.events if isinstance(e, RoleChanged)] == ["primary", "none"]


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("clusters", [1, 3])
def test_when_all_leave_at_once_all_are_gone_in_bounded_time(seed: int, clusters: int) -> None:
    world = grown(seed, nodes=16, clusters=clusters)
    nodes = list(world.members.values())
    for node in nodes:
        node.clusters.leave()
        node.port.turn()
    for _ in range(15):
        world.run(1)
        for node in list(world.members.values()):
            if node.clusters.left:
                world.crash(node, left=True)
    assert not world.members


@pytest.mark.parametrize("seed", seeds(4))
def test_one_after_the_other_may_leave_and_nothing_is_lost(seed: int) -> None:
    world, _ = one_cluster(seed, nodes=10, size=3)
    while len(world.members) > 1:
        going = world.rng.choice(list(world.members.values()))
        going.clusters.leave()
        going.port.turn()
        world.run(4)
        assert going.clusters.left
        world.crash(going, left=True)
    world.run(3)
    everything_is_there(world)


def test_a_primary_that_leaves_during_a_split_first_ends_the_split() -> None:
    world, node = one_cluster(1)
    slow_split(world, node)
    node.clusters.leave()
    node.port.turn()
    node.registry.slow = False
    node.registry.go_on()
    world.run(5)
    assert node.clusters.left
    assert len(world.arcs()) == 2
    everything_is_there(world)


def test_a_leaving_primary_goes_in_bounded_time_even_if_the_registry_never_settles() -> None:
    world, node = one_cluster(1)
    node.registry.slow = True
    node.clusters.leave()
    node.port.turn()
    world.run(12)
    assert node.clusters.left


def test_a_primary_that_handed_over_learns_that_its_arc_has_gone_before_its_role() -> None:
    _, node = one_cluster(2)
    key = cluster_of(node).key
    node.events.clear()
    node.clusters.leave()
    node.port.turn()
    node.port.world.run(2)
    emitted = [e for e in node.events if isinstance(e, ArcGone | RoleChanged)]
    assert [type(e) for e in emitted] == [ArcGone, RoleChanged]
    assert isinstance(emitted[0], ArcGone)
    assert emitted[0].arc.key == key


def test_a_role_that_ended_leaves_no_copy_behind() -> None:
    world, node = one_cluster(2)
    node.clusters.leave()
    node.port.turn()
    world.run(2)
    assert node.registry.entries == []


def test_after_the_hand_over_nothing_is_appended_here() -> None:
    world, node = one_cluster(1)
    node.registry.slow = True
    node.clusters.leave()
    while node.clusters.handovers.current is None:  # an odd number has to vote without it
        world.run(0.05)
    node.clusters.transfer([])
    with pytest.raises(AssertionError):
        node.clusters.append(b"too late")
