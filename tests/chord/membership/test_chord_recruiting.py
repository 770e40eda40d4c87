"""Founding and recruiting (P1; docs/design/chord-ring.md, *Finding a way in*)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from overlay.chord.constants import IDLE_LEAST
from overlay.chord.events import MemberJoined, RoleChanged
from overlay.chord.keys import key_of
from overlay.chord.messages import (
    Cluster,
    Recruit,
    RecruitReply,
)
from overlay.machine import Peer
from overlay.settings import ClusterSettings
from tests.support.rings import RingNode, RingWorld, cluster_of, grown

KEY = key_of("attr:x")


def roles(world: RingWorld) -> dict[str, int]:
    counted: dict[str, int] = {}
    for node in world.members.values():
        counted[node.clusters.role] = counted.get(node.clusters.role, 0) + 1
    return counted


def of(node: RingNode, kind: type) -> list[object]:
    return [event for event in node.events if isinstance(event, kind)]


def primary(world: RingWorld) -> RingNode:
    (node,) = world.primaries()
    return node


def test_a_node_without_seeds_founds_at_once_and_owns_every_key() -> None:
    world = RingWorld()
    node = world.add(founder=True)
    assert node.clusters.role == "primary"
    assert node.clusters.owns(KEY)
    cluster = cluster_of(node)
    assert cluster.start == cluster.key == key_of("cluster:" + node.peer.id)
    assert cluster.version == (1, 0)
    assert node.peer.id in cluster.ring
    assert of(node, RoleChanged) == [RoleChanged(cluster, "primary")]


def test_a_node_with_seeds_founds_only_after_a_time_without_a_ring() -> None:
    world = RingWorld()
    node = world.add()
    world.run(world.ring.found_after - 0.5)
    assert node.clusters.role == "none"
    world.run(1)
    assert node.clusters.role == "primary"


def test_of_new_nodes_that_see_each_other_only_the_smallest_id_founds() -> None:
    world = RingWorld(cluster=ClusterSettings(size=3))
    for _ in range(6):
        world.add()
    world.run(20)
    assert sum(n.port.counts.get("founded", 0) for n in world.members.values()) == 1
    assert primary(world).peer.id == min(world.members)
    assert roles(world) == {"primary": 1, "standby": 1, "broker": 1, "none": 3}


def test_a_lone_founder_gives_its_ring_up_when_it_hears_of_another() -> None:
    world = RingWorld(cluster=ClusterSettings(size=5))
    late = [world.add() for _ in range(3)]
    for node in late:
        node.view.neighbours.clear()
    world.run(8)  # none was answered
    assert roles(world) == {"primary": 3}
    founder = world.add(founder=True)
    world.run(10)
    assert roles(world) == {"primary": 1, "standby": 1, "broker": 2}
    assert primary(world) is founder
    assert all(n.ring.id == founder.ring.id for n in world.members.values())
    assert all(n.port.counts["rings_given_up"] == 1 for n in late)
    world.ring_is_whole()
    world.members_agree()


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_a_cluster_recruits_until_it_has_its_size(size: int) -> None:
    world = RingWorld(cluster=ClusterSettings(size=size))
    world.add(founder=True)
    for _ in range(9):
        world.add()
    world.run(20)
    assert len(primary(world).clusters.members()) == size
    world.members_agree()


def test_a_cluster_asks_no_node_whose_certificate_lets_it_not_vote() -> None:
    """A leaf would have to refuse with a message that its role may not say."""
    world = RingWorld(cluster=ClusterSettings(size=5))
    founder = world.add(founder=True)
    others = [world.add() for _ in range(6)]
    leaves = {node.peer.id for node in others[:4]}
    for node in world.members.values():
        node.ring.state.roles = SimpleNamespace(votes=lambda node: node not in leaves)
    world.run(20)
    members = {peer.id for peer in founder.clusters.members()}
    assert members == {node.peer.id for node in (founder, *others[4:])}


def test_the_first_recruit_is_the_standby_and_the_others_are_match_brokers() -> None:
    world = RingWorld(cluster=ClusterSettings(size=4))
    founder = world.add(founder=True)
    for _ in range(3):
        world.add()
    world.run(5)
    joined = [e.peer.id for e in founder.events if isinstance(e, MemberJoined)]
    cluster = cluster_of(founder)
    assert cluster.standby is not None
    assert [cluster.standby.id, *(b.id for b in cluster.brokers)] == joined
    assert cluster.version == (1, 3)


def test_a_cluster_that_lacks_members_comes_before_one_that_grows() -> None:
    world = RingWorld(cluster=ClusterSettings(size=2))
    node = world.add()
    poor = Cluster("ring", KEY, KEY, (1, 0), Peer("a" * 16, ""))
    full = Cluster("ring", KEY, KEY, (1, 0), Peer("b" * 16, ""), Peer("c" * 16, ""))
    recruiting = node.clusters.recruiting

    def asked(cluster: Cluster) -> bool:
        world.sent.clear()
        recruiting.on_recruit(cluster.primary, Recruit(cluster))
        node.clusters.cluster_role.release_reservation()
        (reply,) = [m for _, _, m in world.sent if isinstance(m, RecruitReply)]
        return reply.accepted

    assert not asked(full)
    assert asked(poor)
    world.run(IDLE_LEAST + 0.1)
    assert asked(full)


def test_preferred_nodes_are_asked_first() -> None:
    world = RingWorld(7, cluster=ClusterSettings(size=3))
    founder = world.add(founder=True)
    founder.clusters.prefer([Peer(f"{n:016x}", "") for n in (18, 20)])
    for _ in range(20):
        world.add()
    world.run(5)
    assert sorted(int(m.id, 16) for m in founder.clusters.members()) == [1, 18, 20]


def test_at_most_two_are_asked_at_a_time() -> None:
    world = RingWorld(cluster=ClusterSettings(size=9))
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
    one.port.send(theirs, Recruit(cluster_of(one)))
    world.run(0.3)
    answers = [m for s, _, m in world.sent if s == theirs.id and isinstance(m, RecruitReply)]
    assert answers == [RecruitReply(cluster_of(one).key, False)]


def test_a_node_cannot_promise_itself_twice() -> None:
    world = RingWorld()
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
    world.run(IDLE_LEAST)
    late.clusters.recruiting.on_recruit(founder.peer, Recruit(cluster_of(founder)))
    late.port.turn()
    assert late.clusters.cluster_role.is_reserved
    world.run(1)
    assert not late.clusters.cluster_role.is_reserved
    assert late.clusters.role == "none"
    assert late.view.idle
