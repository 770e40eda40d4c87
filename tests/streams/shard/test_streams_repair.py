"""Damage in a replica's log: found, mended in place, and never served or counted meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from harness.logs import SHARD
from overlay.machine import Message, Peer
from streams.log import shard_log
from streams.log.chunk import REPLICAS, STATE, pack, read
from streams.shard.hosting import log_checks
from streams.shard.hosting.log_checks import CheckLogs, LogChecks
from streams.shard.kept_chunks import DamageSeen
from streams.shard.messages import ShardMissingSent
from streams.shard.replica import Replica
from tests.support.shards.shard_world import ShardWorld


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> ShardWorld:
    """Three replicas with the same log of several segments, the first of which leads."""
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 2_000)
    made = ShardWorld(1)
    made.run(0.1)
    made.elect(made.peers[0].id)
    made.run(0.5)
    for _ in range(30):
        made.append()
        made.run(0.02)
    made.run(0.5)
    for peer in made.peers:
        assert made.bytes_of(peer.id) == made.bytes_of(made.peers[0].id)
    assert len(made.alive[made.peers[0].id].log.segments) > 3
    return made


def files(world: ShardWorld, node: str) -> dict[str, bytearray]:
    """The segments on a node's disk."""
    found = world.disks[node].durable[SHARD]
    return {name: found[name] for name in sorted(found) if name.endswith(".log")}


def spoil(world: ShardWorld, node: str, name: str, at: int) -> None:
    """Flip a bit, on the disk and in what the system has read of it."""
    disk = world.disks[node]
    disk.durable[SHARD][name][at] ^= 4
    disk._cached[SHARD][name][at] ^= 4


def restart(world: ShardWorld, node: str) -> Replica:
    world.crash(node)
    world.boot(node)
    return world.alive[node]


def counted(world: ShardWorld, node: str, name: str) -> int:
    return int(world.ports[node].counters.get(name, 0))


def isolate(world: ShardWorld, node: str) -> None:
    others = [peer.id for peer in world.peers if peer.id != node]
    world.cut.update({way: None for other in others for way in ((node, other), (other, node))})


def test_a_replica_with_a_hole_neither_answers_nor_leads_until_it_is_mended(
    world: ShardWorld,
) -> None:
    node = world.peers[1].id
    before = world.bytes_of(node)
    name = list(files(world, node))[-1]
    isolate(world, node)
    spoil(world, node, name, 150)
    replica = restart(world, node)
    world.run(1.0)
    assert replica.repair is not None
    replica.lead(9)
    assert replica.campaign is None
    sent: list[Message] = []
    deliver = world.send
    world.send = lambda a, b, m: (sent.append(m), deliver(a, b, m))  # type: ignore[method-assign,assignment,return-value,func-returns-value]
    world.alive[world.peers[2].id].lead(10)
    world.cut = {way: None for way in world.cut if world.peers[0].id in way}
    world.cut[world.peers[2].id, world.peers[0].id] = None
    world.run(0.0045)  # the question has arrived, and an answer would be under way
    assert replica.repair is not None
    assert replica.campaign is None
    assert not [m for m in sent if type(m).__name__ in ("ShardVoteReply", "ShardAck")]
    world.cut.clear()
    world.run(3.0)
    assert replica.repair is None
    assert replica.ready
    assert not replica.hard_state.suspect
    assert counted(world, node, "shard_logs_suspect") == 0
    assert counted(world, node, "shard_chunks_mended") >= 1
    assert world.bytes_of(node)[: len(before)] == before


@pytest.mark.parametrize("runs", [False, True], ids=["killed", "running"])
def test_a_log_without_its_newest_segment_proves_nothing_by_what_it_lacks(
    world: ShardWorld, runs: bool
) -> None:
    """What two have acknowledged, of whom one has lost it, is not outvoted by the third, which
    never had it."""
    first, second, third = (peer.id for peer in world.peers)
    isolate(world, third)
    for _ in range(30):
        world.append()
        world.run(0.02)
    world.run(0.5)
    world.crash(first)
    if not runs:
        world.crash(second)
    name = max(world.disks[second].durable[SHARD], key=lambda name: (name.endswith(".log"), name))
    for held in (world.disks[second].durable, world.disks[second]._cached):
        held.get(SHARD, {}).pop(name, None)
    if runs:
        world.alive[second]._open()
    else:
        world.boot(second)
    world.cut.clear()
    for node in (second, third, second, third):
        world.elect(node)
        world.run(1.0)
        assert world.alive[node].leader is None
    assert world.alive[second].hard_state.suspect
    world.boot(first)
    world.judge(world.heal())
    assert not world.alive[second].hard_state.suspect


@pytest.mark.parametrize("gone", [1, 3])
def test_oldest_segments_that_were_deleted_come_back(world: ShardWorld, gone: int) -> None:
    """Else who reads from this replica begins too late, and is not told."""
    node = world.peers[1].id
    before = world.bytes_of(node)
    world.crash(node)
    for name in list(files(world, node))[:gone]:
        del world.disks[node].durable[SHARD][name]
    world.boot(node)
    world.run(0.001)
    assert not world.alive[node].ready
    world.run(2.0)
    assert world.alive[node].ready
    assert not world.alive[node].hard_state.suspect
    assert world.bytes_of(node)[: len(before)] == before
    assert world.alive[node].log.start == 1


def test_a_log_goes_on_without_oldest_segments_that_nobody_has(world: ShardWorld) -> None:
    for peer in world.peers:
        world.crash(peer.id)
        del world.disks[peer.id].durable[SHARD][min(files(world, peer.id))]
    for peer in world.peers:
        world.boot(peer.id)
    world.run(3.0)
    for peer in world.peers:
        assert world.alive[peer.id].ready
        assert counted(world, peer.id, "shard_holes_left") == 1
    world.elect(world.peers[0].id)
    world.run(1.0)
    world.append()
    end = world.alive[world.peers[0].id].log.end.number
    world.run(1.0)
    assert [world.alive[peer.id].committed for peer in world.peers] == [end] * 3


def test_who_has_lost_its_vote_stays_barred_when_its_tail_is_torn(world: ShardWorld) -> None:
    node = world.peers[1].id
    world.crash(node)
    stored = world.disks[node].durable[SHARD]
    del stored["promise"]
    name = max(name for name in stored if name.endswith(".log"))
    del stored[name][-20:]
    for _ in range(2):
        world.boot(node)
        world.run(0.5)
        assert world.alive[node].barred
        assert not world.alive[node].log.has(world.alive[world.peers[0].id].log.end)
        world.crash(node)


def test_two_replicas_with_holes_at_different_places_mend_each_other(world: ShardWorld) -> None:
    world.crash(world.peers[0].id)  # the third does not answer
    first, second = world.peers[1].id, world.peers[2].id
    before = world.bytes_of(first)
    name = list(files(world, first))[-1]
    chunk = read(files(world, first)[name])
    assert chunk is not None
    spoil(world, first, name, len(chunk.data) + 100)
    spoil(world, second, name, 100)
    for node in (first, second):
        restart(world, node)
    world.run(3.0)
    for node in (first, second):
        assert world.alive[node].ready
        assert world.bytes_of(node) == before
        assert counted(world, node, "shard_logs_suspect") == 0


def test_what_is_sent_for_a_hole_is_proved_by_its_hash_before_it_is_written(
    world: ShardWorld,
) -> None:
    node = world.peers[1].id
    before = world.bytes_of(node)
    name = list(files(world, node))[-1]
    original = read(files(world, node)[name])
    assert original is not None
    isolate(world, node)
    spoil(world, node, name, 100)
    replica = restart(world, node)
    world.run(0.5)
    assert replica.repair is not None
    forged = pack(
        *(original.kind, original.epoch, replica.log.end._replace(number=original.number - 1)),
        *(original.first, original.offsets, original.time + 1, original.rows),
    )
    answer = ShardMissingSent(SHARD, original.number, (forged.data,))
    replica.on_missing_sent(world.peers[2], answer)
    world.run(0.2)
    assert counted(world, node, "shard_repairs_refused") == 1
    assert counted(world, node, "shard_chunks_mended") == 0
    assert replica.repair is not None
    world.cut.clear()
    world.run(15.0)
    assert world.bytes_of(node)[: len(before)] == before


def test_a_hole_that_nobody_can_mend_makes_the_log_end_before_it(world: ShardWorld) -> None:
    node = world.peers[1].id
    isolate(world, world.peers[0].id)
    world.append()  # at the first node only, which is cut off
    world.append()
    world.run(0.2)
    leader = world.alive[world.peers[0].id]
    line = leader.log.line(leader.log.end.number - 1)
    assert line is not None
    assert leader.committed < line.number
    spoil(world, world.peers[0].id, line.segment, line.at + 100)
    replica = restart(world, world.peers[0].id)
    world.run(20.0)
    assert replica.repair is not None, "as long as nobody answers"
    world.elect(node)
    world.cut.clear()
    world.run(2.0)
    assert counted(world, world.peers[0].id, "shard_logs_suspect") == 1
    world.elect(node)
    world.run(1.0)
    world.append()
    world.run(1.0)
    assert not replica.hard_state.suspect
    assert world.bytes_of(world.peers[0].id) == world.bytes_of(node)


def flipped(world: ShardWorld, node: str, names: list[str]) -> None:
    spoil(world, node, names[1], len(files(world, node)[names[1]]) // 2)


def flipped_at_the_end(world: ShardWorld, node: str, names: list[str]) -> None:
    spoil(world, node, names[1], len(files(world, node)[names[1]]) - 3)


def unreadable(world: ShardWorld, node: str, names: list[str]) -> None:
    for held in (world.disks[node].durable, world.disks[node]._cached):
        held[SHARD][names[1]][100:612] = bytes(512)


def shortened(world: ShardWorld, node: str, names: list[str]) -> None:
    for held in (world.disks[node].durable, world.disks[node]._cached):
        del held[SHARD][names[1]][300:]


def gone(world: ShardWorld, node: str, names: list[str]) -> None:
    for held in (world.disks[node].durable, world.disks[node]._cached):
        del held[SHARD][names[1]]


def gone_at_the_start(world: ShardWorld, node: str, names: list[str]) -> None:
    gone(world, node, names)
    restart(world, node)
    world.run(0.5)


DAMAGE = [flipped, flipped_at_the_end, unreadable, shortened, gone, gone_at_the_start]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("place", [0, 1])
def test_silent_damage_in_an_older_segment_is_found_and_mended(
    world: ShardWorld, damage: Any, place: int
) -> None:
    node = world.peers[place].id  # the leader, and a follower
    before = world.bytes_of(node)
    damage(world, node, list(files(world, node)))
    assert world.bytes_of(node) != before
    world.check_logs()
    world.run(2.0)
    assert world.alive[node].ready
    assert world.bytes_of(node)[: len(before)] == before
    assert counted(world, node, "shard_chunks_mended") >= 1
    assert counted(world, node, "shard_logs_suspect") == 0
    if place == 0:  # it leads no more: its copy was not one to be counted
        assert world.alive[node].leader is None


def test_a_damaged_range_is_not_served_and_is_said(world: ShardWorld) -> None:
    leader = world.alive[world.peers[0].id]
    segment = leader.log.segments[1]
    number = segment.number + 1
    line = leader.log.line(number)
    assert line is not None
    spoil(world, world.peers[0].id, segment.name, line.at + line.length - 2)
    leader.chunks.recent.clear()  # so that it is read from disk
    served: list[bytes] = []
    leader.chunks.read(number, served.extend)
    world.run(0.1)
    assert served == []
    assert DamageSeen(SHARD, segment.name) in world.ports[world.peers[0].id].events


def test_the_only_replica_keeps_what_is_whole_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 2_000)
    world = ShardWorld(1, 1, 1)
    world.run(0.1)
    node = world.peers[0].id
    world.elect(node)
    for _ in range(30):
        world.run(0.1)
        world.append()
    world.run(0.1)
    names = list(files(world, node))
    flipped(world, node, names)
    size = len(world.bytes_of(node))
    world.check_logs()
    assert len(world.bytes_of(node)) == size
    assert world.alive[node].serves
    assert counted(world, node, "shard_holes_left") >= 1


def test_logs_are_read_a_piece_at_a_time_and_damage_that_was_met_at_once(
    world: ShardWorld,
) -> None:
    node = world.peers[1].id
    port = world.ports[node]
    due: list[float] = []
    port.set_timer = lambda delay, timer: due.append(delay)
    checks = LogChecks(port, lambda: [world.alive[node]], {})
    checks.start()
    assert due == [log_checks.FIRST_ROUND]
    for pace in (0.01, 5.0):
        pieces, began = 0, port.now
        while not pieces or due[-1] < log_checks.LEAST_REST:
            took = port.now - began
            checks.on_check_logs(CheckLogs())
            world.run(pace)
            pieces += 1
        assert set(due[-pieces:-1]) == {log_checks.PIECE_EVERY}
        assert pieces >= len(world.alive[node].log.segments)
        assert due[-1] == max(log_checks.LEAST_REST, log_checks.REST * took)
    assert due[-1] > log_checks.LEAST_REST, "a log that is read slowly is read seldom"
    names = list(files(world, node))
    flipped(world, node, names)
    checks.on_damage_seen(DamageSeen(SHARD, names[1]))
    assert due[-1] == 0.0
    while due[-1] < log_checks.PIECE_EVERY:
        checks.on_check_logs(CheckLogs())
        world.run(0.01)
    assert counted(world, node, "shard_holes_found") == 1


def test_a_mending_replica_asks_whoever_speaks_of_the_shard(world: ShardWorld) -> None:
    """One whose log does not say any more who the others are."""
    node = world.peers[1].id
    before = world.bytes_of(node)
    for name in list(files(world, node)):
        for held in (world.disks[node].durable, world.disks[node]._cached):
            held[SHARD][name][:60] = bytes(60)
    world.crash(node)
    world.founders = tuple(Peer("f" * 16, "") for _ in range(1))
    world.boot(node)
    world.run(8.0)
    world.check_logs()
    world.run(3.0)
    assert world.bytes_of(node)[: len(before)] == before


def test_who_does_not_know_the_others_any_more_waits_for_its_leader(world: ShardWorld) -> None:
    """Nothing is cut off because nobody can be asked."""
    node = world.peers[1].id
    before = world.bytes_of(node)
    world.crash(node)
    for data in files(world, node).values():
        at = 0
        while (chunk := read(bytes(data), at)) is not None:
            if chunk.kind in (STATE, REPLICAS):
                data[at + 60] ^= 1
            at += len(chunk.data)
    world.founders = ()
    isolate(world, node)
    world.boot(node)
    world.run(3.0)
    assert world.alive[node].repair is not None
    assert not world.alive[node].replicas
    world.cut.clear()
    world.run(8.0)
    assert world.alive[node].ready
    assert counted(world, node, "shard_logs_suspect") == 0
    assert world.bytes_of(node)[: len(before)] == before


def test_an_only_replica_keeps_what_its_log_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 2_000)
    world = ShardWorld(1, nodes=1, replicas=1)
    world.run(0.1)
    node = world.peers[0].id
    world.elect(node)
    for _ in range(30):
        world.append()
        world.run(0.02)
    before = {name: bytes(data) for name, data in files(world, node).items()}
    newest, end = max(before), world.alive[node].log.end.number
    spoil(world, node, newest, 200)
    changed = bytes(world.disks[node].durable[SHARD][newest])
    restart(world, node)
    world.run(1.0)
    assert world.alive[node].ready
    assert world.alive[node].log.end.number < end
    assert world.disks[node].durable[SHARD][f"{newest}.damaged"] == changed
    world.truth.clear()  # what was committed is lost
    world.elect(node)
    world.run(0.5)
    assert world.alive[node].serves


def test_a_hole_waits_for_who_may_have_what_was_in_it(world: ShardWorld) -> None:
    """One replica lacks the chunks since it was behind, one is away: nothing is cut off, since what
    stands behind the hole may be on no other disk."""
    first, second, third = (peer.id for peer in world.peers)
    isolate(world, third)
    for _ in range(10):
        world.append()
        world.run(0.02)
    at = len(files(world, second)[max(files(world, second))])
    for _ in range(10):
        world.append()
        world.run(0.02)
    world.run(0.5)
    before = world.bytes_of(second)
    world.crash(first)
    newest = max(files(world, second))
    spoil(world, second, newest, min(at, len(files(world, second)[newest]) // 2))
    replica = restart(world, second)
    world.cut.clear()
    world.run(60.0)
    assert replica.repair is not None
    assert len(world.bytes_of(second)) == len(before)
    world.boot(first)
    world.run(12.0)
    assert replica.ready
    assert counted(world, second, "shard_logs_suspect") == 0
    assert world.bytes_of(second)[: len(before)] == before
    world.judge(world.heal())


def test_what_the_leader_lacks_was_never_committed_and_is_not_waited_for(
    world: ShardWorld,
) -> None:
    first, second, third = (peer.id for peer in world.peers)
    isolate(world, first)
    for _ in range(10):  # of a leader that reaches nobody
        world.append()
        world.run(0.02)
    world.elect(second)
    world.run(1.0)
    newest = max(files(world, first))
    spoil(world, first, newest, len(files(world, first)[newest]) // 2)
    replica = restart(world, first)
    world.run(1.0)
    assert replica.repair is not None
    world.cut = dict.fromkeys(((first, third), (third, first)))
    world.elect(second)
    world.run(3.0)
    assert replica.ready
    world.judge(world.heal())


@pytest.mark.parametrize("gone", [1, 2])
def test_deleted_segments_in_the_middle_come_back(world: ShardWorld, gone: int) -> None:
    node = world.peers[1].id
    before = world.bytes_of(node)
    world.crash(node)
    for name in list(files(world, node))[1 : 1 + gone]:
        del world.disks[node].durable[SHARD][name]
    world.boot(node)
    world.run(1.0)
    world.check_logs()
    world.run(1.0)
    assert world.bytes_of(node)[: len(before)] == before
    assert counted(world, node, "shard_logs_suspect") == 0
