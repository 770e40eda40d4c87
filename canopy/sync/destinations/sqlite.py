"""SQLite as a destination."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from canopy.sync.changes import Column, Table
from canopy.sync.destinations.destination import Progress
from canopy.sync.destinations.sql import SqlDestination, computed, quoted
from canopy.sync.errors import SchemaError

KEPT: Final = frozenset(("", "BLOB"))
"""Affinities of columns in which SQLite leaves each value as it is."""
BUSY: Final = 30.0
"""Seconds to wait for another writer."""


class SqliteDestination(SqlDestination):
    """A database file, which is made if it is not there. Where it is a source, too, what is applied
    is marked in its log."""

    kind = "sqlite"
    text_type, int_type = "TEXT", "INTEGER"

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
        """See `Destination`."""
        self._execute("BEGIN IMMEDIATE")
        self._in_transaction = True
        self._is_source = bool(self._columns_of("canopy_applying"))
        if self._is_source:
            self._execute("INSERT INTO canopy_applying VALUES (?)", [self._name])

    def commit(self, progress: Progress) -> None:
        """See `Destination`."""
        if self._is_source:
            self._execute("DELETE FROM canopy_applying")
        super().commit(progress)

    def _change(self, table: Table, former: Table, old: Column) -> None:
        """A column keeps its NOT NULL. It takes values of any type, but bends those that look like
        its own: a text of digits in a column of numbers is a number, at last infinity. So one whose
        type changes is made anew, with its values."""
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
                f"destination's column cannot be made anew: {error}"
            ) from None

    def _alter(self, table: Table, there: Sequence[str]) -> None:
        for row in self._execute(f"PRAGMA table_xinfo({quoted(table.name)})").fetchall():
            if row[6] and row[1] in table.names:
                raise SchemaError(computed(table, row[1]))
        super()._alter(table, there)

    def _options(self, table: Table) -> str:
        return f" {table.options}" if table.options and table.dialect == self.kind else ""

    def _doubtful(self, table: Table) -> dict[str, str]:
        (is_strict,) = self._execute(
            "SELECT strict FROM pragma_table_list WHERE schema = 'main' AND name = ?", [table.name]
        ).fetchone() or (0,)
        there = {
            row[1]: row[2] for row in self._execute(f"PRAGMA table_xinfo({quoted(table.name)})")
        }
        wanted_strict = bool(table.options) and table.dialect == self.kind
        found = {}
        for column in table.columns:
            declared = there.get(column.name, "")
            own = affinity(declared, bool(is_strict))
            wanted = affinity(self._type(table, column), wanted_strict)
            if own != wanted and own not in KEPT:
                found[column.name] = declared
        for name, collation in self._key_collations(table):
            if name in table.keys and collation != "BINARY":
                found[name] = f"{there.get(name, '')} COLLATE {collation}".strip()
        return found

    def _key_collations(self, table: Table) -> list[tuple[str, str]]:
        """The columns of the primary key's index, and how it compares them."""
        for row in self._execute(f"PRAGMA index_list({quoted(table.name)})").fetchall():
            if row[3] == "pk":
                found = self._execute(f"PRAGMA index_xinfo({quoted(row[1])})")
                return [(each[2], each[4].upper()) for each in found if each[5]]
        return []

    def _columns(self, table: Table) -> list[str]:
        return self._columns_of(table.name)

    def _columns_of(self, table: str) -> list[str]:
        return [row[1] for row in self._execute(f"PRAGMA table_xinfo({quoted(table)})")]

    def _keys(self, table: Table) -> list[str]:
        name = quoted(table.name)
        return [row[1] for row in self._execute(f"PRAGMA table_info({name})") if row[5]]


def affinity(declared: str, is_strict: bool = False) -> str:
    """What a column of this type does to values (https://sqlite.org/datatype3.html), "": nothing.
    Integers and other numbers are converted alike."""
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
