"""SQLite as a destination."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from canopy.sinks.database import quoted
from canopy.sync.changes import Column, Table
from canopy.sync.destinations.destination import Destination, Existing
from canopy.sync.dialects import SQLITE
from canopy.sync.errors import SchemaError

KEPT: Final = frozenset(("", "BLOB"))
"""Affinities of columns in which SQLite leaves each value as it is."""
BUSY: Final = 30.0
"""Seconds to wait for another writer."""


class SqliteDestination(Destination):
    """A database file, which is made if it does not exist. If it is a source as well, applied
    changes are marked in its log."""

    dialect = SQLITE

    def __init__(self, name: str, path: str) -> None:
        is_new = not Path(path).exists()
        connection = sqlite3.connect(
            path, timeout=BUSY, isolation_level=None, check_same_thread=False
        )
        if is_new:
            connection.execute("PRAGMA journal_mode = WAL")  # its readers need not wait
        super().__init__(name, connection)
        self._execute("PRAGMA foreign_keys = OFF")  # the source has seen to them

    def begin(self) -> None:
        """Begin a transaction that excludes other writers. Mark it if the database is a source."""
        self._execute("BEGIN IMMEDIATE")
        self._in_transaction = True
        self._is_source = bool(self._execute("PRAGMA table_info(canopy_applying)").fetchone())
        if self._is_source:
            self._execute("INSERT INTO canopy_applying VALUES (?)", [self._name])

    def _end(self, is_committed: bool) -> None:
        if is_committed and self._is_source:
            self._execute("DELETE FROM canopy_applying")
        super()._end(is_committed)

    def _change(self, table: Table, former: Table, old: Column) -> None:
        """A column keeps its NOT NULL. It takes values of any type, but bends those that look like
        its own: a text of digits in a column of numbers is a number, at last infinity. So one whose
        type changes is made again, with its values."""
        new = next((column for column in table.columns if column.name == old.name), None)
        kind = self._type(former, old) if new is None else self._type(table, new)
        if kind == self._type(former, old):
            return
        name, made, to = quoted(old.name), quoted(f"canopy_{old.name}"), quoted(table.name)
        try:
            self._execute(f"ALTER TABLE {to} ADD COLUMN {made} {kind}")
            self._execute(f"UPDATE {to} SET {made} = {name}")
            self._execute(f"ALTER TABLE {to} DROP COLUMN {name}")
            self._execute(f"ALTER TABLE {to} RENAME COLUMN {made} TO {name}")
        except sqlite3.OperationalError as error:
            raise SchemaError(
                f"{table.name}.{old.name} has the type {kind} at the source now, and the "
                f"destination's column cannot be made again: {error}"
            ) from None

    def _catalog(self, table: Table) -> list[Existing]:
        name = quoted(table.name)
        collations = {}
        for index in self._execute(f"PRAGMA index_list({name})").fetchall():
            if index[3] == "pk":
                found = self._execute(f"PRAGMA index_xinfo({quoted(index[1])})")
                collations = {row[2]: row[4].upper() for row in found if row[5]}
        return [
            Existing(
                column, declared, bool(key), bool(hidden), doubt=_collating(collations, column)
            )
            for _, column, declared, _, _, key, hidden in self._execute(
                f"PRAGMA table_xinfo({name})"
            )
        ]

    def _doubtful(self, table: Table) -> dict[str, str]:
        strict = self._execute(
            "SELECT strict FROM pragma_table_list WHERE schema = 'main' AND name = ?", [table.name]
        ).fetchone()
        self._is_strict = bool(strict and strict[0])
        return super()._doubtful(table)

    def _holds(self, table: Table, own: str, wanted: str) -> bool:
        is_strict = bool(table.options) and table.dialect == self.dialect.name
        found = affinity(own, self._is_strict)
        return found in KEPT or found == affinity(wanted, is_strict)


def _collating(collations: dict[str, str], column: str) -> str:
    found = collations.get(column, "BINARY")
    return "" if found == "BINARY" else f"COLLATE {found}"


def affinity(declared: str, is_strict: bool = False) -> str:
    """Return the conversion that a column of this type does (https://sqlite.org/datatype3.html);
    "": none. Integers and other numbers are converted alike."""
    text = declared.upper()
    if not text or (is_strict and text == "ANY"):
        return ""
    if "INT" in text:
        return "NUMERIC"
    if any(word in text for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in text:
        return "BLOB"
    return "REAL" if any(word in text for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"
