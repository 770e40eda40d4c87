"""The only replica of a shard loses the end of its log by damage, and others take its offsets."""

from __future__ import annotations

import pytest

from harness.logs import SHARD
from overlay.machine import Peer
from streams.access.reasons import LOST
from streams.log import shard_log
from streams.log.verify import Verifier
from streams.programs.reader.messages import (
    CommitPosition,
    Durable,
    ReadFrom,
    ReadingBegan,
    ReadingRefused,
)
from tests.streams.programs.group.groups_world import GroupsWorld, HandMember
from tests.streams.programs.reader.reading_world import Client, ConsumingWorld
from tests.support.shards.shard_world import ShardWorld


def numbered(first: int, count: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(first, first + count)]


def fill(world: ShardWorld, rounds: int) -> None:
    for _ in range(rounds):
        world.append()
        world.run(0.02)


def damaged(world: ShardWorld, leader: Peer, chunk: int) -> tuple[int, int]:
    """A bit of this chunk is flipped, and the node starts again and leads. Returns the offset at
    which the log ends, and where it did."""
    line = world.alive[leader.id].log.line(chunk)
    assert line is not None
    end = world.alive[leader.id].log.next_offset
    for files in (world.disks[leader.id].durable, world.disks[leader.id]._cached):
        files[SHARD][line.segment][line.at + line.length // 2] ^= 4
    world.crash(leader.id)
    world.boot(leader.id)
    world.run(1.0)
    world.truth.clear()  # what was committed is lost
    world.elect(leader.id)
    world.run(0.5)
    return line.first, end


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> ConsumingWorld:
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 100_000)
    made = ConsumingWorld(1, nodes=2, replicas=1)
    made.run(0.1)
    made.elect(made.peers[0].id)
    fill(made, 10)
    return made


def opened(
    world: ConsumingWorld, number: int, start: ReadFrom, durable: Durable | None = None
) -> Client:
    client = Client(world, world.peers[1], number)
    client.open(world.peers[0], start, durable=durable)
    world.run(0.5)
    return client


def refusal(client: Client) -> tuple[str, str]:
    (message,) = client.messages
    assert isinstance(message, ReadingRefused), message
    return message.code, message.reason


def test_positions_beyond_lost_rows_are_refused_though_others_have_their_offsets(
    world: ConsumingWorld,
) -> None:
    leader = world.peers[0]
    middle = world.alive[leader.id].log.end.number
    fill(world, 10)
    offset, end = damaged(world, leader, middle)
    fill(world, 30)
    assert world.alive[leader.id].log.next_offset > end, "the offsets are of other rows by now"
    code, reason = refusal(opened(world, 1, ReadFrom("offset", end, 0, 0)))
    assert code == LOST
    assert f"has lost its rows from offset {offset} to {end - 1}" in reason
    assert refusal(opened(world, 2, ReadFrom("keys", 0, end, 0)))[0] == LOST
    for number, start in enumerate(
        (
            ReadFrom("offset", offset, 0, 0),  # all below it are those that were
            ReadFrom("offset", end, 0, 1),  # it was told since
            ReadFrom("offset", end),  # it does not say when it was told
        ),
        3,
    ):
        (began, *_) = opened(world, number, start).messages
        assert isinstance(began, ReadingBegan)
        assert (began.position, began.losses) == (start.at, 1)
    monkey = world.alive[leader.id].log.end.number - 2
    again, last = damaged(world, leader, monkey)
    fill(world, 10)
    assert refusal(opened(world, 9, ReadFrom("offset", last, 0, 1)))[0] == LOST
    assert again > offset
    files = world.disks[leader.id].durable[SHARD]
    names = [name for name in files if name.endswith(".log")]
    found = Verifier(SHARD, None).run(names, lambda name: bytes(files[name]))
    assert found.fault is None


def test_a_newest_segment_that_is_gone_is_a_loss(
    world: ConsumingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 3_000)
    leader = world.peers[0]
    fill(world, 40)
    end = world.alive[leader.id].log.next_offset
    newest = max(n for n in world.disks[leader.id].durable[SHARD] if n.endswith(".log"))
    for files in (world.disks[leader.id].durable, world.disks[leader.id]._cached):
        del files[SHARD][newest]
    world.crash(leader.id)
    world.boot(leader.id)
    world.run(1.0)
    world.truth.clear()  # what was committed is lost
    world.elect(leader.id)
    fill(world, 40)
    assert world.alive[leader.id].log.next_offset > end
    assert refusal(opened(world, 1, ReadFrom("offset", end, 0, 0)))[0] == LOST


def test_durable_consumers_that_were_beyond_go_back_and_the_next_program_is_told(
    world: ConsumingWorld,
) -> None:
    leader = world.peers[0]
    replica = world.alive[leader.id]
    keeps = Durable("before", "t", False, 0)
    early = opened(world, 1, ReadFrom("first"), keeps)
    early_at = replica.log.next_offset
    world.ask(
        world.peers[1], leader, CommitPosition(SHARD, 1, "before", early.attachment, early_at)
    )
    middle = replica.log.end.number + 1
    fill(world, 10)
    late_at = replica.log.next_offset
    late = opened(world, 2, ReadFrom("offset", late_at), Durable("late", "a", False, 0))
    assert late.attachment
    offset, end = damaged(world, leader, middle)
    assert offset < late_at <= end
    fill(world, 30)
    for number, token in enumerate(("b", "b"), 3):  # the same program asks again
        code, reason = refusal(
            opened(world, number, ReadFrom("new"), Durable("late", token, False, 0))
        )
        assert code == LOST
        assert f"the durable consumer late was at offset {late_at}" in reason
        assert f"Come again to go on at offset {offset}" in reason
    back = opened(world, 5, ReadFrom("new"), Durable("late", "c", False, 0))
    assert min(back.rows) == offset, "all rows that came since"
    assert back.attachment
    same = opened(world, 6, ReadFrom("new"), Durable("before", "t", True, 0))
    assert same.attachment, "nothing of its is lost"
    assert world.alive[leader.id].state.consumers["before"].was_at == 0
    fill(world, 2)
    world.crash(leader.id)
    world.boot(leader.id)
    world.run(0.5)
    world.elect(leader.id)
    world.run(0.5)
    assert opened(world, 7, ReadFrom("new"), Durable("late", "d", False, 0)).attachment, "once"


def test_groups_that_were_beyond_go_back_and_the_next_member_is_told() -> None:
    world = GroupsWorld(1, nodes=2, replicas=1)
    world.run(0.1)
    leader = world.peers[0]
    world.elect(leader.id)
    world.run(0.5)
    replica = world.alive[leader.id]
    HandMember(world, 9, group="h").join(leader)  # from now on there is one segment
    world.put(replica, *numbered(0, 20))
    middle = replica.log.end.number + 1
    world.put(replica, *numbered(20, 20))
    member = HandMember(world, 1).join(leader, selector="n < 120")
    member.settle(leader, "ack", *member.rows)
    assert replica.state.groups.groups["g"].done.floor == 40
    assert damaged(world, leader, middle) == (20, 40)
    replica = world.alive[leader.id]
    world.put(replica, *numbered(100, 50))
    told = HandMember(world, 2).join(leader)
    told.join(leader)
    assert told.refused == [LOST, LOST], "the same program asks again"
    again = HandMember(world, 3).join(leader)
    assert again.refused == []
    assert again.offsets() == list(range(20, 40)), "with its selector, from where the log ended"
    assert HandMember(world, 4).join(leader).refused == []
