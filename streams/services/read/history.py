"""A reading on its way through the log, until it is where the tail is.

It goes in slices: some rows' worth of work in a turn. Chunks come from memory or from disk; one
whose zone map says that nothing can match is passed over without a look at its rows, and all rows
of a chunk leave as they are in the log where there is no selector.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Final

from matching import Conjunction, Interval, Predicate
from matching.values import Intervals, point
from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, Chunk
from streams.log.table import TableView
from streams.log.zones import Zone, ZoneMap, decode_zones
from streams.programs.reader.messages import Piece, cost
from streams.services.read.chunk_rows import RowPieces, whole_piece
from streams.services.service import LedShard
from streams.shard.kept_chunks import CHUNK_WORK, ChunkReader

# --- which chunks a selector cannot match anything in, by their zone maps ---
#
# A conjunction is true of no row of a chunk if one of its constraints is true of none of the values
# that the chunk has of its attribute. A zone map says too much rather than too little, and so does
# this: what it does not name while it is not complete may have any value.


class ChunkFilter:
    """The chunks that one selector may match something in."""

    def __init__(self, predicate: Predicate) -> None:
        self._conjunctions = [_Needs(conjunction) for conjunction in predicate.conjunctions]

    def may_match(self, zones: ZoneMap | None) -> bool:
        """Whether a row of a chunk with this zone map (None: it has none) may match."""
        if zones is None:
            return bool(self._conjunctions)
        return any(needs.may_match(zones) for needs in self._conjunctions)


class _Needs:
    """The conditions of one conjunction on a row's attributes."""

    def __init__(self, conjunction: Conjunction) -> None:
        self.values: list[tuple[str, Intervals]] = [
            (name, constraint.intervals) for name, constraint in conjunction.constraints.items()
        ]
        self.present = [name for name, _ in conjunction.pivots()]
        self.absent = conjunction.null_attributes

    def may_match(self, zones: ZoneMap) -> bool:
        known = zones.zones
        if zones.complete and any(name not in known for name in self.present):
            return False
        if any(name in known and not known[name].absent for name in self.absent):
            return False
        return all(
            name not in known or _may_be_in(known[name], intervals)
            for name, intervals in self.values
        )


def _may_be_in(zone: Zone, intervals: Intervals) -> bool:
    """Whether a value of the zone may lie in one of the intervals."""
    return any(span.overlaps(each) for span in _spans(zone) for each in intervals)


def _spans(zone: Zone) -> list[Interval]:
    found = [point(value) for value in zone.booleans]
    if zone.numbers is not None:
        least, greatest = zone.numbers
        if isnan(least) or isnan(greatest):  # no order holds, and so no least or greatest
            least, greatest = float("-inf"), float("inf")
        found.append(Interval((1, least, 0), (1, greatest, 1)))
    if zone.ranged:
        found.append(Interval((2, zone.texts[0], 0), (2, zone.texts[-1], 1)))
    else:
        found += [point(text) for text in zone.texts]
    return found


MESSAGE_BYTES: Final = 512 * 1024
"""Bytes of chunks whose rows go into one message, unless one chunk has more: as
`streams.shard.kept_chunks.PIECE`."""


class HistoryScan:
    """The position of one reading, and its chunks in memory."""

    def __init__(
        self,
        led: LedShard,
        number: int,
        position: int,
        predicate: Predicate | None,
        wake: Callable[[], None],
        view: TableView | None = None,
    ) -> None:
        """From chunk `number` on, and in it from the offset `position`. `wake` is called when
        chunks that were waited for are there. `view`: of the rows below its end only those that
        are in it are wanted."""
        self.position = position
        """All rows below it have been looked at."""
        self.reader = ChunkReader(led.replica.chunks, number, wake)
        self._predicate = predicate
        self._skips = None if predicate is None else ChunkFilter(predicate)
        self._led = led
        self._view = view
        self._open: RowPieces | None = None  # a chunk whose rows have been looked at in part

    def is_at(self, number: int) -> bool:
        """Whether everything before chunk `number` has been looked at."""
        return self._open is None and self.reader.number >= number

    def step(self, end: int, budget: int, credit: int) -> tuple[list[Piece], int]:
        """Look at chunks before chunk `end`, for `budget` rows' worth of work and while there is
        credit. Returns what matched, for one message, and the work done."""
        pieces: list[Piece] = []
        work = sent = size = 0
        while work < budget and sent < credit:
            if self._open is None:
                chunk = self.reader.peek() if self.reader.number < end else None
                if chunk is None or (pieces and size + len(chunk.data) > MESSAGE_BYTES):
                    break
                size += len(chunk.data)
                work += CHUNK_WORK
                piece = self._begin(self.reader.take())
            else:
                piece, looked_at = self._go_on(self._open, budget - work)
                work += looked_at
            if piece is not None:
                pieces.append(piece)
                sent += cost(piece)
        return pieces, work

    def _begin(self, chunk: Chunk) -> Piece | None:
        """Pass a chunk over, take it whole, or open it."""
        if chunk.kind != EVENTS or chunk.next_offset <= self.position:
            return None
        skips = self._skips is not None and not self._skips.may_match(decode_zones(chunk.zones))
        if skips or self._led.is_over(chunk.time):
            self.position = chunk.next_offset
            return None
        if self._view is not None and chunk.first >= self._view.end:
            self._view = None
        wants_all = self._predicate is None and self._view is None and not self._led.has_lives
        if wants_all and self.position <= chunk.first:
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
        if (view := self._view) is not None:
            indices = [
                index
                for index in indices
                if first + index >= view.end or view.has(first + index, rows[index].attributes)
            ]
        if self._led.has_lives:
            time, over = opened.chunk.time, self._led.is_row_over
            indices = [index for index in indices if not over(time, rows[index].attributes)]
        self.position = first + end
        if end == len(rows):
            self._open = None
        return opened.piece(indices) if indices else None, end - start
