"""Faults in how a shard's replica finds and mends damage."""

from __future__ import annotations

from collections.abc import Sequence

from bench.mutations.planting import fault, replace
from streams.log import chunk as chunks
from streams.log.chunk import HEAD, Chunk
from streams.log.recovery import FoundHole
from streams.shard.hosting.asked_checks import AskedChecks, _Walk
from streams.shard.log_walk import LogWalk
from streams.shard.repair import Repair
from streams.shard.replica import Replica
from streams.shard.stored_replica import StoredReplica

MENDING = "tests/streams/shard/test_streams_repair.py"
PROMISE = "promise: damage is neither served nor counted, and is mended by hash"


@fault(PROMISE, MENDING, "test_a_replica_with_a_hole_neither_answers_nor_leads_until_it_is_mended")
def shard_damaged_replica_leads() -> None:
    """A shard's replica takes part with holes in its log."""
    original = Replica._begin_repair

    def _begin_repair(self: Replica, holes: Sequence[FoundHole]) -> None:
        original(self, holes)
        self.ready = True
        self.durable = self.log.end.number

    replace(original, _begin_repair)


@fault(
    PROMISE,
    MENDING,
    "test_a_log_without_its_newest_segment_proves_nothing_by_what_it_lacks[killed]",
)
def shard_deleted_newest_segment_is_not_missed() -> None:
    """A shard's replica takes a log without its newest segment for whole."""

    def _has_lost(self: StoredReplica, log: object) -> bool:
        return False

    replace(StoredReplica._has_lost, _has_lost)


@fault(PROMISE, MENDING, "test_oldest_segments_that_were_deleted_come_back[1]")
def shard_deleted_oldest_segment_is_not_missed() -> None:
    """A shard's replica takes the oldest segment that it finds for the one with its floor."""

    def _wants_beginning(self: Replica) -> bool:
        return False

    replace(Replica._wants_beginning, _wants_beginning)


@fault(PROMISE, MENDING, "test_a_damaged_range_is_not_served_and_is_said")
def shard_damaged_range_is_served() -> None:
    """A shard's replica hands over chunks from its disk without a look at their CRC."""

    def same(head: bytes, body: bytes | memoryview) -> int:
        return int(HEAD.unpack(head)[2])

    replace(chunks._crc, same)


@fault(PROMISE, MENDING, "test_a_hole_waits_for_who_may_have_what_was_in_it")
def shard_hole_is_given_up_after_a_while() -> None:
    """A shard's replica ends its log before a hole when one lacks the chunks and others are
    silent."""
    original = Repair.ask

    def ask(self: Repair) -> None:
        since = self.replica.port.now - 5.0
        if any(at < since for at in self._lacking.values()):
            self._hopeless(self.holes[0])
        else:
            original(self)

    replace(original, ask)


@fault(PROMISE, MENDING, "test_what_is_sent_for_a_hole_is_proved_by_its_hash_before_it_is_written")
def shard_repair_takes_bytes_unproved() -> None:
    """A shard's replica mends a hole with any valid chunk of the right number."""

    def _is_wanted(self: Repair, chunk: Chunk) -> bool:
        return chunk.number == self._wanted()[0]

    replace(Repair._is_wanted, _is_wanted)


@fault(PROMISE, MENDING, "test_silent_damage_in_an_older_segment_is_found_and_mended")
def shard_logs_are_read_and_not_compared() -> None:
    """A walk over a shard's log passes over what is no chunk."""

    def _look_behind(self: LogWalk, segment: object, size: int) -> None:
        self.is_done = True

    replace(LogWalk._look_behind, _look_behind)


@fault(PROMISE, MENDING, "test_silent_damage_in_an_older_segment_is_found_and_mended")
def shard_missing_segment_is_not_noticed() -> None:
    """A walk over a shard's log does not ask whether a segment follows on the one before."""
    original = LogWalk._segment_ends

    def _segment_ends(self: LogWalk, segment: object, size: int) -> None:
        self._go_on(self._following(segment))  # type: ignore[arg-type]

    replace(original, _segment_ends)


@fault(
    PROMISE,
    "tests/streams/shard/test_streams_asked_checks.py",
    "test_damage_is_mended_and_the_rest_of_the_log_is_read_as_well",
)
def checks_end_at_the_first_damage() -> None:
    """A check that somebody has asked for does not go on behind damage that was mended."""
    original = AskedChecks._step

    def _step(self: AskedChecks, walk: _Walk) -> bool:
        former = walk.checking
        goes_on = original(self, walk)
        walk.is_over = walk.is_over or (former is not None and former.is_done)
        return goes_on

    replace(original, _step)
