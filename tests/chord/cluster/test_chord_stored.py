"""Entries of the log go to disk behind the turns, and nothing is said of them before they are there
(P1, I2)."""

from __future__ import annotations

import pytest

from overlay.chord.cluster.messages import LogAck, LogEntries
from overlay.chord.events import Committed
from overlay.chord.keys import key_of
from tests.support.rings import RingNode, RingWorld, grown

KEY = key_of("attr:x")
NEVER = 1e9


def slow(nodes: int, seconds: float = NEVER) -> tuple[RingWorld, RingNode, list[RingNode]]:
    """A cluster of so many that vote, whose disks take so long from now on: the primary, and the
    others."""
    world = grown(1, nodes=nodes, clusters=1, size=nodes)
    (leader,) = world.primaries()
    assert len(leader.clusters.log.voters) == nodes
    world.disk_time = (seconds, seconds)
    return world, leader, [node for node in world.members.values() if node is not leader]


def committed(node: RingNode) -> int:
    return node.clusters.leader_log.committed


def test_a_voter_acknowledges_what_its_disk_has() -> None:
    world, leader, others = slow(3)
    before = committed(leader)
    for node in others:
        node.port.take(LogAck)
    assert world.write(KEY, "a")
    assert world.write(KEY, "b")
    world.run(1)
    assert [node.clusters.log.next for node in others] == [before + 2] * 2, "they have it"
    assert [node.port.take(LogAck) for node in others] == [[], []]
    assert committed(leader) == before
    assert not any(text.endswith(b":a") for text in world.disks[others[0].peer.id])
    others[0].port.disk_syncs()
    (acknowledged,) = others[0].port.take(LogAck)
    assert acknowledged.next == before + 2, "both at once"
    world.run(1)
    assert committed(leader) == before, "of three that vote one has it"
    others[1].port.disk_syncs()
    world.run(1)
    assert committed(leader) == before + 2, "a majority, without the primary's own disk"


def test_a_primary_counts_its_own_copy_when_its_disk_has_it() -> None:
    world, leader, _ = slow(1)
    before = committed(leader)
    leader.port.emitted.clear()
    assert world.write(KEY, "a")
    world.run(1)
    assert (leader.clusters.log.next, committed(leader)) == (before + 1, before)
    leader.port.disk_syncs()
    assert committed(leader) == before + 1
    assert [event.next for event in leader.port.of(Committed)] == [before + 1]


def test_what_is_stored_at_once_takes_the_entries_before_it_along() -> None:
    world, leader, others = slow(3)
    assert world.write(KEY, "a")
    world.run(1)
    voter = others[0].clusters.log
    assert voter.durable == voter.next - 1
    cluster = leader.clusters.cluster
    assert cluster is not None
    voter.vote(cluster.key, cluster.version[0] + 1, others[0].peer.id)
    assert voter.durable == voter.next
    assert any(b":a" in record for record in world.disks[others[0].peer.id])


def test_a_voter_that_dies_before_its_disk_has_an_entry_gets_it_again() -> None:
    world, leader, others = slow(3, 0.5)
    before = committed(leader)
    assert world.write(KEY, "a")
    world.run(0.2)
    for node in others:
        assert node.clusters.log.next == before + 1
        world.crash(node)
    world.run(3)
    assert committed(leader) == before
    again = [world.restart(node) for node in others]
    assert [node.clusters.log.next for node in again] == [before] * 2
    world.run(10)
    (leader,) = world.primaries()
    assert committed(leader) > before
    world.copies_agree()


@pytest.mark.parametrize("size", [3, 5])
def test_who_votes_is_on_disk_before_anybody_hears_of_it(size: int) -> None:
    """A primary that votes alone adds two at once: if it came back without that entry it would
    decide alone, and the two with each other."""
    world = RingWorld(1)
    world.disk_time = (NEVER, NEVER)
    founder = world.add(founder=True)
    named: list[int] = []

    def look() -> None:
        stored = founder.clusters.log.durable
        for receiver, message in founder.port.sent_to(LogEntries):
            changes = [one for one in message.entries if one.config is not None]
            if changes:
                named.append(len(changes))
                last = message.after[1] + max(
                    n for n, one in enumerate(message.entries) if one.config is not None
                )
                assert last < stored, f"{receiver} has an entry that the primary may forget"

    world.checks.append(look)
    for _ in range(size):
        world.add()
    world.run(12)
    assert len(founder.clusters.log.voters) >= 3
    assert sum(named) >= 2
