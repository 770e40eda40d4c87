"""Finds the rows of a SQLite table that a new row replaces, by conditions for each of its unique
indexes.

SQLite compares as the index says, which may be otherwise than the column (`COLLATE NOCASE`), and an
index may be of expressions, of which the catalogue has the text of CREATE INDEX only
(https://sqlite.org/pragma.html#pragma_index_xinfo).
"""

from __future__ import annotations

import re
import sqlite3
from typing import Final, NamedTuple

from canopy.sinks.database import quoted

_TOKEN: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|.",
    re.DOTALL,
)
"""A text, a quoted name or a comment as a whole; else one character."""
_ORDER: Final = re.compile(r"\s+(?:asc|desc)\s*$", re.IGNORECASE)
ANY_ROW: Final = "1"


class Unique(NamedTuple):
    """A unique index of a table, as conditions of its triggers need it."""

    meets: str
    """The condition, in a trigger of the table, that a row has the values of NEW; it may be wider
    than the index, which may have a condition of its own."""
    columns: tuple[str, ...] | None
    """The index's columns; None: it is of expressions, which may look at any."""


def unique_indexes(database: sqlite3.Connection, table: str) -> list[Unique]:
    """Return the unique indexes of a table, including its primary key unless that is the row
    number."""
    found = []
    for _, name, unique, _, _ in database.execute(f"PRAGMA index_list({quoted(table)})").fetchall():
        if unique:
            found.append(_index(database, table, name))
    return found


def _index(database: sqlite3.Connection, table: str, name: str) -> Unique:
    terms: list[str] | None = None
    parts: list[str] = []
    columns: list[str] | None = []
    info = database.execute(f"PRAGMA index_xinfo({quoted(name)})").fetchall()
    for number, (_, place, column, _, collation, is_key) in enumerate(info):
        if not is_key:
            continue
        if place != EXPRESSION and column is not None:
            parts.append(f"{quoted(column)} = NEW.{quoted(column)} COLLATE {quoted(collation)}")
            if columns is not None:
                columns.append(column)
            continue
        columns = None
        if terms is None:
            terms = _terms(database, name)
        if number < len(terms):
            parts.append(
                f"({terms[number]}) = (SELECT {terms[number]} FROM {_new(database, table)})"
            )
    return Unique(" AND ".join(parts) or ANY_ROW, None if columns is None else tuple(columns))


EXPRESSION: Final = -2
"""The number that `index_xinfo` gives in place of a column's."""


def _new(database: sqlite3.Connection, table: str) -> str:
    """NEW as a table of one row."""
    names = [quoted(row[1]) for row in database.execute(f"PRAGMA table_xinfo({quoted(table)})")]
    return "(SELECT " + ", ".join(f"NEW.{name} AS {name}" for name in names) + ")"


def _terms(database: sqlite3.Connection, index: str) -> list[str]:
    """Return the terms of an index, as CREATE INDEX spells them, without the order."""
    (statement,) = database.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'index' AND name = ?", (index,)
    ).fetchone()
    terms: list[str] = []
    depth, term = 0, ""
    for token in _TOKEN.findall(statement):
        if token[:2] in ("--", "/*"):
            token = " "
        if token == ")":
            depth -= 1
        if (depth == 0 and token == ")") or (depth == 1 and token == ","):
            terms.append(_ORDER.sub("", term.strip()))
            term = ""
            if depth == 0:
                break
        elif depth:
            term += token
        if token == "(":
            depth += 1
    return terms
