"""Sequences of a PostgreSQL destination, which are kept ahead of the rows that are applied, so that
the first program that inserts there itself after a switch-over meets no row.

They are left alone in a database that is a source, too: two databases that are written to at once
have shared their numbers out, and the numbers of one say nothing of the other's sequences. So are
those that do not count by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from canopy.sinks.database import quoted
from canopy.sync.changes import Table
from canopy.sync.values import Row

FOUND: Final = """
SELECT attname, format('%%I.%%I', nspname, relname), s.seqrelid::bigint, s.seqmax
FROM (
  SELECT objid AS seq, refobjid AS rel, refobjsubid AS num FROM pg_depend
  WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass
  AND deptype IN ('a', 'i') AND refobjsubid > 0
  UNION
  SELECT d.refobjid, a.adrelid, a.adnum FROM pg_depend d JOIN pg_attrdef a ON a.oid = d.objid
  WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
) AS used
JOIN pg_sequence s ON s.seqrelid = used.seq JOIN pg_class c ON c.oid = s.seqrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute ON attrelid = used.rel AND attnum = used.num
WHERE used.rel = to_regclass(%s) AND seqincrement = 1 AND has_sequence_privilege(c.oid, 'UPDATE')
"""
ADVANCE: Final = (
    "SELECT setval(%s, greatest(last_value, %s)) FROM {} "
    "WHERE NOT EXISTS (SELECT 1 FROM pg_publication WHERE pubname LIKE 'canopy\\_%%')"
)


class _Behind(NamedTuple):
    """A sequence, and the column that takes numbers from it."""

    place: int
    column: str
    name: str  # for SQL
    number: int  # its id
    most: int


class PostgresSequences:
    """The sequences of the tables that are applied to."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        """`execute`: a statement and its values."""
        self._execute = execute
        self._behind: dict[str, list[_Behind]] = {}  # by table
        self._largest: dict[_Behind, int] = {}  # since the last commit
        self._loaded: dict[str, str] = {}  # tables of which many rows came, by their names for SQL

    def renew(self, table: Table) -> None:
        """A table may have other sequences from here on."""
        self._behind.pop(table.name, None)

    def note(self, table: Table, named: str, rows: Iterable[Row]) -> None:
        """Rows that are being written to a table, which is `named` so for SQL."""
        for one in self._of(table, named):
            values = [row[one.place] for row in rows]
            numbers = [value for value in values if type(value) is int]
            self._largest[one] = max(self._largest.get(one, 0), *numbers, 0)

    def note_all(self, table: Table, named: str) -> None:
        """Many rows are loaded: the largest number in the table is looked up before the commit."""
        if self._of(table, named):
            self._loaded[table.name] = named

    def advance(self) -> None:
        """Move the sequences past the written values, before the transaction commits."""
        for name, named in self._loaded.items():
            for one in self._behind[name]:
                asked = f"SELECT max({quoted(one.column)}) FROM {named}"
                found = self._execute(asked).fetchone()
                self._largest[one] = max(self._largest.get(one, 0), int(found[0] or 0))
        for one, largest in self._largest.items():
            if 0 < largest <= one.most:
                self._execute(ADVANCE.format(one.name.replace("%", "%%")), [one.number, largest])
        self.forget()

    def _of(self, table: Table, named: str) -> list[_Behind]:
        known = self._behind.get(table.name)
        if known is None:
            found = self._execute(FOUND, [named]).fetchall()
            known = self._behind[table.name] = [
                _Behind(table.names.index(row[0]), *row) for row in found if row[0] in table.names
            ]
        return known

    def forget(self) -> None:
        """Forget the values noted since the last commit, because the transaction was rolled
        back."""
        self._largest.clear()
        self._loaded.clear()
