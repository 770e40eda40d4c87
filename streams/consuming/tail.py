"""All readings that are at the end of a shard's log, matched together.

A committed chunk is decoded once and matched once against all selectors, however many readings
there are; each reading is told of rows when some match. Its position is that of the tail.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from matching import GroupedIndex
from streams.consuming.expiring import Expiry
from streams.consuming.messages import Piece
from streams.consuming.pieces import RowPieces, whole_piece
from streams.consuming.reading import Reading
from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, Chunk


class Matched(NamedTuple):
    """Rows, and the readings that get them."""

    readings: list[Reading]
    pieces: tuple[Piece, ...]


class Tail:
    """The readings that have seen everything up to here."""

    def __init__(self, number: int, position: int, expiry: Expiry) -> None:
        self.number = number
        """The chunk that is looked at next."""
        self.position = position
        """All rows below it have been looked at."""
        self._by_selector: dict[str, dict[Reading, None]] = {}
        self._index: GroupedIndex[str, str] = GroupedIndex()
        self._expiry = expiry

    def __bool__(self) -> bool:
        return bool(self._by_selector)

    def readings(self) -> Iterator[Reading]:
        """All of them."""
        for readings in self._by_selector.values():
            yield from readings

    def join(self, reading: Reading) -> None:
        """A reading is here: it gets what comes from now on."""
        alike = self._by_selector.get(reading.selector)
        if alike is None:
            alike = self._by_selector[reading.selector] = {}
            if reading.predicate is not None:
                self._index.add(reading.selector, reading.predicate, reading.selector)
        alike[reading] = None

    def leave(self, reading: Reading) -> None:
        """A reading goes, if it is here."""
        alike = self._by_selector.get(reading.selector)
        if alike is not None and alike.pop(reading, reading) is None and not alike:
            del self._by_selector[reading.selector]
            if reading.predicate is not None:
                self._index.remove(reading.selector)

    def take(self, chunks: Sequence[Chunk]) -> list[Matched]:
        """Match the next chunks, which are committed."""
        over = self._expiry.is_over  # what was committed late
        events = [chunk for chunk in chunks if chunk.kind == EVENTS and not over(chunk.time)]
        found: list[Matched] = []
        if events and (everything := self._by_selector.get("")):
            found.append(Matched(list(everything), tuple(map(whole_piece, events))))
        if events and len(self._index):
            found += self._match([RowPieces(chunk, rows_of(chunk)) for chunk in events])
        self.number = chunks[-1].number + 1
        self.position = chunks[-1].next_offset
        return found

    def _match(self, opened: Sequence[RowPieces]) -> list[Matched]:
        batch = [row.attributes for each in opened for row in each.rows]
        starts = [0]
        for each in opened:
            starts.append(starts[-1] + len(each.rows))
        found = []
        for selector, (places, _) in self._index.find_by_group(batch).items():
            pieces = []
            at = 0
            for number, each in enumerate(opened):
                end = bisect_left(places, starts[number + 1], at)
                if end > at:
                    pieces.append(each.piece([p - starts[number] for p in places[at:end]]))
                at = end
            found.append(Matched(list(self._by_selector[selector]), tuple(pieces)))
        return found
