"""Finds the place of a start in a shard's log, and single rows: only what is committed."""

from __future__ import annotations

from collections.abc import Callable

from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, Chunk, read
from streams.programs.reader.messages import FIRST, NEW, OFFSET, Piece, ReadFrom
from streams.services.read.chunk_rows import RowPieces
from streams.services.service import LedShard


def find_start(led: LedShard, start: ReadFrom, then: Callable[[int], None]) -> None:
    """Find the offset at which a start lies."""
    if start.kind == FIRST:
        then(led.first)
    elif start.kind == NEW:
        then(led.end)
    elif start.kind == OFFSET:
        then(start.at)
    elif start.at > led.replica.log.time:
        then(led.end)
    else:
        _find_chunk(
            led,
            led.replica.log.before_time(start.at)[0],
            lambda chunk: chunk.time >= start.at,
            lambda chunk: then(led.end if chunk is None else max(chunk.first, led.first)),
        )


def find_row(led: LedShard, offset: int, then: Callable[[Piece | None], None]) -> None:
    """Read one row; None: it is not kept, or is not committed."""

    def found(chunk: Chunk | None) -> None:
        if chunk is None:
            then(None)
        else:
            then(RowPieces(chunk, rows_of(chunk)).piece([offset - chunk.first]))

    find_chunk(led, offset, found)


def find_chunk(led: LedShard, offset: int, then: Callable[[Chunk | None], None]) -> None:
    """Read the chunk of one row; None: the row is not kept, or is not committed."""
    if led.first <= offset < led.end:
        _find_chunk(
            led,
            led.replica.log.before_offset(offset)[0],
            lambda chunk: chunk.kind == EVENTS and chunk.first <= offset < chunk.next_offset,
            then,
        )
    else:
        then(None)


def _find_chunk(
    led: LedShard,
    number: int,
    is_it: Callable[[Chunk], bool],
    then: Callable[[Chunk | None], None],
) -> None:
    """Read from chunk `number` on for the first one that is the wanted one; None: there is none
    that is committed."""

    def found(chunks: tuple[bytes, ...]) -> None:
        following = number
        for data in chunks:
            chunk = read(data)
            assert chunk is not None, "a replica hands over valid chunks"
            if chunk.number > led.replica.committed:
                break
            if is_it(chunk):
                then(chunk)
                return
            following = chunk.number + 1
        if following in (number, led.replica.committed + 1):
            then(None)
        else:
            _find_chunk(led, following, is_it, then)

    led.replica.chunks.read(number, found)
