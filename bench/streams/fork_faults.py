"""Faults in what a shard takes in without a majority, and in copying it into the main log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace as with_fields

from bench.mutations.planting import fault, replace
from overlay.machine import Peer
from streams.log.batches import BatchHead, Row
from streams.log.chunk import Chunk
from streams.log.fork_state import ForkCopied, ForkStates
from streams.log.names import fork_shard
from streams.log.state import ShardState
from streams.programs.producer.messages import JoinFork
from streams.services.fork import forks
from streams.services.fork.fork_copies import (
    CONFLICTING,
    NEW,
    REPEATED,
    MainRun,
    ShardForkCopies,
    _Job,
    _verdict,
)
from streams.services.fork.forks import Forks, _Fork
from streams.services.fork.messages import ForkChunkCopied
from streams.shard.replica import Replica

FORKING = "tests/streams/forking/test_streams_forks.py"
PROMISE = "promise: each row that a fork acknowledged is in the main log once"


@fault(PROMISE, FORKING, "test_a_row_that_was_under_way_is_in_the_log_once")
def forks_repeat_what_the_main_log_has() -> None:
    """Rows of a fork are appended without looking whether the main log has them."""

    def verdict(
        sequence: int, row: Row, runs: Iterable[MainRun], known: Mapping[int, tuple[Row, ...]]
    ) -> str:
        return NEW

    replace(_verdict, verdict)


@fault(PROMISE, FORKING, "test_rows_that_two_programs_gave_one_number_are_all_kept")
def forks_compare_numbers_only() -> None:
    """A row of a fork counts as repeated if the main log has some row with its number."""
    original = _verdict

    def verdict(
        sequence: int, row: Row, runs: Iterable[MainRun], known: Mapping[int, tuple[Row, ...]]
    ) -> str:
        found = original(sequence, row, runs, known)
        return REPEATED if found == CONFLICTING else found

    replace(original, verdict)


@fault(PROMISE, FORKING, "test_the_other_session_of_a_producer_ends_when_its_numbers_are_taken")
def forks_leave_the_other_session() -> None:
    """A session goes on after a fork's rows have taken the numbers that it would use next."""
    original = ShardState._copied

    def copied(self: ShardState, head: BatchHead, offset: int, chunk: Chunk) -> None:
        session = self.producers[head.producer].session
        original(self, head, offset, chunk)
        known = self.producers[head.producer]
        self.producers[head.producer] = with_fields(known, session=session)

    replace(original, copied)


@fault(PROMISE, FORKING, "test_a_chunk_that_comes_again_is_not_appended_again")
def forks_are_copied_again() -> None:
    """A shard's log does not know how far a fork was copied."""
    original = ForkStates.floor

    def floor(self: ForkStates, fork: str) -> int:
        return 0

    replace(original, floor)
    take = ForkStates.take

    def forgets(self: ForkStates, entry: ForkCopied) -> None:
        take(self, with_fields(entry, chunk=0))

    replace(take, forgets)


@fault(PROMISE, FORKING, "test_a_fork_is_kept_until_its_copy_is_committed")
def forks_are_copied_before_the_commit() -> None:
    """A leader says that a fork's chunk is copied before a majority has it."""
    original = ShardForkCopies._wait

    def wait(self: ShardForkCopies, job: _Job) -> None:
        original(self, job)
        shard = self.replica.shard
        self.port.send(job.sender, ForkChunkCopied(shard, job.fork, job.chunk.number))

    replace(original, wait)


@fault(PROMISE, FORKING, "test_a_fork_that_waits_outlives_its_node")
def forks_are_dropped_at_a_restart() -> None:
    """A node that starts again removes the forks that it has."""
    original = Forks._lead

    def lead(self: Forks, fork: _Fork) -> None:
        if not fork.is_open:
            self._remove(fork)
        else:
            original(self, fork)

    replace(original, lead)


@fault(PROMISE, FORKING, "test_what_is_not_committed_in_the_main_log_goes_into_the_fork")
def forks_trust_what_is_not_committed() -> None:
    """A fork counts rows as appended that stand in the holder's log and are not committed."""
    original = forks.committed_in

    def committed_in(main: Replica | None, message: JoinFork) -> int:
        known = None if main is None else main.state.producers.get(message.producer)
        return 0 if known is None else known.next

    replace(original, committed_in)


@fault(
    PROMISE,
    FORKING,
    "test_a_fork_goes_only_when_the_leader_that_was_sent_its_chunk_says_that_it_is_copied",
)
def forks_believe_whoever_says_that_they_are_copied() -> None:
    """A fork's holder counts chunks as copied that it has sent to nobody, whoever says so."""

    def on_chunk_copied(self: Forks, sender: Peer, message: ForkChunkCopied) -> None:
        fork = self._forks.get(fork_shard(message.shard, message.fork))
        if fork is None or fork.is_open:
            return
        while fork.queue and fork.queue[0].number <= message.number:
            fork.copied = fork.queue.popleft().number
        fork.ask = None
        self._copy(fork)

    replace(Forks.on_chunk_copied, on_chunk_copied)
