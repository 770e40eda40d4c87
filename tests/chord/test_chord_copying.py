"""The log and its copy at the standby (P1): nothing that is committed is ever missing there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overlay.chord.copying import FRAME, in_frames
from overlay.chord.events import Committed, CopyReset, EntryCopied
from overlay.chord.keys import key_of
from overlay.chord.messages import LogAck, LogEntries
from overlay.machine import Peer
from overlay.settings import ClusterSettings
from tests.support.mini_world import MiniNode, MiniWorld, grown

KEY = key_of("attr:x")


def primary(world: MiniWorld) -> MiniNode:
    (node,) = world.primaries()
    return node


def standby(world: MiniWorld) -> MiniNode:
    return next(n for n in world.nodes.values() if n.clusters.role == "standby")


def commits(node: MiniNode) -> list[int]:
    return [e.next for e in node.events if isinstance(e, Committed)]


@given(st.lists(st.integers(0, 3 * FRAME), max_size=8))
@settings(max_examples=30)
def test_entries_are_cut_into_frames_and_none_is_lost(sizes: list[int]) -> None:
    entries = [bytes(size) for size in sizes]
    runs = list(in_frames(entries))
    assert [entry for run in runs for entry in run] == entries
    assert runs  # an empty state is said, too
    for run in runs:
        assert len(run) <= 1 or sum(map(len, run)) <= FRAME


def test_alone_an_entry_is_committed_at_once() -> None:
    world = MiniWorld()
    node = world.add(founder=True)
    assert node.clusters.append(b"a") == 0
    assert node.clusters.append(b"b") == 1
    node.settle()
    assert commits(node)[-2:] == [1, 2]


def test_with_a_standby_an_entry_is_committed_when_the_standby_has_it() -> None:
    world = grown(1, nodes=3, clusters=1)
    node, copy = primary(world), standby(world)
    node.events.clear()
    index = node.clusters.append(b"a")
    node.settle()
    assert commits(node) == []
    world.run(0.5)
    assert commits(node) == [index + 1]
    assert copy.registry.entries == [b"a"]


def test_a_new_standby_gets_the_state_and_then_what_follows() -> None:
    world = MiniWorld(cluster=ClusterSettings(size=2))
    node = world.add(founder=True)
    for n in range(5):
        assert node.registry.write(KEY, f"before {n}")
    world.run(1)
    copy = world.add()
    while copy.clusters.role != "standby":
        world.run(0.01)
    for n in range(5):  # while the copy is under way
        assert node.registry.write(KEY, f"during {n}")
    world.run(1)
    assert copy.registry.entries == node.registry.entries
    assert len(copy.registry.entries) == 10
    assert node.registry.durable == node.registry.entries


def test_nothing_new_is_committed_until_the_copy_has_arrived() -> None:
    world = MiniWorld(cluster=ClusterSettings(size=2))
    node = world.add(founder=True)
    copy = world.add()
    node.registry.write(KEY, "first")
    while node.clusters.log.standby == "":
        world.run(0.01)
    node.events.clear()
    node.registry.write(KEY, "second")
    node.settle()
    assert commits(node) == []
    world.run(1)
    assert commits(node)
    assert copy.registry.entries == node.registry.entries


def test_a_large_state_travels_in_frames_under_the_links_bound() -> None:
    world = MiniWorld(cluster=ClusterSettings(size=2))
    node = world.add(founder=True)
    for n in range(100):
        node.registry.write(KEY, f"{n}" + "x" * 9_000)
    world.add()
    world.run(3)
    assert standby(world).registry.entries == node.registry.entries
    sizes = [sum(map(len, m.entries)) for _, _, m in world.sent if isinstance(m, LogEntries)]
    assert len(sizes) > 5
    assert max(sizes) < 200 * 1024


def test_while_the_standby_is_lost_entries_wait_for_the_next_one() -> None:
    world = grown(2, nodes=4, clusters=1, size=4)
    node, dead = primary(world), standby(world)
    world.crash(dead)
    node.registry.write(KEY, "waits")
    node.settle()
    world.run(0.5)
    assert not node.registry.durable
    world.run(3)
    assert len(node.registry.durable) == 1
    assert standby(world).registry.entries == node.registry.entries


def test_when_nobody_is_left_the_primary_commits_alone() -> None:
    world = grown(2, nodes=2, clusters=1, size=2)
    node = primary(world)
    world.crash(standby(world))
    node.registry.write(KEY, "waits")
    world.run(3)
    assert len(node.registry.durable) == 1


def test_a_piece_without_its_beginning_is_refused() -> None:
    world = grown(2, nodes=3, clusters=1)
    node, copy = primary(world), standby(world)
    cluster = node.clusters.cluster
    assert cluster is not None
    copy.events.clear()
    gap = LogEntries(cluster.key, 1, 99, (b"late",))
    other_epoch = LogEntries(cluster.key, 7, node.clusters.log.next, (b"other",))
    for message in (gap, other_epoch):
        copy.clusters.log.on_entries(node.peer, message)
    copy.clusters.log.on_entries(copy.peer, LogEntries(cluster.key, 1, 0, (b"x",), True))
    copy.settle()
    assert not [e for e in copy.events if isinstance(e, EntryCopied | CopyReset)]
    assert copy.port.counters["log_refused"] == 3


def test_an_acknowledgement_of_what_was_never_sent_commits_nothing() -> None:
    world = grown(2, nodes=3, clusters=1)
    node, copy = primary(world), standby(world)
    cluster = node.clusters.cluster
    assert cluster is not None
    node.clusters.append(b"a")
    node.events.clear()
    log = node.clusters.log
    log.on_ack(copy.peer, LogAck(cluster.key, 1, log.next + 1))
    log.on_ack(copy.peer, LogAck(cluster.key, 2, log.next))
    log.on_ack(peer_in(world, "broker"), LogAck(cluster.key, 1, log.next))
    node.settle()
    assert commits(node) == []
    log.on_ack(copy.peer, LogAck(cluster.key, 1, log.next))
    node.settle()
    assert commits(node) == [log.next]


def peer_in(world: MiniWorld, role: str) -> Peer:
    return next(n.peer for n in world.nodes.values() if n.clusters.role == role)


def test_only_the_primary_writes() -> None:
    world = grown(2, nodes=3, clusters=1)
    with pytest.raises(AssertionError):
        standby(world).clusters.append(b"a")


@pytest.mark.parametrize("seed", range(8))
def test_what_is_committed_is_with_the_standby_whatever_happens(seed: int) -> None:
    """Appends, recruits, lost and leaving standbys, in any order, looked at after every step."""
    world = MiniWorld(seed, cluster=ClusterSettings(size=3))
    node = world.add(founder=True)
    for _ in range(5):
        world.add()

    def nothing_committed_is_missing() -> None:
        cluster = node.clusters.cluster
        if cluster is None or cluster.standby is None or cluster.standby.id not in world.nodes:
            return
        log, copy = node.clusters.log, world.node(cluster.standby.id)
        if copy.clusters.role == "standby" and copy.clusters.log.held is not None and log.copied:
            held = copy.clusters.log.held
            assert log.committed <= held.next or log.committed <= log.next - len(
                node.registry.written
            )
        acknowledged = [e for e in node.registry.durable if e not in node.registry.entries]
        assert not acknowledged

    world.watchers.append(nothing_committed_is_missing)
    for step in range(30):
        for n in range(world.rng.randrange(4)):
            node.registry.write(KEY, f"{step}.{n}")
            node.settle()
        what = world.rng.randrange(6)
        copies = [n for n in world.nodes.values() if n.clusters.role == "standby"]
        if what == 0 and copies:
            world.crash(copies[0])
            world.add()
        elif what == 1 and copies:
            copies[0].clusters.leave()
            copies[0].settle()
        world.run(world.rng.random())
    world.run(15)
    world.copies_agree()
    world.members_agree()
    assert node.registry.durable == node.registry.entries
