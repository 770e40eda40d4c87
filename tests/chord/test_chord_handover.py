"""Splits and leaving primaries (P1): no key is ever served twice, and no entry is lost."""

from __future__ import annotations

import pytest

from overlay.chord.events import ArcGone, ArcKept, ArcLeaving, RoleChanged
from overlay.chord.handover import EXHAUSTED, FEWEST, GIVE_UP
from overlay.chord.keys import in_arc, key_of
from overlay.chord.messages import Cluster, TakenOver, TakeOver
from tests.support.mini_world import MiniNode, MiniWorld, grown, middle_of

KEYS = [key_of(f"attr:{n}") for n in range(24)]


def cluster_of(node: MiniNode) -> Cluster:
    assert node.clusters.cluster is not None
    return node.clusters.cluster


def watch_ownership(world: MiniWorld) -> None:
    """After every step: nobody serves a key beside somebody else."""

    def served_once() -> None:
        for key in KEYS:
            assert len(world.owners(key)) <= 1

    world.watchers.append(served_once)


def one_cluster(seed: int, nodes: int = 14, size: int = 5) -> tuple[MiniWorld, MiniNode]:
    world = grown(seed, nodes=nodes, clusters=1, size=size)
    (node,) = world.primaries()
    watch_ownership(world)
    for at, key in enumerate(KEYS):
        assert world.write(key, str(at))
    world.run(1)
    return world, node


def split(node: MiniNode) -> str:
    middle = middle_of(cluster_of(node))
    node.clusters.request_split(middle)
    return middle


def everything_is_there(world: MiniWorld) -> None:
    """Each entry is where its key is served, once."""
    for at, key in enumerate(KEYS):
        (owner,) = world.owners(key)
        assert owner.registry.entries.count(f"{key}:{at}".encode()) == 1
    entries = [e for n in world.primaries() for e in n.registry.entries]
    assert len(entries) == len(KEYS)


# -- split ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_split_makes_two_clusters_that_share_the_arc_the_members_and_the_state(
    seed: int,
) -> None:
    world, node = one_cluster(seed)
    old = cluster_of(node)
    middle = split(node)
    world.run(10)
    first, second = sorted(world.arcs(), key=lambda c: c.key != middle)
    assert (first.start, first.key) == (old.start, middle)
    assert (second.start, second.key) == (middle, old.key)
    assert first.version[0] == old.version[0] + 1  # a new primary is a higher epoch
    assert second.version[0] == old.version[0]
    assert (len(first.members()), len(second.members())) == (5, 5)
    world.ring_is_whole()
    world.members_agree()
    world.copies_agree()
    everything_is_there(world)


def test_the_old_part_keeps_its_primary_and_standby() -> None:
    world, node = one_cluster(1)
    old = cluster_of(node)
    split(node)
    world.run(10)
    assert cluster_of(node).primary == old.primary
    assert cluster_of(node).standby == old.standby


def test_a_split_waits_for_members_enough() -> None:
    world, node = one_cluster(1, nodes=5)
    split(node)
    world.run(30)
    assert len(world.arcs()) == 1
    for _ in range(5):
        world.add()
    world.run(15)
    assert len(world.arcs()) == 2


def test_with_nobody_left_to_recruit_six_members_are_enough() -> None:
    world, node = one_cluster(1, nodes=FEWEST)
    split(node)
    world.run(EXHAUSTED / 2)
    assert len(world.arcs()) == 1
    world.run(EXHAUSTED * 2)
    assert [len(c.members()) for c in world.arcs()] == [3, 3]


def test_even_clusters_of_one_can_split() -> None:
    world, node = one_cluster(1, nodes=6, size=1)
    split(node)
    world.run(10)
    assert len(world.arcs()) == 2
    everything_is_there(world)


def test_a_split_is_asked_for_in_vain_where_it_cannot_be() -> None:
    world, node = one_cluster(1)
    split(node)
    world.run(10)
    one, other = world.primaries()
    broker = next(n for n in world.nodes.values() if n.clusters.role == "broker")
    one.clusters.request_split(middle_of(cluster_of(other)))  # not our arc
    one.clusters.request_split(cluster_of(one).key)  # nothing would be left
    broker.clusters.request_split(middle_of(cluster_of(one)))  # not our business
    world.run(20)
    assert len(world.arcs()) == 2


def test_one_split_at_a_time() -> None:
    world, node = one_cluster(1, nodes=30)
    split(node)
    node.clusters.request_split(KEYS[0])
    world.run(12)
    assert len(world.arcs()) == 2
    assert len([e for e in node.events if isinstance(e, ArcLeaving)]) == 1


def test_while_an_arc_leaves_it_is_served_by_nobody_and_the_rest_goes_on() -> None:
    world, node = one_cluster(2)
    node.registry.slow = True
    middle, old = split(node), cluster_of(node)
    world.run(6)
    leaving = [k for k in KEYS if in_arc(k, old.start, middle)]
    staying = [k for k in KEYS if not in_arc(k, old.start, middle)]
    assert leaving
    assert staying
    assert not any(node.clusters.owns(k) for k in leaving)
    assert all(node.clusters.owns(k) for k in staying)
    assert node.clusters.is_primary
    assert world.write(staying[0], "meanwhile")
    node.registry.go_on()
    world.run(3)
    assert all(len(world.owners(k)) == 1 for k in KEYS)
    world.copies_agree()


def test_the_new_primary_has_the_whole_state_before_it_serves() -> None:
    world, node = one_cluster(3)
    middle, old = split(node), cluster_of(node)
    expected = [e for e in node.registry.entries if in_arc(e[:40].decode(), old.start, middle)]

    def complete_when_served() -> None:
        for other in world.primaries():
            if other is not node:
                assert other.registry.entries == expected

    world.watchers.append(complete_when_served)
    world.run(10)
    assert len(world.arcs()) == 2


def test_a_new_primary_that_refuses_changes_nothing() -> None:
    world, node = one_cluster(1)
    old = cluster_of(node)
    node.registry.slow = True
    split(node)
    world.run(6)
    (leaving,) = [e.arc for e in node.events if isinstance(e, ArcLeaving)]
    coming = world.node(leaving.primary.id)
    coming.clusters.seat.leaving = True
    node.registry.go_on()
    world.run(2)
    assert [e.arc.key for e in node.events if isinstance(e, ArcKept)] == [leaving.key]
    assert cluster_of(node).start == old.start
    assert cluster_of(node).version[0] == old.version[0]
    assert coming.registry.entries == []
    everything_is_there(world)


def test_a_new_primary_that_dies_before_it_is_asked_changes_nothing() -> None:
    world, node = one_cluster(1)
    old = cluster_of(node)
    node.registry.slow = True
    split(node)
    world.run(6)
    (leaving,) = [e.arc for e in node.events if isinstance(e, ArcLeaving)]
    world.crash(world.node(leaving.primary.id))
    world.run(3)
    assert [e.arc.key for e in node.events if isinstance(e, ArcKept)] == [leaving.key]
    assert cluster_of(node).version[0] == old.version[0]
    node.clusters.transfer([b"too late"])  # the registry did not know yet
    world.run(10)
    assert len(world.arcs()) == 1
    world.copies_agree()
    everything_is_there(world)


def test_other_members_that_die_before_the_take_over_are_left_out() -> None:
    world, node = one_cluster(1)
    node.registry.slow = True
    split(node)
    world.run(6)
    (leaving,) = [e.arc for e in node.events if isinstance(e, ArcLeaving)]
    assert leaving.standby is not None
    world.crash(world.node(leaving.standby.id))
    world.run(3)
    node.registry.go_on()
    world.run(1)
    new = next(c for c in world.arcs() if c.key == leaving.key)
    assert leaving.standby not in new.members()
    world.run(10)
    world.copies_agree()
    world.ring_is_whole()
    everything_is_there(world)


def test_silence_after_the_question_is_fenced_by_a_higher_epoch() -> None:
    """Nobody can know whether the other serves: both may, until they hear of each other; then
    the higher epoch goes on, and that is the one that kept everything."""
    world, node = one_cluster(1)
    world.watchers.clear()  # the one thing that a partition does break, for a bounded time
    old = cluster_of(node)
    split(node)
    while not any(isinstance(m, TakeOver) for _, _, m in world.sent):
        world.run(0.01)
    (leaving,) = [e.arc for e in node.events if isinstance(e, ArcLeaving)]
    coming = world.node(leaving.primary.id)
    while not coming.clusters.is_primary:
        world.run(0.001)
    world.cut_link(node, coming)  # its answer is lost
    world.run(3)
    assert cluster_of(node).start == old.start
    assert cluster_of(node).version[0] == leaving.version[0] + 1
    world.heal_link(node, coming)
    world.run(15)
    assert coming.port.counters["fenced"] == 1
    assert world.primaries() == [node]
    world.members_agree()
    world.copies_agree()
    everything_is_there(world)


def test_a_hand_over_is_given_up_when_it_takes_too_long() -> None:
    world, node = one_cluster(1)
    node.registry.slow = True
    split(node)
    world.run(GIVE_UP + 10)
    assert [e for e in node.events if isinstance(e, ArcKept)]
    assert not [e for e in node.events if isinstance(e, ArcGone)]
    assert all(node.clusters.owns(key) for key in KEYS)


def test_an_answer_to_an_old_question_is_ignored() -> None:
    _, node = one_cluster(1)
    arc = Cluster("ring", KEYS[0], KEYS[1], (9, 0), node.peer)
    node.clusters.handovers.on_taken_over(node.peer, TakenOver(arc, True))
    node.settle()
    assert node.clusters.is_primary
    assert not [e for e in node.events if isinstance(e, ArcGone)]


def test_only_the_own_primary_can_make_one_a_primary() -> None:
    world, node = one_cluster(1)
    broker = next(n for n in world.nodes.values() if n.clusters.role == "broker")
    stranger = next(n for n in world.nodes.values() if n.clusters.role == "none")
    arc = Cluster(cluster_of(node).ring, KEYS[0], KEYS[1], (9, 0), broker.peer)
    for sender in (stranger, node):  # …and not without the state
        broker.clusters.handovers.on_take_over(sender.peer, TakeOver(arc, 0, (), None))
    broker.settle()
    assert broker.clusters.role == "broker"
    refusals = [m for _, _, m in world.sent if isinstance(m, TakenOver)]
    assert [m.accepted for m in refusals] == [False, False]


# -- a primary that leaves -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_leaving_primary_hands_over_to_its_standby(seed: int) -> None:
    world, node = one_cluster(seed)
    old = cluster_of(node)
    node.clusters.leave()
    node.settle()
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
    node.settle()
    world.run(2)
    assert node.clusters.left
    world.ring_is_whole()


def test_a_primary_does_not_hand_over_to_who_leaves_itself() -> None:
    world, node = one_cluster(2)
    standby = cluster_of(node).standby
    assert standby is not None
    node.registry.hosts_for_long = True
    going = world.node(standby.id)
    going.clusters.leave()
    going.settle()
    world.run(0.5)
    node.clusters.leave()
    node.settle()
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
    world.node(standby.id).clusters.leave()
    node.settle()
    world.node(standby.id).settle()
    world.run(8)
    assert node.clusters.left
    assert world.node(standby.id).clusters.left
    (new,) = world.arcs()
    assert new.primary.id not in (node.peer.id, standby.id)
    everything_is_there(world)


def test_with_nobody_to_hand_over_to_the_primary_just_goes() -> None:
    world = MiniWorld()
    node = world.add(founder=True)
    node.clusters.leave()
    node.settle()
    assert node.clusters.left
    assert [e.role for e in node.events if isinstance(e, RoleChanged)] == ["primary", "none"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("clusters", [1, 3])
def test_when_all_leave_at_once_all_are_gone_in_bounded_time(seed: int, clusters: int) -> None:
    world = grown(seed, nodes=16, clusters=clusters)
    nodes = list(world.nodes.values())
    for node in nodes:
        node.clusters.leave()
        node.settle()
    for _ in range(15):
        world.run(1)
        for node in list(world.nodes.values()):
            if node.clusters.left:
                world.crash(node, left=True)
    assert not world.nodes


@pytest.mark.parametrize("seed", range(4))
def test_one_after_the_other_may_leave_and_nothing_is_lost(seed: int) -> None:
    world, _ = one_cluster(seed, nodes=10, size=3)
    while len(world.nodes) > 1:
        going = world.rng.choice(list(world.nodes.values()))
        going.clusters.leave()
        going.settle()
        world.run(4)
        assert going.clusters.left
        world.crash(going, left=True)
    world.run(3)
    everything_is_there(world)


def test_a_primary_that_leaves_during_a_split_first_ends_the_split() -> None:
    world, node = one_cluster(1)
    node.registry.slow = True
    split(node)
    world.run(6)
    node.clusters.leave()
    node.settle()
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
    node.settle()
    world.run(12)
    assert node.clusters.left


def test_a_role_that_ended_leaves_no_copy_behind() -> None:
    world, node = one_cluster(2)
    node.clusters.leave()
    node.settle()
    world.run(2)
    assert node.registry.entries == []


def test_after_the_hand_over_nothing_is_appended_here() -> None:
    _, node = one_cluster(1)
    node.clusters.leave()
    node.port.queue.clear()
    node.clusters.transfer([])
    with pytest.raises(AssertionError):
        node.clusters.append(b"too late")
