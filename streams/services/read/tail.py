"""All readings that are at the end of a shard's log, matched together.

A committed chunk is decoded once and matched once against all selectors, however many readings
there are; a reading gets rows when some match. Its position is that of the tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from matching import Conjunction, GroupedIndex, Predicate, Value
from matching.selector.evaluate import ConditionFunction
from matching.values import RANKS, Attributes
from overlay.machine import NodeId, Peer
from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, Chunk
from streams.programs.reader.messages import Piece, ReadShard
from streams.services.read.chunk_rows import ChunkRows, RowPieces, whole_piece
from streams.services.read.history import HistoryScan
from streams.services.read.table_scan import TableScan
from streams.services.service import LedShard

# --- which of the selectors at a shard's tail match which rows of a batch ---
#
# Most programs that want few rows of a stream want one value of an attribute, as ``key = 'k17'``.
# Such a selector is *pinned*: it is looked up by the row's value and looked at for no other row.
# With 5,000 of them that takes a quarter of what the block engine does, which compares many
# selectors with a row at once. All others, and those whose value too many want, are in an index of
# the matching package.

ALIKE_MOST: Final = 16
"""Pinned selectors of one value of one attribute at most: each is tried for a row with the value.
Guess: 16 take about as long as the block engine takes for all."""

Point = tuple[int, Value]
"""Rank and value: TRUE and 1 are equal in Python and different values here."""

Pin = tuple[str, tuple[Point, ...], Conjunction]
"""An attribute, the values of which a conjunction wants one, and the conjunction."""


class TailIndex:
    """Predicates by the text of their selectors."""

    def __init__(self) -> None:
        self._points: dict[str, dict[Point, list[tuple[str, ConditionFunction]]]] = {}
        self._pins: dict[str, list[Pin]] = {}
        self._index: GroupedIndex[str, str] = GroupedIndex()

    def __len__(self) -> int:
        return len(self._pins) + len(self._index)

    def add(self, selector: str, predicate: Predicate) -> None:
        """Add one that is not there."""
        pins = [_pin(conjunction) for conjunction in predicate.conjunctions]
        known = [pin for pin in pins if pin is not None and self._has_room(pin)]
        if not pins or len(known) < len(pins):
            self._index.add(selector, predicate, selector)
            return
        self._pins[selector] = known
        for attribute, points, conjunction in known:
            check = conjunction.check_except(attribute)
            table = self._points.setdefault(attribute, {})
            for point in points:
                table.setdefault(point, []).append((selector, check))

    def remove(self, selector: str) -> None:
        """Remove one that is there."""
        pins = self._pins.pop(selector, None)
        if pins is None:
            self._index.remove(selector)
            return
        for attribute, points, _ in pins:
            table = self._points.get(attribute, {})
            for point in points:
                rest = [each for each in table.pop(point, ()) if each[0] != selector]
                if rest:
                    table[point] = rest
            if not table:
                self._points.pop(attribute, None)

    def _has_room(self, pin: Pin) -> bool:
        attribute, points, _ = pin
        table = self._points.get(attribute, {})
        return all(len(table.get(point, ())) < ALIKE_MOST for point in points)

    def find(self, batch: Sequence[Attributes]) -> dict[str, list[int]]:
        """The selectors that match some rows, each with the rows' places in the batch,
        ascending."""
        found: dict[str, list[int]] = {}
        if len(self._index):
            for selector, (places, _) in self._index.find_by_group(batch).items():
                found[selector] = places
        tables = list(self._points.items())
        for place, attributes in enumerate(batch if tables else ()):
            for name, table in tables:
                value = attributes.get(name)
                if value is None:
                    continue
                alike = table.get((RANKS.get(type(value), -1), value))
                if alike is None:
                    continue
                for selector, check in alike:
                    if check(attributes) is not True:
                        continue
                    known = found.get(selector)
                    if known is None:
                        found[selector] = [place]
                    elif known[-1] != place:  # else by another conjunction of it
                        known.append(place)
        return found


def _pin(conjunction: Conjunction) -> Pin | None:
    """The values by which a conjunction can be looked up; None: it cannot be by few values."""
    pivots = conjunction.pivots()
    constraint = conjunction.constraints.get(pivots[0][0]) if pivots else None
    if constraint is None or not 0 < len(constraint.intervals) <= ALIKE_MOST:
        return None
    if not all(interval.is_point() for interval in constraint.intervals):
        return None
    points = tuple(interval.lo[:2] for interval in constraint.intervals)
    return pivots[0][0], points, conjunction


ReadingKey = tuple[NodeId, int]
"""A reading's node and number."""


class ShardReading:
    """The position of one program's reading in the shard. It is behind the tail while it has a
    `scan`."""

    def __init__(
        self,
        peer: Peer,
        asked: ReadShard,
        predicate: Predicate | None,
        position: int,
        attachment: int,
        now: float,
    ) -> None:
        """`predicate`: None for all rows."""
        self.peer = peer
        self.number = asked.reading
        self.selector = asked.selector if predicate is None else predicate.text
        self.predicate = predicate
        self.scan: HistoryScan | TableScan | None = None
        self.sent = position
        """The position that was sent to its node."""
        self.granted = asked.credit
        self.used = 0
        self.kept_at = now
        """When its node last kept it alive."""
        self.permitted = asked.permitted
        """The selector of its tenant's confinement; "": it may see all."""
        self.shares = asked.shares
        """Its node takes rows for several readings in one message."""
        self.durable = "" if asked.durable is None else asked.durable.name
        self.attachment = attachment

    @property
    def key(self) -> ReadingKey:
        """The key of the reading at this shard."""
        return self.peer.id, self.number

    @property
    def credit(self) -> int:
        """The number that may be sent now."""
        return self.granted - self.used


class Matched(NamedTuple):
    """The rows of some chunks for the readings at the tail. No reading is in both parts."""

    everything: list[ShardReading]
    """The readings that get all rows: `pieces`."""
    pieces: tuple[Piece, ...]
    rows: ChunkRows
    """The rows of which others get some."""
    shares: list[tuple[list[ShardReading], list[int]]]
    """Readings, and the places of the rows that they get."""


class Tail:
    """The readings that have seen everything up to here."""

    def __init__(self, led: LedShard) -> None:
        self.number = led.replica.committed + 1
        """The chunk that is looked at next."""
        self.position = led.end
        """All rows below it have been looked at."""
        self._by_selector: dict[str, dict[ShardReading, None]] = {}
        self._index: TailIndex | None = None  # of those that want some rows
        self._led = led

    def __bool__(self) -> bool:
        return bool(self._by_selector)

    def readings(self) -> Iterator[ShardReading]:
        """All readings that are at the end of the log."""
        for readings in self._by_selector.values():
            yield from readings

    def join(self, reading: ShardReading) -> None:
        """A reading is here: it gets what comes from now on."""
        alike = self._by_selector.get(reading.selector)
        if alike is None:
            alike = self._by_selector[reading.selector] = {}
            if reading.predicate is not None:
                self._index = self._index or TailIndex()
                self._index.add(reading.selector, reading.predicate)
        alike[reading] = None

    def leave(self, reading: ShardReading) -> None:
        """A reading goes, if it is here."""
        alike = self._by_selector.get(reading.selector)
        if alike is not None and alike.pop(reading, reading) is None and not alike:
            del self._by_selector[reading.selector]
            if self._index is not None and reading.predicate is not None:
                self._index.remove(reading.selector)

    def take(self, chunks: Sequence[Chunk]) -> Matched:
        """Match the next chunks, which are committed."""
        over = self._led.is_over  # what was committed late
        events = [chunk for chunk in chunks if chunk.kind == EVENTS and not over(chunk.time)]
        everything = list(self._by_selector.get("", ())) if events else []
        pieces = tuple(map(whole_piece, events)) if everything else ()
        rows = ChunkRows([])
        shares: list[tuple[list[ShardReading], list[int]]] = []
        if events and self._index:
            rows = ChunkRows([RowPieces(chunk, rows_of(chunk)) for chunk in events])
            for selector, places in self._index.find(rows.attributes()).items():
                shares.append((list(self._by_selector[selector]), places))
        self.number = chunks[-1].number + 1
        self.position = chunks[-1].next_offset
        return Matched(everything, pieces, rows, shares)
