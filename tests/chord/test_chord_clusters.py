"""Cluster roles (P1; DESIGN.md, Found): founding, recruiting, coming, going, getting lost."""

from __future__ import annotations

import pytest

from overlay.chord.clusters import Clusters
from overlay.chord.events import MemberJoined, MemberLeaving, MemberLost, RoleChanged
from overlay.chord.keys import key_of
from overlay.chord.messages import (
    Cluster,
    Leaving,
    Membership,
    Recruit,
    RecruitReply,
    Released,
)
from overlay.machine import Peer
from overlay.settings import ClusterSettings
from tests.support.mini_world import MiniNode, MiniWorld, grown

KEY = key_of("attr:x")


def roles(world: MiniWorld) -> dict[str, int]:
    counted: dict[str, int] = {}
    for node in world.nodes.values():
        counted[node.clusters.role] = counted.get(node.clusters.role, 0) + 1
    return counted


def of(node: MiniNode, kind: type) -> list[object]:
    return [event for event in node.events if isinstance(event, kind)]


def primary(world: MiniWorld) -> MiniNode:
    (node,) = world.primaries()
    return node


def cluster_of(node: MiniNode) -> Cluster:
    assert node.clusters.cluster is not None
    return node.clusters.cluster


def member(world: MiniWorld, role: str) -> MiniNode:
    return next(n for n in world.nodes.values() if n.clusters.role == role)


# -- founding ------------------------------------------------------------------------------------


def test_a_node_without_seeds_founds_at_once_and_owns_every_key() -> None:
    world = MiniWorld()
    node = world.add(founder=True)
    assert node.clusters.role == "primary"
    assert node.clusters.owns(KEY)
    cluster = cluster_of(node)
    assert cluster.start == cluster.key == key_of("cluster:" + node.peer.id)
    assert cluster.version == (1, 0)
    assert node.peer.id in cluster.ring
    assert of(node, RoleChanged) == [RoleChanged(cluster, "primary")]


def test_a_node_with_seeds_founds_only_after_a_time_without_a_ring() -> None:
    world = MiniWorld()
    node = world.add()
    world.run(world.ring.found_after - 0.5)
    assert node.clusters.role == "none"
    world.run(1)
    assert node.clusters.role == "primary"


def test_of_newcomers_that_see_each_other_only_the_smallest_id_founds() -> None:
    world = MiniWorld(cluster=ClusterSettings(size=3))
    for _ in range(6):
        world.add()
    world.run(20)
    assert sum(n.port.counters.get("founded", 0) for n in world.nodes.values()) == 1
    assert primary(world).peer.id == min(world.nodes)
    assert roles(world) == {"primary": 1, "standby": 1, "broker": 1, "none": 3}


def test_a_lone_founder_gives_its_ring_up_when_it_hears_of_another() -> None:
    world = MiniWorld(cluster=ClusterSettings(size=5))
    late = [world.add() for _ in range(3)]
    for node in late:
        node.view.neighbours.clear()
    world.run(8)  # nobody answered any of them
    assert roles(world) == {"primary": 3}
    founder = world.add(founder=True)
    world.run(10)
    assert roles(world) == {"primary": 1, "standby": 1, "broker": 2}
    assert primary(world) is founder
    assert all(n.ring.id == founder.ring.id for n in world.nodes.values())
    assert all(n.port.counters["rings_given_up"] == 1 for n in late)
    world.ring_is_whole()
    world.members_agree()


def test_a_ring_with_members_is_not_given_up() -> None:
    world = MiniWorld(cluster=ClusterSettings(size=2))
    one, other = world.add(), world.add()
    world.run(12)
    assert roles(world) == {"primary": 1, "standby": 1}
    ring = one.ring.id
    world.add(founder=True)
    world.run(5)
    assert one.ring.id == other.ring.id == ring
    assert len(world.primaries()) == 2


# -- recruiting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_a_cluster_recruits_until_it_has_its_size(size: int) -> None:
    world = MiniWorld(cluster=ClusterSettings(size=size))
    world.add(founder=True)
    for _ in range(9):
        world.add()
    world.run(20)
    assert len(primary(world).clusters.members()) == size
    world.members_agree()


def test_the_first_recruit_is_the_standby_and_the_others_are_match_brokers() -> None:
    world = MiniWorld(cluster=ClusterSettings(size=4))
    founder = world.add(founder=True)
    for _ in range(3):
        world.add()
    world.run(5)
    joined = [e.peer.id for e in founder.events if isinstance(e, MemberJoined)]
    cluster = cluster_of(founder)
    assert cluster.standby is not None
    assert [cluster.standby.id, *(b.id for b in cluster.brokers)] == joined
    assert cluster.version == (1, 3)


def test_preferred_nodes_are_asked_first() -> None:
    world = MiniWorld(7, cluster=ClusterSettings(size=3))
    founder = world.add(founder=True)
    founder.clusters.prefer([Peer(f"{n:016x}", "") for n in (18, 20)])
    for _ in range(20):
        world.add()
    world.run(5)
    assert sorted(int(m.id, 16) for m in founder.clusters.members()) == [1, 18, 20]


def test_at_most_two_are_asked_at_a_time() -> None:
    world = MiniWorld(cluster=ClusterSettings(size=9))
    founder = world.add(founder=True)
    silent = [Peer(f"f{n:015x}", "") for n in range(9)]
    founder.view.idle_peers = lambda: tuple(silent)  # type: ignore[method-assign]
    world.run(0.9)
    asked = [to for _, to, m in world.sent if isinstance(m, Recruit)]
    assert len(asked) == 2
    world.run(8)
    asked = [to for _, to, m in world.sent if isinstance(m, Recruit)]
    assert len(asked) > 2  # who did not answer is passed over for others
    assert len(set(asked)) > 2


def test_who_serves_already_refuses() -> None:
    world = grown(1, nodes=16, clusters=2)
    one, other = world.primaries()
    theirs = next(m for m in other.clusters.members()[1:])
    world.sent.clear()
    world.send(one.peer, theirs, Recruit(cluster_of(one)))
    world.run(0.3)
    answers = [m for s, _, m in world.sent if s == theirs.id and isinstance(m, RecruitReply)]
    assert answers == [RecruitReply(cluster_of(one).key, False)]


def test_a_node_cannot_promise_itself_twice() -> None:
    world = MiniWorld()
    node = world.add()
    first, second = (Cluster("ring", KEY, KEY, (1, 0), Peer(name * 16, "")) for name in ("a", "b"))
    recruiting = node.clusters.recruiting
    recruiting.on_recruit(first.primary, Recruit(first))
    recruiting.on_recruit(second.primary, Recruit(second))
    replies = [(to[0], m.accepted) for _, to, m in world.sent if isinstance(m, RecruitReply)]
    assert replies == [("a", True), ("b", False)]
    assert not node.view.idle
    world.run(world.cluster.recruit_timeout + 0.1)  # the first never took it: free again
    assert node.view.idle
    recruiting.on_recruit(second.primary, Recruit(second))
    replies = [(to[0], m.accepted) for _, to, m in world.sent if isinstance(m, RecruitReply)]
    assert replies[-1] == ("b", True)


def test_a_recruit_that_is_not_wanted_any_more_is_released() -> None:
    world = grown(1, nodes=4, clusters=1)
    founder = primary(world)
    late = world.add()
    late.clusters.recruiting.on_recruit(founder.peer, Recruit(cluster_of(founder)))
    late.settle()
    assert late.clusters.seat.reserved is not None
    world.run(1)
    assert late.clusters.seat.reserved is None
    assert late.clusters.role == "none"
    assert late.view.idle


# -- coming, going, getting lost -----------------------------------------------------------------


@pytest.mark.parametrize("role", ["standby", "broker"])
def test_a_member_that_leaves_is_released_when_it_hosts_nothing(role: str) -> None:
    world = grown(2, nodes=12, clusters=1, size=5)
    founder, going = primary(world), member(world, role)
    founder.registry.hosts_for_long = True
    going.clusters.leave()
    going.settle()
    world.run(2)
    assert of(founder, MemberLeaving) == [MemberLeaving(going.peer)]
    assert not going.clusters.left
    assert going.clusters.role == role  # it serves until it is released
    founder.registry.let_go()
    world.run(1)
    assert going.clusters.left
    assert going.clusters.role == "none"
    world.run(5)
    assert len(founder.clusters.members()) == 5  # somebody else was recruited
    world.members_agree()
    world.copies_agree()


def test_a_node_in_no_cluster_leaves_at_once() -> None:
    world = MiniWorld()
    node = world.add()
    node.clusters.leave()
    assert node.clusters.left
    assert not node.view.idle


def test_a_leaving_member_goes_in_bounded_time_even_if_nobody_releases_it() -> None:
    world = grown(2, nodes=6, clusters=1)
    founder, going = primary(world), member(world, "broker")
    founder.registry.hosts_for_long = True
    going.clusters.leave()
    going.settle()
    world.run(15)
    assert going.clusters.left


def test_a_leaving_member_goes_when_its_primary_is_gone() -> None:
    world = grown(2, nodes=6, clusters=1)
    founder, going = primary(world), member(world, "broker")
    founder.registry.hosts_for_long = True
    going.clusters.leave()
    going.settle()
    world.crash(founder)
    world.run(3)
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
    heir = cluster_of(founder).brokers[0]
    world.crash(dead)
    world.run(2)
    assert cluster_of(founder).standby == heir
    assert world.node(heir.id).clusters.role == "standby"


def test_a_member_that_was_declared_lost_wrongly_is_told_and_recruited_again() -> None:
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


def test_a_member_waits_for_its_primary_and_knocks() -> None:
    world = grown(4, nodes=3, clusters=1, size=3)
    founder, waiting = primary(world), member(world, "broker")
    world.crash(founder)
    world.sent.clear()
    world.run(20)
    assert waiting.clusters.role == "broker"
    knocks = [m for s, to, m in world.sent if s == waiting.peer.id and to == founder.peer.id]
    assert len(knocks) >= 3


def test_a_description_is_believed_only_if_it_is_newer_and_from_who_may_speak() -> None:
    world = grown(5, nodes=8, clusters=1, size=5)
    founder, node = primary(world), member(world, "broker")
    own = cluster_of(node)
    stranger = next(n for n in world.nodes.values() if n.clusters.role == "none")
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
    theirs = world.node(other.clusters.members()[1].id)
    one.clusters.membership.admit(theirs.peer)  # by mistake
    one.settle()
    world.run(3)
    assert theirs.peer not in one.clusters.members()
    assert theirs.clusters.cluster == cluster_of(other)


def test_leaving_a_cluster_one_is_no_member_of_is_answered() -> None:
    world = grown(5, nodes=4, clusters=1)
    founder = primary(world)
    world.sent.clear()
    founder.clusters.membership.on_leaving(Peer("f" * 16, ""), Leaving(cluster_of(founder).key))
    assert [m for _, _, m in world.sent] == [Released(cluster_of(founder).key)]


def test_everybody_watches_those_whose_silence_matters() -> None:
    world = grown(6, nodes=16, clusters=3)
    for node in world.nodes.values():
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


def test_every_change_of_role_is_told_and_traced() -> None:
    world = grown(6, nodes=16, clusters=3)
    for node in world.nodes.values():
        told = [e for e in node.events if isinstance(e, RoleChanged)]
        if told:
            assert (told[-1].cluster, told[-1].role) == (node.clusters.cluster, node.clusters.role)
            assert told[-1].role in ("none", node.clusters.role)
            assert [k for k, _ in node.port.traces].count("cluster") >= len(told)
    assert isinstance(world.primaries()[0].clusters, Clusters)


@pytest.mark.parametrize("seed", range(6))
def test_members_are_those_described_after_any_coming_and_going(seed: int) -> None:
    world = grown(seed, nodes=20, clusters=2, size=4)
    for _ in range(12):
        node = world.rng.choice([n for n in world.nodes.values() if not n.clusters.is_primary])
        what = world.rng.choice(["crash", "leave", "add"])
        if what == "crash":
            world.crash(node)
        elif what == "leave":
            node.clusters.leave()
            node.settle()
        else:
            world.add(degree=10)
        world.run(world.rng.random() * 2)
        for left in [n for n in world.nodes.values() if n.clusters.left]:
            world.crash(left, left=True)
    world.run(15)
    world.members_agree()
    world.copies_agree()
    world.ring_is_whole()
