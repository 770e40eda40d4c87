"""Any database for which SQLAlchemy has a dialect, as a destination.

Rows are deleted by their keys and inserted, which every database can do. What holds of the
database's own collations and types is said in docs/design/sync.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from canopy.sinks.alchemy import runner, table_of
from canopy.sinks.database import Answer, ColumnDefinition
from canopy.sync.changes import Column, Table
from canopy.sync.destinations.destination import Destination, Existing
from canopy.sync.destinations.statements import Statements
from canopy.sync.dialects import GENERAL
from canopy.sync.errors import SchemaError, SyncError, UnfitError
from canopy.sync.values import ABSENT, Row, Value, text_or_value

AT_ONCE: Final = 1_000
"""Rows of one statement."""
KEY: Final = 255
"""Characters of a text in a key."""
_MYSQL: Final = ("mysql", "mariadb")
_SAID: Final = re.compile(
    r"(?<=^DOUBLE PRECISION)\(\d+\)|(?<=^BIGINT)\(\d+\)| CHARACTER SET \w+(?= COLLATE)"
)
"""The parts of a type's text that databases add, though it could not be otherwise."""


def _type(means: str, is_key: bool) -> sa.types.TypeEngine[Any]:
    """The type of columns that every dialect has, such that nothing of a value is lost."""
    if means in ("timestamp", "instant"):
        return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *_MYSQL)
    if means == "time":
        return sa.Time().with_variant(mysql.TIME(fsp=6), *_MYSQL)
    if means == "bytes":
        return sa.LargeBinary(KEY if is_key else None).with_variant(
            mysql.VARBINARY(KEY) if is_key else mysql.LONGBLOB(), *_MYSQL
        )
    plain: dict[str, type[sa.types.TypeEngine[Any]]] = {
        "int": sa.BigInteger,
        "float": sa.Double,
        "bool": sa.Boolean,
        "date": sa.Date,
    }
    if means in plain:
        return plain[means]()
    if is_key:
        return sa.String(KEY).with_variant(mysql.VARCHAR(KEY, collation="utf8mb4_bin"), *_MYSQL)
    return sa.Text().with_variant(mysql.LONGTEXT(collation="utf8mb4_bin"), *_MYSQL)


class AlchemyDestination(Destination):
    """Tables of one database. A table that is there is not altered."""

    dialect = GENERAL

    def __init__(self, name: str, url: str) -> None:
        """Raises SyncError when there is no such dialect, or its driver is not installed."""
        self._tables: dict[str, sa.Table] = {}
        try:
            self._engine = sa.create_engine(url)
            self._link = self._engine.connect()
        except (sa.exc.NoSuchModuleError, ImportError) as error:
            raise SyncError(f"{url.partition(':')[0]}: {error}; install its dialect") from None
        super().__init__(name, self._link)

    def close(self) -> None:
        """End the connection, and the engine that has made it."""
        self._link.close()
        self._engine.dispose()

    def run(self, statement: str, parameters: Mapping[str, object]) -> Answer:
        """Carry out a statement with its `:named` parameters."""
        found = runner(self._link)(statement, parameters)
        if not self._in_transaction:
            self._link.commit()  # SQLAlchemy begins a transaction with each first statement
        return found

    def begin(self) -> None:
        """Begin a transaction of SQLAlchemy."""
        self._link.begin()
        self._in_transaction = True

    def _begin_view(self) -> None:
        self.begin()

    def _end(self, is_committed: bool) -> None:
        if is_committed:
            self._link.commit()
        else:
            self._link.rollback()
        self._in_transaction = False

    def _make(self, table: str, columns: Sequence[ColumnDefinition]) -> None:
        table_of(table, columns).create(self._link, checkfirst=True)
        if not self._in_transaction:
            self._link.commit()

    def _catalog(self, table: Table) -> list[Existing]:
        there = sa.inspect(self._link)
        if not there.has_table(table.name):
            return []
        keys = there.get_pk_constraint(table.name)["constrained_columns"]
        return [
            Existing(
                *(column["name"], self._words(column["type"])),
                is_key=column["name"] in keys,
                is_generated="computed" in column,
            )
            for column in there.get_columns(table.name)
        ]

    def _create(self, table: Table) -> None:
        self._learn(table)
        self._tables[table.name].create(self._link)

    def _alter(self, table: Table, there: Sequence[str]) -> None:
        lacking = [name for name in table.names if name not in there]
        if lacking:
            raise SchemaError(
                f"the destination's table {table.name} lacks {lacking[0]}: add the column there, "
                f"and run the sync again"
            )

    def _type(self, table: Table, column: Column) -> str:
        return self._words(_type(column.type, column.name in table.keys))

    def _holds(self, table: Table, own: str, wanted: str) -> bool:
        return _SAID.sub("", own) == _SAID.sub("", wanted)

    def _words(self, kind: sa.types.TypeEngine[Any]) -> str:
        """A type as the database writes it."""
        try:
            words = kind.compile(self._engine.dialect)
            return "TINYINT(1)" if words == "BOOL" else words  # as MySQL spells it
        except sa.exc.CompileError:  # it is one that the dialect does not know
            return "of an unknown type"

    def clear(self, table: Table) -> None:
        """Delete all rows of a table."""
        self._link.execute(sa.delete(self._tables[table.name]))

    def _load(self, found: Statements, rows: Iterable[Row]) -> None:
        target = self._tables[found.table.name]
        self._many(sa.insert(target), _numbered("c", found.fitted(rows)))

    def _write(self, found: Statements, rows: Sequence[Row]) -> None:
        self._delete(found, [found.table.key_of(row) for row in rows])
        self._load(found, rows)

    def _delete(self, found: Statements, keys: Sequence[Row]) -> None:
        target = self._tables[found.table.name]
        columns = [target.c[f"c{place}"] for place in found.table.key]
        same = [column == sa.bindparam(f"k{n}") for n, column in enumerate(columns)]
        self._many(sa.delete(target).where(*same), _numbered("k", found.fitted_keys(keys)))

    def _update(self, found: Statements, key: Row, row: Row) -> None:
        (values,) = _numbered("c", found.fitted([row]))
        sets = {name: value for name, value in values.items() if value is not ABSENT}
        changed = sa.update(self._tables[found.table.name]).where(*self._same(found, key))
        self._link.execute(changed.values(sets))

    def _fill(self, found: Statements, place: int, value: Value, only_null: bool) -> None:
        target = self._tables[found.table.name]
        changed = sa.update(target).values({f"c{place}": text_or_value(value)})
        column = target.c[f"c{place}"]
        self._link.execute(changed.where(column.is_(None)) if only_null else changed)

    def _same(self, found: Statements, key: Row) -> list[sa.ColumnElement[bool]]:
        """The conditions for the row with this key."""
        columns = self._tables[found.table.name].c
        (fitted,) = found.fitted_keys([key])
        places = zip(found.table.key, fitted, strict=True)
        return [columns[f"c{place}"] == text_or_value(value) for place, value in places]

    def fetch(self, table: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        """Read and lock the rows with these keys."""
        found, target = self._statements[table.name], self._tables[table.name]
        rows = {}
        for key in keys:
            wanted = sa.select(target).where(*self._same(found, key)).with_for_update()
            row = self._link.execute(wanted).fetchone()
            if row is not None:
                rows[key] = _zoned(table, row)
        return rows

    def scan(self, table: Table) -> Iterator[Row]:
        """Read all rows of a table, a thousand at a time."""
        found = self._link.execution_options(yield_per=AT_ONCE).execute(
            sa.select(self._tables[table.name])
        )
        for row in found:
            yield _zoned(table, row)

    def _learn(self, table: Table) -> None:
        """Columns have keys of their own here, as names may be those of parameters."""
        super()._learn(table)
        columns = [
            sa.Column(
                column.name,
                _type(column.type, place in table.key),
                key=f"c{place}",
                primary_key=place in table.key,
                autoincrement=False,
                nullable=column.nullable and place not in table.key,
            )
            for place, column in enumerate(table.columns)
        ]
        self._tables[table.name] = sa.Table(table.name, sa.MetaData(), *columns)

    def _many(self, statement: Any, rows: Iterable[dict[str, Any]]) -> None:
        rest = iter(rows)
        while some := list(islice(rest, AT_ONCE)):
            try:
                self._link.execute(statement, some)
            except sa.exc.DataError as error:
                raise UnfitError(f"the destination says: {error.orig}") from None


def _numbered(letter: str, rows: Iterable[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Rows as SQLAlchemy is handed them: by names of their columns."""
    for row in rows:
        yield {f"{letter}{place}": text_or_value(value) for place, value in enumerate(row)}


def _zoned(table: Table, row: Iterable[Any]) -> Row:
    """A row as the database keeps it, but moments of a zone with theirs."""
    return tuple(
        value.replace(tzinfo=UTC)
        if column.type == "instant" and type(value) is datetime and value.tzinfo is None
        else value
        for column, value in zip(table.columns, row, strict=True)
    )
