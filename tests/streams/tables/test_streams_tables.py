"""Streams with a key: what is kept, what is read, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from canopy.sim.world.log_disk import HARD_STATE
from harness.logs import SHARD, EventBatch, append_batches
from matching import compile_selector
from overlay.machine import Peer
from streams.access.reasons import MALFORMED, NO_KEY, OUT_OF_RANGE, QUOTA
from streams.directory.entry import StreamOptions, fault_in_options
from streams.log import shard_log
from streams.log.batches import BatchHead, Row, encode_rows
from streams.log.chunk import POSITIONS
from streams.log.state import ConsumerAttached, encode_entries
from streams.log.table import KeyTable, TableView, key_of
from streams.log.verify import Verifier
from streams.programs.producer.messages import AppendRefused, RowBatch
from streams.programs.reader.messages import Durable, ReadFrom, ReadingBegan, ReadingRefused
from streams.services import table
from streams.shard.replica import Replica
from streams.shard.retention import Keep
from tests.streams.programs.reader.reading_world import Client
from tests.streams.tables.table_world import KEY, TableWorld

KEYS = ReadFrom("keys")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[TableWorld, Peer, Replica]:
    """A world whose first node leads, with small segments."""
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 2_000)
    world = TableWorld(1)
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    return world, world.peers[0], world.alive[world.peers[0].id]


def put(world: TableWorld, replica: Replica, *rows: dict[str, Any], size: int = 100) -> None:
    assert replica.leader is not None
    batches = [
        EventBatch(BatchHead("", 0, 0, 1), (Row(row, b"x" * size if len(row) > 1 else b""),))
        for row in rows
    ]
    for batch in batches:
        append_batches(replica.leader, [batch], int(world.scheduler.now * 1e9))
    world.run(0.1)


def many(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{KEY: f"filler {n % 3}", "n": n} for n in range(first, first + count)]


def read_keys(world: TableWorld, leader: Peer, number: int = 1) -> Client:
    client = Client(world, world.peers[-1], number)
    client.open(leader, KEYS)
    world.run(1.0)
    return client


def newest(client: Client) -> dict[Any, Any]:
    return {row.attributes[KEY]: row.attributes.get("n") for row in client.rows.values()}


def test_the_newest_rows_stay_when_the_others_go(made: tuple[TableWorld, Peer, Replica]) -> None:
    world, leader, replica = made
    put(world, replica, {KEY: "a", "n": 1}, {KEY: "b", "n": 1}, {KEY: "c", "n": 1})
    put(world, replica, {KEY: "a", "n": 2}, {KEY: "b"}, {"n": 3})
    put(world, replica, *many(60))
    world.run(5.0)
    assert replica.state.floor > 6, "rows were removed"
    assert replica.log.first_offset > 6
    client = read_keys(world, leader)
    found = newest(client)
    assert (found["a"], found["c"]) == (2, 1)
    assert "b" not in found
    began = next(m for m in client.messages if isinstance(m, ReadingBegan))
    assert (began.position, began.next) == (0, replica.log.next_offset)
    put(world, replica, {KEY: "a"}, {KEY: "d", "n": 5})
    world.run(1.0)
    assert list(client.rows)[-2:] == [began.next, began.next + 1], "what comes later comes wholly"
    files = {n: d for n, d in world.disks[leader.id].durable[SHARD].items() if n != HARD_STATE}
    assert Verifier(SHARD).run(list(files), lambda name: bytes(files[name])).fault is None


def test_segments_that_have_the_table_stay(
    made: tuple[TableWorld, Peer, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody writes, and all rows are too old: the log is a table only, of several segments."""
    monkeypatch.setattr(table, "CHUNK_TARGET", 800)
    world, leader, replica = made
    assert replica.leader is not None
    replica.leader.retention.change(Keep(key=KEY, time=1_000_000_000))
    replica.describe(replica.terms._replace(keep=replica.leader.retention.keep))
    put(world, replica, *({KEY: n % 60, "n": n} for n in range(240)))
    world.run(6.0)
    assert replica.state.floor == 240
    assert len(replica.log.segments) > 2
    assert newest(read_keys(world, leader)) == {n: 180 + n for n in range(60)}


def test_a_deletion_stays_until_registered_consumers_have_read_it(
    made: tuple[TableWorld, Peer, Replica],
) -> None:
    world, leader, replica = made
    put(world, replica, {KEY: "a", "n": 1}, {KEY: "a"})
    assert replica.leader is not None
    attached = ConsumerAttached("slow", "token", "", 1, 0)
    replica.leader.append_chunk(POSITIONS, encode_entries([attached]))
    put(world, replica, *many(60))
    world.run(5.0)
    assert replica.state.floor <= 1
    client = Client(world, world.peers[-1], 2)
    client.open(leader, ReadFrom("offset", 1))
    world.run(1.0)
    assert client.rows[1].attributes == {KEY: "a"}


def test_rows_that_are_replaced_while_they_are_read_come_once(
    made: tuple[TableWorld, Peer, Replica],
) -> None:
    """A reading without credit gets the rows that were the newest when it began, and what came."""
    world, leader, replica = made
    put(world, replica, *({KEY: n, "n": n} for n in range(20)))
    client = Client(world, world.peers[-1], 1)
    client.open(leader, KEYS, credit=1)
    world.run(0.5)
    assert len(client.rows) < 20
    put(world, replica, *({KEY: n, "n": 100 + n} for n in range(20)), {KEY: 7})
    for _ in range(60):
        client.grant(leader, 200)
        world.run(0.1)
    assert list(client.rows) == list(range(41))


def test_a_reading_that_cannot_go_on_in_the_table_is_refused(
    made: tuple[TableWorld, Peer, Replica],
) -> None:
    world, leader, replica = made
    put(world, replica, *many(80))
    world.run(5.0)
    floor = replica.state.floor
    client = Client(world, world.peers[-1], 1)
    client.open(leader, ReadFrom("keys", 3, floor - 1))
    durable = Client(world, world.peers[-1], 2)
    durable.open(leader, KEYS, durable=Durable("d", "t", False, 0))
    world.run(1.0)
    assert [m.code for m in client.messages if isinstance(m, ReadingRefused)] == [OUT_OF_RANGE]
    assert [m.code for m in durable.messages if isinstance(m, ReadingRefused)] == [NO_KEY]


def test_rows_without_the_key_are_refused_and_so_are_too_many_keys(
    made: tuple[TableWorld, Peer, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, leader, _ = made
    session = world.opened(leader).session

    def append(number: int, row: dict[str, Any]) -> Any:
        batch = RowBatch(1, encode_rows([Row(row)]))
        return world.appended(leader, session, number, batch)

    refused = append(0, {"n": 1})
    assert isinstance(refused, AppendRefused)
    assert (refused.code, "lacks k" in refused.reason) == (MALFORMED, True)
    monkeypatch.setattr(table, "KEYS_MOST", 2)
    append(0, {KEY: 1})
    append(1, {KEY: 1, "n": 1})
    append(2, {KEY: 2, "n": 1})
    refused = append(3, {KEY: 3, "n": 1})
    assert isinstance(refused, AppendRefused)
    assert (refused.code, "2 keys" in refused.reason) == (QUOTA, True)


def test_a_stream_without_a_key_has_no_newest_rows() -> None:
    world = TableWorld(1, keep=Keep())
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    client = read_keys(world, world.peers[0])
    assert [m.code for m in client.messages if isinstance(m, ReadingRefused)] == [NO_KEY]


def test_keys_that_are_equal_are_one_key() -> None:
    assert key_of({KEY: 3}, KEY) == key_of({KEY: 3.0}, KEY)
    assert key_of({KEY: 1}, KEY) != key_of({KEY: True}, KEY)
    assert key_of({KEY: "1"}, KEY) != key_of({KEY: 1}, KEY)
    assert key_of({KEY: None}, KEY) is None


def test_what_deletes_a_key() -> None:
    plain = KeyTable(KEY, None)
    assert plain.is_deletion(Row({KEY: 1, "id": "x-1", "type": "event", "n": None}))
    assert not plain.is_deletion(Row({KEY: 1, "n": 0}))
    assert not plain.is_deletion(Row({KEY: 1}, b"payload"))
    named = KeyTable(KEY, compile_selector("op = 'delete'"))
    assert named.is_deletion(Row({KEY: 1, "op": "delete", "n": 2}, b"payload"))
    assert not named.is_deletion(Row({KEY: 1}))


def test_a_view_has_what_was_the_newest_when_it_was_made() -> None:
    table = KeyTable(KEY, None)
    table.add(0, Row({KEY: "a", "n": 1}), 1)
    table.add(1, Row({KEY: "b", "n": 1}), 1)
    view = TableView(table)
    table.add(2, Row({KEY: "a", "n": 2}), 1)
    table.add(3, Row({KEY: "a", "n": 3}), 1)
    table.add(4, Row({KEY: "b"}), 1)
    assert [view.has(n, {KEY: key}) for n, key in enumerate("aba")] == [True, True, False]
    assert (table.bytes, list(table.places)) == (1, ["a"])


def test_options_that_contradict_each_other() -> None:
    assert "--by id" in fault_in_options(StreamOptions(shards=2, by="other", key="id"))
    assert "--key" in fault_in_options(StreamOptions(deletes="op = 'delete'"))
    assert fault_in_options(StreamOptions(shards=2, by="id", key="id", deletes="gone = TRUE")) == ""
