"""Offsets of a shard that this node leads: which are there, where a start is, and single rows."""

from __future__ import annotations

from collections.abc import Callable

from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, read
from streams.programs.reader.messages import FIRST, NEW, OFFSET, Piece, ReadFrom
from streams.services.read.chunk_rows import RowPieces
from streams.shard.replica import Replica


class Positions:
    """Those of one shard: only what is committed."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    @property
    def end(self) -> int:
        """The offset after the last committed row."""
        line = self.replica.log.line(self.replica.committed)
        assert line is not None, "the last chunks have their lines in memory"
        return line.first + line.offsets

    @property
    def first(self) -> int:
        """The oldest offset that is kept."""
        return max(self.replica.state.floor, self.replica.log.first_offset)

    def resolve(self, start: ReadFrom, then: Callable[[int], None]) -> None:
        """Find the offset at which a start lies."""
        if start.kind == FIRST:
            then(self.first)
        elif start.kind == NEW:
            then(self.end)
        elif start.kind == OFFSET:
            then(start.at)
        else:
            self._find_time(start.at, self.replica.log.before_time(start.at)[0], then)

    def _find_time(self, time: int, number: int, then: Callable[[int], None]) -> None:
        """Read from chunk `number` on for the first that is not older than `time`."""

        def found(chunks: tuple[bytes, ...]) -> None:
            last = number
            for data in chunks:
                chunk = read(data)
                assert chunk is not None, "a replica hands over valid chunks"
                if chunk.number > self.replica.committed:
                    break
                if chunk.time >= time:
                    then(max(chunk.first, self.first))
                    return
                last = chunk.number + 1
            if last == number:
                then(self.end)
            else:
                self._find_time(time, last, then)

        if time > self.replica.log.time or number > self.replica.committed:
            then(self.end)
        else:
            self.replica.chunks.read(number, found)

    def find_row(self, offset: int, then: Callable[[Piece | None], None]) -> None:
        """Read one row; None: it is not kept, or is not committed."""
        if self.first <= offset < self.end:
            self._find_row(offset, self.replica.log.before_offset(offset)[0], then)
        else:
            then(None)

    def _find_row(self, offset: int, number: int, then: Callable[[Piece | None], None]) -> None:
        def found(chunks: tuple[bytes, ...]) -> None:
            last = number
            for data in chunks:
                chunk = read(data)
                assert chunk is not None, "a replica hands over valid chunks"
                if chunk.kind == EVENTS and chunk.first <= offset < chunk.next_offset:
                    then(RowPieces(chunk, rows_of(chunk)).piece([offset - chunk.first]))
                    return
                last = chunk.number + 1
            if last == number:
                then(None)
            else:
                self._find_row(offset, last, then)

        self.replica.chunks.read(number, found)
