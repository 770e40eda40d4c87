"""The tables of a MariaDB as a source sees them: their shapes and rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pymysql

from canopy.sinks.database import quoted
from canopy.sync.changes import Column, Table
from canopy.sync.errors import SchemaError
from canopy.sync.servers.mariadb_link import Declared, asked, declared_columns
from canopy.sync.servers.mariadb_values import decoder, meaning, selected
from canopy.sync.sources import binlog_cells as cells
from canopy.sync.sources.binlog import Layout
from canopy.sync.values import Row, decoding, text_or_value

PREFIX: Final = "canopy_"
"""The prefix of the names of a sync's own tables."""
SCANNED: Final = 1_000

_KINDS: Final = {
    cells.TINY: "tinyint",
    cells.SHORT: "smallint",
    cells.INT24: "mediumint",
    cells.LONG: "int",
    cells.LONGLONG: "bigint",
    cells.FLOAT: "float",
    cells.DOUBLE: "double",
    cells.YEAR: "year",
    cells.DATE: "date",
    cells.NEWDATE: "date",
    cells.TIME: "time",
    cells.DATETIME: "datetime",
    cells.TIMESTAMP: "timestamp",
    cells.DECIMAL: "decimal",
    cells.VARCHAR: "varchar",
    cells.BLOB: "longtext",
    cells.STRING: "char",
    cells.BIT: "bit",
    cells.ENUM: "enum",
    cells.SET: "set",
    cells.GEOMETRY: "geometry",
}
_PAGED: Final = re.compile(
    r"(tiny|small|medium|big)?int\b|decimal\b|(var)?(char|binary)\b|date(time)?\b", re.IGNORECASE
)
NATIVE: Final = ("uuid", "inet4", "inet6")


def user_tables(link: pymysql.Connection[Any]) -> list[str]:
    """The names of the tables that can be captured."""
    found = asked(
        link,
        "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND "
        "TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND LEFT(TABLE_NAME, 7) <> 'canopy_' "
        "ORDER BY 1",
    )
    return [name for (name,) in found]


SEQUENCE: Final = frozenset(("next_not_cached_value", "minimum_value", "cycle_count"))


def is_sequence(layout: Layout) -> bool:
    """Whether it is a sequence's, which the log has as a table of one row."""
    return not layout.key and {field.name for field in layout.fields} >= SEQUENCE


def _columns(link: pymysql.Connection[Any], table: str) -> list[Declared]:
    """Raises SchemaError for a table with the rows of its past."""
    if asked(
        link,
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND "
        "TABLE_NAME = %s AND TABLE_TYPE = 'SYSTEM VERSIONED'",
        [table],
    ):
        raise SchemaError(
            f"table {table} is system-versioned: the log has the rows of its past as well; leave "
            f"it out with --tables"
        )
    return declared_columns(link, table)


def shape_of(link: pymysql.Connection[Any], name: str) -> Table:
    """The shape of a table as it is now. Raises SchemaError if there is none of that name."""
    there = [column for column in _columns(link, name) if not column.generated]
    if not there:
        raise SchemaError(f"the database has no table {name}")
    keys = asked(
        link,
        "SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() "
        "AND TABLE_NAME = %s AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX",
        [name],
    )
    names = [column.name for column in there]
    for (key,) in keys:
        if key not in names:
            raise SchemaError(
                f"the primary key of table {name} has the generated column {key}: leave the table "
                f"out with --tables, or give it a key of other columns"
            )
    return Table(
        name,
        tuple(Column(c.name, meaning(c.type), c.words, c.nullable) for c in there),
        tuple(names.index(key) for (key,) in keys),
        "mariadb",
    )


class Logged:
    """A table as the log has it."""

    def __init__(self, link: pymysql.Connection[Any], layout: Layout) -> None:
        """Columns that are generated are left out."""
        declared = {column.name: column for column in _columns(link, layout.name)}
        made: list[Column] = []
        self.layout = layout
        self._places: list[int] = []
        self._natives: list[tuple[int, str]] = []  # of values that the log has as bytes only
        for place, field in enumerate(layout.fields):
            known, words = declared.get(field.name), _words(field)
            if known is not None and known.generated:
                continue
            if known is not None and _is_like(known.type, words):
                if known.type in NATIVE:
                    self._natives.append((len(made), known.type))
                column = Column(field.name, meaning(known.type), known.words, field.nullable)
            else:  # it was altered since
                column = Column(field.name, meaning(words), words, field.nullable)
            made.append(column)
            self._places.append(place)
        key = tuple(self._places.index(place) for place in layout.key if place in self._places)
        self.table = Table(layout.name, tuple(made), key, "mariadb")

    def row(self, values: Sequence[Any] | None) -> Row | None:
        """The row of values in the log."""
        if values is None:
            return None
        found = [values[place] for place in self._places]
        for place, kind in self._natives:
            if type(found[place]) is bytes:
                found[place] = cells.native_of(kind, found[place])
        return tuple(found)


def _words(field: cells.Field) -> str:
    """The type of a column as far as the log tells it."""
    kind, detail = _KINDS.get(field.kind, "longtext"), field.detail
    if kind in ("char", "varchar"):
        kind = kind if field.charset != "binary" else kind.replace("char", "binary")
        return f"{kind}({detail})"
    if kind == "longtext" and field.charset == "binary":
        return "longblob"
    if kind == "decimal":
        kind = f"decimal({detail // 256},{detail % 256})"
    elif kind in ("datetime", "timestamp", "time", "bit") and detail:
        return f"{kind}({detail})"
    elif kind in ("enum", "set"):
        return "longtext"
    return f"{kind} unsigned" if field.unsigned and kind != "year" else kind


def _is_like(declared: str, words: str) -> bool:
    """Whether the catalogue may mean the same as the log."""
    if declared in NATIVE:
        return words.startswith("binary")
    return meaning(declared) == meaning(words)


def is_paged(table: Table) -> bool:
    """Whether the values of the key say in which order the server has its rows: an ENUM is in the
    order of its numbers, and shown as its label."""
    declared = [table.columns[place].declared for place in table.key]
    return all(_PAGED.match(words) for words in declared)


def behind(link: pymysql.Connection[Any], table: Table, key: Row | None, most: int) -> str:
    """Return the clause that selects at most `most` rows in the order of their keys, those after
    `key`."""
    keys = ", ".join(map(quoted, table.keys))
    where = ""
    if key is not None:
        values = [link.escape(text_or_value(value)) for value in key]
        where = (  # the server looks in its index for the first column only
            f"WHERE {quoted(table.keys[0])} >= {values[0]} AND ({keys}) > ({', '.join(values)}) "
        )
    return f"{where}ORDER BY {keys} LIMIT {most}"


def scan(link: pymysql.Connection[Any], table: Table, where: str = "") -> Iterator[Row]:
    """All rows of a table, or those of a condition."""
    decoded = decoding([decoder(column.type) for column in table.columns])
    shown = ", ".join(selected(quoted(c.name), c.declared) for c in table.columns)
    with link.cursor() as cursor:
        cursor.execute(f"SELECT {shown} FROM {quoted(table.name)} {where}")
        while rows := cursor.fetchmany(SCANNED):
            yield from map(decoded, rows)
