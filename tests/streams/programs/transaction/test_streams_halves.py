"""Half messages at a shard's leader: invisible until committed, decided once, never dropped."""

from __future__ import annotations

from random import Random

import pytest

from harness.logs import SHARD
from overlay.machine import Peer
from streams.access.reasons import CONFLICT, FULL, QUOTA, UNKNOWN_TRANSACTION
from streams.log.chunk import CUT
from streams.log.state import Floor, encode_entries
from streams.programs.transaction.messages import (
    COMMITTED,
    ROLLED_BACK,
    DecideHalf,
    HalfDecided,
    HalfIsPrepared,
    HalfNotKnown,
    HalfRefused,
    PrepareHalf,
    ReviewHalf,
)
from streams.services import half as halves
from streams.shard.retention import Keep
from tests.support.examples import seeds
from tests.support.shards.producing_world import HalfWorld, row_batch


def led() -> tuple[HalfWorld, Peer]:
    world = HalfWorld(1)
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    return world, world.peers[0]


def test_a_half_is_seen_when_it_is_committed_and_gets_its_offsets_then() -> None:
    world, leader = led()
    assert isinstance(world.prepare(leader, "a", 0), HalfIsPrepared)
    assert isinstance(world.prepare(leader, "b", 10), HalfIsPrepared)
    assert world.visible(leader.id) == {}
    assert world.alive[leader.id].log.next_offset == 0
    second, first = world.decide(leader, "b"), world.decide(leader, "a")
    assert (second.outcome, second.run.offset, second.run.count) == (COMMITTED, 0, 2)
    assert (first.outcome, first.run.offset) == (COMMITTED, 2)
    assert world.visible(leader.id) == {"b": [10, 11], "a": [0, 1]}
    world.judge(world.heal())


def test_the_first_decision_stays_and_touches_no_other_transaction() -> None:
    world, leader = led()
    world.prepare(leader, "a", 0)
    assert world.decide(leader, "a", commit=False).outcome == ROLLED_BACK
    world.prepare(leader, "b", 10)
    late = world.decide(leader, "a", commit=True)
    assert (late.outcome, late.run) == (ROLLED_BACK, None)
    assert isinstance(world.prepare(leader, "a", 0), HalfDecided), "it does not come again"
    unknown = world.decide(leader, "c")
    assert isinstance(unknown, HalfRefused)
    assert unknown.code == UNKNOWN_TRANSACTION
    assert world.prepare(leader, "b", 10, producer="q").code == CONFLICT
    assert world.visible(leader.id) == {}
    assert world.decide(leader, "b").outcome == COMMITTED
    assert world.decide(leader, "b", commit=False).outcome == COMMITTED
    assert world.visible(leader.id) == {"b": [10, 11]}


def test_a_half_outlives_leaders_and_segments_and_memory() -> None:
    world, leader = led()
    world.prepare(leader, "a", 0)
    replica = world.alive[leader.id]
    for segment in replica.log.segments:
        segment.size = 64 * 1024 * 1024  # the next chunk begins another one
    world.prepare(leader, "b", 10)
    other = world.peers[1]
    for node in (leader.id, other.id):
        world.crash(node)
    for node in (leader.id, other.id):
        world.boot(node)
    world.run(0.5)
    world.elect(other.id)
    world.run(2.0)
    assert world.decide(leader, "a").code == "moved"
    assert world.decide(other, "a").outcome == COMMITTED
    assert world.decide(other, "b", commit=False).outcome == ROLLED_BACK
    assert world.visible(other.id) == {"a": [0, 1]}


def test_retention_keeps_what_halves_need() -> None:
    world, leader = led()
    world.prepare(leader, "a", 0)
    replica = world.alive[leader.id]
    for number in (10, 20, 30):
        for segment in replica.log.segments:
            segment.size = 64 * 1024 * 1024
        world.prepare(leader, f"b{number}", number)
        assert world.decide(leader, f"b{number}").outcome == COMMITTED
    assert len(replica.log.segments) >= 4

    def cut() -> None:
        assert replica.leader is not None
        floor = encode_entries([Floor(replica.log.next_offset)])
        replica.leader.append_chunk(CUT, floor)
        replica.leader.append_chunk(CUT, floor)
        world.run(1.0)

    before = len(replica.log.segments)
    cut()
    assert len(replica.log.segments) == before, "the oldest has the rows of a half"
    assert world.decide(leader, "a").run.count == 2
    cut()
    assert len(replica.log.segments) < before


def test_a_half_of_which_nobody_knows_is_asked_about_parked_and_never_dropped() -> None:
    world, leader = led()
    world.prepare(leader, "a", 0)
    producer = world.peers[-1]
    asked = 0
    for _ in range(halves.REVIEWS_MOST + 5):
        world.run(66.0)
        for message in world.answers.pop(producer.id, []):
            assert isinstance(message, ReviewHalf)
            asked += 1
            world.send(producer, leader, HalfNotKnown(SHARD, message.transaction))
    world.run(1.0)
    assert asked > halves.REVIEWS_MOST
    half = world.alive[leader.id].state.transactions.halves["a"]
    assert half.parked
    assert world.ports[leader.id].counters["halves_parked"] == 1
    assert world.decide(leader, "a").outcome == COMMITTED
    assert world.visible(leader.id) == {"a": [0, 1]}


def test_a_half_whose_producer_is_gone_is_parked() -> None:
    world, leader = led()
    world.prepare(leader, "a", 0)
    world.crash(world.peers[-1].id)
    world.run(halves.PARK_AFTER / 1e9 + 10.0)
    assert world.alive[leader.id].state.transactions.halves["a"].parked
    assert world.visible(leader.id) == {}


def test_halves_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "HALVES_MOST", 2)
    world, leader = led()
    world.prepare(leader, "a", 0)
    world.prepare(leader, "b", 0)
    assert world.prepare(leader, "c", 0).code == FULL
    world.decide(leader, "a", commit=False)
    assert isinstance(world.prepare(leader, "c", 0), HalfIsPrepared)


def test_halves_count_towards_quotas_and_commits_are_never_refused() -> None:
    world, leader = led()
    leading = world.alive[leader.id].leader
    assert leading is not None
    leading.retention.change(Keep(most_rows=5))
    assert isinstance(world.prepare(leader, "a", 0), HalfIsPrepared)
    assert isinstance(world.prepare(leader, "b", 10), HalfIsPrepared)
    refused = world.prepare(leader, "c", 20)
    assert (refused.code, "--max-rows" in refused.reason) == (QUOTA, True)
    assert world.ports[leader.id].counters["halves_over_quota"] == 1
    leading.retention.change(Keep(most_rows=1))
    assert world.decide(leader, "a").outcome == COMMITTED
    leading.retention.change(Keep(most_rows=5))
    world.decide(leader, "b", commit=False)
    assert isinstance(world.prepare(leader, "c", 20), HalfIsPrepared), "there is room again"


@pytest.mark.parametrize("seed", seeds(6))
def test_transactions_are_decided_once_through_crashes_and_cut_links(seed: int) -> None:
    world, rng = HalfWorld(seed), Random(seed)
    sender = world.peers[-1]
    outcomes: dict[str, str] = {}
    prepared: dict[str, None] = {}

    def note() -> None:
        for answer in world.answers.pop(sender.id, []):
            if isinstance(answer, HalfIsPrepared):
                prepared[answer.transaction] = None
            elif isinstance(answer, HalfDecided):
                prepared[answer.transaction] = None
                known = outcomes.setdefault(answer.transaction, answer.outcome)
                assert known == answer.outcome, f"{answer.transaction} was decided twice"

    def work() -> None:
        name = f"t{rng.randrange(30)}"
        half = PrepareHalf(SHARD, 1, name, "p", row_batch(2 * int(name[1:]), 2))
        for peer in world.peers[:3]:
            if world.led(peer.id):
                what = (
                    half if rng.random() < 0.5 else DecideHalf(SHARD, 2, name, rng.random() < 0.5)
                )
                world.send(sender, peer, what)
        note()

    world.append = work  # type: ignore[method-assign]
    world.run(0.1)
    world.elect()
    world.run(0.5)
    world.cause_trouble(20, damaged=1)
    world.crash(sender.id)
    world.boot(sender.id)
    leader = world.heal()
    note()
    world.judge(leader)
    seen = world.visible(leader.port.me.id)
    state = leader.state.transactions
    for name in prepared:
        assert name in state.halves or name in state.outcomes, f"{name} was dropped"
    for name, outcome in outcomes.items():
        assert (name in seen) == (outcome == COMMITTED), f"{name} is {outcome}"
    assert seen.keys() == {n for n, o in state.outcomes.items() if o.committed}
