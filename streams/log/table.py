"""The newest row of each key, in a stream that has a key: what chunks of kind Table have in them,
and the fold of rows to a table.

When rows go below the floor of retention, those among them that are the newest of their key are
written again, into chunks of kind Table, with the offsets and times that they had. So the table at
any offset from the floor on is the fold of the newest such chunks and of the rows from the floor
on. A row that deletes its key needs no place there: nothing older of the key is in these chunks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple
from weakref import WeakSet

import msgspec

from matching import Predicate, Value
from streams.log.batches import MalformedChunkError, Row, decode_rows, encode_rows
from streams.log.chunk import Chunk

EVERY_EVENT: Final = ("id", "type")
"""Attributes that `canopy pub` gives each event."""

Key = Hashable


class TableWritten(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """The newest rows of all keys below the floor are in the chunks of kind Table from `first` to
    `last` (0: there are none), and in no others. `cut`: the chunk that says so, which stands in one
    of kind Cut without it."""

    first: int
    last: int
    cut: int = 0


class TableRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One row of a table, with the offset that it has and the time at which it was appended."""

    offset: int
    time: int
    encoded: bytes
    """`streams.log.batches.encode_rows` of the one row."""

    @property
    def row(self) -> Row:
        """The row. ValueError if it is none."""
        return decode_rows(self.encoded, 1)[0]


_ROWS: Final = msgspec.msgpack.Decoder(tuple[TableRow, ...])


def encode_table(rows: Sequence[TableRow]) -> bytes:
    """The rows of a chunk of kind Table."""
    return msgspec.msgpack.encode(rows)


def table_rows(chunk: Chunk) -> tuple[TableRow, ...]:
    """The rows of a chunk of kind Table, in the order of their offsets. MalformedChunkError if it
    has others."""
    try:
        rows = _ROWS.decode(chunk.rows)
        for each in rows:
            each.row  # noqa: B018 - that it can be read
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise MalformedChunkError(f"chunk {chunk.number}: {error}") from None
    if any(one.offset >= other.offset for one, other in pairwise(rows)):
        raise MalformedChunkError(f"chunk {chunk.number}: its rows are not in order")
    return rows


def key_of(attributes: Mapping[str, Value | None], name: str) -> Key | None:
    """The key of a row; None: it has none. Values that are equal are the same key (3 and 3.0), and
    TRUE is not 1."""
    value = attributes.get(name)
    return (value,) if isinstance(value, bool) else value


class Place(NamedTuple):
    """Where the newest row of a key is, and how large it is."""

    offset: int
    size: int


class TableView:
    """The table at offset `end`, while rows are added behind it."""

    def __init__(self, table: KeyTable) -> None:
        self.end = table.end
        self._table = table
        self._still: set[int] = set()
        table.views.add(self)

    def replaced(self, offset: int) -> None:
        """This row was the newest of its key until now."""
        if offset < self.end:
            self._still.add(offset)

    def has(self, offset: int, attributes: Mapping[str, Value | None]) -> bool:
        """Whether the row with this offset is in the view."""
        return offset in self._still or self._table.is_newest(offset, attributes)


class KeyTable:
    """The fold of rows, added in the order of their offsets: the newest of each key."""

    def __init__(self, key: str, deletes: Predicate | None) -> None:
        """`key`: the attribute; `deletes`: which rows delete their key, None: those that have the
        key only, beside what every event has, and no payload."""
        self.key = key
        self._deletes = deletes
        self.places: dict[Key, Place] = {}
        self.bytes = 0
        """Of the rows in `places`."""
        self.end = 0
        """All rows below this offset have been added, as far as they are kept."""
        self.views: WeakSet[TableView] = WeakSet()

    def add(self, offset: int, row: Row, size: int) -> None:
        """Add the next row, which takes so many bytes."""
        self.end = max(self.end, offset + 1)
        key = key_of(row.attributes, self.key)
        if key is None:
            return
        if self.is_deletion(row):
            former = self.places.pop(key, None)
        else:
            former = self.places.get(key)
            self.places[key] = Place(offset, size)
            self.bytes += size
        if former is not None:
            self.bytes -= former.size
            for view in self.views:
                view.replaced(former.offset)

    def forget(self, keys: Iterable[Key]) -> None:
        """Rows that are past their time: their keys have none."""
        for key in keys:
            if (former := self.places.pop(key, None)) is not None:
                self.bytes -= former.size

    def is_deletion(self, row: Row) -> bool:
        """Whether a row deletes its key."""
        if self._deletes is not None:
            return self._deletes.matches(row.attributes)
        has = (name for name, value in row.attributes.items() if value is not None)
        return not row.payload and all(name == self.key or name in EVERY_EVENT for name in has)

    def is_newest(self, offset: int, attributes: Mapping[str, Value | None]) -> bool:
        """Whether the row with this offset is the newest of its key."""
        place = self.places.get(key_of(attributes, self.key))
        return place is not None and place.offset == offset


def table_row(offset: int, time: int, row: Row) -> TableRow:
    """A row as a table has it."""
    return TableRow(offset, time, encode_rows((row,)))
