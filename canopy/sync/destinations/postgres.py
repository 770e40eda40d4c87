"""PostgreSQL as a destination.

Values are handed over as their text, which the server reads as the type of their column. Few rows
go one by one in a pipeline, many through COPY into a temporary table from which they are merged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import psycopg

from canopy.sinks.database import quoted
from canopy.sync.changes import Column, Table
from canopy.sync.destinations.destination import Destination, Existing, SyncProgress
from canopy.sync.destinations.postgres_sequences import PostgresSequences
from canopy.sync.destinations.statements import Statements
from canopy.sync.dialects import POSTGRESQL
from canopy.sync.errors import SchemaError, UnfitError
from canopy.sync.folded import Step
from canopy.sync.servers.postgres_catalog import CatalogColumn, columns_of
from canopy.sync.servers.postgres_values import (
    DOMAINS,
    SESSION,
    Decoder,
    copied,
    spelled,
    to_copy,
    type_of,
)
from canopy.sync.values import Row, decoding

MANY: Final = 100
"""Rows from which on COPY and a merge are faster than a pipeline."""
LONG_NAMES: Final = {
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
"""The catalogue's spelling of types."""
WHOLE: Final = ("smallint", "integer", "bigint")
"""Types that refuse what they cannot hold."""
ECHO: Final = "canopy"
"""Prefix of the message in the server's log by which a source knows what was applied here."""


class PostgresDestination(Destination):
    """Tables of one database: in the schema that they have at the source, those of `public` in the
    first one of the role's search path."""

    dialect = POSTGRESQL

    def __init__(self, name: str, conninfo: str) -> None:
        connection: psycopg.Connection[Any] = psycopg.connect(
            conninfo, autocommit=True, options=f"{SESSION} -c client_min_messages=warning"
        )
        ((self._home,),) = connection.execute("SELECT current_schema()").fetchall()
        super().__init__(name, connection)
        self._sequences = PostgresSequences(self._execute)
        self._is_checked = False
        try:  # no triggers and foreign keys: the source has seen to them
            self._execute("SET session_replication_role = replica")
        except psycopg.errors.InsufficientPrivilege:
            self._is_checked = True

    def begin(self) -> None:
        """Begin a transaction, and write the message by which a source recognises it."""
        super().begin()
        if self._is_checked:
            self._execute("SET CONSTRAINTS ALL DEFERRED")
        self._execute("SELECT pg_logical_emit_message(true, %s, %s)", [ECHO, self._name])

    def store(self, progress: SyncProgress) -> None:
        """Advance sequences to the rows of the transaction, and keep the position."""
        self._sequences.advance()
        super().store(progress)

    def rollback(self) -> None:
        """Take the transaction back, and forget which sequences were behind."""
        self._sequences.forget()
        super().rollback()

    def take_up(self, table: Table) -> None:
        """Make the table's schema if it is missing, then do as `Destination`."""
        self._execute(f"DROP TABLE IF EXISTS pg_temp.{self._stage(table)}")
        self._sequences.renew(table)
        name = quoted(table.schema)
        if table.schema and not self._one("SELECT to_regnamespace(%s)", name):
            self._execute(f"CREATE SCHEMA {name}")
        super().take_up(table)

    def _load(self, found: Statements, rows: Iterable[Row]) -> None:
        table = found.table
        self._sequences.note_all(table, self._named(table))
        some = list(rows)  # a part of a transaction, which is in memory anyhow
        self._execute("SAVEPOINT canopy_step")
        try:
            self._copy(self._named(table), table.names, found.fitted_columns(some))
        except psycopg.DataError as error:
            self._execute("ROLLBACK TO SAVEPOINT canopy_step")
            raise self._refused(found, some, error) from None
        self._execute("RELEASE SAVEPOINT canopy_step")

    def apply(self, step: Step) -> None:
        """See `Destination`. Raises UnfitError for what only the server has found to be unfit."""
        self._sequences.note(step.table, self._named(step.table), step.upserts)
        try:
            super().apply(step)
        except psycopg.DataError as error:
            raise UnfitError(f"{step.table.name}: the destination says: {error}") from None

    def scan(self, table: Table) -> Iterator[Row]:
        """Read all rows through COPY."""
        decoders = self._decoders(table)
        columns = ", ".join(map(quoted, table.names))
        statement = f"COPY (SELECT {columns} FROM {self._named(table)}) TO STDOUT"
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            yield from copied(map(bytes, copy), decoders)

    def _reading(self, table: Table) -> tuple[list[str], str, Callable[[Sequence[Any]], Row]]:
        shown = [f"{quoted(name)}::text" for name in table.names]
        return shown, " FOR UPDATE", decoding(self._decoders(table))

    def _place(self, table: Table) -> tuple[str, str]:
        return table.schema or self._home, table.bare

    def _named(self, table: Table) -> str:
        return super()._named(table) if table.schema else quoted(table.name)  # by the search path

    def _one(self, statement: str, *values: Any) -> Any:
        return self._execute(statement, values).fetchone()[0]

    def _decoders(self, table: Table) -> list[Decoder]:
        kinds = {column.name: column.type for column in self._columns(table)}
        domains = dict(self._execute(DOMAINS).fetchall())
        return [type_of(kinds[name], domains)[1] for name in table.names]

    def _type(self, table: Table, column: Column) -> str:
        declared = super()._type(table, column)
        known = self._one("SELECT to_regtype(%s) IS NOT NULL", declared)
        return declared if known else self.dialect.types.get(column.type, "text")

    def _retype(self, table: Table, name: str, kind: str) -> None:
        column = quoted(name)
        self._execute("SAVEPOINT canopy_type")
        try:
            self._execute(
                f"ALTER TABLE {self._named(table)} ALTER COLUMN {column} TYPE {kind} "
                f"USING {column}::text::{kind}"
            )
        except psycopg.DataError:
            self._execute("ROLLBACK TO SAVEPOINT canopy_type")
            self._remake(table, name, kind)
        self._execute("RELEASE SAVEPOINT canopy_type")

    def _delete(self, found: Statements, keys: Sequence[Row]) -> None:
        if len(keys) < MANY:
            super()._delete(found, keys)
            return
        stage = self._staged(found.table, found.table.keys, found.fitted_key_columns(keys))
        same = " AND ".join(f"t.{quoted(k)} = s.{quoted(k)}" for k in found.table.keys)
        self._execute(f"DELETE FROM {self._named(found.table)} t USING {stage} s WHERE {same}")

    def _upsert(self, found: Statements, rows: Sequence[Row]) -> None:
        if len(rows) < MANY:
            super()._upsert(found, rows)
            return
        table = found.table
        stage = self._staged(table, table.names, found.fitted_columns(rows))
        columns = ", ".join(map(quoted, table.names))
        self._execute(
            f"INSERT INTO {self._named(table)} ({columns}){self.dialect.overriding} "
            f"SELECT {columns} FROM {stage} " + found.conflict.replace("%%", "%")
        )

    def _stage(self, table: Table) -> str:
        digest = blake2b(table.name.encode(), digest_size=16).hexdigest()  # names may be long
        return f"canopy_stage_{digest}"

    def _staged(
        self, table: Table, columns: Sequence[str], values: Iterable[list[Sequence[Any]]]
    ) -> str:
        """A temporary table with these values."""
        stage = self._stage(table)
        self._execute(
            f"CREATE TEMP TABLE IF NOT EXISTS {stage} ON COMMIT DELETE ROWS AS "
            f"SELECT {', '.join(map(quoted, table.names))} FROM {self._named(table)} WHERE false"
        )
        self._execute(f"TRUNCATE pg_temp.{stage}")
        self._copy(f"pg_temp.{stage}", columns, values)
        return f"pg_temp.{stage}"

    def _copy(
        self, into: str, columns: Sequence[str], values: Iterable[list[Sequence[Any]]]
    ) -> None:
        names = ", ".join(map(quoted, columns))
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {into} ({names}) FROM STDIN") as copy,
        ):
            for some in values:
                copy.write(to_copy(some))

    def fill(self, table: Table, row: Row, only_null: bool) -> None:
        """See `Destination`. Raises UnfitError for what only the server has found to be unfit."""
        try:
            super().fill(table, row, only_null)
        except psycopg.DataError as error:
            raise UnfitError(f"{table.name}: the destination says: {error}") from None

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(statement, self._spelled(values) or None)

    def _execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, [self._spelled(row) for row in rows])

    def _spelled(self, values: Sequence[Any]) -> list[Any]:
        return [value if type(value) is int else spelled(value) for value in values]

    def _columns(self, table: Table) -> list[CatalogColumn]:
        return columns_of(self._connection, self._named(table))

    def _catalog(self, table: Table) -> list[Existing]:
        doubt = "with a collation that takes different texts for one"
        return [
            Existing(
                *(column.name, column.words),
                is_key=column.place_in_key is not None,
                is_generated=column.is_generated,
                doubt="" if column.is_deterministic else doubt,
            )
            for column in self._columns(table)
        ]

    def _alter(self, table: Table, there: Sequence[str]) -> None:
        super()._alter(table, there)
        for column in self._columns(table):
            if column.is_identity and column.name in {*table.names} - {*table.keys}:
                raise SchemaError(
                    f"the destination's column {table.name}.{column.name} is GENERATED ALWAYS AS "
                    f"IDENTITY, and cannot be set by an update: ALTER TABLE … ALTER COLUMN … SET "
                    f"GENERATED BY DEFAULT"
                )
            if not column.is_key_immediate:
                raise SchemaError(
                    f"the primary key of the destination's table {table.name} is DEFERRABLE, by "
                    f"which rows cannot be merged: make it NOT DEFERRABLE there"
                )

    def _holds(self, table: Table, own: str, wanted: str) -> bool:
        return _holds(own, LONG_NAMES.get(wanted, wanted))


def _holds(own: str, wanted: str) -> bool:
    """Whether a column of the type `own` keeps each value of the type `wanted`, or refuses it."""
    if own == wanted or (own in WHOLE and wanted in WHOLE):
        return True
    wide = re.sub(r"\(.*?\)", "", wanted)
    if own in ("text", "character varying"):
        return wide in ("text", "character varying")
    return own == wide and own not in ("character", "bit")
