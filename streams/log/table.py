"""The newest row of each key, in a stream that has a key: the content of chunks of kind Table, and
the fold of rows to a table.

When rows go below the floor of retention, the newest row of each key among them is written again,
into chunks of kind Table, with its offset and time. So the table at any offset from the floor on is
the fold of the newest such chunks and of the rows from the floor on. A row that deletes its key is
not written again: these chunks have no older row of the key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple
from weakref import WeakSet

import msgspec

from matching import Predicate, Value
from streams.log.batches import MalformedChunkError, Row, decode_rows
from streams.log.chunk import Chunk

EVERY_EVENT: Final = ("id", "type")
"""Attributes that `canopy pub` gives each event."""

Key = Hashable


class TableWritten(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """The chunks of kind Table from `first` to `last` have the newest rows of all keys below the
    floor (0: there are none). `cut`: the chunk of this entry; 0 within that chunk itself, which is
    of kind Cut."""

    first: int
    last: int
    cut: int = 0


class TableRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of a table, with its offset and the time of its append."""

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
    """The key of a row; None: it has none. Equal values are the same key (3 and 3.0), but TRUE is
    not 1."""
    value = attributes.get(name)
    return (value,) if isinstance(value, bool) else value


class NewestRow(NamedTuple):
    """The newest row of a key: its offset and its bytes."""

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
        """Note that another row has replaced this one as the newest of its key."""
        if offset < self.end:
            self._still.add(offset)

    def has(self, offset: int, attributes: Mapping[str, Value | None]) -> bool:
        """Whether the row with this offset is in the view."""
        return offset in self._still or self._table.is_newest(offset, attributes)


class KeyTable:
    """The fold of rows, added in the order of their offsets: the newest of each key."""

    def __init__(self, key: str, deletes: Predicate | None) -> None:
        """`key`: the attribute; `deletes`: the predicate of rows that delete their key; None: rows
        with the key as their only attribute beside `EVERY_EVENT`, and without a payload."""
        self.key = key
        self._deletes = deletes
        self.places: dict[Key, NewestRow] = {}
        self.bytes = 0
        """Bytes of the rows in `places`."""
        self.end = 0
        """All kept rows below this offset have been added."""
        self.views: WeakSet[TableView] = WeakSet()

    def add(self, offset: int, row: Row, size: int) -> None:
        """Add the next row, of `size` bytes."""
        self.end = max(self.end, offset + 1)
        key = key_of(row.attributes, self.key)
        if key is None:
            return
        if self.is_deletion(row):
            former = self.places.pop(key, None)
        else:
            former = self.places.get(key)
            self.places[key] = NewestRow(offset, size)
            self.bytes += size
        if former is not None:
            self.bytes -= former.size
            for view in self.views:
                view.replaced(former.offset)

    def forget(self, keys: Iterable[Key]) -> None:
        """Remove keys whose newest rows are past their time."""
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
