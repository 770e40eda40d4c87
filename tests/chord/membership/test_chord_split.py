"""Splits (P1): no key is ever served twice, and no entry is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from overlay.chord.constants import EXHAUSTED_AFTER, QUIESCE_MOST, SPLIT_LEAST
from overlay.chord.events import ArcGone, ArcKept, ArcLeaving, Replanted
from overlay.chord.keys import in_arc
from overlay.chord.messages import ArcGiven, Cluster, Recruit, RecruitReply, TakenOver, TakeOver
from tests.support.examples import seeds
from tests.support.one_cluster import KEYS, everything_is_there, one_cluster, split
from tests.support.rings import RingNode, RingWorld, cluster_of, middle_of, slow_split


@pytest.mark.parametrize("seed", seeds(4))
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


def test_with_no_node_left_to_recruit_six_members_are_enough() -> None:
    world, node = one_cluster(1, nodes=SPLIT_LEAST)
    split(node)
    world.run(EXHAUSTED_AFTER / 2)
    assert len(world.arcs()) == 1
    world.run(EXHAUSTED_AFTER * 2)
    assert [len(c.members()) for c in world.arcs()] == [3, 3]


def test_even_clusters_of_one_can_split() -> None:
    world, node = one_cluster(1, nodes=6, size=1)
    split(node)
    world.run(10)
    assert len(world.arcs()) == 2
    everything_is_there(world)


def test_a_split_is_refused_where_it_cannot_be() -> None:
    world, node = one_cluster(1)
    split(node)
    world.run(10)
    one, other = world.primaries()
    broker = next(n for n in world.members.values() if n.clusters.role == "broker")
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


def test_while_an_arc_leaves_it_is_not_served_and_the_rest_goes_on() -> None:
    world, node = one_cluster(2)
    old = cluster_of(node)
    middle = slow_split(world, node)
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

    world.checks.append(complete_when_served)
    world.run(10)
    assert len(world.arcs()) == 2


def test_a_new_primary_that_refuses_changes_nothing() -> None:
    world, node = one_cluster(1)
    old = cluster_of(node)
    slow_split(world, node)
    (leaving,) = [e.arc for e in node.events if isinstance(e, ArcLeaving)]
    coming = world.member(leaving.primary.id)
    coming.clusters.cluster_role.start_leaving()
    node.registry.go_on()
    world.run(2)
    assert [e.arc.key for e in node.events if isinstance(e, ArcKept)] == [leaving.key]
    assert cluster_of(node).start == old.start
    assert cluster_of(node).version[0] == old.version[0]
    assert not coming.clusters.is_primary
    everything_is_there(world)


def test_a_new_primary_that_dies_before_it_is_asked_changes_nothing() -> None:
    world, node = one_cluster(1)
    old = cluster_of(node)
    slow_split(world, node)
    (leaving,) = [e.arc for e in node.events if isinstance(e, ArcLeaving)]
    world.crash(world.member(leaving.primary.id))
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
    slow_split(world, node)
    (leaving,) = [e.arc for e in node.events if isinstance(e, ArcLeaving)]
    assert leaving.standby is not None
    world.crash(world.member(leaving.standby.id))
    world.run(3)
    node.registry.go_on()
    world.run(1)
    new = next(c for c in world.arcs() if c.key == leaving.key)
    assert leaving.standby not in new.members()
    world.run(10)
    world.copies_agree()
    world.ring_is_whole()
    everything_is_there(world)


def asked(world: RingWorld, node: RingNode) -> RingNode:
    """Split; the coming primary, which has stored what it was given and has not answered yet."""
    split(node)
    until(world, lambda: any(isinstance(m, TakeOver) for _, _, m in world.sent), 0.01)
    (leaving,) = [e.arc for e in node.events if isinstance(e, ArcLeaving)]
    coming = world.member(leaving.primary.id)
    until(world, lambda: coming.clusters.journal.offered.arc is not None, 0.001)
    return coming


def until(world: RingWorld, holds: Callable[[], bool], step: float) -> None:
    """Run the world in steps until the condition holds; fail after ten thousand."""
    for _ in range(10_000):
        if holds():
            return
        world.run(step)
    pytest.fail("the condition never held")


def test_who_falls_silent_before_it_is_decided_serves_nothing_when_it_wakes() -> None:
    world, node = one_cluster(1)
    old = cluster_of(node)
    coming = asked(world, node)
    world.cut_link(node, coming)  # its answer is lost
    world.run(8)
    assert cluster_of(node).start == old.start
    assert cluster_of(node).version[0] == old.version[0]
    assert not coming.clusters.is_primary
    assert all(node.clusters.owns(key) for key in KEYS)
    world.heal_link(node, coming)
    world.run(15)
    assert world.primaries() == [node]
    assert coming.clusters.journal.offered.arc is None
    world.members_agree()
    world.copies_agree()
    everything_is_there(world)


def test_what_is_decided_holds_though_both_who_agreed_on_it_die() -> None:
    """The old primary dies before it can say so, the coming one is started again: it asks who
    leads the old cluster by then."""
    world, node = one_cluster(1)
    coming = asked(world, node)
    arc = coming.clusters.journal.offered.arc
    assert arc is not None
    others = [world.member(p.id) for p in node.clusters.log.voters if p != node.peer]
    while not all(o.clusters.log.voter_log.config.start == arc.key for o in others):  # type: ignore[union-attr]
        world.run(0.001)
    assert coming.clusters.journal.offered.arc is not None  # it has not heard yet
    world.crash(node)
    world.crash(coming)
    world.run(6)
    assert len(world.primaries()) == 1
    assert not world.owners(arc.key)
    again = world.restart(coming)
    world.run(12)
    assert again.clusters.owns(arc.key)
    assert len(world.primaries()) == 2
    world.run(10)
    world.ring_is_whole()
    world.copies_agree()
    everything_is_there(world)


def test_a_split_is_given_up_when_its_arc_would_be_quiesced_for_too_long() -> None:
    world, node = one_cluster(1)
    slow_split(world, node)
    world.run(QUIESCE_MOST - 0.5)
    assert not all(node.clusters.owns(key) for key in KEYS)
    world.run(1.0)
    assert [e for e in node.events if isinstance(e, ArcKept)]
    assert not [e for e in node.events if isinstance(e, ArcGone)]
    assert all(node.clusters.owns(key) for key in KEYS)


def test_an_answer_to_an_old_question_is_ignored() -> None:
    _, node = one_cluster(1)
    arc = Cluster("ring", KEYS[0], KEYS[1], (9, 0), node.peer)
    node.clusters.handovers.on_taken_over(node.peer, TakenOver(arc, True))
    node.port.turn()
    assert node.clusters.is_primary
    assert not [e for e in node.events if isinstance(e, ArcGone)]


def test_only_the_own_primary_can_make_one_a_primary() -> None:
    world, node = one_cluster(1)
    broker = next(n for n in world.members.values() if n.clusters.role == "broker")
    stranger = next(n for n in world.members.values() if n.clusters.role == "none")
    arc = Cluster(cluster_of(node).ring, KEYS[0], KEYS[1], (9, 0), broker.peer)
    for sender in (stranger, node):  # …and not without the state
        broker.clusters.taking_over.on_take_over(sender.peer, TakeOver(arc, 0, (), None))
    broker.port.turn()
    assert broker.clusters.role == "broker"
    refusals = [m for _, _, m in world.sent if isinstance(m, TakenOver)]
    assert [m.accepted for m in refusals] == [False, False]


def test_no_primary_takes_over_with_a_part_of_the_state() -> None:
    world, node = one_cluster(1)
    slow_split(world, node)
    (leaving,) = [e.arc for e in node.events if isinstance(e, ArcLeaving)]
    coming = world.member(leaving.primary.id)
    index = node.clusters.leader_log.transfer(leaving, [b"one", b"two"])
    world.run(1)
    coming.clusters.taking_over.on_take_over(node.peer, TakeOver(leaving, index + 1, (), None))
    coming.port.turn()
    assert coming.clusters.role == "broker"


def test_who_goes_with_the_arc_does_not_become_the_standby_of_what_stays() -> None:
    world, node = one_cluster(1, nodes=SPLIT_LEAST)
    slow_split(world, node)
    (leaving,) = [e.arc for e in node.events if isinstance(e, ArcLeaving)]
    for member in cluster_of(node).members()[1:]:
        if member not in leaving.members():
            world.crash(world.member(member.id))
            world.run(1.5)  # the rest vote it out
    assert cluster_of(node).standby is None
    node.registry.go_on()
    world.run(2)
    assert len(world.arcs()) == 2
    everything_is_there(world)


# --- a new owner that cannot serve what it is given ---


def voted_epoch(seed: int) -> tuple[RingWorld, RingNode, RingNode]:
    """A world, its primary, and the new owner of an arc, which has said that it has the state."""
    world, node = one_cluster(seed)
    split(node)
    while not any(isinstance(m, TakenOver) for _, _, m in world.sent):
        world.run(0.02)
    (new_owner_id,) = {sender for sender, _, m in world.sent if isinstance(m, TakenOver)}
    return world, node, world.member(new_owner_id)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_new_owner_that_wants_to_leave_takes_the_arc_and_hands_it_on(seed: int) -> None:
    world, _, new_primary = voted_epoch(seed)
    new_primary.clusters.leave()
    new_primary.port.turn()
    world.run(9)
    assert new_primary.clusters.left
    world.crash(new_primary, left=True)
    world.run(3)
    assert len(world.primaries()) == 2
    everything_is_there(world)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_new_owner_that_waits_for_its_arc_serves_nowhere_else(seed: int) -> None:
    world, node, new_primary = voted_epoch(seed)
    other = next(n for n in world.members.values() if n.clusters.role == "none")
    assert new_primary.clusters.journal.offered.arc is not None
    new_primary.clusters.cluster_role.cluster = None  # it was forgotten by its cluster meanwhile
    cluster = Cluster(cluster_of(node).ring, KEYS[0], KEYS[0], (9, 0), other.peer)
    new_primary.clusters.recruiting.on_recruit(other.peer, Recruit(cluster))
    (reply,) = [m for _, to, m in world.sent if isinstance(m, RecruitReply) and to == other.peer.id]
    assert not reply.accepted


@pytest.mark.parametrize("seed", seeds(3))
def test_an_arc_whose_new_owner_cannot_serve_it_is_taken_back_at_once(seed: int) -> None:
    world, node, new_primary = voted_epoch(seed)
    new_primary.clusters.cluster_role.finish_leaving()
    while not any(isinstance(m, ArcGiven) for _, _, m in world.sent):
        world.run(0.02)
    world.run(1.0)
    assert all(world.owners(key) == [node] for key in KEYS)
    assert [e for e in node.events if isinstance(e, Replanted)]
    assert not new_primary.clusters.is_primary
    assert node.port.counts["arcs_taken_back"] == 1
