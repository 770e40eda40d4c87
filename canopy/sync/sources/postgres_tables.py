"""Tables of a PostgreSQL as a source sees them: shapes and rows, and which are published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
from psycopg import sql

from canopy.sync.changes import Column, Table, check_table
from canopy.sync.errors import SchemaError
from canopy.sync.postgres_values import OTHER, TYPES, Decoder, copied
from canopy.sync.sources import pgoutput
from canopy.sync.sources.source import wanted_of
from canopy.sync.values import ABSENT, Row

SCHEMA_NAME: Final = "public"
TAKEN_IN: Final = b"table "
"""What a note in the log begins with that a table was published."""
LOCK_TIMEOUT: Final = 2
"""Seconds to wait for those who write to a new table."""


class Shape:
    """A table, and how its values are decoded."""

    def __init__(self, table: Table, types: Sequence[int]) -> None:
        self.table = table
        self.decoders: list[Decoder] = [TYPES.get(kind, OTHER)[1] for kind in types]

    def row(self, cells: pgoutput.Cells) -> Row:
        """The row of these cells."""
        return tuple(
            [
                cell if cell is None or cell is ABSENT else decode(cell)  # type: ignore[arg-type]
                for decode, cell in zip(self.decoders, cells, strict=True)
            ]
        )

    def key_row(self, cells: pgoutput.Cells, key: Sequence[bool]) -> Row:
        """A row of which only these columns were sent."""
        row = self.row(cells)
        return tuple([v if sent else ABSENT for v, sent in zip(row, key, strict=True)])


class Publication:
    """Says which tables the server's log is decoded of."""

    def __init__(self, link: psycopg.Connection[Any], name: str, wanted: Sequence[str]) -> None:
        """`wanted`: names and patterns of tables, () for all."""
        self._sql = link
        self._name = name
        self._wanted = tuple(wanted)

    def publish(self) -> None:
        """Make the publication if there is none, and take tables out of it that are not wanted any
        more. Raises SchemaError."""
        wanted = wanted_of(self._wanted, self.user_tables())
        identifier = sql.Identifier(self._name)
        found = self._sql.execute(
            "SELECT count(*) FROM pg_publication WHERE pubname = %s", (self._name,)
        ).fetchone()
        if found == (0,):
            if not wanted:
                raise SchemaError("the source has no tables")
            for name in wanted:
                check_table(shape_of(self._sql, name).table)
            names = sql.SQL(", ").join(sql.Identifier(SCHEMA_NAME, name) for name in wanted)
            statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(identifier, names)
            self._sql.execute(statement)
            return
        for name in self.tables():
            if name not in wanted:
                table = sql.Identifier(SCHEMA_NAME, name)
                statement = sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(identifier, table)
                self._sql.execute(statement)

    def take_in(self, prefix: str) -> None:
        """Publish tables that are wanted and new. Nobody writes to one meanwhile, so that each
        transaction is in the log as a whole or seen by whoever reads the rows when he has come to
        the note in the log, which has this prefix. Raises SchemaError."""
        there = set(self.tables())
        for name in wanted_of(self._wanted, self.user_tables()):
            if name in there:
                continue
            check_table(shape_of(self._sql, name).table)
            table = sql.Identifier(SCHEMA_NAME, name)
            publication = sql.Identifier(self._name)
            try:
                with self._sql.transaction():
                    self._sql.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'")
                    self._sql.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(table))
                    self._sql.execute(
                        sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(publication, table)
                    )
                    self._sql.execute(
                        "SELECT pg_logical_emit_message(true, %s, %s)",
                        (prefix, TAKEN_IN.decode() + name),
                    )
            except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable):
                continue  # it is looked at once more

    def tables(self) -> list[str]:
        """The names of the published tables."""
        found = self._sql.execute(
            "SELECT tablename FROM pg_publication_tables WHERE pubname = %s ORDER BY 1",
            (self._name,),
        )
        return [name for (name,) in found]

    def remove(self) -> None:
        """Take the publication away."""
        statement = sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self._name))
        self._sql.execute(statement)

    def user_tables(self) -> list[str]:
        """The names of all tables that there are."""
        found = self._sql.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r' "
            "AND relpersistence = 'p' AND relname NOT LIKE 'canopy\\_%%' ORDER BY 1",
            (SCHEMA_NAME,),
        )
        return [name for (name,) in found]


def shape_of(
    link: psycopg.Connection[Any],
    name: str,
    columns: Sequence[tuple[str, int, int]] | None = None,
) -> Shape:
    """The shape of a table: as it is now, or with these columns (name, type's id, modifier) of
    before, whose types the catalogue still knows."""
    there = link.execute(
        "SELECT attname, atttypid::bigint, atttypmod, format_type(atttypid, atttypmod), "
        "attnotnull, "
        "(SELECT array_position(i.indkey::int[], attnum::int) FROM pg_index i "
        " WHERE i.indrelid = attrelid AND i.indisprimary) "
        "FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
        "AND attgenerated = '' ORDER BY attnum",
        (sql.Identifier(SCHEMA_NAME, name).as_string(link),),
    ).fetchall()
    by_name = {row[0]: row for row in there}
    made: list[Column] = []
    types: list[int] = []
    keys: list[tuple[int, int]] = []
    for column, kind, modifier in columns or [(row[0], row[1], row[2]) for row in there]:
        known = by_name.get(column)
        if known is not None and known[1:3] == (kind, modifier):
            declared = known[3]
        else:
            (declared,) = link.execute(
                "SELECT format_type(%s::oid, %s)", (kind, modifier)
            ).fetchone() or ("",)
        if known is not None and known[5] is not None:
            keys.append((known[5], len(made)))
        types.append(kind)
        nullable = known is None or not known[4]
        made.append(Column(column, TYPES.get(kind, OTHER)[0], declared, nullable))
    if not made:
        raise SchemaError(f"the database has no table {SCHEMA_NAME}.{name}")
    key = tuple(place for _, place in sorted(keys))
    return Shape(Table(name, tuple(made), key, "postgresql"), types)


def scan(
    link: psycopg.Connection[Any], table: Table, decoders: Sequence[Decoder]
) -> Iterator[tuple[Any, ...]]:
    """All rows of a table."""
    columns = sql.SQL(", ").join(map(sql.Identifier, table.names))
    statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
        columns, sql.Identifier(SCHEMA_NAME, table.name)
    )
    with link.cursor() as cursor, cursor.copy(statement) as copy:
        yield from copied(map(bytes, copy), decoders)
