"""Faults in half messages, where a shard's leader keeps and decides them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import structs

from bench.mutations.planting import fault, replace
from canopy import aio
from overlay.machine import Peer
from overlay.stream_client import DecideTransaction, LeaveUnknown
from streams.access.ask import Asks
from streams.access.locator import StreamLocated
from streams.directory.entry import StreamEntry
from streams.log.batches import BatchHead, join_batches
from streams.log.chunk import EVENTS
from streams.log.half_state import Half, HalfEntry, HalfStates
from streams.programs.transaction.messages import DecideHalf, HalfNotKnown, PrepareHalf, ReviewHalf
from streams.programs.transaction.transactors import Transactors
from streams.services.half import Halves
from streams.shard.leader import Retention

HALVES = "tests/streams/programs/transaction/test_streams_halves.py"
DECIDING = "tests/streams/programs/transaction/test_streams_deciding.py"
THROUGH_NODES = "tests/streams/programs/transaction/test_streams_transactors.py"
PROMISE = "promise: a half is seen if it is committed, and decided once"


@fault(PROMISE, HALVES, "test_the_first_decision_stays_and_touches_no_other_transaction")
def half_late_commit_hits_a_newer_transaction() -> None:
    """A decision that comes when its transaction is decided is taken for the producer's newest
    half."""
    original = Halves.on_decide_half

    def decide(self: Halves, sender: Peer, message: DecideHalf) -> None:
        halves = self.replica.state.transactions.halves
        name = message.transaction if message.transaction in halves else next(iter(halves), "")
        original(self, sender, DecideHalf(message.shard, message.request, name, message.commit))

    replace(original, decide)


@fault(PROMISE, HALVES, "test_a_half_is_seen_when_it_is_committed_and_gets_its_offsets_then")
def half_is_visible_before_its_commit() -> None:
    """The rows of a half are readable when it is prepared."""
    original = Halves.on_prepare_half

    def prepare(self: Halves, sender: Peer, message: PrepareHalf) -> None:
        head = BatchHead(message.producer, 0, 0, message.batch.count)
        rows = join_batches([head], [message.batch.rows])
        self.leader.append_chunk(EVENTS, rows, message.batch.count, time=self.clock())
        original(self, sender, message)

    replace(original, prepare)


@fault(PROMISE, HALVES, "test_a_half_of_which_nobody_knows_is_asked_about_parked_and_never_dropped")
def half_unknown_is_a_rollback() -> None:
    """A half whose producer does not know what became of it is rolled back."""

    def not_known(self: Halves, sender: Peer, message: HalfNotKnown) -> None:
        self.on_decide_half(self.port.me, DecideHalf(message.shard, 0, message.transaction, False))

    replace(Halves.on_half_not_known, not_known)


@fault(PROMISE, HALVES, "test_a_half_of_which_nobody_knows_is_asked_about_parked_and_never_dropped")
def half_is_dropped_after_so_many_reviews() -> None:
    """A half that would be parked is rolled back instead."""

    def _park(self: Halves, half: Half) -> None:
        self.on_decide_half(
            self.port.me, DecideHalf(self.replica.shard, 0, half.transaction, False)
        )

    replace(Halves._park, _park)


@fault(PROMISE, HALVES, "test_retention_keeps_what_halves_need")
def half_is_cut_by_retention() -> None:
    """Retention deletes the segment that has the rows of a half which is not decided."""

    def oldest_chunk(self: HalfStates, committed: int) -> int | None:
        return None

    replace(HalfStates.oldest_chunk, oldest_chunk)


@fault(PROMISE, HALVES, "test_a_half_outlives_leaders_and_segments_and_memory")
def halves_are_missing_from_the_state() -> None:
    """A segment's beginning says nothing of the halves that are not decided."""
    original = HalfStates.entries

    def entries(self: HalfStates) -> Iterator[HalfEntry]:
        return iter(self.outcomes.values())

    replace(original, entries)


@fault(PROMISE, THROUGH_NODES, "test_transactions_are_whole_and_decided_as_their_programs_say")
def half_decided_though_its_program_does_not_know() -> None:
    """A program's node takes "not known" for a rollback."""

    def leave(self: Transactors, client: int, command: LeaveUnknown, entry: StreamEntry) -> None:
        self._decide(client, DecideTransaction(0, entry.name, command.transaction, False), entry)

    replace(Transactors._leave_unknown, leave)


@fault(PROMISE, THROUGH_NODES, "test_a_transaction_in_several_shards_is_decided_anywhere")
def half_prepared_again_when_it_is_decided() -> None:
    """A half that comes once more after its decision is kept anew."""
    original = Halves.on_prepare_half

    def prepare(self: Halves, sender: Peer, message: PrepareHalf) -> None:
        self.replica.state.transactions.outcomes.pop(message.transaction, None)
        original(self, sender, message)

    replace(original, prepare)


@fault(PROMISE, THROUGH_NODES, "test_a_transaction_in_several_shards_is_decided_anywhere")
def transaction_decided_in_one_shard_only() -> None:
    """A decision goes to the first shard of the stream, and not to the others."""
    original = Transactors._ask_all

    def ask_all(self: Transactors, *arguments: Any) -> None:
        client, entry, shards, transaction, message, then, *rest = arguments
        if isinstance(message(0, 0), DecideHalf):
            shards = shards[:1]
        original(self, client, entry, shards, transaction, message, then, *rest)

    replace(original, ask_all)


@fault(PROMISE, THROUGH_NODES, "test_the_stream_asks_the_program_and_parks_what_it_does_not_know")
def review_not_passed_on() -> None:
    """A program's node keeps to itself what a leader asks about a half."""

    def on_review_half(self: Transactors, sender: Peer, message: ReviewHalf) -> None:
        return

    replace(Transactors.on_review_half, on_review_half)


@fault(PROMISE, DECIDING, "test_opposite_decisions_at_once_are_one_decision")
def transaction_shards_decide_each_for_itself() -> None:
    """A shard decides its half without the shard that decides for all."""
    original = Halves.on_decide_half

    def decide(self: Halves, sender: Peer, message: DecideHalf) -> None:
        original(self, sender, structs.replace(message, is_final=True))

    replace(original, decide)


@fault(PROMISE, HALVES, "test_halves_count_towards_quotas_and_commits_are_never_refused")
def halves_do_not_count_towards_quotas() -> None:
    """A half is taken that has no room once it is committed."""

    def full(self: Retention, size: int, rows: int) -> str:
        return ""

    replace(Retention.full, full)


@fault(
    "promise: events are in the stream if they are in the database",
    "tests/canopy/sinks/test_asynchronous.py",
    "test_a_task_that_is_cancelled_rolls_back_and_leaves_the_rest_to_the_next_relay",
)
def outbox_task_does_not_wait_for_its_statement() -> None:
    """A task that is cancelled rolls its transaction back while a statement still runs."""

    original: Callable[..., Any] = aio._Runtime.in_thread

    async def in_thread(self: object, job: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(job)

    replace(original, in_thread)


@fault(PROMISE, THROUGH_NODES, "test_where_a_stream_of_fewer_shards_is_says_nothing_of_another")
def half_questions_ask_of_any_stream() -> None:
    """A node that hears where a stream is looks up the shards of all that it asks about in it."""

    def located(self: Asks, event: StreamLocated) -> None:
        for ask in self:
            leader = self._locator.leader(event.name, ask.question.place)
            if ask.target is None and leader is not None:
                self._send(ask)

    replace(Asks.located, located)
