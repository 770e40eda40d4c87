"""The triggers that log the changes of SQLite's tables, and the tables that they log to.

``canopy_changes`` has one row for each change, with the values of the user's columns as they are
stored: its columns v0, v1, … have no type, so SQLite converts nothing. ``canopy_tables`` says of
each shape that a table had which columns these are. User's tables stay as they are.

SQLite fires no trigger for a row that REPLACE removes. So a trigger before the change keeps the
rows that have a unique value in common with the new one (``canopy_candidates``), and the one after
it logs those that went: as deleted, or, where the new row has the same key, as what it was before.

A trigger of the user's, or a foreign key's action, may change the same row once more before the
trigger here fires, whose own change is logged first then. So what is logged is the row as the table
has it by now, and a row is logged as deleted only if there is none with its key. What happened to
the rows that an outer change has kept is logged before an inner one keeps others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

import msgspec

from canopy.sinks.database import quoted
from canopy.sync.changes import DELETE, INSERT, UPDATE, Column, Table
from canopy.sync.sources.sqlite_unique import Unique, unique_indexes

NOW: Final = "(julianday('now') - 2440587.5) * 86400.0"
"""Seconds since 1970, to a millisecond."""
ORIGIN: Final = "(SELECT name FROM canopy_applying)"
"""The sync whose changes are being applied in this transaction; NULL: they are a user's own."""

TABLES: Final = """
CREATE TABLE IF NOT EXISTS canopy_source (id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS canopy_tables (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, shape TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS canopy_readers (
  name TEXT PRIMARY KEY, position INTEGER NOT NULL, tables TEXT);
CREATE TABLE IF NOT EXISTS canopy_changes (
  id INTEGER PRIMARY KEY AUTOINCREMENT, tab INTEGER NOT NULL, op INTEGER NOT NULL,
  at REAL, applied);
CREATE TABLE IF NOT EXISTS canopy_candidates (tab INTEGER NOT NULL);
"""
APPLYING: Final = "CREATE TABLE IF NOT EXISTS canopy_applying (name TEXT)"
"""Creates the table in which a destination marks what it applies."""


def user_tables(database: sqlite3.Connection) -> list[str]:
    """The names of the tables that can be captured."""
    found = database.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
        "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name NOT LIKE 'canopy\\_%' ESCAPE '\\' "
        "ORDER BY name"
    )
    return [name for (name,) in found]


def shape_of(database: sqlite3.Connection, name: str) -> Table | None:
    """The shape of a table; None if there is none of that name. Generated columns are left out."""
    columns: list[Column] = []
    keys: list[tuple[int, int]] = []
    is_strict = _is_strict(database, name)
    is_rowid = not any(
        row[3] == "pk" for row in database.execute(f"PRAGMA index_list({quoted(name)})")
    )
    for _, column, declared, notnull, _, key, hidden in database.execute(
        f"PRAGMA table_xinfo({quoted(name)})"
    ):
        if hidden:
            continue
        if key:
            keys.append((key, len(columns)))
            if declared.upper() == "INTEGER" and not is_rowid:
                declared = "INT"  # in a copy a key INTEGER would be the rowid, which is no text
        columns.append(Column(column, meaning(declared, is_strict), declared, not notnull))
    if not columns:
        return None
    key_places = tuple(place for _, place in sorted(keys))
    options = "STRICT" if is_strict else ""
    return Table(name, tuple(columns), key_places, "sqlite", options=options)


def _is_strict(database: sqlite3.Connection, name: str) -> bool:
    said = database.execute(
        "SELECT strict FROM pragma_table_list WHERE schema = 'main' AND name = ?", (name,)
    ).fetchone()
    return bool(said and said[0])


def meaning(declared: str, is_strict: bool = False) -> str:
    """Return the meaning of a declared type for a column's values, which may differ nevertheless;
    else the result of SQLite's rules of affinity (https://sqlite.org/datatype3.html). `any`: SQLite
    leaves each value unchanged."""
    text = declared.upper()
    if not text or (is_strict and text == "ANY"):
        return "any"
    for words, found in (
        (("BOOL",), "bool"),
        (("TIMESTAMPTZ", "TIMESTAMP WITH TIME"), "instant"),
        (("DATETIME", "TIMESTAMP"), "timestamp"),
        (("DATE",), "date"),
        (("TIME",), "time"),
        (("JSON",), "json"),
        (("INT",), "int"),
        (("CHAR", "CLOB", "TEXT"), "text"),
        (("BLOB",), "bytes"),
        (("REAL", "FLOA", "DOUB"), "float"),
    ):
        if any(word in text for word in words):
            return found
    return "decimal"


def prepare(database: sqlite3.Connection) -> str:
    """Make the tables of the log, within a transaction. Returns the id of the database."""
    for statement in (*TABLES.split(";"), APPLYING):
        if statement.strip():
            database.execute(statement)
    database.execute(
        "INSERT INTO canopy_source SELECT lower(hex(randomblob(8))) "
        "WHERE NOT EXISTS (SELECT 1 FROM canopy_source)"
    )
    return str(database.execute("SELECT id FROM canopy_source").fetchone()[0])


def widen(database: sqlite3.Connection, columns: int) -> None:
    """Make room for the two images of a row with `columns` columns."""
    for table, needed in (("canopy_changes", 2 * columns), ("canopy_candidates", columns)):
        there = [row[1] for row in database.execute(f"PRAGMA table_xinfo({table})")]
        for number in range(needed):
            if f"v{number}" not in there:
                database.execute(f"ALTER TABLE {table} ADD COLUMN v{number}")


def install(database: sqlite3.Connection, table: Table) -> int:
    """Log the changes of a table of this shape from now on, within a transaction. Returns the
    number under which they are logged."""
    widen(database, len(table.columns))
    shape = msgspec.json.encode(table).decode()
    cursor = database.execute(
        "INSERT INTO canopy_tables (name, shape) VALUES (?, ?)", (table.name, shape)
    )
    number = cursor.lastrowid
    assert number is not None
    uninstall(database, table.name)
    for statement in _wanted(database, table, number):
        database.execute(statement)
    return number


def is_installed(database: sqlite3.Connection, table: Table, number: int) -> bool:
    """Whether the table has the triggers that log it as `number`, as they would be made now: one
    that was built again has none, and with a new unique index others are needed."""
    found = database.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? "
        "AND name LIKE 'canopy\\_%' ESCAPE '\\'",
        (table.name,),
    ).fetchall()
    return {statement for (statement,) in found} == set(_wanted(database, table, number))


def _wanted(database: sqlite3.Connection, table: Table, number: int) -> list[str]:
    unique, rowid = unique_indexes(database, table.name), rowid_name(database, table)
    return triggers(table, number, unique, rowid)


def uninstall(database: sqlite3.Connection, name: str) -> None:
    """Stop logging the changes of a table."""
    found = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? "
        "AND name LIKE 'canopy\\_%' ESCAPE '\\'",
        (name,),
    ).fetchall()
    for (trigger,) in found:
        database.execute(f"DROP TRIGGER {quoted(trigger)}")


def triggers(table: Table, number: int, unique: list[Unique], rowid: str) -> list[str]:
    """The statements that make the triggers of a table that is logged as `number`; `rowid`: as
    `rowid_name`."""
    name = quoted(table.name)
    count = len(table.columns)
    olds = [f"OLD.{quoted(column)}" for column in table.names]
    nows = ", ".join(f"t.{quoted(column)}" for column in table.names)
    it = f"{name} AS t WHERE {_same(table, 'NEW')}"
    if rowid:
        it = f"{name} AS t WHERE t.{rowid} = NEW.{rowid}"

    def logged(op: int, width: int, values: str) -> str:
        columns = "".join(f", v{place}" for place in range(width))
        return (
            f"INSERT INTO canopy_changes (tab, op, at, applied{columns}) "
            f"SELECT {number}, {op}, {NOW}, {ORIGIN}, {values}"
        )

    other = " OR ".join(f"NEW.{quoted(key)} IS NOT OLD.{quoted(key)}" for key in table.keys)
    kept = ", ".join(f"v{place}" for place in range(count))
    candidates = ", ".join(f"c.v{place}" for place in range(count))
    mine = f"FROM canopy_candidates AS c WHERE c.tab = {number} AND {_is_new(table)}"
    replaced = (
        f"{logged(UPDATE, 2 * count, f'{nows}, {candidates}')} FROM canopy_candidates AS c, {it} "
        f"AND c.tab = {number} AND {_is_new(table)}; "
    )
    inserted = (  # only if no row was replaced
        f"{logged(INSERT, count, nows)} FROM {it} AND NOT EXISTS (SELECT 1 {mine}); "
    )
    updated = f"{logged(UPDATE, 2 * count, ', '.join([nows, *olds]))} FROM {it}; "
    deleted = (
        f"{logged(DELETE, count, ', '.join(olds))} "
        f"WHERE NOT EXISTS (SELECT 1 FROM {name} AS t WHERE {_same(table, 'OLD')}"
        + "".join(f" AND t.{quoted(key)} = OLD.{quoted(key)} COLLATE BINARY" for key in table.keys)
        + ")"
    )
    forget = f"DELETE FROM canopy_candidates WHERE tab = {number};"
    lost = f"({other}) AND {_is_new(table)}"
    others = _changed(table, number, f"NOT ({_is_new(table)})")
    made: list[str] = []
    for what, body in (
        ("insert", _gone(table, number, "0") + replaced + inserted + forget),
        (
            "update",
            f"{_gone(table, number, lost)}{others}{forget} {updated}"
            f"{deleted} AND NOT EXISTS (SELECT 1 FROM {it});",
        ),
        ("delete", f"{deleted};"),
    ):
        trigger = quoted(f"canopy_{what}_{number}")
        made.append(f"CREATE TRIGGER {trigger} AFTER {what.upper()} ON {name} BEGIN {body} END")
    same_key = " AND ".join(f"{quoted(each)} = NEW.{quoted(each)}" for each in table.keys)
    meets = " OR ".join(f"({each})" for each in (same_key, *(one.meets for one in unique)))
    columns = ", ".join(map(quoted, table.names))
    changed = " OR ".join(
        f"NEW.{quoted(each)} IS NOT OLD.{quoted(each)}"
        for each in dict.fromkeys((*table.keys, *_looked_at(table, unique)))
    )
    for what, when in (("insert", ""), ("update", f"WHEN {changed}")):
        trigger = quoted(f"canopy_before_{what}_{number}")
        made.append(
            f"CREATE TRIGGER {trigger} BEFORE {what.upper()} ON {name} {when} BEGIN "
            f"{_gone(table, number, '0')}{_changed(table, number, '1')}"
            f"{forget} "  # those of an outer change, or of a statement that was ignored
            f"INSERT INTO canopy_candidates (tab, {kept}) "
            f"SELECT {number}, {columns} FROM {name} WHERE {meets}; END"
        )
    return made


def _looked_at(table: Table, unique: list[Unique]) -> Iterator[str]:
    """The columns that unique indexes look at."""
    for one in unique:
        yield from table.names if one.columns is None else one.columns


def rowid_name(database: sqlite3.Connection, table: Table) -> str:
    """Return the name of the row number that SQLite gives to a row; "": its table has none."""
    (without,) = database.execute(
        "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", (table.name,)
    ).fetchone()
    columns = database.execute(f"PRAGMA table_xinfo({quoted(table.name)})")
    taken = {row[1].lower() for row in columns}
    free = [name for name in ("rowid", "_rowid_", "oid") if name not in taken]
    return free[0] if free and not without else ""


def _same(table: Table, row: str) -> str:
    """Whether `t` has the key of NEW or OLD."""
    return " AND ".join(f"t.{quoted(key)} = {row}.{quoted(key)}" for key in table.keys)


def _is_new(table: Table) -> str:
    """Whether a candidate has the key of the row as it is now."""
    return " AND ".join(
        f"NEW.{quoted(table.columns[place].name)} = c.v{place}" for place in table.key
    )


def _changed(table: Table, number: int, which: str) -> str:
    """The statement that logs of the candidates those that are another row by now."""
    count = len(table.columns)
    names = [quoted(name) for name in table.names]
    kept = ", ".join(f"v{place}" for place in range(2 * count))
    there = " AND ".join(f"t.{names[place]} = c.v{place}" for place in table.key)
    other = " OR ".join(f"t.{n} IS NOT c.v{place} COLLATE BINARY" for place, n in enumerate(names))
    images = ", ".join([f"t.{n}" for n in names] + [f"c.v{place}" for place in range(count)])
    return (
        f"INSERT INTO canopy_changes (tab, op, at, applied, {kept}) "
        f"SELECT {number}, {UPDATE}, {NOW}, {ORIGIN}, {images} FROM canopy_candidates AS c, "
        f"{quoted(table.name)} AS t WHERE c.tab = {number} AND {which} AND {there} AND ({other}); "
    )


def _gone(table: Table, number: int, also: str) -> str:
    """The statement that logs the candidates that are no longer there, or `also`."""
    kept = ", ".join(f"v{place}" for place in range(len(table.columns)))
    there = " AND ".join(
        f"t.{quoted(table.columns[place].name)} = c.v{place}" for place in table.key
    )
    return (
        f"INSERT INTO canopy_changes (tab, op, at, applied, {kept}) "
        f"SELECT {number}, {DELETE}, {NOW}, {ORIGIN}, {kept} FROM canopy_candidates AS c "
        f"WHERE c.tab = {number} AND ({also} OR NOT EXISTS "
        f"(SELECT 1 FROM {quoted(table.name)} AS t WHERE {there})); "
    )
