"""DuckDB as a destination. It has no savepoints, and takes most of its time for statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

import duckdb

from canopy.sinks.database import quoted
from canopy.sync.changes import Table
from canopy.sync.conversions import kept
from canopy.sync.destinations.destination import Destination, Existing
from canopy.sync.destinations.statements import Statements
from canopy.sync.dialects import DUCKDB
from canopy.sync.values import NativeText, Row, Value, decoding

DATES: Final = ("date", "timestamp")
AT_ONCE: Final = 500
"""Rows of one statement."""


class DuckdbDestination(Destination):
    """A database file, which is made if it is not there."""

    dialect = DUCKDB
    has_savepoints = False

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, duckdb.connect(path))

    def _load(self, found: Statements, rows: Iterable[Row]) -> None:
        self._insert(found, found.fitted(rows), "")

    def _reading(self, table: Table) -> tuple[list[str], str, Callable[[Sequence[Any]], Row]]:
        """Dates are read as text: the driver knows none before Christ."""
        shown = [
            f"{quoted(column.name)}::VARCHAR" if column.type in DATES else quoted(column.name)
            for column in table.columns
        ]
        return shown, "", decoding([_read if c.type in DATES else kept for c in table.columns])

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
        spelled = [_spelled(value.text) if type(value) is NativeText else value for value in values]
        return self._connection.execute(statement, spelled)

    def take_up(self, table: Table) -> None:
        """Make the table's schema if it is missing, then do as `Destination`."""
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

    def _catalog(self, table: Table) -> list[Existing]:
        keys = self._execute(
            "SELECT constraint_column_names FROM duckdb_constraints() "
            "WHERE schema_name = ? AND table_name = ? AND constraint_type = 'PRIMARY KEY'",
            self._place(table),
        ).fetchone()
        found = self._execute(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = ? "
            "AND table_name = ?",
            self._place(table),
        )
        return [
            Existing(name, kind, bool(keys) and name in keys[0]) for name, kind in found.fetchall()
        ]


def _spelled(text: str) -> str:
    """Return PostgreSQL's text of a value as DuckDB reads it."""
    day, space, rest = text.removesuffix(" BC").partition(" ")
    return f"{day} (BC){space}{rest}" if text.endswith(" BC") else text


def _read(text: str) -> Value:
    return NativeText(f"{text.replace(' (BC)', '')} BC" if "(BC)" in text else text)
