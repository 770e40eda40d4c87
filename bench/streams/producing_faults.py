"""Faults where a shard's leader takes rows of producers, and at producers' nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.mutations.planting import fault, replace, replace_constant
from streams.log.state import Entry, ProducerState, ShardState
from streams.services.append import appender
from streams.services.append.numbers import New, Repeated, Wrong, judge
from streams.services.service import LedShard

APPENDING = "tests/streams/programs/producer/test_streams_appending.py"


@fault("S2", APPENDING, "test_numbers_outlive_a_leader_and_a_segment")
def producers_are_missing_from_the_state() -> None:
    """A segment's beginning says nothing of the producers of a shard."""
    original = ShardState.entries

    def entries(self: ShardState) -> Iterator[Entry]:
        return (entry for entry in original(self) if not isinstance(entry, ProducerState))

    replace(original, entries)


@fault("M4", APPENDING, "test_a_newer_session_fences_the_older_and_goes_on_with_its_numbers")
def producers_session_is_not_fenced() -> None:
    """A shard's leader takes rows of a producer's session after a newer one has begun."""
    original = judge

    def judge_(
        known: ProducerState | None, session: int, following: int, sequence: int, count: int
    ) -> New | Repeated | Wrong:
        return original(known, known.session if known else 0, following, sequence, count)

    replace(original, judge_)


@fault("S1", APPENDING, "test_nothing_is_acknowledged_before_a_majority_has_it")
def producers_are_answered_before_the_commit() -> None:
    """A shard's leader answers when what it says is in its own log."""

    def when_committed(self: LedShard, then: Callable[[], None], number: int | None = None) -> None:
        then()

    replace(LedShard.when_committed, when_committed)


@fault(
    "S2",
    APPENDING,
    "test_a_gap_and_a_batch_that_is_appended_in_part_are_refused_with_the_next_number",
)
def producers_numbers_may_have_gaps() -> None:
    """A shard's leader takes rows of a producer whose numbers leave others out."""
    original = judge

    def judge_(
        known: ProducerState | None, session: int, following: int, sequence: int, count: int
    ) -> New | Repeated | Wrong:
        if sequence > following:
            return New()
        return original(known, session, following, sequence, count)

    replace(original, judge_)


@fault(
    "T1",
    APPENDING,
    "test_what_comes_together_shares_a_chunk_and_no_batch_spans_two",
)
def producers_batches_have_a_chunk_each() -> None:
    """A shard's leader writes each batch into a chunk of its own, whatever else is queued."""
    replace_constant(appender, "CHUNK_TARGET", 1)
