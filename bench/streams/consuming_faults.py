"""Faults where a shard's leader serves readers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.mutations.planting import fault, replace
from matching import Conjunction, Interval
from overlay.client import BeginReading
from streams.access.attachments import LeaderLoad
from streams.access.locator import StreamLocated
from streams.directory.entry import StreamEntry
from streams.log.chunk import Chunk
from streams.log.lost_rows import LostRows, lost_to
from streams.log.state import ConsumerPosition, Entry, ShardState
from streams.log.zones import Zone, ZoneMap
from streams.programs.reader import cursor
from streams.programs.reader.cursor import Shared, TakeRecords
from streams.programs.reader.messages import Durable, Piece
from streams.programs.reader.readers import Readers, strange_of
from streams.services.read import chunk_filter, shared_rows
from streams.services.read.durable import DurableConsumers, Refusal
from streams.services.read.history import HistoryScan
from streams.services.read.shard_readings import MarkPositions, ShardReadings
from streams.services.read.tail import Tail
from streams.shard.leader import set_back
from streams.shard.replica import Replica

ANSWERS = "tests/streams/test_streams_answers.py"
READING = "tests/streams/programs/reader/test_streams_reading.py"
READERS = "tests/streams/programs/reader/test_streams_readers.py"
SHARING = "tests/streams/services/test_streams_shared_rows.py"
SKIPPING = "tests/streams/services/test_streams_chunk_filter.py"
PROMISE = "promise: a reading delivers its selector over the committed log"
POSITION = "promise: a durable consumer's position is what its program has confirmed"
OVER_THE_LOG = "test_readings_deliver_their_selector_over_the_log"


@fault(PROMISE, READING, OVER_THE_LOG)
def readings_miss_a_chunk_at_the_seam() -> None:
    """A reading joins the tail of a shard when one chunk before the tail is not looked at."""
    original = HistoryScan.is_at

    def is_at(self: HistoryScan, number: int) -> bool:
        return original(self, number - 1)

    replace(original, is_at)


@fault(PROMISE, READING, OVER_THE_LOG)
def readings_get_a_chunk_twice_at_the_seam() -> None:
    """A reading that leaves the tail of a shard looks at the last chunk again."""
    original = ShardReadings._go_behind

    def _go_behind(self: ShardReadings, reading: object, number: int, position: int) -> None:
        original(self, reading, number - 1, max(position - 1, 0))  # type: ignore[arg-type]

    replace(original, _go_behind)


@fault(PROMISE, READERS, "test_a_busy_leader_is_asked_for_some_readings_at_a_time_and_not_left")
def busy_leaders_are_taken_for_silent() -> None:
    """A reading is opened anew when its leader is late with it, though others are answered."""
    original = LeaderLoad.is_silent

    def is_silent(self: LeaderLoad, session: Any, now: float) -> bool:
        self._heard.clear()
        return original(self, session, now)

    replace(original, is_silent)


@fault(PROMISE, SHARING, "test_the_tail_finds_what_each_selector_means")
def pinned_selectors_are_true_by_their_value_alone() -> None:
    """A selector that is looked up by one value is not held against the rest of the row."""

    def check_except(self: Conjunction, attribute: str | None) -> object:
        return lambda attributes: True

    replace(Conjunction.check_except, check_except)


@fault(PROMISE, SHARING, "test_rows_are_sent_once_and_each_reading_gets_its_own")
def shared_rows_are_counted_in_each_chunk() -> None:
    """Rows that readings of a node share are counted from the beginning of their chunk."""
    original = Shared.pieces

    def pieces(self: Shared, rows: Sequence[int]) -> tuple[Piece, ...]:
        return original(self, [self._rows[row][1] for row in rows])

    replace(original, pieces)


@fault(PROMISE, READING, OVER_THE_LOG)
def shared_rows_move_one_reading_only() -> None:
    """Of readings of a node that share rows, with one selector, the first only is told of them."""
    original = shared_rows._message

    def _message(shard: str, position: int, rows: object, wanted: list[Any], there: object) -> Any:
        return original(shard, position, rows, [(m[:1], p) for m, p in wanted], there)  # type: ignore[arg-type]

    replace(original, _message)


@fault(PROMISE, READERS, "test_who_gets_rows_does_not_wait_for_those_who_get_none")
def programs_that_wait_for_positions_are_forgotten() -> None:
    """A program that was not told at once of a position without rows is not told of it later."""
    original = Readers._tell_passed

    def _tell_passed(self: Readers) -> None:
        self._passed.clear()
        original(self)

    replace(original, _tell_passed)


@fault(PROMISE, READING, "test_many_readings_are_told_in_turns_how_far_was_scanned")
def the_same_readings_are_always_marked() -> None:
    """A shard's leader tells the first readings only how far was scanned."""
    original = ShardReadings.on_mark_positions

    def mark(self: ShardReadings, timer: MarkPositions) -> None:
        self._marked = 0
        original(self, timer)

    replace(original, mark)


@fault(PROMISE, SKIPPING, "test_what_can_be_told_by_a_zone_map")
def zone_maps_ignore_null() -> None:
    """A chunk is passed over for IS NULL where its zone map has values of the attribute."""
    original = chunk_filter._Needs.may_match

    def may_match(self: chunk_filter._Needs, zones: ZoneMap) -> bool:
        return original(self, zones) and not any(name in zones.zones for name in self.absent)

    replace(original, may_match)


@fault(PROMISE, SKIPPING, "test_what_can_be_told_by_a_zone_map")
def zone_maps_ignore_mixed_types() -> None:
    """Where an attribute has numbers and texts in a chunk, its zone map is read as numbers only."""
    original = chunk_filter._spans

    def _spans(zone: Zone) -> list[Interval]:
        found = original(zone)
        numbers = [span for span in found if span.lo[0] == 1]
        return numbers or found

    replace(original, _spans)


@fault(PROMISE, READING, "test_what_is_not_committed_is_not_read")
def readers_see_what_is_not_committed() -> None:
    """A shard's leader serves all chunks that it has."""
    original = ShardReadings._step_scan

    def _step_scan(self: ShardReadings, reading: object, budget: int) -> int:
        self.tail.number = self.replica.log.end.number + 1
        return original(self, reading, budget)  # type: ignore[arg-type]

    replace(original, _step_scan)


@fault(PROMISE, READING, "test_a_position_moves_on_where_nothing_matches")
def positions_wait_for_a_match() -> None:
    """A reading's position is not told while nothing matches."""

    def mark(self: ShardReadings, timer: MarkPositions) -> None:
        pass

    replace(ShardReadings.on_mark_positions, mark)


@fault(PROMISE, READING, OVER_THE_LOG)
def marks_skip_a_gap() -> None:
    """The tail of a shard counts chunks as looked at that it has not matched."""
    original = Tail.take

    def take(self: Tail, chunks: list[Chunk]) -> list[object]:
        found = original(self, chunks[:1])
        self.number, self.position = chunks[-1].number + 1, chunks[-1].next_offset
        return found  # type: ignore[return-value]

    replace(original, take)


@fault(PROMISE, READING, "test_credit_bounds_what_is_sent_at_the_tail_and_before_it")
def readers_credit_is_not_counted() -> None:
    """A shard's leader sends rows however little credit a reading has."""

    def cost(piece: Piece) -> int:
        return 0

    from streams.programs.reader import messages

    replace(messages.cost, cost)


@fault(POSITION, READING, "test_a_durable_position_outlives_leaders_and_segments")
def consumers_are_missing_from_the_state() -> None:
    """A segment's beginning says nothing of a shard's durable consumers."""
    original = ShardState.entries

    def entries(self: ShardState) -> Iterator[Entry]:
        return (entry for entry in original(self) if not isinstance(entry, ConsumerPosition))

    replace(original, entries)


@fault(POSITION, READING, "test_a_durable_position_outlives_leaders_and_segments")
def consumers_selector_is_not_held_against() -> None:
    """A program may read as a durable consumer with another selector."""
    original = DurableConsumers.obstacle

    def obstacle(self: DurableConsumers, wanted: Durable, selector: str) -> Refusal | None:
        known = self.known(wanted.name)
        return original(self, wanted, selector if known is None else known.selector)

    replace(original, obstacle)


@fault(POSITION, READING, "test_a_newer_attachment_fences_the_older")
def consumers_are_not_fenced() -> None:
    """A durable consumer's former attachment may go on."""
    original = DurableConsumers.move

    def move(
        self: DurableConsumers, name: str, attachment: int, position: int, end: int, then: object
    ) -> None:
        known = self.known(name)
        attachment = attachment if known is None else known.attachment
        original(self, name, attachment, position, end, then)  # type: ignore[arg-type]

    replace(original, move)


@fault(PROMISE, ANSWERS, "test_rows_that_cannot_be_are_read_again")
def readings_take_whatever_comes() -> None:
    """A program's node takes rows that lie outside of what its leader says to have looked at, and
    positions that go back."""

    def misfit(since: int, position: int, pieces: Sequence[Piece]) -> str:
        return ""

    replace(cursor.misfit, misfit)


@fault(PROMISE, ANSWERS, "test_a_position_that_is_higher_than_asked_for_confirms_no_later_one")
def readings_confirm_what_was_not_asked_for() -> None:
    """A position of a durable consumer counts as committed since the leader named a higher one
    before it was asked for."""
    original = Readers.on_position_committed

    def on_position_committed(self: Readers, sender: Any, message: Any) -> None:
        original(self, sender, message)
        if session := self.heard(sender, message.reading):
            known = session.part.durable
            known.committed = max(known.committed, message.position)

    replace(original, on_position_committed)


@fault(
    "promise: a program that waits for a majority is told so",
    "tests/streams/directory/test_streams_leaving.py",
    "test_programs_hear_at_once_that_there_is_no_majority_and_go_on_when_there_is[1]",
)
def readings_wait_for_a_majority_in_silence() -> None:
    """A program that reads already is not told that its shard has lost its majority."""

    def lacks_majority(self: Replica) -> bool:
        return False

    def stuck(self: StreamLocated, shard: int) -> None:
        return None

    replace(Replica.lacks_majority, lacks_majority)
    replace(StreamLocated.stuck, stuck)


LOST_ROWS = "tests/streams/programs/reader/test_streams_lost_rows.py"
LOST = "promise: who had a position hears that it is gone"


@fault(
    LOST, LOST_ROWS, "test_positions_beyond_lost_rows_are_refused_though_others_have_their_offsets"
)
def positions_survive_lost_rows() -> None:
    """A reading goes on at an offset whose rows are lost, behind others that have their offsets."""

    def lost_to_(lost: tuple[LostRows, ...], position: int, losses: int) -> LostRows | None:
        return None

    replace(lost_to, lost_to_)


@fault(
    LOST,
    LOST_ROWS,
    "test_durable_consumers_that_were_beyond_go_back_and_the_next_program_is_told",
)
def consumers_are_forgotten_with_lost_rows() -> None:
    """A leader whose log has lost rows says nothing of the durable consumers that it knew."""

    def set_back_(kept: ShardState, before: ShardState, offset: int) -> Iterator[Entry]:
        return iter(())

    replace(set_back, set_back_)


@fault(LOST, READERS, "test_positions_of_a_removed_stream_are_none_of_the_next_one")
def positions_are_of_any_stream() -> None:
    """A program's node takes positions for those of the stream that has the name now."""

    def strange_of_(command: BeginReading, entry: StreamEntry) -> str:
        return ""

    replace(strange_of, strange_of_)


@fault(LOST, READING, "test_a_consumer_that_is_silent_for_too_long_is_forgotten")
def consumers_expire_without_a_word() -> None:
    """A durable consumer that was silent for too long begins anew as if it had never been."""
    original = ShardState._take_consumer

    def _take_consumer(self: ShardState, entry: Any, chunk: Chunk) -> None:
        original(self, entry, chunk)
        self.forgotten.clear()

    replace(original, _take_consumer)


@fault(
    "promise: the judge knows which rows were owed a record",
    "tests/canopy/traces/streams/test_traces_streams.py",
    "test_records_of_a_share_of_the_rows_name_it",
)
def consumers_name_no_share() -> None:
    """Records of a durable consumer say that all of its rows were recorded, whatever share was."""
    original = TakeRecords.confirm

    def confirm(self: TakeRecords, position: int) -> float:
        original(self, position)
        return 1.0

    replace(original, confirm)
