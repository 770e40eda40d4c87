"""Streams that prefer availability: rows of a cut-off side, and what becomes of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.logs import SHARD, EventBatch, encode_batches
from overlay.machine import Message, Peer
from streams.log.batches import BatchHead, Row
from streams.log.chunk import EVENTS, Chunk, ChunkId, pack, read
from streams.log.names import ForkName, fork_shard, parse_fork, split_shard
from streams.log.verify import Receipt, Verifier
from streams.programs.producer.messages import CopyFork, ForkChunkCopied
from streams.services.fork.fork_copies import (
    CONFLICTING,
    NEW,
    REPEATED,
    MainRows,
    chunks_needed,
    parts,
)
from streams.shard import kept_chunks
from streams.shard.messages import ShardAppend
from tests.streams.forking.fork_world import ForkWorld, trial_of_forks
from tests.support.shards.producing_world import Program

SEEDS = 2
"""In the suite; `python -m tests.streams.search forks` looks at more."""


class Told(ForkWorld):
    """Keeps the chunks of forks that were sent, and loses messages of one kind."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.copies_sent: list[tuple[Peer, Peer, CopyFork]] = []
        self.loses: type[Message] | None = None
        self.loses_at_copy: type[Message] | None = None
        super().__init__(*arguments, **named)

    def send(self, sender: Peer, peer: Peer, message: Message) -> None:
        if isinstance(message, CopyFork):
            self.copies_sent.append((sender, peer, message))
            self.loses = self.loses_at_copy or self.loses
        if self.loses is None or type(message) is not self.loses or sender == peer:
            super().send(sender, peer, message)


def cut(world: ForkWorld, node: str, both: bool = True) -> None:
    """`node` hears nobody any more, and with `both` nobody hears it."""
    others = [peer.id for peer in world.peers if peer.id != node]
    world.cut.update(dict.fromkeys((other, node) for other in others))
    if both:
        world.cut.update(dict.fromkeys((node, other) for other in others))


def overlay(
    producer: str = "a", leader: int = 0, prefer: str = "", nodes: int = 3
) -> tuple[Told, Program, str]:
    """Three replicas, of which `leader` leads, and a program at the third one (its node is
    returned), which has appended something."""
    world = Told(7, nodes, 3, prefer)
    node = world.peers[2].id
    program = world.add(1, node, producer, goes_on=producer == "both")
    world.run(0.1)
    world.elect(world.peers[leader].id)
    world.run(0.5)
    if producer:
        program.begin()
    world.run(0.5)
    send(world, program, 2)
    assert not program.requests
    return world, program, node


def send(world: ForkWorld, program: Program, batches: int, seconds: float = 0.5) -> None:
    for _ in range(batches):
        program.append()
    world.run(seconds)


def healed(world: ForkWorld, work: bool = False) -> int:
    """The network is whole again, until nothing waits; judged. How many rows came from forks."""
    if not work:
        world.work = lambda: None  # type: ignore[method-assign]
    return world.judge_forks(world.heal_partitions())


def counted(world: ForkWorld, name: str) -> int:
    return sum(port.counters.get(name, 0) for port in world.ports.values())


def test_a_cut_off_side_appends_into_a_fork_that_is_copied_when_the_network_is_whole() -> None:
    world, program, node = overlay()
    before = len(program.acknowledged)
    cut(world, node)
    send(world, program, 3, 8.0)
    assert not program.requests
    forked = [each for n, each in program.acknowledged.items() if n >= before and each]
    assert forked
    assert {each.fork for each in forked} == {f.fork for f in world.forks[node]._forks.values()}
    assert {each.replicas for each in forked} == {(node,)}
    (told,) = world.forks[node].status(SHARD)
    assert (told.state, told.rows) == ("open", len(program.acknowledged) - before)
    assert healed(world) == told.rows
    assert counted(world, "forks_removed") == 1
    leader = next(n for n in world.alive if world.led(n))
    (copied,) = world.forks[leader].status(SHARD)
    assert (copied.state, copied.rows, copied.conflicting) == ("copied", told.rows, 0)
    send(world, program, 2, 2.0)  # it goes on behind them, in the main log
    last = program.acknowledged[max(program.acknowledged)]
    assert last is not None
    assert last.fork == ""
    world.judge_forks(world.alive[leader])


def test_a_fork_goes_only_when_the_leader_that_was_sent_its_chunk_says_that_it_is_copied() -> None:
    world, program, node = overlay()
    cut(world, node)
    send(world, program, 3, 8.0)
    (fork,) = (each.fork for each in world.forks[node]._forks.values())
    world.loses = ForkChunkCopied  # from now on nobody hears that a chunk is copied, …
    world.cut.clear()
    world.run(6.0)
    holder, other = world.peers[2], world.peers[1]
    assert world.copies_sent
    _, leader, _ = world.copies_sent[-1]
    world.loses = None
    for sender in (other, leader):  # … but that another one is, and from who was not asked
        number = 10**6 if sender == leader else 1
        world.send(sender, holder, ForkChunkCopied(SHARD, fork, number))
    world.run(0.05)
    assert world.forks[node].status(SHARD)[0].state == "waits"
    assert world.ports[node].counters["stream_answers_refused"] == 1
    assert healed(world) > 0


def test_a_chunk_of_a_fork_that_cannot_be_read_is_refused_before_the_disk_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_chunks, "RECENT_BYTES", 1)
    world, program, _ = overlay()
    leader = world.peers[0]
    good = encode_batches([EventBatch(BatchHead("a", 1, 0, 1), (Row({"n": 1}),))])
    for body in (good[:-1], good[:-1] + b"\xc1", good.replace(b"\xdd", b"\xdc")):
        chunk = pack(EVENTS, 9, ChunkId(1, bytes(32)), 0, 1, 5, body)
        world.send(world.peers[2], leader, CopyFork(SHARD, "9_0_00000001", chunk.data))
    world.run(1.0)
    assert world.ports[leader.id].counters["fork_chunks_malformed"] == 3
    send(world, program, 2)
    assert not program.requests, "the leader goes on"


def test_events_of_programs_without_a_name_are_taken_by_a_fork_that_their_node_did_not_know() -> (
    None
):
    world, _, node = overlay()
    fresh = world.add(2, node, "")
    cut(world, node)
    send(world, fresh, 3, 8.0)
    assert fresh.acknowledged
    assert not fresh.requests
    assert healed(world) == len(fresh.acknowledged)


def test_a_stream_that_prefers_consistency_has_no_forks() -> None:
    world, program, node = overlay(prefer="consistency")
    before = len(program.acknowledged)
    cut(world, node)
    send(world, program, 3, 12.0)
    assert len(program.acknowledged) == before
    assert counted(world, "forks_opened") == 0
    assert healed(world) == 0
    assert len(program.acknowledged) > before


def test_a_majority_opens_no_fork() -> None:
    world, _, node = overlay()
    other = world.add(2, world.peers[0].id, "b")
    other.begin()
    cut(world, node)
    world.run(1.0)
    send(world, other, 3, 12.0)
    assert other.acknowledged
    assert counted(world, "forks_opened") == 0


def test_a_row_that_was_under_way_is_in_the_log_once() -> None:
    world, program, node = overlay()
    cut(world, node, both=False)  # the row is committed, and its answer is lost
    send(world, program, 1, 0.3)
    cut(world, node)
    send(world, program, 2, 8.0)
    assert not program.requests
    healed(world)
    assert counted(world, "fork_rows_repeated") > 0


def test_rows_that_two_programs_gave_one_number_are_all_kept() -> None:
    world, program, node = overlay("both")
    cut(world, node)
    other = world.add(2, world.peers[0].id, "both", goes_on=True)
    other.begin()
    world.run(0.5)
    send(world, other, 3)
    send(world, program, 3, 8.0)
    assert not program.requests
    assert not other.requests
    healed(world)
    assert counted(world, "fork_rows_conflicting") > 0


def test_the_other_session_of_a_producer_ends_when_its_numbers_are_taken() -> None:
    world, program, node = overlay("both")
    cut(world, node)
    other = world.add(2, world.peers[0].id, "both", goes_on=True)
    other.begin()
    world.run(0.5)
    send(world, program, 5, 8.0)
    healed(world)
    send(world, other, 1, 2.0)
    assert set(other.refused.values()) == {"fenced"}
    leader = next(replica for n, replica in world.alive.items() if world.led(n))
    world.judge_forks(leader)


def test_a_chunk_that_comes_again_is_not_appended_again() -> None:
    world, program, node = overlay("both")
    cut(world, node)
    other = world.add(2, world.peers[0].id, "both", goes_on=True)
    other.begin()
    world.run(0.5)
    send(world, other, 3)
    send(world, program, 3, 8.0)
    healed(world)
    leader = next(replica for n, replica in world.alive.items() if world.led(n))
    for sender, _, message in list(world.copies_sent):
        world.send(sender, leader.port.me, message)
    world.run(1.0)
    assert world.judge_forks(leader) > 0


def test_a_fork_is_kept_until_its_copy_is_committed() -> None:
    world, program, node = overlay()
    cut(world, node)
    send(world, program, 3, 8.0)
    assert not program.requests
    world.cut.clear()
    world.loses_at_copy = ShardAppend  # from then on the leader's chunks reach nobody
    world.run(6.0)
    assert world.copies_sent
    world.crash(world.peers[0].id)
    world.loses = world.loses_at_copy = None
    world.epoch += 1
    world.elect(world.peers[1].id)
    world.run(1.0)
    assert healed(world) > 0


def test_a_fork_that_waits_outlives_its_node() -> None:
    world, program, node = overlay()
    cut(world, node)
    send(world, program, 3, 8.0)
    assert not program.requests
    world.crash(node)
    world.boot(node)
    world.run(1.0)
    (fork,) = world.forks[node].status(SHARD)
    assert fork.state == "waits"
    assert healed(world, work=True) >= fork.rows


def test_what_is_not_committed_in_the_main_log_goes_into_the_fork() -> None:
    world, program, node = overlay(leader=2)
    cut(world, node)  # the leader itself is cut off
    send(world, program, 3, 12.0)
    assert not program.requests
    world.elect(world.peers[0].id)
    world.run(1.0)
    assert healed(world) > 0


def test_a_program_whose_rows_are_in_a_fork_appends_nothing_in_front_of_them() -> None:
    world, program, node = overlay(nodes=4)
    cut(world, node)
    send(world, program, 2, 8.0)
    world.crash(node)  # the holder is away; the program goes on at another node
    program.node = world.peers[3].id
    world.cut.clear()
    program.begin()
    world.run(3.0)
    assert not program.is_ready
    world.boot(node)
    healed(world, work=True)


def test_receipts_of_forks_are_proved_by_the_fork_and_by_the_main_log() -> None:
    world, program, node = overlay()
    cut(world, node)
    send(world, program, 2, 8.0)
    each = next(r for r in program.acknowledged.values() if r is not None and r.fork)
    place = (each.shard, each.epoch, each.first, each.count, each.chunk)
    proof = Receipt(world.entry.id, *place, each.hash, each.replicas, each.fork)
    other = Receipt(world.entry.id, *place, "00" * 32, each.replicas, each.fork)

    def judged(receipt: Receipt, shard: str, holder: str) -> str:
        files = world.disks[holder].durable[shard]
        found = Verifier(receipt.name, receipt).run(list(files), lambda name: bytes(files[name]))
        assert found.fault is None
        return found.receipt

    assert judged(proof, fork_shard(SHARD, each.fork), node) == "proved"
    assert judged(other, fork_shard(SHARD, each.fork), node) == "refuted"
    assert judged(proof, SHARD, node) == "not reached"
    healed(world)
    assert judged(proof, SHARD, node) == "proved"
    assert judged(other, SHARD, node) == "refuted"


def test_programs_at_all_sides_of_partitions() -> None:
    assert sum(trial_of_forks(seed, rounds=8)[1] for seed in range(SEEDS))


def test_names_of_forks() -> None:
    name = ForkName(7, 1200, 0xAB)
    assert parse_fork(str(name)) == name
    assert split_shard(fork_shard("8f2c/3", str(name))) == ("8f2c/3", str(name))
    assert split_shard("8f2c/3") == ("8f2c/3", "")
    assert split_shard("a-b/3") == ("a-b/3", "")
    assert parse_fork("7_1200") is None


def chunk_of(number: int, first: int, batches: list[EventBatch]) -> Chunk:
    rows = sum(len(batch.rows) for batch in batches)
    body = encode_batches(batches)
    data = pack(EVENTS, 1, ChunkId(number - 1, bytes(32)), first, rows, number, body).data
    found = read(data)
    assert found is not None
    return found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_rows_of_a_fork_are_held_against_the_main_log(seed: int) -> None:
    """Against a list of all rows that the main log has, compared one by one."""
    rng = Random(seed)
    main, there, number, first = MainRows(0), list[tuple[str, int, int]](), 0, 0
    chunks: dict[int, Chunk] = {}

    def batches(values: int) -> list[EventBatch]:
        found = []
        for _ in range(rng.randint(1, 3)):
            producer, sequence = rng.choice("pq"), rng.randrange(12)
            rows = tuple(Row({"v": rng.randrange(values)}) for _ in range(rng.randint(1, 4)))
            found.append(EventBatch(BatchHead(producer, 5, sequence, len(rows)), rows))
        return found

    def numbered(batch: EventBatch) -> list[tuple[str, int, Row]]:
        head = batch.head
        return [(head.producer, head.sequence + n, row) for n, row in enumerate(batch.rows)]

    for _ in range(rng.randint(0, 4)):
        some, number = batches(2), number + 1
        chunks[number] = chunk_of(number, first, some)
        first += chunks[number].offsets
        main.note(chunks[number])
        there += [(p, n, row.attributes["v"]) for b in some for p, n, row in numbered(b)]  # type: ignore[misc]
    mine, floor = batches(2), rng.randrange(4)
    fork = chunk_of(9, 0, mine)
    needed = {n: chunks[n] for n in chunks_needed(fork, main)}
    found = parts("f", fork, floor, main, needed)
    wanted = []
    for producer, sequence, row in [each for batch in mine for each in numbered(batch)][floor:]:
        values = [v for p, n, v in there if (p, n) == (producer, sequence)]
        same = REPEATED if row.attributes["v"] in values else CONFLICTING
        verdict = same if values else NEW
        wanted.append((verdict, "" if verdict == CONFLICTING else producer, row))
    flat = [(part.verdict, part.head.producer, row) for part in found for row in part.rows]
    assert flat == wanted
    ats = [part.head.at + n for part in found for n in range(part.head.count)]
    assert ats == list(range(floor, fork.offsets))
