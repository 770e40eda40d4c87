"""All readings that are at the end of a shard's log, matched together.

A committed chunk is decoded once and matched once against all selectors, however many readings
there are; a reading gets rows when some match. Its position is that of the tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from matching import Predicate
from overlay.machine import NodeId, Peer
from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, Chunk
from streams.programs.reader.messages import Piece
from streams.services.read.chunk_rows import ChunkRows, RowPieces, whole_piece
from streams.services.read.history import Expiry, HistoryScan
from streams.services.read.table_scan import TableScan
from streams.services.read.tail_index import TailIndex

ReadingKey = tuple[NodeId, int]
"""A reading's node and number."""


class Reading:
    """One program's way through the shard. It is behind the tail while it has a `scan`."""

    def __init__(self, peer: Peer, number: int, selector: str, predicate: Predicate | None) -> None:
        """`predicate`: None for all rows."""
        self.peer = peer
        self.number = number
        self.selector = selector
        self.predicate = predicate
        self.scan: HistoryScan | TableScan | None = None
        self.sent = 0
        """The position that was sent to its node."""
        self.granted = 0
        self.used = 0
        self.kept_at = 0.0
        """When its node last kept it alive."""
        self.permitted = ""
        """What its tenant may see; "": all."""
        self.shares = False
        """Its node takes rows for several readings in one message."""
        self.durable = ""
        self.attachment = 0

    @property
    def key(self) -> ReadingKey:
        """Its name at this shard."""
        return self.peer.id, self.number

    @property
    def credit(self) -> int:
        """How much may be sent now."""
        return self.granted - self.used


class Matched(NamedTuple):
    """What the readings at the tail get of some chunks. No reading is in both parts."""

    everything: list[Reading]
    """Those that get all rows: `pieces`."""
    pieces: tuple[Piece, ...]
    rows: ChunkRows
    """Of which others get some."""
    shares: list[tuple[list[Reading], list[int]]]
    """Readings, and the places of the rows that they get."""


class Tail:
    """The readings that have seen everything up to here."""

    def __init__(self, number: int, position: int, expiry: Expiry) -> None:
        self.number = number
        """The chunk that is looked at next."""
        self.position = position
        """All rows below it have been looked at."""
        self._by_selector: dict[str, dict[Reading, None]] = {}
        self._index: TailIndex | None = None  # of those that want some rows
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
                self._index = self._index or TailIndex()
                self._index.add(reading.selector, reading.predicate)
        alike[reading] = None

    def leave(self, reading: Reading) -> None:
        """A reading goes, if it is here."""
        alike = self._by_selector.get(reading.selector)
        if alike is not None and alike.pop(reading, reading) is None and not alike:
            del self._by_selector[reading.selector]
            if self._index is not None and reading.predicate is not None:
                self._index.remove(reading.selector)

    def take(self, chunks: Sequence[Chunk]) -> Matched:
        """Match the next chunks, which are committed."""
        over = self._expiry.is_over  # what was committed late
        events = [chunk for chunk in chunks if chunk.kind == EVENTS and not over(chunk.time)]
        everything = list(self._by_selector.get("", ())) if events else []
        pieces = tuple(map(whole_piece, events)) if everything else ()
        rows = ChunkRows([])
        shares: list[tuple[list[Reading], list[int]]] = []
        if events and self._index:
            rows = ChunkRows([RowPieces(chunk, rows_of(chunk)) for chunk in events])
            for selector, places in self._index.find(rows.attributes()).items():
                shares.append((list(self._by_selector[selector]), places))
        self.number = chunks[-1].number + 1
        self.position = chunks[-1].next_offset
        return Matched(everything, pieces, rows, shares)
