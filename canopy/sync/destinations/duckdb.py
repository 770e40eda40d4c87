"""DuckDB as a destination. It has no savepoints, and takes most of its time for statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import duckdb

from canopy.sync.changes import Table
from canopy.sync.destinations.sql import SqlDestination, Statements, quoted
from canopy.sync.values import Literal, Row

DATES: Final = ("date", "timestamp")
AT_ONCE: Final = 500
"""Rows of one statement."""


class DuckdbDestination(SqlDestination):
    """A database file, which is made if it is not there."""

    kind = "duckdb"
    text_type = "VARCHAR"
    has_savepoints = False

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, duckdb.connect(path))

    def _load(self, found: Statements, rows: Iterable[Row]) -> None:
        self._insert(found, found.fitted(rows), "")

    def scan(self, table: Table) -> Iterator[Row]:
        """See `Destination`. Dates are read as text: the driver knows none before Christ."""
        shown = [
            f"{quoted(column.name)}::VARCHAR" if column.type in DATES else quoted(column.name)
            for column in table.columns
        ]
        dates = [column.type in DATES for column in table.columns]
        cursor = self._execute(f"SELECT {', '.join(shown)} FROM {self._named(table)}")
        while rows := cursor.fetchmany(1_000):
            for row in rows:
                yield tuple(
                    [
                        Literal(_read(v)) if is_date and v is not None else v
                        for is_date, v in zip(dates, row, strict=True)
                    ]
                )

    def _upsert(self, found: Statements, rows: Sequence[Row]) -> None:
        self._insert(found, found.fitted(rows), found.conflict)

    def _delete(self, found: Statements, keys: Sequence[Row]) -> None:
        rest = found.fitted_keys(keys)
        while some := list(islice(rest, AT_ONCE)):
            where = " OR ".join([f"({found.key})"] * len(some))
            self._execute(
                f"DELETE FROM {found.name} WHERE {where}", [v for row in some for v in row]
            )

    def _insert(self, found: Statements, rows: Iterable[Sequence[Any]], conflict: str) -> None:
        rest = iter(rows)
        marks = f"({', '.join(['?'] * len(found.table.columns))})"
        while some := list(islice(rest, AT_ONCE)):
            self._execute(
                f"INSERT INTO {found.name} ({found.columns}) VALUES "
                f"{', '.join([marks] * len(some))} {conflict}",
                [value for row in some for value in row],
            )

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        spelled = [_spelled(value.text) if type(value) is Literal else value for value in values]
        return self._connection.execute(statement, spelled)

    def take_up(self, table: Table) -> None:
        """See `Destination`."""
        if table.schema:
            self._execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(table.schema)}")
        super().take_up(table)

    def _place(self, table: Table) -> tuple[str, str]:
        return table.schema or "main", table.bare

    def _retype(self, table: Table, name: str, kind: str) -> None:
        column = quoted(name)
        self._execute(
            f"ALTER TABLE {self._named(table)} ALTER COLUMN {column} TYPE {kind} "
            f"USING TRY_CAST({column}::VARCHAR AS {kind})"
        )

    def _doubtful(self, table: Table) -> dict[str, str]:
        found = self._execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = ? "
            "AND table_name = ?",
            self._place(table),
        )
        there = dict(found.fetchall())
        wanted = {column.name: self._type(table, column) for column in table.columns}
        return {name: there[name] for name, kind in wanted.items() if there.get(name, kind) != kind}

    def _columns(self, table: Table) -> list[str]:
        found = self._execute(
            "SELECT column_name FROM duckdb_columns() WHERE schema_name = ? AND table_name = ?",
            self._place(table),
        )
        return [name for (name,) in found.fetchall()]

    def _keys(self, table: Table) -> list[str]:
        found = self._execute(
            "SELECT constraint_column_names FROM duckdb_constraints() "
            "WHERE schema_name = ? AND table_name = ? AND constraint_type = 'PRIMARY KEY'",
            self._place(table),
        ).fetchone()
        return list(found[0]) if found else []


def _spelled(text: str) -> str:
    """What PostgreSQL writes as DuckDB reads it."""
    day, space, rest = text.removesuffix(" BC").partition(" ")
    return f"{day} (BC){space}{rest}" if text.endswith(" BC") else text


def _read(text: str) -> str:
    return f"{text.replace(' (BC)', '')} BC" if "(BC)" in text else text
