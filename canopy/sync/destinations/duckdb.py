"""DuckDB as a destination. It has no savepoints, and takes most of its time for statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import duckdb

from canopy.sync.changes import Table
from canopy.sync.destinations.sql import SqlDestination, Statements
from canopy.sync.fitting import words
from canopy.sync.values import Literal, Row

AT_ONCE: Final = 500
"""Rows of one statement."""


class DuckdbDestination(SqlDestination):
    """A database file, which is made if it is not there."""

    kind = "duckdb"
    text_type = "VARCHAR"
    has_savepoints = False

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, duckdb.connect(path))

    def load(self, table: Table, rows: Iterable[Row]) -> None:
        """See `Destination`."""
        found = self._statements[table.name]
        self._insert(found, found.fitted(rows), "")

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
        spelled = [words(value) if type(value) is Literal else value for value in values]
        return self._connection.execute(statement, spelled)

    def _columns(self, table: str) -> list[str]:
        found = self._execute(
            "SELECT column_name FROM duckdb_columns() "
            "WHERE table_name = ? AND schema_name = 'main'",
            [table],
        )
        return [name for (name,) in found.fetchall()]

    def _keys(self, table: str) -> list[str]:
        found = self._execute(
            "SELECT constraint_column_names FROM duckdb_constraints() "
            "WHERE table_name = ? AND constraint_type = 'PRIMARY KEY'",
            [table],
        ).fetchone()
        return list(found[0]) if found else []
