"""Faults where Spark reads and writes streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.mutations.planting import fault, replace
from canopy.spark import blocks, segments
from canopy.spark.blocks import Block
from canopy.spark.sink import _Writer
from overlay.client import PackedEvents
from streams.log.chunk import Chunk
from streams.programs.reader.cursor import Cursor

SPARK = "tests/canopy/spark/test_spark_node.py"
COLUMNS = "tests/canopy/spark/test_spark_columns.py"
READERS = "tests/streams/programs/reader/test_streams_readers.py"
SEGMENTS = "tests/canopy/spark/test_spark_segments.py"
ONCE = "promise: Spark writes each row of a batch once"
COMMITTED = "promise: Spark reads committed rows only, each once"


@fault(ONCE, SPARK, "test_a_batch_that_is_written_again_is_in_the_stream_once")
def spark_batches_have_no_step() -> None:
    """A task of a batch that is done again appends behind what is there."""
    original = _Writer._append

    def _append(self: _Writer, batches: Iterator[Any], producer: str, step: int) -> Any:
        return original(self, batches, producer, 0)

    replace(original, _append)


@fault(ONCE, SPARK, "test_a_batch_that_is_written_again_is_in_the_stream_once")
def spark_batches_are_producers_of_their_own_attempt() -> None:
    """A task appends under a name of its own attempt."""
    original = _Writer._append

    def _append(self: _Writer, batches: Iterator[Any], producer: str, step: int) -> Any:
        return original(self, batches, f"{producer}.{id(batches)}", step)

    replace(original, _append)


@fault(COMMITTED, SEGMENTS, "test_the_chunk_that_only_one_of_all_replicas_has_is_not_read")
def spark_reads_what_one_replica_has() -> None:
    """Of folders everything is read that the furthest log has."""
    original = segments._held_by_majority

    def _held_by_majority(ordered: Sequence[Any]) -> int:
        end: int = ordered[0].recovered.log.end.number
        return end

    replace(original, _held_by_majority)


@fault(
    COMMITTED,
    SEGMENTS,
    "test_a_damaged_chunk_is_taken_from_another_replica_and_named_if_there_is_none",
)
def spark_passes_over_damaged_chunks() -> None:
    """A chunk of a folder that is damaged is left out."""
    original = segments._walk

    def _walk(folder: Path, begin: int, end: int) -> Iterator[Chunk]:
        at = begin
        while at < end:
            before = at
            for chunk in original(folder, at, end):
                at = chunk.next_offset
                yield chunk
            at += at == before

    replace(original, _walk)


@fault(COMMITTED, COLUMNS, "test_a_block_has_the_rows_of_its_range_with_their_values")
def spark_reads_beyond_its_range() -> None:
    """A task takes all rows of a piece, also those that belong to the next one's range."""
    original = Block.__init__

    def begin_block(
        self: Block, pieces: Sequence[PackedEvents], begin: int = 0, end: int = blocks.EVERYTHING
    ) -> None:
        original(self, pieces, begin, blocks.EVERYTHING)

    replace(original, begin_block)


@fault(COMMITTED, READERS, "test_programs_miss_nothing_and_get_nothing_twice_through_faults")
def packed_rows_count_as_told_before_they_are() -> None:
    """A program that was handed some packed rows is told the position behind all that wait."""
    original = Cursor._tell

    def _tell(self: Cursor, behind: int) -> None:
        assert self.position is not None
        original(self, self.position)

    replace(original, _tell)
