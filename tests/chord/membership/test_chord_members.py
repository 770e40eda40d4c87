"""Coming, going and getting lost (P1)."""

from __future__ import annotations

import pytest

from overlay.chord.clusters import Clusters
from overlay.chord.events import MemberLeaving, MemberLost, RoleChanged
from overlay.chord.messages import (
    Cluster,
    Leaving,
    Membership,
    Released,
)
from overlay.links.events import LinkDown, LinkUp
from overlay.machine import Peer
from tests.support.examples import seeds
from tests.support.rings import UNRECOVERED, RingNode, RingWorld, cluster_of, grown


def of(node: RingNode, kind: type) -> list[object]:
    return [event for event in node.events if isinstance(event, kind)]


def primary(world: RingWorld) -> RingNode:
    (node,) = world.primaries()
    return node


def member(world: RingWorld, role: str) -> RingNode:
    return next(n for n in world.members.values() if n.clusters.role == role)


@pytest.mark.parametrize("role", ["standby", "broker"])
def test_a_member_that_leaves_is_released_when_it_hosts_nothing(role: str) -> None:
    world = grown(2, nodes=12, clusters=1, size=5)
    founder, going = primary(world), member(world, role)
    founder.registry.hosts_for_long = True
    going.clusters.leave()
    going.port.turn()
    world.run(2)
    assert of(founder, MemberLeaving) == [MemberLeaving(going.peer)]
    assert not going.clusters.left
    assert going.clusters.role == role  # it serves until it is released
    founder.registry.release_waiting()
    world.run(1)
    assert going.clusters.left
    assert going.clusters.role == "none"
    world.run(5)
    assert len(founder.clusters.members()) == 5  # another node was recruited
    world.members_agree()
    world.copies_agree()


def test_a_node_in_no_cluster_leaves_at_once() -> None:
    world = RingWorld()
    node = world.add()
    node.clusters.leave()
    assert node.clusters.left
    assert not node.view.idle


def test_a_leaving_member_goes_in_bounded_time_even_if_no_primary_releases_it() -> None:
    world = grown(2, nodes=6, clusters=1)
    founder, going = primary(world), member(world, "broker")
    founder.registry.hosts_for_long = True
    going.clusters.leave()
    going.port.turn()
    world.run(15)
    assert going.clusters.left


def test_a_leaving_member_goes_when_its_primary_is_gone() -> None:
    world = grown(2, nodes=6, clusters=1)
    founder, going = primary(world), member(world, "broker")
    founder.registry.hosts_for_long = True
    going.clusters.leave()
    going.port.turn()
    world.crash(founder)
    world.run(12)
    assert going.clusters.left


@pytest.mark.parametrize("role", ["standby", "broker"])
def test_a_member_that_died_is_replaced(role: str) -> None:
    world = grown(3, nodes=12, clusters=1, size=5)
    founder, dead = primary(world), member(world, role)
    world.crash(dead)
    world.run(8)
    assert of(founder, MemberLost) == [MemberLost(dead.peer)]
    assert len(founder.clusters.members()) == 5
    world.members_agree()
    world.copies_agree()


def test_a_lost_standby_is_replaced_by_a_broker_at_once() -> None:
    world = grown(3, nodes=5, clusters=1, size=5)
    founder, dead = primary(world), member(world, "standby")
    new_primary = cluster_of(founder).brokers[0]
    world.crash(dead)
    world.run(2)
    assert cluster_of(founder).standby == new_primary
    assert world.member(new_primary.id).clusters.role == "standby"


def test_a_member_that_was_declared_lost_wrongly_is_informed_and_recruited_again() -> None:
    world = grown(4, nodes=3, clusters=1, size=3)
    founder, cut = primary(world), member(world, "broker")
    world.cut_link(founder, cut)
    world.run(5)
    assert len(founder.clusters.members()) == 2
    assert cut.clusters.role == "broker"  # it cannot know
    world.heal_link(founder, cut)
    world.run(10)
    assert RoleChanged(None, "none") in cut.events
    assert len(founder.clusters.members()) == 3
    world.members_agree()


def test_without_a_majority_a_member_waits_for_its_primary_and_asks_it_again() -> None:
    world = grown(4, nodes=2, clusters=1, size=2, election=UNRECOVERED)
    founder, waiting = primary(world), member(world, "standby")
    world.crash(founder)
    world.sent.clear()
    world.run(20)
    assert waiting.clusters.role == "standby"
    asked = [m for s, to, m in world.sent if s == waiting.peer.id and to == founder.peer.id]
    assert len(asked) >= 3


def test_a_description_is_trusted_only_if_it_is_newer_and_from_who_may_send_it() -> None:
    world = grown(5, nodes=8, clusters=1, size=5)
    founder, node = primary(world), member(world, "broker")
    own = cluster_of(node)
    stranger = next(n for n in world.members.values() if n.clusters.role == "none")
    members = node.clusters.membership
    older = Cluster(own.ring, own.key, own.start, (1, 0), own.primary)
    without = Cluster(own.ring, own.key, own.start, (1, 99), own.primary)
    other = Cluster("other", own.key, own.start, (9, 0), own.primary, node.peer)
    members.on_membership(founder.peer, Membership(older))
    members.on_membership(stranger.peer, Membership(without))
    members.on_membership(founder.peer, Membership(other))
    assert node.clusters.cluster == own
    members.on_membership(founder.peer, Membership(without))
    assert node.clusters.cluster is None


def test_who_does_not_serve_there_says_so_and_is_crossed_out() -> None:
    world = grown(5, nodes=16, clusters=2)
    one, other = world.primaries()
    theirs = world.member(other.clusters.members()[1].id)
    one.clusters.membership.admit(theirs.peer)  # by mistake
    one.port.turn()
    world.run(3)
    assert theirs.peer not in one.clusters.members()
    assert theirs.clusters.cluster == cluster_of(other)


def test_leaving_a_cluster_one_is_no_member_of_is_answered() -> None:
    world = grown(5, nodes=4, clusters=1)
    founder = primary(world)
    world.sent.clear()
    founder.clusters.membership.on_leaving(Peer("f" * 16, ""), Leaving(cluster_of(founder).key))
    assert [m for _, _, m in world.sent] == [Released(cluster_of(founder).key)]


def test_each_member_watches_those_whose_silence_matters() -> None:
    world = grown(6, nodes=16, clusters=3)
    for node in world.members.values():
        cluster = node.clusters.cluster
        watched = {p.id for p in node.port.watched.get("cluster", ())}
        if cluster is None:
            assert watched == set()
        elif node.clusters.is_primary:
            assert watched == {m.id for m in cluster.members()[1:]}
            around = {p.id for p in node.port.watched["ring"]}
            assert around == {n.peer.id for n in world.primaries()} - {node.peer.id}
        else:
            assert watched == {cluster.primary.id}


def test_every_change_of_role_is_reported_and_traced() -> None:
    world = grown(6, nodes=16, clusters=3)
    for node in world.members.values():
        emitted = [e for e in node.events if isinstance(e, RoleChanged)]
        if emitted:
            assert (emitted[-1].cluster, emitted[-1].role) == (
                node.clusters.cluster,
                node.clusters.role,
            )
            assert emitted[-1].role in ("none", node.clusters.role)
            assert [k for k, _ in node.port.traces].count("cluster") >= len(emitted)
    assert isinstance(world.primaries()[0].clusters, Clusters)


@pytest.mark.parametrize("seed", seeds(6))
def test_members_are_those_described_after_any_coming_and_going(seed: int) -> None:
    world = grown(seed, nodes=20, clusters=2, size=4)
    for _ in range(12):
        node = world.rng.choice([n for n in world.members.values() if not n.clusters.is_primary])
        what = world.rng.choice(["crash", "leave", "add"])
        if what == "crash":
            world.crash(node)
        elif what == "leave":
            node.clusters.leave()
            node.port.turn()
        else:
            world.add(degree=10)
        world.run(world.rng.random() * 2)
        for left in [n for n in world.members.values() if n.clusters.left]:
            world.crash(left, left=True)
    world.run(15)
    world.members_agree()
    world.copies_agree()
    world.ring_is_whole()


def test_a_lost_member_that_never_noticed_is_informed_when_it_shows_up() -> None:
    world = grown(4, nodes=3, clusters=1, size=3)
    founder, lost = primary(world), member(world, "broker")
    founder.port.emit(LinkDown(lost.peer, "silent", False))
    founder.port.turn()
    world.run(0.5)  # it is voted out
    world.sent.clear()
    founder.port.emit(LinkUp(lost.peer, False))
    founder.port.turn()
    emitted = [m for _, to, m in world.sent if to == lost.peer.id and isinstance(m, Released)]
    assert emitted == [Released(cluster_of(founder).key)]
    world.run(5)
    assert RoleChanged(None, "none") in lost.events
    assert len(founder.clusters.members()) == 3


def test_a_node_that_leaves_is_not_drawn_into_a_cluster_any_more() -> None:
    world = grown(4, nodes=4, clusters=1, size=3)
    founder = primary(world)
    going = member(world, "none")
    going.clusters.leave()
    founder.clusters.membership.admit(going.peer)
    founder.port.turn()
    world.run(3)
    assert going.clusters.role == "none"
    assert going.peer not in founder.clusters.members()
    assert not [e for e in going.events if isinstance(e, RoleChanged)]
