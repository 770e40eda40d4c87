"""Rows of chunks as readers are sent them: as they are in the log, cut out of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

from matching import Value
from streams.log.batches import Row, encoded_rows_of, loose_rows_of
from streams.log.chunk import Chunk
from streams.programs.reader.messages import ROW_COST, LooseRows, Piece


class RowPieces:
    """The rows of one Events chunk, decoded once."""

    def __init__(self, chunk: Chunk, rows: Sequence[Row]) -> None:
        self.chunk = chunk
        self.rows = rows
        self._loose: tuple[msgspec.Raw, ...] = ()

    @property
    def loose(self) -> tuple[msgspec.Raw, ...]:
        """The rows as they are in the log, each by itself."""
        if not self._loose:
            self._loose = loose_rows_of(self.chunk)
        return self._loose

    def piece(self, indices: Sequence[int]) -> Piece:
        """Return the piece with the rows of the chunk at these indices, which are ascending and at
        least one."""
        start, count = indices[0], len(indices)
        follows = indices[-1] - start + 1 == count
        places = () if follows else tuple(index - start for index in indices[1:])
        rows = b"".join(map(self.loose.__getitem__, indices))
        return Piece(self.chunk.time, self.chunk.first + start, count, places, rows)


class ChunkRows:
    """The rows of some Events chunks that follow on one another, by their *places*: counted over
    all of them, from 0."""

    def __init__(self, chunks: Sequence[RowPieces]) -> None:
        self._chunks = chunks
        self._sizes: list[int] = []
        self._starts = [0]
        for each in chunks:
            self._starts.append(self._starts[-1] + len(each.rows))

    def attributes(self) -> list[dict[str, Value | None]]:
        """Return the attributes of each row."""
        return [row.attributes for each in self._chunks for row in each.rows]

    @property
    def sizes(self) -> Sequence[int]:
        """The bytes of each row as it is in the log, by place."""
        if not self._sizes:
            self._sizes = [len(row) for each in self._chunks for row in each.loose]
        return self._sizes

    def cost(self, places: Sequence[int]) -> int:
        """The credit that rows take (`messages.cost`)."""
        sizes = self.sizes
        return sum([sizes[place] for place in places]) + ROW_COST * len(places)

    def pieces(self, places: Sequence[int]) -> tuple[Piece, ...]:
        """The rows at these places, ascending, for readings that all want them."""
        return tuple(each.piece(indices) for each, indices in self._divided(places))

    def loose(self, places: Sequence[int]) -> tuple[LooseRows, ...]:
        """The rows at these places, ascending, for readings that want some of them each."""
        found = []
        for each, indices in self._divided(places):
            start, loose = indices[0], each.loose
            offsets = tuple([index - start for index in indices])
            rows = tuple([bytes(loose[index]) for index in indices])
            found.append(LooseRows(each.chunk.time, each.chunk.first + start, offsets, rows))
        return tuple(found)

    def _divided(self, places: Sequence[int]) -> Iterator[tuple[RowPieces, list[int]]]:
        """The chunks in which some of the places are, each with the indices there."""
        at = 0
        for number, each in enumerate(self._chunks):
            end = bisect_left(places, self._starts[number + 1], at)
            if end > at:
                yield each, [place - self._starts[number] for place in places[at:end]]
            at = end


def whole_piece(chunk: Chunk) -> Piece:
    """All rows of an Events chunk, as they are in the log."""
    return Piece(chunk.time, chunk.first, chunk.offsets, (), encoded_rows_of(chunk))
