"""What a shard may have, what stays for those who have not read it, and a full disk."""

from __future__ import annotations

import pytest

from canopy.sim.world.log_disk import HARD_STATE
from harness.logs import SHARD
from overlay.machine import Peer
from streams.access.reasons import DISK_FULL, QUOTA
from streams.directory.entry import StreamOptions, fault_in_options
from streams.log import shard_log
from streams.log.chunk import POSITIONS
from streams.log.group_state import GroupFounded, GroupOptions
from streams.log.state import ConsumerAttached, Entry, encode_entries
from streams.log.verify import Verifier
from streams.programs.producer.messages import AppendRefused, RowsAppended
from streams.shard.hosting.shard_hosts import keep_of
from streams.shard.replica import Replica
from streams.shard.retention import Keep
from tests.support.shards.producing_world import ProducingWorld, led, row_batch


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[ProducingWorld, Peer, Replica]:
    """A world whose first node leads, with small segments."""
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 2_000)
    return led()


def note(world: ProducingWorld, replica: Replica, *entries: Entry) -> None:
    """Write entries into the log, as consumers and groups do."""
    assert replica.leader is not None
    replica.leader.append_chunk(POSITIONS, encode_entries(entries))
    world.run(0.5)


def attach(world: ProducingWorld, replica: Replica, name: str, position: int) -> None:
    note(world, replica, ConsumerAttached(name, "token", "", position, 0))


def append(
    world: ProducingWorld, leader: Peer, session: int, first: int, count: int
) -> list[RowsAppended | AppendRefused]:
    """Append rows one by one."""
    numbers = range(first, first + count)
    return [world.appended(leader, session, n, row_batch(n, 1, 200)) for n in numbers]


def retain(world: ProducingWorld, replica: Replica, keep: Keep) -> None:
    replica.describe(replica.terms._replace(keep=keep))
    assert replica.leader is not None
    replica.leader.retain(keep, int(world.scheduler.now * 1e9))
    world.run(0.5)


def verified(world: ProducingWorld, node: str) -> None:
    files = {n: d for n, d in world.disks[node].durable[SHARD].items() if n != HARD_STATE}
    found = Verifier(SHARD).run(list(files), lambda name: bytes(files[name]))
    assert found.fault is None, found.fault


def test_what_a_durable_consumer_has_not_read_stays(
    made: tuple[ProducingWorld, Peer, Replica],
) -> None:
    world, leader, replica = made
    session = world.opened(leader).session
    append(world, leader, session, 0, 10)
    attach(world, replica, "slow", 4)
    attach(world, replica, "quick", 30)
    append(world, leader, session, 10, 40)
    for keep in (Keep(bytes=4_000), Keep(time=1_000_000)):
        retain(world, replica, keep)
        assert 0 < replica.state.floor <= 4
        assert replica.log.first_offset <= 4
        assert replica.state.consumers["slow"].dropped == 0
    retain(world, replica, Keep(bytes=4_000, drops_unread=True))
    floor = replica.state.floor
    assert floor > 4
    slow, quick = (replica.state.consumers[name] for name in ("slow", "quick"))
    assert (slow.position, slow.dropped) == (4, floor - 4), "it is told, and chooses"
    assert (quick.position, quick.dropped) == (30, max(floor - 30, 0))
    note(world, replica, ConsumerAttached("slow", "another", "", 0, 0))
    assert replica.state.consumers["slow"].dropped == floor - 4
    append(world, leader, session, 50, 20)  # so that a segment begins with that state
    for peer in world.founders:
        verified(world, peer.id)
    world.crash(leader.id)
    world.boot(leader.id)
    world.run(0.5)
    assert world.alive[leader.id].state.consumers["slow"].dropped == floor - 4


@pytest.mark.parametrize(
    ("keep", "bound"), [(Keep(most_rows=12), "12 rows"), (Keep(most_bytes=6_000), "6,000 bytes")]
)
def test_a_full_shard_refuses_and_says_why_until_there_is_room(
    made: tuple[ProducingWorld, Peer, Replica], keep: Keep, bound: str
) -> None:
    world, leader, replica = made
    session = world.opened(leader).session
    retain(world, replica, keep)
    answers = append(world, leader, session, 0, 12)
    taken = [answer for answer in answers if isinstance(answer, RowsAppended)]
    refused = append(world, leader, session, len(taken), 14)[-1]
    assert isinstance(refused, AppendRefused)
    assert refused.code == QUOTA
    assert bound in refused.reason
    rows = replica.log.next_offset
    assert rows == 12 or keep.most_bytes
    size = sum(segment.size for segment in replica.log.segments)
    assert size <= 6_000 + 300 or keep.most_rows, "a chunk's head and zone map may come on top"
    assert world.opened(leader, "another").next == 0, "a session takes no room that is counted"
    many = world.appended(leader, world.opened(leader, "third").session, 0, row_batch(0, 40, 200))
    assert isinstance(many, AppendRefused)
    retain(world, replica, keep._replace(most_rows=0, most_bytes=0))
    (answer,) = append(world, leader, session, rows, 1)
    assert isinstance(answer, RowsAppended)


def test_a_full_shard_may_drop_its_oldest_rows_and_counts_for_whom(
    made: tuple[ProducingWorld, Peer, Replica],
) -> None:
    world, leader, replica = made
    session = world.opened(leader).session
    attach(world, replica, "slow", 0)
    keep = Keep(most_rows=10, drops_oldest=True)
    for first in range(0, 50, 5):
        answers = append(world, leader, session, first, 5)
        assert all(isinstance(answer, RowsAppended) for answer in answers)
        retain(world, replica, keep)
    assert replica.state.floor == replica.log.next_offset - 10 == 40
    assert replica.state.consumers["slow"].dropped == 40
    assert replica.log.first_offset > 0, "segments are deleted as well"


def test_a_shard_that_drops_by_bytes_stays_below_them(
    made: tuple[ProducingWorld, Peer, Replica],
) -> None:
    world, leader, replica = made
    session = world.opened(leader).session
    keep = Keep(most_bytes=8_000, drops_oldest=True)
    for first in range(0, 60, 5):
        append(world, leader, session, first, 5)
        retain(world, replica, keep)
        retain(world, replica, keep)
        assert sum(segment.size for segment in replica.log.segments) <= 8_000 + 1_000
    assert replica.state.floor > 20


def test_rows_that_a_group_is_not_done_with_are_not_dropped(
    made: tuple[ProducingWorld, Peer, Replica],
) -> None:
    world, leader, replica = made
    session = world.opened(leader).session
    note(world, replica, GroupFounded("jobs", GroupOptions(), 3))
    keep = Keep(most_rows=10, drops_oldest=True)
    retain(world, replica, keep)
    append(world, leader, session, 0, 20)
    retain(world, replica, keep)
    assert replica.state.floor == 3
    append(world, leader, session, 20, 3)
    (refused,) = append(world, leader, session, 23, 1)
    assert isinstance(refused, AppendRefused)
    assert refused.code == QUOTA


def test_a_full_disk_refuses_and_takes_again_when_there_is_room(
    made: tuple[ProducingWorld, Peer, Replica],
) -> None:
    world, leader, replica = made
    session = world.opened(leader).session
    append(world, leader, session, 0, 3)
    disk = world.disks[leader.id]
    disk.room = sum(map(len, disk.durable[SHARD].values())) + 100
    refused = world.appended(leader, session, 3, row_batch(3, 1, 200))
    assert isinstance(refused, AppendRefused)
    assert refused.code == DISK_FULL
    assert not world.led(leader.id)
    world.run(3.0)
    again = world.appended(leader, session, 3, row_batch(3, 1, 200))
    assert isinstance(again, AppendRefused), "nobody leads, and the folder is read again and again"
    disk.room = None
    world.run(3.0)
    world.elect(leader.id)
    world.run(1.0)
    answer = world.appended(leader, session, 3, row_batch(3, 1, 200))
    assert isinstance(answer, RowsAppended)
    assert replica.log.next_offset == 4


def test_a_streams_options_say_what_its_shards_may_have() -> None:
    options = StreamOptions(
        keep_seconds=2.0, max_rows=7, when_full="drop-oldest", expire_consumers=60.0
    )
    keep = keep_of(options)
    assert (keep.time, keep.most_rows, keep.drops_oldest, keep.expire) == (
        2_000_000_000,
        7,
        True,
        60,
    )
    assert fault_in_options(options) == ""
    assert "--max-rows" in fault_in_options(StreamOptions(when_full="drop-oldest"))
