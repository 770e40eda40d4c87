"""Changes of a database as events of a stream.

Every event has a payload, which is the truth, and attributes, by which a stream is subscribed to
by content: `_table`, `_op` and those columns of the row that a selector can look at. An update has
both images of its row where the source has them; of the one before, at least a changed key.

The last event of a transaction carries a `Commit`. What follows on it belongs to the next one, so a
transaction may be of any size, and one that was cut short is taken back by an event `ABORT`. A
*snapshot* is a transaction as well: `SNAPSHOT`, for each table its `SCHEMA` and all of its rows as
inserts, and `END`. A `SCHEMA` says of a table how the rows behind it are to be read: it is the
barrier between the shapes of a table. `FILL` gives all rows of a table that are there the values
that its row has, but where that is ABSENT. `MARK` has a position and nothing else.

A change that is larger than one event may be is cut: its payload lies in events `PART` and one
`LAST`, which has the attributes and the commit of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

import msgspec

from canopy.sync.errors import SchemaError
from canopy.sync.values import ABSENT, Row, Value, pack, unpack, unpacking
from overlay.client import Draft

INSERT: Final = 1
UPDATE: Final = 2
DELETE: Final = 3
TRUNCATE: Final = 4
SCHEMA: Final = 5
SNAPSHOT: Final = 6
END: Final = 7
ABORT: Final = 8
MARK: Final = 9
PART: Final = 10
LAST: Final = 11
FILL: Final = 12

OPERATIONS: Final = {
    INSERT: "insert",
    UPDATE: "update",
    DELETE: "delete",
    TRUNCATE: "truncate",
    SCHEMA: "schema",
    SNAPSHOT: "snapshot",
    END: "end",
    ABORT: "abort",
    MARK: "mark",
    PART: "part",
    FILL: "fill",
}

PAYLOAD_TYPE: Final = "application/x-canopy-change"
SEARCHABLE: Final = 256
"""Characters of a text up to which an event has it as an attribute, too."""
ATTRIBUTES_MOST: Final = 32 * 1024
"""Characters of all attributes of an event, about: of a table with many columns, the first ones."""
NAME_MOST: Final = 256
COUNT_MOST: Final = 990
"""Characters of an attribute's name, and attributes of an event, at most (`MAX_NAME` and
`MAX_ATTRIBUTES` in overlay/upper_tree/publisher/constants.py)."""
PIECE: Final = 160 * 1024
"""Bytes of a change in one event: an event has to fit on a link with its attributes (half a MiB,
`ITEM_MOST` in overlay/links), and a batch of a stream has several."""


class Column(msgspec.Struct, frozen=True, array_like=True):
    """A column of a source's table: its type in words of its own and of its database."""

    name: str
    type: str
    """int, float, decimal, bool, text, bytes, date, time, timestamp, instant, json, uuid, any
    (values of any type), or other: what its values mean (canopy/sync/conversions.py)."""
    declared: str
    """Its type as the source's database writes it."""
    nullable: bool = True


class Table(msgspec.Struct, frozen=True, array_like=True):
    """The shape that rows of a table have from a SCHEMA on."""

    name: str
    """The table's name; `schema.name` of a PostgreSQL table in another schema than `public`."""
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    """Indices of the primary key's columns."""
    dialect: str = ""
    """The kind of database that it is in: sqlite, postgresql, mariadb."""
    schema: str = ""
    """The schema that it is in, where its name has that."""
    options: str = ""
    """The text behind the columns in SQLite's CREATE TABLE: STRICT, or nothing."""
    is_partial: bool = False
    """Whether rows that were there before it are still to come in this shape."""

    @property
    def bare(self) -> str:
        """The name without the schema."""
        return self.name[len(self.schema) + 1 :] if self.schema else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key's columns."""
        return tuple(self.columns[place].name for place in self.key)

    def key_of(self, row: Row) -> Row:
        """The key of one of its rows."""
        return tuple([row[place] for place in self.key])


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """The end of a transaction; its last change carries it."""

    position: int
    """The source's position after it: the log's id (SQLite), the LSN behind the transaction
    (PostgreSQL), the sequence of its GTID (MariaDB)."""
    transaction: int
    """The source's id of it: that of the transaction (PostgreSQL), its last change's (SQLite), the
    server of its GTID (MariaDB)."""
    time: float
    """When it was committed, seconds since 1970 by the source's clock."""
    source: str
    """The database: SQLite's random id, PostgreSQL's system identifier and database."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change of a table, or one of the marks between changes, as it is in an event."""

    op: int
    table: str = ""
    before: Row | None = None
    """The row as it was; ABSENT where the source does not say it."""
    after: Row | None = None
    schema: Table | None = None
    """The row's table, at the source side only. Of SCHEMA: the shape of what follows."""
    commit: Commit | None = None


_decode: Final = unpacking(
    tuple[
        tuple[int, str, Commit | None, Table | None],
        tuple[Any, ...] | None,
        tuple[Any, ...] | None,
    ]
)


def check_table(table: Table) -> Table:
    """`table`, if a sync can carry it. Raises SchemaError."""
    if not table.key:
        raise SchemaError(
            f"table {table.name} has no primary key, by which its rows could be told apart; "
            f"give it one, or leave it out with --tables"
        )
    return table


class ChangeDrafts:
    """Makes events of changes. It remembers of each table which columns events can have as
    attributes."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[Table, tuple[str, ...]]] = {}

    def draft(self, change: Change, commit: Commit | None = None) -> Draft:
        """The event of a stream for `change`, with `commit` if it is the last of its transaction.
        Raises UnfitError."""
        table, op, before, after = change.schema, change.op, change.before, change.after
        schema = table if op == SCHEMA else None
        payload = pack((op, change.table, commit or change.commit, schema), before, after)
        attributes: dict[str, Any] = {}
        row = before if after is None else after
        if table is not None and row is not None:
            room = ATTRIBUTES_MOST
            for name, value in zip(self._of(table), row, strict=True):
                kind = value.__class__
                room -= len(name) + (len(value) if kind is str and len(value) <= SEARCHABLE else 8)
                if room < 0:
                    break
                if kind is str:
                    if len(value) <= SEARCHABLE:
                        attributes[name] = value
                elif kind is int:
                    if -(2**63) <= value < 2**63:
                        attributes[name] = value
                elif kind is bool or (kind is float and isfinite(value)):
                    attributes[name] = value
            attributes.pop("", None)
        if change.table:
            attributes["_table"] = change.table
        attributes["_op"] = OPERATIONS[op]
        return Draft(attributes, payload, PAYLOAD_TYPE)

    def drafts(self, change: Change, commit: Commit | None = None) -> list[Draft]:
        """The events for `change`: one, or as many as it takes. Raises UnfitError."""
        whole = self.draft(change, commit)
        payload = whole.payload
        if len(payload) <= PIECE:
            return [whole]
        pieces = [payload[at : at + PIECE] for at in range(0, len(payload), PIECE)]
        said: dict[str, Any] = {"_table": change.table, "_op": OPERATIONS[PART]}
        made = [
            Draft(said, pack((PART, change.table, None, None), (number, piece), None), PAYLOAD_TYPE)
            for number, piece in enumerate(pieces[:-1])
        ]
        end = (len(pieces) - 1, pieces[-1])
        closing = pack((LAST, change.table, commit or change.commit, None), end, None)
        return [*made, Draft(whole.attributes, closing, PAYLOAD_TYPE)]

    def _of(self, table: Table) -> tuple[str, ...]:
        """The attributes of the columns, "" for one whose name no attribute can have."""
        known = self._names.get(table.name)
        if known is None or known[0] is not table:
            names = tuple(
                "" if name[:1] == "$" or len(name) > NAME_MOST or place >= COUNT_MOST else name
                for place, name in enumerate(table.names)
            )
            known = self._names[table.name] = (table, names)
        return known[1]


def change_of(payload: bytes) -> Change:
    """The change that an event's payload carries. Raises MalformedError."""
    (op, table, commit, schema), before, after = unpack(payload, _decode)
    return Change(op, table, before, after, schema, commit)


def merged(before: Row, after: Sequence[Value]) -> Row:
    """Return `after`, with its ABSENT values taken from `before`."""
    return tuple([old if new is ABSENT else new for old, new in zip(before, after, strict=True)])
