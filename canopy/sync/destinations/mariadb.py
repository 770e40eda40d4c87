"""MariaDB as a destination.

Rows are written with statements of many rows. Where a table has further unique keys, `ON DUPLICATE
KEY UPDATE` might change another row than the one that was meant, so rows are deleted and inserted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, Final

import pymysql

from canopy.sinks.database import quoted
from canopy.sync.changes import Column, Table
from canopy.sync.destinations.destination import READ, Destination, Existing
from canopy.sync.destinations.statements import Statements
from canopy.sync.dialects import MARIADB
from canopy.sync.errors import SchemaError, UnfitError
from canopy.sync.servers.mariadb_link import Streaming, asked, connected, declared_columns
from canopy.sync.servers.mariadb_values import decoder, selected
from canopy.sync.values import Row, decoding, text_or_value

AT_ONCE: Final = 500
"""Rows of one statement."""
ROOM: Final = 4 * 1024 * 1024
"""Characters of one statement, about: servers take 16 MiB."""
OVERHEAD: Final = 64 * 1024
"""Bytes of a packet beside a statement's rows."""
APPLYING: Final = (
    "CREATE TABLE IF NOT EXISTS canopy_applying (name varchar(60) PRIMARY KEY, n bigint NOT NULL)"
)
_UNFIT: Final = frozenset((1048, 1062, 1264, 1265, 1292, 1366, 1406, 4025))
"""Errors of values that a column has no place for."""


class MariadbDestination(Destination):
    """Tables of one database of a server. Its foreign keys are not looked at: the source has seen
    to them. Its triggers fire."""

    dialect = MARIADB

    def __init__(self, name: str, url: str) -> None:
        self._url = url
        self._unique: set[str] = set()  # tables with further unique keys
        self._touched: set[str] = set()  # tables of which rows were changed in the transaction
        self._altering: pymysql.Connection[Any] | None = None
        link = connected(url)
        link.query("SET SESSION foreign_key_checks = 0")
        ((packet,),) = asked(link, "SELECT @@max_allowed_packet")
        self._packet = int(packet)
        super().__init__(name, link)
        self._execute(APPLYING)

    def begin(self) -> None:
        """See `Destination`. Changes a row of `canopy_applying` first, by which a source recognises
        changes that were applied here."""
        super().begin()
        self._touched.clear()
        self._execute(
            "INSERT INTO canopy_applying VALUES (%s, 1) ON DUPLICATE KEY UPDATE n = n + 1",
            [self._name],
        )

    def rollback(self) -> None:
        """See `Destination`. Where the connection is lost, the server has done it."""
        self._in_transaction = self._in_transaction and self._connection.open
        super().rollback()

    def take_up(self, table: Table) -> None:
        """See `Destination`. A change of tables commits, so it has a connection of its own. But if
        the transaction holds rows of the table, the changes so far are committed before their
        position: after a kill they are applied once more, with the same result."""
        if table.name not in self._touched:
            with closing(connected(self._url)) as self._altering:
                super().take_up(table)
            self._altering = None
        else:
            super().take_up(table)
            self._execute("BEGIN")
        found = asked(
            self._connection,
            "SELECT count(*) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() "
            "AND TABLE_NAME = %s AND NON_UNIQUE = 0 AND INDEX_NAME <> 'PRIMARY'",
            [table.name],
        )
        (self._unique.add if int(found[0][0]) else self._unique.discard)(table.name)

    def clear(self, table: Table) -> None:
        """Delete all rows of a table."""
        self._touched.add(table.name)
        super().clear(table)

    def _load(self, found: Statements, rows: Iterable[Row]) -> None:
        rest = iter(rows)
        while some := list(islice(rest, AT_ONCE)):
            self._insert_located(found, some, "")

    def _insert_located(self, found: Statements, rows: Sequence[Row], conflict: str) -> None:
        """Insert rows. Raises UnfitError with the key of one that the server refuses."""
        try:
            self._insert(found, found.fitted(rows), conflict)
        except UnfitError as refused:
            for row in rows:
                try:
                    self._insert(found, found.fitted([row]), conflict)
                except UnfitError as error:
                    if str(error).startswith(f"{found.table.name}."):
                        raise
                    key = found.table.key_of(row)
                    raise UnfitError(f"{found.table.name}, key {key}: {error}") from None
            raise refused

    def _make_conflicts(self) -> None:
        with closing(connected(self._url)) as self._altering:  # it would commit what is under way
            super()._make_conflicts()
        self._altering = None

    def scan(self, table: Table) -> Iterator[Row]:
        """Read all rows as the server sends them, without holding them all."""
        shown, _, decoded = self._reading(table)
        with self._connection.cursor(Streaming) as cursor:
            cursor.execute(f"SELECT {', '.join(shown)} FROM {quoted(table.name)}")
            while rows := cursor.fetchmany(READ):
                yield from map(decoded, rows)

    def _reading(self, table: Table) -> tuple[list[str], str, Callable[[Sequence[Any]], Row]]:
        shown = [selected(quoted(c.name), self._type(table, c)) for c in table.columns]
        return shown, " FOR UPDATE", decoding([decoder(column.type) for column in table.columns])

    def _change(self, table: Table, former: Table, old: Column) -> None:
        new = next((column for column in table.columns if column.name == old.name), None)
        kind = self._type(table, old if new is None else new)
        nullable = new is None or new.nullable
        if (kind, nullable) != (self._type(former, old), old.nullable):
            null = "" if nullable else " NOT NULL"
            try:
                self._execute(
                    f"ALTER TABLE {quoted(table.name)} MODIFY {quoted(old.name)} {kind}{null}"
                )
            except (pymysql.DataError, pymysql.OperationalError) as error:
                if error.args[0] not in _UNFIT:
                    raise
                self._remake(table, old.name, kind)

    def _delete(self, found: Statements, keys: Sequence[Row]) -> None:
        self._touched.add(found.table.name)
        names = ", ".join(map(quoted, found.table.keys))
        for values in self._spelled(found.fitted_keys(keys)):
            self._query(f"DELETE FROM {quoted(found.table.name)} WHERE ({names}) IN ({values})")

    def _upsert(self, found: Statements, rows: Sequence[Row]) -> None:
        if found.table.name in self._unique:
            self._delete(found, [found.table.key_of(row) for row in rows])
            self._insert_located(found, rows, "")
            return
        sets = ", ".join(f"{quoted(n)} = VALUES({quoted(n)})" for n in found.table.names)
        self._insert_located(found, rows, f"ON DUPLICATE KEY UPDATE {sets}")

    def _insert(self, found: Statements, rows: Iterable[Sequence[Any]], conflict: str) -> None:
        self._touched.add(found.table.name)
        columns = ", ".join(map(quoted, found.table.names))
        into = f"INSERT INTO {quoted(found.table.name)} ({columns}) VALUES"
        for values in self._spelled(rows):
            self._query(f"{into} {values} {conflict}")

    def _spelled(self, rows: Iterable[Sequence[Any]]) -> Iterator[str]:
        """Rows as SQL writes them, as many as one statement has."""
        escaped = self._connection.escape
        room = min(ROOM, self._packet // 4)
        some: list[str] = []
        size = 0
        for row in rows:
            text = f"({','.join([escaped(text_or_value(value)) for value in row])})"
            size += len(text)
            if len(text.encode("utf-8", "surrogateescape")) > self._packet - OVERHEAD:
                raise UnfitError(
                    f"a row of {len(text):,} bytes is more than the server takes: SET GLOBAL "
                    f"max_allowed_packet = 1073741824, and run again"
                )
            if some and (size > room or len(some) >= AT_ONCE):
                yield ",".join(some)
                some, size = [], len(text)
            some.append(text)
        if some:
            yield ",".join(some)

    def fill(self, table: Table, row: Row, only_null: bool) -> None:
        """Do as `Destination`. Raises UnfitError for a value that the server refuses."""
        self._touched.add(table.name)
        with self._refusing():
            super().fill(table, row, only_null)

    def _changing(self, table: Table) -> list[str]:
        there = declared_columns(self._connection, table.name)
        return [column.name for column in there if column.extra.startswith("on update")]

    def _query(self, statement: str) -> None:
        with self._refusing():
            self._connection.query(statement)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raises UnfitError for a value that the server refuses."""
        try:
            yield
        except (pymysql.DataError, pymysql.OperationalError, pymysql.IntegrityError) as error:
            if error.args[0] in _UNFIT and error.args[0] != 1062:
                raise UnfitError(f"the destination says: {error.args[1]}") from None
            raise

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        cursor = (self._altering or self._connection).cursor()
        cursor.execute(statement, [text_or_value(value) for value in values] or None)
        return cursor

    def _catalog(self, table: Table) -> list[Existing]:
        return [
            Existing(column.name, column.type, column.key, column.generated)
            for column in declared_columns(self._connection, table.name)
        ]

    def _holds(self, table: Table, own: str, wanted: str) -> bool:
        return _plain_type(own) == _plain_type(wanted)

    def _alter(self, table: Table, there: Sequence[str]) -> None:
        super()._alter(table, there)
        for column in declared_columns(self._connection, table.name):
            if not column.key or not column.collation or column.collation.endswith("nopad_bin"):
                continue
            wanted = next((each for each in table.columns if each.name == column.name), None)
            if wanted is None or not wanted.declared.endswith(f"COLLATE {column.collation}"):
                raise SchemaError(
                    f"the key {column.name} of the destination's table {table.name} has the "
                    f"collation {column.collation}, which takes different keys for one: ALTER "
                    f"TABLE … MODIFY … COLLATE utf8mb4_nopad_bin"
                )


def _plain_type(declared: str) -> str:
    """A type without its character set and the width in which integers are shown."""
    text = declared.partition(" CHARACTER SET ")[0].lower().replace("boolean", "tinyint(1)")
    return re.sub(r"int\(\d+\)", "int", text)
