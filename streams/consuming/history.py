"""A reading on its way through the log, until it is where the tail is.

It goes in slices: some rows' worth of work in a turn. Chunks come from memory or from disk; one
whose zone map says that nothing can match is passed over without a look at its rows, and all rows
of a chunk leave as they are in the log where there is no selector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from matching import Predicate
from streams.consuming.messages import Piece, cost
from streams.consuming.pieces import RowPieces, whole_piece
from streams.consuming.skipping import SkipTest
from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, Chunk
from streams.log.zones import decode_zones
from streams.replication.replica import Replica

CHUNK_WORK: Final = 50
"""What passing over a chunk counts for, in rows: reading one of 256 KiB takes 0.3 ms, testing a row
some 2 microseconds, most are smaller. Guess; would be measured by `bench.streams`."""

MESSAGE_BYTES: Final = 512 * 1024
"""Bytes of chunks whose rows go into one message, unless one chunk has more: as
`streams.replication.replica.PIECE`."""

FETCHED: Final = 64
"""Chunks that are taken from memory at once."""


class HistoryScan:
    """Where one reading is, and the chunks that it has in hand."""

    def __init__(
        self,
        replica: Replica,
        number: int,
        position: int,
        predicate: Predicate | None,
        wake: Callable[[], None],
    ) -> None:
        """From chunk `number` on, and in it from the offset `position`. `wake` is called when
        chunks that were waited for are there."""
        self.replica = replica
        self.number = number
        """The chunk that is looked at next."""
        self.position = position
        """All rows below it have been looked at."""
        self.waits = False
        """For chunks from disk."""
        self.is_lost = False
        """What comes next is not kept any more."""
        self._predicate = predicate
        self._skips = None if predicate is None else SkipTest(predicate)
        self._wake = wake
        self._queue: deque[Chunk] = deque()
        self._open: RowPieces | None = None  # a chunk whose rows have been looked at in part

    def is_at(self, number: int) -> bool:
        """Whether everything before chunk `number` has been looked at."""
        return self._open is None and self.number >= number

    def step(self, end: int, budget: int, credit: int) -> tuple[list[Piece], int]:
        """Look at chunks before chunk `end`, for `budget` rows' worth of work and while there is
        credit. Returns what matched, for one message, and the work done."""
        pieces: list[Piece] = []
        work = sent = size = 0
        while work < budget and sent < credit:
            if self._open is None:
                if self.number >= end or not self._fetch():
                    break
                chunk = self._queue[0]
                if pieces and size + len(chunk.data) > MESSAGE_BYTES:
                    break
                self._queue.popleft()
                self.number = chunk.number + 1
                size += len(chunk.data)
                work += CHUNK_WORK
                piece = self._begin(chunk)
            else:
                piece, looked_at = self._go_on(self._open, budget - work)
                work += looked_at
            if piece is not None:
                pieces.append(piece)
                sent += cost(piece)
        return pieces, work

    def _fetch(self) -> bool:
        """Whether the next chunk is in hand."""
        if not self._queue and not self.waits:
            self._queue.extend(self.replica.recent_from(self.number, FETCHED))
            if not self._queue:
                self.waits = True
                self.replica.scan_chunks(self.number, self._found)
        return bool(self._queue)

    def _found(self, chunks: list[Chunk]) -> None:
        self.waits = False
        self.is_lost = not chunks
        self._queue.extend(chunks)
        self._wake()

    def _begin(self, chunk: Chunk) -> Piece | None:
        """Pass a chunk over, take it whole, or open it."""
        if chunk.kind != EVENTS or chunk.next_offset <= self.position:
            return None
        if self._skips is not None and not self._skips.may_match(decode_zones(chunk.zones)):
            self.position = chunk.next_offset
            return None
        if self._predicate is None and self.position <= chunk.first:
            self.position = chunk.next_offset
            return whole_piece(chunk)
        self._open = RowPieces(chunk, rows_of(chunk))
        return None

    def _go_on(self, opened: RowPieces, budget: int) -> tuple[Piece | None, int]:
        """Look at rows of the open chunk."""
        rows, first = opened.rows, opened.chunk.first
        start = max(self.position - first, 0)
        end = min(start + budget, len(rows))
        predicate = self._predicate
        indices = [
            index
            for index in range(start, end)
            if predicate is None or predicate.matches(rows[index].attributes)
        ]
        self.position = first + end
        if end == len(rows):
            self._open = None
        return opened.piece(indices) if indices else None, end - start
