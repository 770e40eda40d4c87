"""PostgreSQL's logical replication messages, as the plugin `pgoutput` writes them (no IO).

The layouts are those of https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html,
protocol version 1: transactions come whole, in the order of their commits.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import msgspec

from canopy.sync.errors import MalformedError
from canopy.sync.values import ABSENT

EPOCH: Final = 946_684_800.0
"""PostgreSQL's times begin in 2000: seconds since 1970."""

Cells: TypeAlias = tuple[object, ...]
"""Values as their text, None for NULL, ABSENT for what was not sent."""


class Begin(msgspec.Struct, frozen=True):
    """A transaction begins, with its id and the time of its commit."""

    time: float
    transaction: int


class End(msgspec.Struct, frozen=True):
    """The end of a committed transaction; `position` is behind it."""

    position: int


class Relation(msgspec.Struct, frozen=True):
    """The layout of the rows of a table from here on."""

    id: int
    schema: str
    name: str
    columns: tuple[tuple[str, int, int, bool], ...]
    """Name, type's id, its modifier, and whether it identifies the row."""


class RowChange(msgspec.Struct, frozen=True):
    """A row of a relation: `before` of updates and deletes as far as it was sent."""

    relation: int
    before: Cells | None
    after: Cells | None
    before_is_key: bool = False
    is_update: bool = False


class Truncated(msgspec.Struct, frozen=True):
    """All rows of these relations are gone."""

    relations: tuple[int, ...]


class LogMessage(msgspec.Struct, frozen=True):
    """A message that a program wrote into the log itself."""

    prefix: str
    content: bytes


Decoded: TypeAlias = Begin | End | Relation | RowChange | Truncated | LogMessage | None

_BEGIN: Final = struct.Struct(">xQqI")
_COMMIT: Final = struct.Struct(">xBQQq")
_COLUMN: Final = struct.Struct(">Ii")
_U32: Final = struct.Struct(">I")
_U16: Final = struct.Struct(">H")


def decode(data: bytes) -> Decoded:
    """Decode one message; None if it does not concern rows. Raises MalformedError."""
    try:
        kind = data[0]
        if kind == 0x49:  # I
            (relation,) = _U32.unpack_from(data, 1)
            return RowChange(relation, None, _tuple(data, 6)[0])
        if kind == 0x55:  # U
            return _update(data)
        if kind == 0x44:  # D
            (relation,) = _U32.unpack_from(data, 1)
            return RowChange(relation, _tuple(data, 6)[0], None, data[5] == 0x4B)
        if kind == 0x42:  # B
            _, micros, transaction = _BEGIN.unpack_from(data)
            return Begin(EPOCH + micros / 1e6, transaction)
        if kind == 0x43:  # C
            return End(_COMMIT.unpack_from(data)[2])
        if kind == 0x52:  # R
            return _relation(data)
        if kind == 0x54:  # T
            (count,) = _U32.unpack_from(data, 1)
            return Truncated(struct.unpack_from(f">{count}I", data, 6))
        if kind == 0x4D:  # M
            prefix, at = _text(data, 10)
            return LogMessage(prefix, data[at + 4 :])
        return None
    except (IndexError, ValueError, struct.error) as error:
        raise MalformedError(f"a message of the replication is malformed: {error}") from None


def _update(data: bytes) -> RowChange:
    (relation,) = _U32.unpack_from(data, 1)
    before, at, kind = None, 5, data[5]
    if kind != 0x4E:  # N
        before, at = _tuple(data, 6)
    return RowChange(relation, before, _tuple(data, at + 1)[0], kind == 0x4B, True)


def _tuple(data: bytes, at: int) -> tuple[Cells, int]:
    count = data[at] << 8 | data[at + 1]
    at += 2
    cells: list[object] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t
            begin = at + 4
            at = begin + int.from_bytes(data[at:begin], "big")
            if at > len(data):
                raise ValueError("a value is cut off")
            cells.append(data[begin:at].decode())
        elif kind == 0x6E:  # n
            cells.append(None)
        elif kind == 0x75:  # u
            cells.append(ABSENT)
        else:
            raise ValueError(f"a value of the kind {kind}")
    return tuple(cells), at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _relation(data: bytes) -> Relation:
    (number,) = _U32.unpack_from(data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    (count,) = _U16.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(data[at] & 1)
        column, at = _text(data, at + 1)
        kind, modifier = _COLUMN.unpack_from(data, at)
        at += 8
        columns.append((column, kind, modifier, is_key))
    return Relation(number, schema or "pg_catalog", name, tuple(columns))
