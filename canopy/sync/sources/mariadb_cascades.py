"""Rows that MariaDB changes without a word in its log: what foreign keys do on their own.

A row that is deleted, or gets another key, deletes or changes the rows that refer to it (`ON
DELETE` and `ON UPDATE`, with CASCADE or SET NULL). The server leaves that to its replicas and does
not log it. So whoever reads the log has to know of which tables rows may have been changed with
others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pymysql

from canopy.sync.servers.mariadb_link import asked
from canopy.sync.sources import binlog

Named = tuple[str, str]
"""A database and a table of it."""


class _Key(NamedTuple):
    """A foreign key that acts."""

    child: Named
    columns: frozenset[str]  # of the table that is referred to
    on_delete: str
    on_update: str


class Cascades:
    """The foreign keys of one database that act, as far as they were ever seen: the log may still
    have changes of before one was dropped."""

    def __init__(self, link: pymysql.Connection[Any]) -> None:
        self._link = link
        self._keys: dict[Named, set[_Key]] = {}  # by the table that is referred to
        self.learn()

    def learn(self) -> None:
        """Take up the foreign keys that there are by now."""
        found = asked(
            self._link,
            "SELECT k.CONSTRAINT_NAME, k.TABLE_SCHEMA, k.TABLE_NAME, k.REFERENCED_TABLE_SCHEMA, "
            "k.REFERENCED_TABLE_NAME, k.REFERENCED_COLUMN_NAME, r.DELETE_RULE, r.UPDATE_RULE "
            "FROM information_schema.KEY_COLUMN_USAGE k "
            "JOIN information_schema.REFERENTIAL_CONSTRAINTS r "
            "ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.TABLE_NAME = k.TABLE_NAME "
            "AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME WHERE k.TABLE_SCHEMA = DATABASE() "
            "AND k.REFERENCED_TABLE_NAME IS NOT NULL",
        )
        columns: dict[tuple[str, ...], set[str]] = {}
        for name, schema, child, other, parent, column, on_delete, on_update in found:
            each = (name, schema, child, other, parent, on_delete, on_update)
            columns.setdefault(each, set()).add(column)
        for (_, schema, child, other, parent, *rules), names in columns.items():
            key = _Key((schema, child), frozenset(names), *rules)
            self._keys.setdefault((other, parent), set()).add(key)

    def changed_with(self, found: binlog.RowsChange) -> set[Named]:
        """Return the tables in which rows may have been changed together with those of `found`."""
        layout = found.layout
        place = (layout.schema, layout.name)
        if place not in self._keys or found.is_unchecked or found.kind == binlog.WRITE_ROWS:
            return set()
        if found.kind == binlog.DELETE_ROWS:
            return set(self._reached(place, None))
        changed = {
            field.name
            for number, field in enumerate(layout.fields)
            if any(b and a and b[number] != a[number] for b, a in found.rows)
        }
        return set(self._reached(place, changed))

    def _reached(self, place: Named, changed: set[str] | None) -> Iterator[Named]:
        """Yield the tables reached from a table in which rows were deleted (None), or these columns
        changed."""
        seen: set[tuple[Named, bool]] = set()
        left = [(place, changed)]
        while left:
            at, columns = left.pop()
            for key in self._keys.get(at, ()):
                rule = key.on_delete if columns is None else key.on_update
                acts = columns is None or bool(columns & key.columns)
                if not acts or rule not in ("CASCADE", "SET NULL", "SET DEFAULT"):
                    continue
                goes = columns is None and rule == "CASCADE"
                yield key.child
                if (key.child, goes) not in seen:
                    seen.add((key.child, goes))
                    left.append((key.child, None if goes else self._all_of(key.child)))

    def _all_of(self, place: Named) -> set[str]:
        """The columns of a table that others refer to: any may have been changed."""
        return {name for key in self._keys.get(place, ()) for name in key.columns}
