"""Faults where a shard's leader takes rows of producers, and at producers' nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from bench.mutations.planting import fault, replace
from streams.log.chunk import Chunk
from streams.log.state import Entry, ProducerOpened, ProducerState, ShardState
from streams.programs.producer.append_session import AppendSession
from streams.programs.producer.producers import Producers
from streams.services.append.numbers import New, Repeated, Wrong, judge, replaced
from streams.services.service import LedShard

APPENDING = "tests/streams/programs/producer/test_streams_appending.py"
PROMISE = "promise: each row of a producer is in the log once"


@fault(PROMISE, APPENDING, "test_numbers_outlive_a_leader_and_a_segment")
def producers_are_missing_from_the_state() -> None:
    """A segment's beginning says nothing of the producers of a shard."""
    original = ShardState.entries

    def entries(self: ShardState) -> Iterator[Entry]:
        return (entry for entry in original(self) if not isinstance(entry, ProducerState))

    replace(original, entries)


@fault(PROMISE, APPENDING, "test_a_newer_session_fences_the_older_and_goes_on_with_its_numbers")
def producers_session_is_not_fenced() -> None:
    """A shard's leader takes rows of a producer's session after a newer one has begun."""
    original = judge

    def judge_(
        known: ProducerState | None, session: int, following: int, sequence: int, count: int
    ) -> New | Repeated | Wrong:
        return original(known, known.session if known else 0, following, sequence, count)

    replace(original, judge_)


@fault(
    PROMISE,
    APPENDING,
    "test_a_step_is_known_from_its_first_row_and_ends_those_before",
)
def producers_step_begins_where_its_retry_begins() -> None:
    """A step of a producer that is begun again has its first row behind those that it has."""
    original = ShardState._opened

    def _opened(self: ShardState, entry: ProducerOpened, chunk: Chunk) -> None:
        original(self, entry, chunk)
        known = self.producers[entry.name]
        self.producers[entry.name] = msgspec.structs.replace(known, begun=known.next)

    replace(original, _opened)


@fault(
    PROMISE,
    "tests/streams/programs/producer/test_streams_programs.py",
    "test_what_programs_append_is_there_once_and_in_their_order",
)
def producers_that_were_replaced_come_back() -> None:
    """A program whose node went away goes on as a producer that another has begun meanwhile."""

    def replaced_(known: ProducerState | None, token: str) -> Wrong | None:
        return None

    replace(replaced, replaced_)


@fault(PROMISE, APPENDING, "test_nothing_is_acknowledged_before_a_majority_has_it")
def producers_are_answered_before_the_commit() -> None:
    """A shard's leader answers when what it says is in its own log."""

    def when_committed(self: LedShard, then: Callable[[], None], number: int | None = None) -> None:
        then()

    replace(LedShard.when_committed, when_committed)


@fault(
    PROMISE,
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


@fault(PROMISE, APPENDING, "test_an_unknown_producer_is_refused_and_not_admitted")
def producers_that_are_forgotten_are_admitted() -> None:
    """A shard's leader takes rows of a producer of which it knows nothing."""
    original = judge

    def judge_(
        known: ProducerState | None, session: int, following: int, sequence: int, count: int
    ) -> New | Repeated | Wrong:
        return New() if known is None else original(known, session, following, sequence, count)

    replace(original, judge_)


@fault(
    PROMISE,
    "tests/streams/test_streams_answers.py",
    "test_a_node_appends_again_after_a_leader_has_refused_its_numbers",
)
def producers_of_nodes_end_for_good() -> None:
    """A node whose own session was refused appends nothing to that shard any more."""

    def _own_sending(self: Producers, session: Any, shard: int) -> AppendSession:
        return session.shards.get(shard) or self._open_own(session, shard)

    replace(Producers._own_sending, _own_sending)


@fault(
    PROMISE,
    "tests/streams/directory/test_streams_leaving.py",
    "test_programs_hear_at_once_that_there_is_no_majority_and_go_on_when_there_is[1]",
)
def producers_rows_take_the_numbers_of_refused_ones() -> None:
    """A producer that counts its rows goes on after some were refused for want of a majority."""
    original = AppendSession._refuse_all

    def _refuse_all(self: AppendSession, reason: str) -> None:
        first, self._log.first = self._log.first, -1
        original(self, reason)
        self._log.first = first

    replace(original, _refuse_all)
