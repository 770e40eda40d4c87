"""HELLO (P4): whoever follows a primary says how far its log is, also if it follows late (P1)."""

from __future__ import annotations

from typing import Any

import pytest

from overlay.consensus import ProgressState
from overlay.links.events import LinkDown, LinkUp
from overlay.machine import Message, Peer
from overlay.settings import ClusterSettings
from tests.support.rings import UNRECOVERED, RingNode, RingWorld, cluster_of
from tests.support.world import WorldNode

KEY = "8" * 40


def cluster(signed: bool, count: int = 5, size: int = 5) -> tuple[RingWorld, list[RingNode]]:
    """A cluster of `count` nodes, of which at most `size` vote. `signed`: they have keys."""
    world = RingWorld(
        1, cluster=ClusterSettings(size=size), election=UNRECOVERED, delay=0.02, signed=signed
    )
    nodes = [world.add(founder=number == 0) for number in range(count)]
    world.run(5)
    (primary,) = world.primaries()
    primary.clusters.want(count)
    world.run(5)
    assert len(cluster_of(primary).members()) == count
    assert len(primary.clusters.log.voters) == min(count, size)
    return world, nodes


def all_follow(world: RingWorld) -> RingNode:
    """One leads, and all others have what it has. Returns it."""
    (primary,) = world.primaries()
    assert primary.clusters.is_followed
    log, leader_log = primary.clusters.log, primary.clusters.leader_log
    assert len(leader_log.followers) == len(world.members) - 1
    for follower in leader_log.followers.values():
        assert (follower.state, follower.match) == (ProgressState.REPLICATE, log.next)
    world.copies_agree()
    return primary


def test_who_believes_late_that_a_primary_was_elected_answers_its_hello_then() -> None:
    """A voter was out of reach while others changed who votes, so that the grants which are shown
    to it prove nothing to it: it asks others first."""
    world, nodes = cluster(signed=True)
    (old,) = world.primaries()
    late, lost = nodes[1], nodes[3]
    assert old is nodes[0]
    world.crash(lost)
    world.run(1)
    others = [node for node in world.members.values() if node is not late]
    for node in others:
        world.cut_link(late, node)
    world.write(KEY, "a")
    world.write(KEY, "b")
    old.port.turn()
    world.run(0.2)
    world.crash(old)
    for node in others:
        if node is not old:
            world.heal_link(late, node)
    world.severed.clear()
    for node in (old, lost):
        world.restart(node)
    world.run(20)
    assert late.port.counts["claims_doubted"]
    assert all_follow(world) is not late


@pytest.mark.parametrize("signed", [True, False])
def test_a_cluster_with_more_members_than_voters_follows_whom_they_elect(signed: bool) -> None:
    """Two of three voters elect the next primary: that is no majority of the five members."""
    world, _ = cluster(signed, size=3)
    (old,) = world.primaries()
    world.crash(old)
    world.run(5)
    new = all_follow(world)
    assert len(cluster_of(new).members()) == 4
    assert world.write(KEY, "a")
    world.run(1)
    assert new.registry.durable == [f"{KEY}:a".encode()]


class Sessions:
    """What a node hears of its links to another one, in order."""

    def __init__(self, node: RingNode, other: RingNode) -> None:
        self.node = node
        self.other = other
        self.heard_of: list[type] = []

    def heard(self, node: WorldNode, what: Any, sender: Peer | None) -> None:
        is_session = isinstance(what, LinkDown | LinkUp) and what.peer.id == self.other.peer.id
        if is_session and node is self.node.port:
            self.heard_of.append(type(what))

    def sent(self, sender: Peer, receiver: Peer, message: Message) -> None:
        pass


def test_a_voter_that_is_started_again_at_once_gets_what_was_under_way() -> None:
    """Under way was the change of voters on which all further ones wait: nothing is written that
    would tell the voter of the gap. The primary hears that the session has ended when the next one
    begins, before it would have noticed the silence; the test's world has to tell that in the order
    in which links do."""
    world, _ = cluster(signed=False, count=3)
    (primary,) = world.primaries()
    gone, voter = (world.member(peer.id) for peer in primary.clusters.log.voters[1:])
    sessions = Sessions(primary, voter)
    world.observers.append(sessions)
    world.crash(gone)
    world.run(0.95)
    before = primary.clusters.log.next
    world.crash(voter)
    world.run(0.2)
    assert primary.clusters.log.next == before + 1
    world.restart(voter)
    world.run(10)
    *ends, last = sessions.heard_of  # one for each message that found nobody
    assert (set(ends), last) == ({LinkDown}, LinkUp)
    assert all_follow(world) is primary
