"""MariaDB's binary log: the events that say what has changed, as they are on the wire (no IO).

The layouts are those of https://mariadb.com/kb/en/2-binlog-event-header/ and of the pages around
it. A table's columns come with its first rows in each transaction, if the server has
`binlog_row_metadata = FULL`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from canopy.sync.errors import MalformedError
from canopy.sync.sources.binlog_cells import (
    CHARACTER,
    COLLATIONS,
    ENUM,
    NUMERIC,
    SET,
    Field,
    Reader,
    decoder_of,
    field_of,
)
from canopy.sync.values import ABSENT, Value

HEADER: Final = struct.Struct("<IBIIIH")
QUERY, FORMAT, XID, TABLE_MAP, XA_PREPARE, GTID = 2, 15, 16, 19, 38, 162
WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = 23, 24, 25
COMPRESSED: Final = {165: QUERY, 166: WRITE_ROWS, 167: UPDATE_ROWS, 168: DELETE_ROWS}

NO_FOREIGN_KEYS: Final = 2
STANDALONE: Final = 1
PREPARED_XA: Final = 64

Cells: TypeAlias = tuple[Value, ...]


class TransactionBegin(msgspec.Struct, frozen=True):
    """A transaction begins, with its GTID: domain, server and sequence."""

    time: int
    domain: int
    server: int
    sequence: int
    is_standalone: bool
    """It is one statement that no commit follows (a change of schemas)."""
    is_prepared: bool
    """Its commit, or its end, comes later (XA)."""


class TransactionEnd(msgspec.Struct, frozen=True):
    """The transaction that has begun is committed."""

    time: int


class Statement(msgspec.Struct, frozen=True):
    """A statement as text: a change of schemas, or changes that were not logged by rows."""

    schema: str
    text: str


class Layout(msgspec.Struct, frozen=True):
    """The layout of the rows of a table from here on."""

    id: int
    schema: str
    name: str
    fields: tuple[Field, ...]
    key: tuple[int, ...]


class RowsChange(msgspec.Struct, frozen=True):
    """Rows of a table: pairs of before and after."""

    layout: Layout
    kind: int
    rows: tuple[tuple[Cells | None, Cells | None], ...]
    is_unchecked: bool = False
    """The session had foreign keys off (`foreign_key_checks = 0`)."""


Decoded: TypeAlias = TransactionBegin | TransactionEnd | Statement | Layout | RowsChange | None


class _Known(NamedTuple):
    data: bytes
    layout: Layout
    decoders: tuple[Reader, ...]


class Binlog:
    """Decodes the events of a binary log in their order: later ones refer to earlier ones."""

    def __init__(self, collations: Mapping[int, str] | None = None) -> None:
        """`collations`: by number, the name of their character set."""
        self._collations = COLLATIONS if collations is None else collations
        self._tables: dict[int, _Known] = {}
        self._sum = 0  # bytes of the checksum at the end of each event

    def decode(self, data: bytes) -> Decoded:
        """Decode one event; None if it does not concern rows. Raises MalformedError."""
        try:
            return self._decode(data)
        except (IndexError, ValueError, KeyError, struct.error, zlib.error) as error:
            raise MalformedError(f"an event of the binary log is malformed: {error!r}") from None

    def _decode(self, data: bytes) -> Decoded:
        when, kind, server, _, _, _ = HEADER.unpack_from(data)
        at = HEADER.size
        if kind == FORMAT:
            self._sum = 4 if data[-5] else 0
            return None
        if self._sum:
            data = data[: -self._sum]
        if kind == GTID:
            sequence, domain, flags = struct.unpack_from("<QIB", data, at)
            standalone, prepared = bool(flags & STANDALONE), bool(flags & PREPARED_XA)
            return TransactionBegin(when, domain, server, sequence, standalone, prepared)
        if kind == TABLE_MAP:
            return self._table(data, at)
        if kind in (XID, XA_PREPARE):
            return TransactionEnd(when)
        is_compressed = kind in COMPRESSED
        kind = COMPRESSED.get(kind, kind)
        if kind == QUERY:
            return _statement(data, at, when, is_compressed)
        if kind in (WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS):
            return self._rows(kind, data, at, is_compressed)
        return None

    def _table(self, data: bytes, at: int) -> Layout:
        number = int.from_bytes(data[at : at + 6], "little")
        known = self._tables.get(number)
        if known is not None and known.data == data[at:]:
            return known.layout
        schema, place = _name(data, at + 8)
        name, place = _name(data, place)
        count, place = _length(data, place)
        types = data[place : place + count]
        size, place = _length(data, place + count)
        details = data[place : place + size]
        place += size
        nulls = data[place : place + (count + 7) // 8]
        more = dict(_optional(data, place + (count + 7) // 8))
        fields, key = _fields(types, details, nulls, more, self._collations)
        layout = Layout(number, schema, name, fields, key)
        decoders = tuple(decoder_of(field) for field in fields)
        self._tables[number] = _Known(data[at:], layout, decoders)
        return layout

    def _rows(self, kind: int, data: bytes, at: int, is_compressed: bool) -> RowsChange:
        known = self._tables[int.from_bytes(data[at : at + 6], "little")]
        is_unchecked = bool(data[at + 6] & NO_FOREIGN_KEYS)
        width, at = _length(data, at + 8)
        size = (width + 7) // 8
        first = data[at : at + size]
        at += size
        second = first
        if kind == UPDATE_ROWS:
            second = data[at : at + size]
            at += size
        if is_compressed:
            data, at = _inflated(data, at), 0
        rows: list[tuple[Cells | None, Cells | None]] = []
        while at < len(data):
            before = after = None
            if kind != WRITE_ROWS:
                before, at = _row(data, at, known.decoders, first)
            if kind != DELETE_ROWS:
                after, at = _row(data, at, known.decoders, second)
            rows.append((before, after))
        return RowsChange(known.layout, kind, tuple(rows), is_unchecked)


def _row(data: bytes, at: int, decoders: tuple[Reader, ...], present: bytes) -> tuple[Cells, int]:
    bits = int.from_bytes(present, "little")
    count = (bits & ((1 << len(decoders)) - 1)).bit_count()
    nulls = int.from_bytes(data[at : at + (count + 7) // 8], "little")
    at += (count + 7) // 8
    if count == len(decoders) and not nulls:
        cells: list[Value] = []
        for decode in decoders:
            value, at = decode(data, at)
            cells.append(value)
        return tuple(cells), at
    cells, place = [], 0
    for number, decode in enumerate(decoders):
        if not bits >> number & 1:
            cells.append(ABSENT)
            continue
        if nulls >> place & 1:
            cells.append(None)
        else:
            value, at = decode(data, at)
            cells.append(value)
        place += 1
    return tuple(cells), at


def _statement(data: bytes, at: int, when: int, is_compressed: bool) -> Decoded:
    _, _, length, _, variables = struct.unpack_from("<IIBHH", data, at)
    at += 13 + variables
    schema = data[at : at + length].decode("utf-8", "replace")
    rest = data[at + length + 1 :]
    text = (_inflated(rest, 0) if is_compressed else rest).decode("utf-8", "replace")
    if text == "BEGIN":
        return None
    return TransactionEnd(when) if text in ("COMMIT", "ROLLBACK") else Statement(schema, text)


def _inflated(data: bytes, at: int) -> bytes:
    """Return data that the server has compressed (`log_bin_compress`), inflated."""
    if data[at] & 0x70:
        raise ValueError("it is compressed in an unknown way")
    return zlib.decompress(data[at + 1 + (data[at] & 7) :])


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end + 1


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes."""
    first = data[at]
    size = {252: 2, 253: 3, 254: 8}.get(first, 0)
    if not size:
        return first, at + 1
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _optional(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(data):
        size, begin = _length(data, at + 1)
        yield data[at], data[begin : begin + size]
        at = begin + size


SIGNEDNESS, DEFAULT_CHARSET, COLUMN_CHARSET, COLUMN_NAME, SET_LABELS, ENUM_LABELS = range(1, 7)
SIMPLE_KEY, PREFIX_KEY, LABELS_DEFAULT, LABELS_CHARSET = 8, 9, 10, 11


def _fields(
    types: bytes,
    details: bytes,
    nulls: bytes,
    more: dict[int, bytes],
    collations: Mapping[int, str],
) -> tuple[tuple[Field, ...], tuple[int, ...]]:
    """The columns, and the places of the primary key's."""
    names = [part.decode() for part in _strings(more.get(COLUMN_NAME, b""))]
    if len(names) != len(types):
        raise ValueError("it has no names of columns: SET GLOBAL binlog_row_metadata = FULL")
    made, at = [], 0
    for number, kind in enumerate(types):
        nullable = bool(nulls[number // 8] >> number % 8 & 1)
        field, at = field_of(names[number], kind, details, at, nullable)
        made.append(field)
    signs = more.get(SIGNEDNESS, b"")
    for place, number in enumerate(n for n, f in enumerate(made) if f.kind in NUMERIC):
        unsigned = place // 8 < len(signs) and bool(signs[place // 8] & (0x80 >> place % 8))
        made[number] = msgspec.structs.replace(made[number], unsigned=unsigned)
    for kinds, default, each in (
        (CHARACTER, DEFAULT_CHARSET, COLUMN_CHARSET),
        ((ENUM, SET), LABELS_DEFAULT, LABELS_CHARSET),
    ):
        places = [n for n, field in enumerate(made) if field.kind in kinds]
        sets = _charsets(len(places), more.get(default), more.get(each))
        for number, collation in zip(places, sets, strict=True):
            charset = collations.get(collation, str(collation))
            made[number] = msgspec.structs.replace(made[number], charset=charset)
    for kind, which in ((ENUM, ENUM_LABELS), (SET, SET_LABELS)):
        labels = list(_labels(more.get(which, b"")))
        places = [n for n, field in enumerate(made) if field.kind == kind]
        for number, found in zip(places, labels, strict=True):
            made[number] = msgspec.structs.replace(made[number], labels=found)
    key = _numbers(more.get(SIMPLE_KEY, b""))
    if PREFIX_KEY in more:
        key = _numbers(more[PREFIX_KEY])[::2]
    return tuple(made), tuple(key)


def _charsets(count: int, default: bytes | None, each: bytes | None) -> list[int]:
    if each is not None:
        return _numbers(each)
    found = _numbers(default or b"\x3f")
    sets = [found[0]] * count
    for place, collation in zip(found[1::2], found[2::2], strict=True):
        sets[place] = collation
    return sets


def _numbers(data: bytes) -> list[int]:
    at, found = 0, []
    while at < len(data):
        number, at = _length(data, at)
        found.append(number)
    return found


def _strings(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = _length(data, at)
        yield data[at : at + size]
        at += size


def _labels(data: bytes) -> Iterator[tuple[bytes, ...]]:
    at = 0
    while at < len(data):
        count, at = _length(data, at)
        found = []
        for _ in range(count):
            size, at = _length(data, at)
            found.append(data[at : at + size])
            at += size
        yield tuple(found)
