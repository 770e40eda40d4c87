"""A shard's leader and its producers: receipts, repeats, fences, refusals."""

from __future__ import annotations

import msgspec
import pytest

from harness.logs import SHARD, chunks_of
from overlay.client import NO_MAJORITY
from streams.access.reasons import (
    EXPIRED,
    FENCED,
    FULL,
    MALFORMED,
    MOVED,
    NOT_YET,
    SEQUENCE,
    TOO_LARGE,
)
from streams.log.batches import heads_of, rows_of
from streams.log.chunk import EVENTS, Chunk
from streams.log.verify import Receipt, Verifier
from streams.programs.producer.messages import (
    BATCH_MOST,
    AppendRefused,
    AppendRows,
    OpenProducer,
    ProducerIsOpen,
    RowBatch,
    RowsAppended,
)
from streams.services.append import appender
from tests.support.shards.producing_world import ProducingWorld, led, row_batch


def events(world: ProducingWorld, node: str) -> list[Chunk]:
    return [chunk for chunk in chunks_of(world.bytes_of(node)) if chunk.kind == EVENTS]


def numbers(world: ProducingWorld, node: str) -> list[int]:
    rows = [row for chunk in events(world, node) for row in rows_of(chunk)]
    return [int(row.attributes["n"]) for row in rows]  # type: ignore[arg-type]


def code(answer: RowsAppended | AppendRefused) -> str:
    assert isinstance(answer, AppendRefused)
    return answer.code


def test_an_answer_is_a_receipt_that_verifies_and_a_repeat_gets_the_same() -> None:
    world, leader, _ = led()
    session = world.opened(leader).session
    first = world.appended(leader, session, 0, row_batch(0, 3), row_batch(3, 2))
    assert isinstance(first, RowsAppended)
    (run,) = first.runs
    assert (run.sequence, run.count, run.offset) == (0, 5, 0)
    assert len(run.replicas) >= 2
    second = world.appended(leader, session, 0, row_batch(0, 3), row_batch(3, 2))
    assert isinstance(second, RowsAppended)
    assert (second.runs[0].offset, second.runs[0].hash) == (run.offset, run.hash)
    assert numbers(world, leader.id) == [0, 1, 2, 3, 4]
    part = world.appended(leader, session, 3, row_batch(3, 2), row_batch(5, 1))
    assert isinstance(part, RowsAppended)
    assert [(r.sequence, r.count, r.offset) for r in part.runs] == [(3, 2, 3), (5, 1, 5)]
    assert numbers(world, leader.id) == [0, 1, 2, 3, 4, 5]
    stream, _, shard = SHARD.rpartition("/")
    receipt = Receipt(
        *(stream, int(shard), run.epoch, run.offset, run.count, run.chunk, run.hash.hex()),
        run.replicas,
    )
    files = world.disks[leader.id].durable[SHARD]
    for each, verdict in (
        (receipt, "proved"),
        (msgspec.structs.replace(receipt, count=9), "refuted"),
    ):
        found = Verifier(SHARD, each).run(list(files), lambda name: bytes(files[name]))
        assert (found.receipt, found.fault) == (verdict, None)


def test_what_was_appended_before_the_window_is_said_to_be_without_a_receipt() -> None:
    world, leader, _ = led()
    session = world.opened(leader).session
    for number in range(12):
        assert isinstance(world.appended(leader, session, number, row_batch(number)), RowsAppended)
    old = world.appended(leader, session, 1, row_batch(1))
    assert isinstance(old, RowsAppended)
    assert not old.runs
    assert numbers(world, leader.id) == list(range(12))


def test_a_gap_and_a_batch_that_is_appended_in_part_are_refused_with_the_next_number() -> None:
    world, leader, _ = led()
    session = world.opened(leader).session
    world.appended(leader, session, 0, row_batch(0, 3))
    for sequence, rows in ((4, 1), (2, 2)):
        answer = world.appended(leader, session, sequence, row_batch(sequence, rows))
        assert isinstance(answer, AppendRefused)
        assert (answer.code, answer.expected) == (SEQUENCE, 3)
    assert numbers(world, leader.id) == [0, 1, 2]


def test_a_newer_session_fences_the_older_and_goes_on_with_its_numbers() -> None:
    world, leader, _ = led()
    old = world.opened(leader, token="one").session
    world.appended(leader, old, 0, row_batch(0, 3))
    again = world.opened(leader, token="one")
    assert (again.session, again.next) == (old, 3), "the same attempt opens the same session"
    new = world.opened(leader, token="two")
    assert new.session > old
    assert new.next == 3
    assert code(world.appended(leader, old, 3, row_batch(3))) == FENCED
    repeated = world.appended(leader, new.session, 0, row_batch(0, 3))
    assert isinstance(repeated, RowsAppended)
    assert repeated.runs[0].offset == 0
    assert numbers(world, leader.id) == [0, 1, 2]


def test_who_was_replaced_does_not_go_on_and_who_was_not_does() -> None:
    world, leader, _ = led()
    session = world.opened(leader, token="a/0/1").session
    world.appended(leader, session, 0, row_batch(0, 3))
    assert world.opened(leader, token="a/2/1").next == 3, "one beginning was not answered"
    late = OpenProducer(SHARD, 0, "p", "a/1/1")
    assert code(world.ask(world.peers[-1], leader, late)[0]) == FENCED, "it comes behind a later"
    rightful = world.opened(leader, token="b/0/1").session
    world.appended(leader, rightful, 3, row_batch(3, 3))
    back = OpenProducer(SHARD, 0, "p", "a/3/1")
    assert code(world.ask(world.peers[-1], leader, back)[0]) == FENCED
    assert isinstance(world.appended(leader, rightful, 6, row_batch(6)), RowsAppended)
    unknown = OpenProducer(SHARD, 0, "q", "a/1/1")
    assert code(world.ask(world.peers[-1], leader, unknown)[0]) == EXPIRED
    new = world.opened(leader, token="a/0/2")
    assert new.next == 7, "a program that begins again takes the place of any other"


def test_an_unknown_producer_is_refused_and_not_admitted() -> None:
    world, leader, _ = led()
    session = world.opened(leader).session
    assert code(world.appended(leader, session, 0, row_batch(0), producer="q")) == EXPIRED
    asked = OpenProducer(SHARD, 0, "q", "t", True)
    (answer,) = world.ask(world.peers[-1], leader, asked)
    assert code(answer) == EXPIRED


def test_idle_producers_are_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appender, "PRODUCERS_MOST", 2)
    monkeypatch.setattr(appender, "PRODUCER_IDLE", 60 * 10**9)
    world, leader, replica = led()
    session = world.opened(leader, "a").session
    world.opened(leader, "b")
    (answer,) = world.ask(world.peers[-1], leader, OpenProducer(SHARD, 0, "c", "t"))
    assert code(answer) == FULL, "both have been active lately"
    world.run(100.0)
    later = world.opened(leader, "b", "later")
    world.opened(leader, "c")
    assert sorted(replica.state.producers) == ["b", "c"]
    assert code(world.appended(leader, session, 0, row_batch(0), producer="a")) == EXPIRED
    assert later.next == 0


def test_numbers_outlive_a_leader_and_a_segment() -> None:
    world, leader, replica = led()
    session = world.opened(leader).session
    answer = world.appended(leader, session, 0, row_batch(0, 2))
    assert isinstance(answer, RowsAppended)
    for segment in replica.log.segments:
        segment.size = 64 * 1024 * 1024  # the next chunk begins another one
    world.appended(leader, session, 2, row_batch(2))
    assert len(replica.log.segments) == 2
    other = world.peers[1]
    world.crash(leader.id)
    world.crash(other.id)
    world.boot(other.id)
    world.boot(leader.id)
    world.run(0.5)
    world.elect(other.id)
    world.run(2.0)
    assert code(world.appended(leader, session, 0, row_batch(0, 2))) == MOVED
    repeated = world.appended(other, session, 0, row_batch(0, 2))
    assert isinstance(repeated, RowsAppended)
    assert repeated.runs[0].hash == answer.runs[0].hash
    assert numbers(world, other.id) == [0, 1, 2]


def test_moved_names_the_leader() -> None:
    world, leader, _ = led()
    answer = world.appended(world.peers[1], 0, 0, row_batch(0))
    assert isinstance(answer, AppendRefused)
    assert (answer.code, answer.leader) == (MOVED, leader)


def test_nothing_is_acknowledged_before_a_majority_has_it() -> None:
    world, leader, replica = led()
    session = world.opened(leader).session
    for peer in world.peers[1:3]:
        world.disks[peer.id].slow = 1e9
    append = AppendRows(SHARD, 5, "p", session, 0, (row_batch(0),))
    assert world.ask(world.peers[-1], leader, append) == []
    world.run(2.0)
    (refused,) = world.ask(world.peers[-1], leader, append)
    assert code(refused) == NO_MAJORITY
    world.run(appender.ANSWER_WITHIN + 2.0)
    assert [code(answer) for answer in world.answers.pop(world.peers[-1].id)] == [NOT_YET]
    for peer in world.peers[1:3]:
        world.crash(peer.id)
        world.disks[peer.id].slow = 0.0
        world.boot(peer.id)
    world.run(2.0)
    answer = world.appended(leader, session, 0, row_batch(0))
    assert isinstance(answer, RowsAppended)
    assert numbers(world, leader.id) == [0]
    assert replica.committed == replica.log.end.number


def test_who_waits_is_told_when_leadership_is_lost() -> None:
    world, leader, _ = led()
    session = world.opened(leader).session
    for peer in world.peers[1:3]:
        world.cut[leader.id, peer.id] = None
    world.send(world.peers[-1], leader, AppendRows(SHARD, 5, "p", session, 0, (row_batch(0),)))
    world.run(0.1)
    world.elect(world.peers[1].id)
    world.run(3.0)
    (answer,) = world.answers.pop(world.peers[-1].id)
    assert code(answer) == MOVED
    world.cut.clear()
    world.run(2.0)
    repeated = world.appended(world.peers[1], session, 0, row_batch(0))
    assert isinstance(repeated, RowsAppended)
    assert numbers(world, world.peers[1].id) == [0]


def test_what_comes_together_shares_a_chunk_and_no_batch_spans_two() -> None:
    world, leader, _ = led()
    session = world.opened(leader).session
    batches = [row_batch(4 * n, 4, 10_000) for n in range(24)]  # 40 KB each
    asked = [AppendRows(SHARD, n, "p", session, 4 * n, (one,)) for n, one in enumerate(batches)]
    answers = world.ask(world.peers[-1], leader, *asked)
    assert sorted(answer.request for answer in answers) == list(range(24))
    chunks = events(world, leader.id)
    assert max(len(chunk.data) for chunk in chunks) <= 256 * 1024 + 1_000
    assert len(chunks) < 24
    assert all(sum(h.count for h in heads_of(c)) == len(rows_of(c)) for c in chunks)
    assert numbers(world, leader.id) == list(range(96))


def test_too_much_is_refused_and_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "PRODUCER_MOST", 50_000)
    world, leader, _ = led()
    session = world.opened(leader).session
    world.disks[world.peers[1].id].slow = world.disks[world.peers[2].id].slow = 1.0
    asked = [AppendRows(SHARD, n, "p", session, n, (row_batch(n, 1, 20_000),)) for n in range(4)]
    answers = world.ask(world.peers[-1], leader, *asked)
    world.run(3.0)
    answers += world.answers.pop(world.peers[-1].id, [])
    refused = [answer for answer in answers if isinstance(answer, AppendRefused)]
    assert {(answer.request, answer.code) for answer in refused} == {(2, FULL), (3, FULL)}
    assert isinstance(world.appended(leader, session, 2, row_batch(2)), RowsAppended)


def test_a_batch_larger_than_a_chunk_and_rows_that_are_none_are_refused() -> None:
    world, leader, _ = led()
    session = world.opened(leader).session
    large = RowBatch(1, b"x" * (BATCH_MOST + 1))
    assert code(world.appended(leader, session, 0, large)) == TOO_LARGE
    assert code(world.appended(leader, session, 0, RowBatch(2, row_batch(0).rows))) == MALFORMED
    assert code(world.appended(leader, session, 0, RowBatch(1, b"\xc1"))) == MALFORMED
    most = row_batch(0, 1, BATCH_MOST - 100)
    assert isinstance(world.appended(leader, session, 0, most), RowsAppended)


def test_a_step_is_known_from_its_first_row_and_ends_those_before() -> None:
    world, leader, replica = led()
    asker = world.peers[-1]

    def opened(step: int, token: str) -> object:
        (answer,) = world.ask(asker, leader, OpenProducer(SHARD, 0, "p", token, False, 0, step))
        return answer

    first = opened(1, "one")
    assert isinstance(first, ProducerIsOpen)
    assert (first.next, first.begun) == (0, 0)
    world.appended(leader, first.session, 0, row_batch(0, 3))
    second = opened(2, "two")
    assert isinstance(second, ProducerIsOpen)
    assert (second.next, second.begun) == (3, 3)
    world.appended(leader, second.session, 3, row_batch(3, 2))
    for segment in replica.log.segments:
        segment.size = 64 * 1024 * 1024  # the next chunk begins another one, with the state
    retried = opened(2, "three")
    assert isinstance(retried, ProducerIsOpen)
    assert (retried.next, retried.begun) == (5, 3)
    late = opened(1, "four")
    assert isinstance(late, AppendRefused)
    assert late.code == FENCED
    assert len(replica.log.segments) == 2
    files = world.disks[leader.id].durable[SHARD]
    assert Verifier(SHARD).run(list(files), lambda name: bytes(files[name])).fault is None
    without = world.opened(leader, token="five")
    assert (without.next, without.begun) == (5, 3), "who has no steps changes none"
