"""Faults where a shard's leader serves readers, and where Spark reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.mutations.planting import fault, replace
from canopy.spark import segments
from canopy.spark.sink import _Writer
from streams.log.lost_rows import lost_to
from streams.log.state import ConsumerPosition, Entry, ShardState
from streams.log.zones import ZoneMap
from streams.services.read import history
from streams.services.read.durable import DurableConsumers
from streams.services.read.history import HistoryScan
from streams.services.read.shard_readings import ShardReadings

READING = "tests/streams/programs/reader/test_streams_reading.py"


@fault("S3", READING, "test_readings_deliver_their_selector_over_the_log")
def readings_miss_a_chunk_at_the_seam() -> None:
    """A reading joins the tail of a shard when one chunk before the tail is not looked at."""
    original = HistoryScan.is_at

    replace(original, lambda self, number: original(self, number - 1))


@fault(
    "S3",
    "tests/streams/services/test_streams_chunk_filter.py",
    "test_what_can_be_told_by_a_zone_map",
)
def zone_maps_ignore_null() -> None:
    """A chunk is passed over for IS NULL where its zone map has values of the attribute."""
    original = history._Needs.may_match

    def may_match(self: history._Needs, zones: ZoneMap) -> bool:
        return original(self, zones) and not any(name in zones.zones for name in self.absent)

    replace(original, may_match)


@fault("S3", READING, "test_what_is_not_committed_is_not_read")
def readers_see_what_is_not_committed() -> None:
    """A shard's leader serves all chunks that it has."""
    original = ShardReadings._step_scan

    def _step_scan(self: ShardReadings, reading: object, budget: int) -> int:
        self.tail.number = self.replica.log.end.number + 1
        return original(self, reading, budget)  # type: ignore[arg-type]

    replace(original, _step_scan)


@fault("S4", READING, "test_a_durable_position_outlives_leaders_and_segments")
def consumers_are_missing_from_the_state() -> None:
    """A segment's beginning says nothing of a shard's durable consumers."""
    original = ShardState.entries

    def entries(self: ShardState) -> Iterator[Entry]:
        return (entry for entry in original(self) if not isinstance(entry, ConsumerPosition))

    replace(original, entries)


@fault("S4", READING, "test_a_newer_attachment_fences_the_older")
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


@fault(
    "S4",
    "tests/streams/programs/reader/test_streams_lost_rows.py",
    "test_positions_beyond_lost_rows_are_refused_though_others_have_their_offsets",
)
def positions_survive_lost_rows() -> None:
    """A reading goes on at an offset whose rows are lost, behind others that have their offsets."""

    replace(lost_to, lambda lost, position, losses: None)


@fault(
    "S15",
    "tests/canopy/spark/test_spark_node.py",
    "test_a_batch_that_is_written_again_is_in_the_stream_once",
)
def spark_batches_have_no_step() -> None:
    """A task of a batch that is done again appends behind what is there."""
    original = _Writer._append

    replace(original, lambda self, batches, producer, step: original(self, batches, producer, 0))


@fault(
    "S15",
    "tests/canopy/spark/test_spark_segments.py",
    "test_the_chunk_that_only_one_of_all_replicas_has_is_not_read",
)
def spark_reads_what_one_replica_has() -> None:
    """Of folders everything is read that the furthest log has."""
    original = segments._held_by_majority

    def _held_by_majority(ordered: Sequence[Any]) -> int:
        end: int = ordered[0].recovered.log.end.number
        return end

    replace(original, _held_by_majority)
