"""Faults in half messages and in forks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import structs

from bench.mutations.planting import fault, replace
from canopy import aio
from overlay.machine import Peer
from streams.log.batches import BatchHead, join_batches
from streams.log.chunk import EVENTS
from streams.programs.producer.messages import ForkChunkCopied
from streams.programs.transaction.messages import DecideHalf, HalfNotKnown, PrepareHalf
from streams.services.fork.fork_copies import NEW, ShardForkCopies, _Job, _verdict
from streams.services.fork.forks import Forks, _Fork
from streams.services.half import Halves

HALVES = "tests/streams/programs/transaction/test_streams_halves.py"
FORKS = "tests/streams/forking/test_streams_forks.py"


@fault("S7", HALVES, "test_the_first_decision_stays_and_touches_no_other_transaction")
def half_late_commit_hits_a_newer_transaction() -> None:
    """A decision that comes when its transaction is decided is taken for the producer's newest
    half."""
    original = Halves.on_decide_half

    def decide(self: Halves, sender: Peer, message: DecideHalf) -> None:
        halves = self.replica.state.transactions.halves
        name = message.transaction if message.transaction in halves else next(iter(halves), "")
        original(self, sender, DecideHalf(message.shard, message.request, name, message.commit))

    replace(original, decide)


@fault("S7", HALVES, "test_a_half_is_seen_when_it_is_committed_and_gets_its_offsets_then")
def half_is_visible_before_its_commit() -> None:
    """The rows of a half are readable when it is prepared."""
    original = Halves.on_prepare_half

    def prepare(self: Halves, sender: Peer, message: PrepareHalf) -> None:
        head = BatchHead(message.producer, 0, 0, message.batch.count)
        rows = join_batches([head], [message.batch.rows])
        self.leader.append_chunk(EVENTS, rows, message.batch.count, time=self.clock())
        original(self, sender, message)

    replace(original, prepare)


@fault("V4", HALVES, "test_a_half_of_which_nobody_knows_is_asked_about_parked_and_never_dropped")
def half_unknown_is_a_rollback() -> None:
    """A half whose producer does not know what became of it is rolled back."""

    def not_known(self: Halves, sender: Peer, message: HalfNotKnown) -> None:
        self.on_decide_half(self.port.me, DecideHalf(message.shard, 0, message.transaction, False))

    replace(Halves.on_half_not_known, not_known)


@fault(
    "S7",
    "tests/streams/programs/transaction/test_streams_deciding.py",
    "test_opposite_decisions_at_once_are_one_decision",
)
def transaction_shards_decide_each_for_itself() -> None:
    """A shard decides its half without the shard that decides for all."""
    original = Halves.on_decide_half

    def decide(self: Halves, sender: Peer, message: DecideHalf) -> None:
        original(self, sender, structs.replace(message, is_final=True))

    replace(original, decide)


@fault(
    "S16",
    "tests/canopy/sinks/test_asynchronous.py",
    "test_a_task_that_is_cancelled_rolls_back_and_leaves_the_rest_to_the_next_relay",
)
def outbox_task_does_not_wait_for_its_statement() -> None:
    """A task that is cancelled rolls its transaction back while a statement still runs."""

    original: Callable[..., Any] = aio._Runtime.in_thread

    async def in_thread(self: object, job: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(job)

    replace(original, in_thread)


@fault("S8", FORKS, "test_a_row_that_was_under_way_is_in_the_log_once")
def forks_repeat_what_the_main_log_has() -> None:
    """Rows of a fork are appended without looking whether the main log has them."""

    replace(_verdict, lambda sequence, row, runs, known: NEW)


@fault("S8", FORKS, "test_a_fork_is_kept_until_its_copy_is_committed")
def forks_are_copied_before_the_commit() -> None:
    """A leader says that a fork's chunk is copied before a majority has it."""
    original = ShardForkCopies._wait

    def wait(self: ShardForkCopies, job: _Job) -> None:
        original(self, job)
        shard = self.replica.shard
        self.port.send(job.sender, ForkChunkCopied(shard, job.fork, job.chunk.number))

    replace(original, wait)


@fault("V6", FORKS, "test_a_fork_that_waits_outlives_its_node")
def forks_are_dropped_at_a_restart() -> None:
    """A node that starts again removes the forks that it has."""
    original = Forks._lead

    def lead(self: Forks, fork: _Fork) -> None:
        if not fork.is_open:
            self._remove(fork)
        else:
            original(self, fork)

    replace(original, lead)
