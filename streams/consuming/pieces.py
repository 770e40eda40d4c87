"""Rows of a chunk as readers are sent them."""

from __future__ import annotations

from collections.abc import Sequence

from streams.consuming.messages import Piece
from streams.log.batches import Row, encode_rows, encoded_rows_of
from streams.log.chunk import Chunk


class RowPieces:
    """The rows of one Events chunk, decoded once, and each encoded once for all its readers."""

    def __init__(self, chunk: Chunk, rows: Sequence[Row]) -> None:
        self.chunk = chunk
        self.rows = rows
        self._encoded: dict[int, bytes] = {}

    def piece(self, indices: Sequence[int]) -> Piece:
        """Those of the rows with these indices in the chunk, ascending; at least one."""
        start, count = indices[0], len(indices)
        follows = indices[-1] - start + 1 == count
        places = () if follows else tuple(index - start for index in indices[1:])
        rows = b"".join(map(self._encode, indices))
        return Piece(self.chunk.time, self.chunk.first + start, count, places, rows)

    def _encode(self, index: int) -> bytes:
        found = self._encoded.get(index)
        if found is None:
            found = self._encoded[index] = encode_rows((self.rows[index],))
        return found


def whole_piece(chunk: Chunk) -> Piece:
    """All rows of an Events chunk, as they are in the log."""
    return Piece(chunk.time, chunk.first, chunk.offsets, (), encoded_rows_of(chunk))
