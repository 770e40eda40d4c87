"""A shard's leader and its readers: history, tail, seam, credit, refusals, durable positions."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.logs import SHARD
from overlay.lower_random.policies import PolicyChanged
from overlay.machine import Peer
from streams.access.reasons import EXPIRED, FENCED, NOT_YET, OUT_OF_RANGE, SELECTOR, UNREADABLE
from streams.log import shard_log
from streams.log.chunk import CUT
from streams.log.state import Floor, encode_entries
from streams.programs.reader.messages import (
    CommitPosition,
    Durable,
    EndReadings,
    KeepReadings,
    PositionCommitted,
    ReadFrom,
    ReadingBegan,
    ReadingRefused,
    ReadingsKept,
    ReadingsMoved,
    ReadingsScanned,
    ReadShard,
)
from streams.services.read import shard_readings
from streams.services.read.shard_readings import MARK
from streams.shard import kept_chunks
from tests.streams.programs.reader.reading_world import (
    SELECTORS,
    Client,
    ConsumingWorld,
    led_world,
)
from tests.support.examples import seeds

FIRST = ReadFrom("first")


def reader(world: ConsumingWorld, selector: str = "", number: int = 1) -> Client:
    return Client(world, world.peers[-1], number, selector)


def refusals(client: Client) -> list[tuple[str, int, int]]:
    found = [m for m in client.messages if isinstance(m, ReadingRefused)]
    return [(m.code, m.first, m.next) for m in found]


@pytest.mark.parametrize("seed", seeds(12))
def test_readings_deliver_their_selector_over_the_log(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While rows are appended, history is read with little credit, from memory and from disk."""
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 4_000)
    monkeypatch.setattr(kept_chunks, "RECENT_BYTES", 2_000)
    rng = Random(seed)
    world, leader, replica = led_world(seed=seed)
    for _ in range(rng.randrange(40)):
        world.append()
    world.run(0.1)
    clients, starts = [], []
    names = list(SELECTORS)
    for number in range(10):
        client = reader(world, rng.choice(names), number)
        line = replica.log.line(replica.committed)
        assert line is not None
        end = line.first + line.offsets
        start = rng.choice([0, end, rng.randint(0, end)])
        client.open(leader, ReadFrom("offset", start), rng.choice((100, 400, 1 << 20)))
        clients.append(client)
        starts.append(start)
        for _ in range(rng.randrange(6)):
            world.append()
            world.run(rng.choice((0.0, 0.0005, 0.01)))
        for each in clients:
            if rng.random() < 0.5:
                each.grant(leader, rng.choice((50, 300)))
    for client in clients:
        client.grant(leader, 1 << 20)
    for _ in range(5):
        world.append()
        world.run(rng.choice((0.0, 0.01)))
    world.run(2.0)
    end = len(world.log_rows(leader.id))
    for client, start in zip(clients, starts, strict=True):
        assert client.position == end
        world.judge_reading(client, leader, start)


def test_a_position_moves_on_where_nothing_matches() -> None:
    world, leader, _ = led_world()
    client = reader(world, "n < 0")
    client.open(leader, ReadFrom("new"))
    for _ in range(5):
        world.append()
        world.run(0.01)
    world.run(1.0)
    assert (client.position, client.rows) == (len(world.log_rows(leader.id)), {})


def test_many_readings_are_told_in_turns_how_far_was_scanned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_readings, "MARKED_MOST", 2)
    world, leader, _ = led_world()
    clients = [reader(world, "n < 0", number) for number in range(1, 6)]
    for client in clients:
        client.open(leader, ReadFrom("new"))
    for _ in range(5):
        world.append()
        world.run(0.01)
    world.run(3 * MARK)
    end = len(world.log_rows(leader.id))
    assert [client.position for client in clients] == [end] * 5
    marked = [m for c in clients for m in c.messages if isinstance(m, ReadingsScanned)]
    assert 1 < max(len(message.marks) for message in marked) <= 2


def test_what_is_not_committed_is_not_read() -> None:
    world, leader, replica = led_world()
    client = reader(world)
    client.open(leader, FIRST)
    world.append()
    world.run(0.5)
    seen = dict(client.rows)
    for other in world.peers[1:3]:
        world.cut.update({(leader.id, other.id): None, (other.id, leader.id): None})
    world.append()
    world.run(1.0)
    assert (client.rows, client.position) == (seen, len(seen))
    late = reader(world, number=2)
    late.open(leader, FIRST)
    world.run(1.0)
    assert late.rows == seen
    world.cut.clear()
    world.run(2.0)
    assert len(client.rows) == replica.log.next_offset > len(seen)
    assert client.rows == late.rows


@pytest.mark.parametrize(("replicas", "code"), [(3, NOT_YET), (1, UNREADABLE)])
def test_rows_that_the_leader_cannot_read_are_not_said_to_be_out_of_range(
    replicas: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other replicas the reading is opened again, at whoever leads while the log is mended."""
    monkeypatch.setattr(kept_chunks, "RECENT_BYTES", 2_000)
    world, leader, replica = led_world(replicas=replicas)
    for _ in range(60):
        world.append()
    world.run(0.5)
    name, at = world.disks[leader.id].damage(SHARD) or ("", 0)
    assert at < replica.log.size_of(name) // 2, "not of what is in memory"
    client = reader(world)
    client.open(leader, FIRST, 1 << 20)
    world.run(1.0)
    assert [found[0] for found in refusals(client)] == [code]
    assert client.position < replica.log.next_offset


def test_credit_bounds_what_is_sent_at_the_tail_and_before_it() -> None:
    world, leader, _ = led_world()
    client = reader(world)
    client.open(leader, FIRST, 300)
    for _ in range(40):
        world.append()
        world.run(0.005)
    world.run(1.0)
    assert 300 <= client.spent() <= 300 + 3 * 150  # a chunk has three rows at most
    before = len(client.rows)
    client.grant(leader, 10_000)
    world.run(1.0)
    assert len(client.rows) == len(world.log_rows(leader.id)) > before


def test_from_a_time_begins_with_the_first_row_that_is_not_older() -> None:
    world, leader, replica = led_world()
    times = []
    for _ in range(6):
        times.append((int(world.scheduler.now * 1e9), replica.log.next_offset))
        world.append()
        world.run(0.2)
    for number, (time, offset) in enumerate(times):
        client = reader(world, number=number)
        client.open(leader, ReadFrom("time", time))
        world.run(0.5)
        assert client.rows
        assert min(client.rows) == offset
    late = reader(world, number=99)
    late.open(leader, ReadFrom("time", int(1e18)))
    world.run(0.5)
    assert late.position == replica.log.next_offset
    assert not late.rows


def test_refusals_say_why() -> None:
    world, leader, replica = led_world()
    world.append()
    world.run(0.2)
    end = replica.log.next_offset
    beyond, wrong = reader(world), reader(world, "n >", number=2)
    beyond.open(leader, ReadFrom("offset", end + 1))
    wrong.open(leader, FIRST)
    elsewhere = world.ask(
        world.peers[-1], world.peers[1], ReadShard(SHARD, 3, FIRST, "", 1), KeepReadings(SHARD, ())
    )
    assert refusals(beyond) == [(OUT_OF_RANGE, 0, end)]
    assert [code for code, _, _ in refusals(wrong)] == [SELECTOR]
    moved = [m for m in elsewhere if isinstance(m, ReadingsMoved)]
    assert [(m.readings, m.leader) for m in moved] == [((3,), leader), ((), leader)]


def test_a_reading_ends_when_its_node_says_so_or_nothing_or_the_leader_goes() -> None:
    world, leader, _ = led_world()
    server = world.readers[leader.id]
    clients = [reader(world, number=number) for number in range(3)]
    for client in clients:
        client.open(leader, FIRST)
    world.run(0.1)
    shard = server.shards[SHARD]
    assert len(shard.readings) == 3
    world.send(world.peers[-1], leader, EndReadings(SHARD, (0,)))
    for _ in range(8):
        world.run(2.5)
        clients[1].grant(leader, 0)
    assert [number for _, number in shard.readings] == [1]
    world.run(0.1)
    world.answers.clear()
    (kept,) = world.ask(world.peers[-1], leader, KeepReadings(SHARD, ((1, 0), (2, 0))))
    assert isinstance(kept, ReadingsKept)
    assert ([number for number, _ in kept.positions], kept.missing) == ([1], (2,))
    world.elect(world.peers[1].id)
    world.run(5.0)
    moved = [m for m in world.answers[world.peers[-1].id] if isinstance(m, ReadingsMoved)]
    assert [(m.readings, m.leader) for m in moved] == [((1,), world.peers[1])]
    assert SHARD not in server.shards


# -- durable consumers ---------------------------------------------------------------------------


def attach(
    world: ConsumingWorld,
    leader: Peer,
    number: int,
    selector: str = "",
    token: str = "t",
    resume: bool = False,
    start: ReadFrom = FIRST,
    expire_after: int = 0,
) -> Client:
    client = reader(world, selector, number)
    client.open(leader, start, durable=Durable("d", token, resume, expire_after))
    world.run(0.5)
    return client


def commit(world: ConsumingWorld, leader: Peer, client: Client, position: int) -> Any:
    asked = CommitPosition(SHARD, client.number, "d", client.attachment, position)
    world.send(world.peers[-1], leader, asked)
    world.run(0.5)
    return client.messages[-1]


def test_a_durable_position_outlives_leaders_and_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 1_500)
    world, leader, _ = led_world()
    for _ in range(8):
        world.append()
    first = attach(world, leader, 1, "k = 3")
    assert isinstance(commit(world, leader, first, 5), PositionCommitted)
    assert commit(world, leader, first, 3) == PositionCommitted(SHARD, 1, 5)
    for _ in range(30):
        world.append()
        world.run(0.05)
    for peer in world.peers:
        world.crash(peer.id)
    for peer in world.peers:
        world.boot(peer.id)
    world.run(0.2)
    world.elect(world.peers[1].id)
    world.run(1.0)
    second = attach(world, world.peers[1], 2, "k = 3", token="u", start=ReadFrom("new"))
    began = second.messages[0]
    assert isinstance(began, ReadingBegan)
    assert began.position == 5
    world.judge_reading(second, world.peers[1], 5)
    other = attach(world, world.peers[1], 3, "k = 4", token="v")
    assert [code for code, _, _ in refusals(other)] == [SELECTOR]


def test_a_durable_consumer_whose_rows_are_gone_is_told_what_is_there() -> None:
    world, leader, replica = led_world()
    for _ in range(6):
        world.append()
    first = attach(world, leader, 1)
    assert isinstance(commit(world, leader, first, 2), PositionCommitted)
    assert replica.leader is not None
    replica.leader.append_chunk(CUT, encode_entries([Floor(4)]))
    world.run(0.5)
    late = attach(world, leader, 2, token="u")
    assert refusals(late) == [(OUT_OF_RANGE, 4, replica.log.next_offset)]
    (refused,) = [m for m in late.messages if isinstance(m, ReadingRefused)]
    assert refused.reason == (
        "the durable consumer d goes on at offset 2: rows below 4 are no longer kept; "
        "begin at offset 4 without them"
    )
    lower = attach(world, leader, 3, token="v", start=ReadFrom("offset", 3))
    assert [code for code, _, _ in refusals(lower)] == [OUT_OF_RANGE]
    chosen = attach(world, leader, 4, token="w", start=ReadFrom("offset", 4))
    began = chosen.messages[0]
    assert isinstance(began, ReadingBegan)
    assert began.position == 4
    assert isinstance(commit(world, leader, chosen, 5), PositionCommitted)
    again = attach(world, leader, 5, token="x", start=ReadFrom("offset", 4))
    assert again.messages[0].position == 5  # its own position is there


def test_a_consumer_with_a_position_of_its_own_begins_there_and_fences_the_former() -> None:
    world, leader, replica = led_world()
    for _ in range(6):
        world.append()
    first = attach(world, leader, 1)
    assert isinstance(commit(world, leader, first, 2), PositionCommitted)
    client = reader(world, "", 2)
    client.open(leader, ReadFrom("offset", 4), durable=Durable("d", "u", False, 0, own=True))
    world.run(0.5)
    began = client.messages[0]
    assert isinstance(began, ReadingBegan)
    assert began.position == 4
    assert replica.state.consumers["d"].position == 2, "what it has not confirmed is kept"
    assert [code for code, _, _ in refusals(first)] == [FENCED]
    assert isinstance(commit(world, leader, client, 5), PositionCommitted)


def test_a_newer_attachment_fences_the_older() -> None:
    world, leader, _ = led_world()
    for _ in range(4):
        world.append()
    older = attach(world, leader, 1)
    newer = attach(world, leader, 2, token="u")
    assert newer.attachment > older.attachment
    assert refusals(older) == [(FENCED, 0, 0)]
    assert commit(world, leader, older, 3).code == FENCED
    back = attach(world, leader, 3, token="t", resume=True)
    assert refusals(back) == [(FENCED, 0, 0)]
    again = attach(world, leader, 4, token="u", resume=True, start=ReadFrom("offset", 2))
    began = again.messages[0]
    assert (began.position, began.attachment) == (2, newer.attachment)
    world.append()
    world.run(0.5)
    assert max(again.rows) > max(newer.rows)  # which the same program has given up
    assert commit(world, leader, again, 1_000).code == OUT_OF_RANGE


def test_a_position_is_confirmed_when_it_is_committed() -> None:
    world, leader, _ = led_world()
    for _ in range(4):
        world.append()
    client = attach(world, leader, 1)
    for other in world.peers[1:3]:
        world.cut.update({(leader.id, other.id): None, (other.id, leader.id): None})
    asked = CommitPosition(SHARD, 1, "d", client.attachment, 3)
    world.send(world.peers[-1], leader, asked)
    world.run(1.0)
    assert not [m for m in client.messages if isinstance(m, PositionCommitted)]
    world.cut.clear()
    world.run(1.0)
    assert client.messages[-1] == PositionCommitted(SHARD, 1, 3)


def test_positions_are_written_together() -> None:
    world, leader, replica = led_world()
    for _ in range(20):
        world.append()
    client = attach(world, leader, 1)
    before = replica.log.end.number
    for position in range(1, 20):
        asked = CommitPosition(SHARD, 1, "d", client.attachment, position)
        world.send(world.peers[-1], leader, asked)
        world.run(0.001)
    world.run(0.5)
    assert replica.log.end.number == before + 1
    assert replica.state.consumers["d"].position == 19


def test_a_consumer_that_is_silent_for_too_long_is_forgotten() -> None:
    world, leader, replica = led_world()
    world.append()
    client = attach(world, leader, 1, expire_after=20)
    for _ in range(10):  # it reads on, and so is there
        world.run(5.0)
        client.grant(leader, 0)
    assert "d" in replica.state.consumers
    world.send(world.peers[-1], leader, EndReadings(SHARD, (1,)))
    world.run(35.0)
    assert "d" not in replica.state.consumers
    assert commit(world, leader, client, 1).code == EXPIRED
    world.elect(world.peers[1].id)
    world.run(1.0)
    leader = world.peers[1]
    for number, goes_on in ((2, True), (3, True), (4, False)):  # the same program asks again
        told = attach(world, leader, number, token="one", resume=goes_on)
        assert refusals(told) == [(EXPIRED, 0, 0)]
    assert "d was at offset 0, and was forgotten" in told.messages[0].reason
    again = attach(world, leader, 5, token="two")
    assert again.attachment, "who comes next begins again"
    assert world.alive[leader.id].state.forgotten == {}


def test_a_tenant_reads_what_it_may_see_of_what_it_asks_for() -> None:
    """History and tail; and when another policy holds the reading has to begin again."""
    world, leader, _ = led_world()
    for _ in range(20):
        world.append()
    world.run(0.1)
    client = reader(world, "")
    client.granted = 1 << 20
    world.clients[client.node.id, 1] = client
    asked = ReadShard(SHARD, 1, FIRST, "n >= 0", 1 << 20, permitted="k = 3")
    world.send(client.node, leader, asked)
    world.run(0.5)
    for _ in range(20):
        world.append()
    world.run(0.5)
    client.selector = "k = 3"
    world.judge_reading(client, leader, 0)
    assert client.rows
    world.readers[leader.id].on_policy_changed(PolicyChanged())
    world.run(0.1)
    assert not world.readers[leader.id].shards[SHARD].readings
