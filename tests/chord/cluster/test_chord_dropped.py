"""A link without room drops messages of the log: nothing waits for ever because of that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from overlay.chord.cluster import leader_log
from overlay.chord.cluster.messages import (
    ClusterHello,
    ClusterHelloReply,
    LogAck,
    LogEntries,
    LogSnapshot,
)
from overlay.chord.constants import OBSERVER_AGAIN, OBSERVER_AWAITED
from overlay.chord.keys import key_of
from overlay.chord.recovery.messages import ObserverEntries, ObserverSnapshot
from overlay.consensus import ProgressState
from overlay.machine import Message, Peer
from overlay.settings import ClusterSettings
from tests.support.examples import seeds
from tests.support.rings import RingNode, RingWorld

KEY = key_of("attr:x")
LOG = (ClusterHello, ClusterHelloReply, LogAck, LogEntries, LogSnapshot)


def grown(nodes: int = 3, size: int = 3) -> tuple[RingWorld, RingNode, RingNode]:
    """A world with one cluster, its primary, and one of its voters."""
    world = RingWorld(2, cluster=ClusterSettings(size=size))
    world.add(founder=True)
    for _ in range(nodes - 1):
        world.add()
    world.run(8)
    (node,) = world.primaries()
    copy = next(n for n in world.members.values() if n.clusters.role == "standby")
    return world, node, copy


def only(kind: type[Message], copy: RingNode) -> Callable[[Peer, Peer, Message], bool]:
    """Whether a message of this kind goes between this voter and another."""

    def drops(sender: Peer, receiver: Peer, message: Message) -> bool:
        return isinstance(message, kind) and copy.peer.id in (sender.id, receiver.id)

    return drops


@pytest.mark.parametrize("kind", [LogEntries, LogAck, ClusterHello, ClusterHelloReply])
def test_a_voter_gets_what_the_link_had_no_room_for(kind: type[Message]) -> None:
    """Though nothing is written afterwards, and the link does not break."""
    world, node, copy = grown()
    if kind in (ClusterHello, ClusterHelloReply):
        node.clusters.leader_log.restart_follower(copy.peer)  # so that it is greeted
        world.run(0.02)
        node.clusters.leader_log.tracker.forget(copy.peer.id)
    world.drops = only(kind, copy)
    node.registry.write(KEY, "kept")
    world.run(2)
    assert world.dropped
    world.drops = lambda *_: False
    world.run(4)
    world.copies_agree()
    progress = node.clusters.leader_log.followers[copy.peer.id]
    assert (progress.state, progress.match) == (ProgressState.REPLICATE, node.clusters.log.next)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_whole_state_of_which_a_piece_is_missing_does_not_count(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the last piece has come: all of it comes again."""
    monkeypatch.setattr(leader_log, "SNAPSHOT_PIECE", 60)
    world, node, copy = grown()
    for at in range(4):
        node.registry.write(KEY, f"{at} is kept")
    world.run(1)
    seen = 0

    def drops(sender: Peer, receiver: Peer, message: Message) -> bool:
        nonlocal seen
        if not isinstance(message, LogSnapshot):
            return False
        seen += 1
        return seen == number + 1

    world.drops = drops
    copy.clusters.log.voter_log = None  # its disk is lost
    node.clusters.leader_log.restart_follower(copy.peer)
    world.run(6)
    assert seen >= 6, "in three pieces or more, twice"
    assert world.dropped == 1
    world.copies_agree()


def test_answers_to_older_questions_have_no_state_sent_again() -> None:
    """A voter that has lost its log is greeted four times, as when its link wavers."""
    world, node, copy = grown()
    node.registry.write(KEY, "kept")
    world.run(1)
    copies = 0

    def counts(sender: Peer, receiver: Peer, message: Message) -> bool:
        nonlocal copies
        copies += isinstance(message, LogSnapshot) and message.first
        return False

    world.drops = counts
    copy.clusters.log.voter_log = None
    for _ in range(4):
        node.clusters.leader_log.restart_follower(copy.peer)
        node.port.turn()
    world.run(3)
    assert copies == 1
    world.copies_agree()


def test_nor_does_an_observers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_log, "SNAPSHOT_PIECE", 60)
    world, node, _ = grown(nodes=5)
    for at in range(4):
        node.registry.write(KEY, f"{at} is kept")
    world.run(1)
    pieces = 0

    def drops(sender: Peer, receiver: Peer, message: Message) -> bool:
        nonlocal pieces
        pieces += isinstance(message, ObserverSnapshot)
        return isinstance(message, ObserverSnapshot) and pieces % 4 == 2 and pieces < 9

    world.drops = drops
    node.clusters.observers.end()
    for other in world.members.values():
        other.clusters.observed_logs.forget(node.clusters.cluster.key)  # type: ignore[union-attr]
    world.run(1)
    assert world.dropped
    for other in world.members.values():
        for entries in other.registry.observed.values():
            assert entries in ([], node.registry.entries), "a part is none"
    world.run(OBSERVER_AWAITED + OBSERVER_AGAIN + 5)
    kept = [n for n in world.members.values() if n.registry.observed]
    assert kept
    for other in kept:
        (entries,) = other.registry.observed.values()
        assert entries == node.registry.entries


@pytest.mark.parametrize("seed", seeds(8))
def test_whatever_is_dropped_is_made_good(seed: int) -> None:
    """Half of what the log says is dropped for a while, at random, in both directions."""
    world = RingWorld(seed, cluster=ClusterSettings(size=5))
    world.add(founder=True)
    for _ in range(5):
        world.add()
    world.run(6)
    world.drops = lambda _from, _to, message: (
        isinstance(message, (*LOG, ObserverEntries)) and world.rng.random() < 0.5
    )
    for at in range(12):
        world.write(KEY, str(at))
        world.run(world.rng.random())
    world.drops = lambda *_: False
    world.run(12)
    assert world.dropped
    world.copies_agree()
    world.members_agree()
