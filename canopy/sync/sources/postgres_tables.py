"""Tables of a PostgreSQL as a source sees them: shapes and rows, and which are published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from canopy.sync.changes import Column, Table, check_table
from canopy.sync.errors import SchemaError
from canopy.sync.servers import postgres_catalog
from canopy.sync.servers.postgres_catalog import columns_of
from canopy.sync.servers.postgres_values import DOMAINS, Decoder, copied, spelled, type_of
from canopy.sync.sources import pgoutput
from canopy.sync.sources.source import wanted_of
from canopy.sync.values import ABSENT, Row
from overlay.phrases import in_one_line

PUBLIC: Final = "public"
TAKEN_IN: Final = b"table "
"""The prefix of a note in the log that a table was published."""
ALTERED: Final = b"altered "
"""The prefix of a note in the log that a table has got another shape."""
LOCK_TIMEOUT: Final = 2
"""Seconds to wait for those who write to a new table."""


class TablePlace(NamedTuple):
    """The schema and the name of a table."""

    schema: str
    table: str

    @property
    def name(self) -> str:
        """The table's name in the stream."""
        return self.table if self.schema == PUBLIC else f"{self.schema}.{self.table}"

    @property
    def quoted(self) -> sql.Identifier:
        """The table's name in SQL."""
        return sql.Identifier(self.schema, self.table)


class Shape:
    """A table, and how its values are decoded."""

    def __init__(self, table: Table, decoders: list[Decoder]) -> None:
        self.table = table
        self.decoders = decoders

    def row(self, cells: pgoutput.Cells) -> Row:
        """The row that these cells of the log mean."""
        return tuple(
            [
                cell if cell is None or cell is ABSENT else decode(cell)  # type: ignore[arg-type]
                for decode, cell in zip(self.decoders, cells, strict=True)
            ]
        )

    def key_row(self, cells: pgoutput.Cells, key: Sequence[bool]) -> Row:
        """Return a row of which only these columns were sent."""
        row = self.row(cells)
        return tuple([v if sent else ABSENT for v, sent in zip(row, key, strict=True)])


class TablePublication:
    """Says which tables the server's log is decoded of."""

    def __init__(self, link: psycopg.Connection[Any], name: str, wanted: Sequence[str]) -> None:
        """`wanted`: names and patterns of tables, () for all."""
        self._sql = link
        self._name = name
        self._wanted = tuple(wanted)

    def publish(self) -> None:
        """Make the publication if there is none, and take tables out of it that are no longer
        wanted. Raises SchemaError."""
        wanted = self._wanted_tables()
        identifier = sql.Identifier(self._name)
        found = self._sql.execute(
            "SELECT count(*) FROM pg_publication WHERE pubname = %s", (self._name,)
        ).fetchone()
        if found == (0,):
            if not wanted:
                raise SchemaError("the source has no tables")
            for place in wanted:
                check_table(shape_of(self._sql, place).table)
                check_identity(self._sql, place)
            names = sql.SQL(", ").join(place.quoted for place in wanted)
            statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(identifier, names)
            with _owning():
                self._sql.execute(statement)
            return
        self._check_publication()
        for place in self.tables():
            if place in wanted:
                check_identity(self._sql, place)
            else:
                drop = sql.SQL("ALTER PUBLICATION {} DROP TABLE {}")
                self._sql.execute(drop.format(identifier, place.quoted))

    def take_in(self, prefix: str) -> None:
        """Publish tables that are wanted and new. Nobody writes to one meanwhile, so that each
        transaction is in the log as a whole or seen by whoever reads the rows when he has come to
        the note in the log, which has this prefix. Raises SchemaError."""
        there = set(self.tables())
        for place in self._wanted_tables():
            if place in there:
                continue
            check_table(shape_of(self._sql, place).table)
            check_identity(self._sql, place)
            table, publication = place.quoted, sql.Identifier(self._name)
            try:
                with _owning(), self._sql.transaction():
                    self._sql.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'")
                    self._sql.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(table))
                    self._sql.execute(
                        sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(publication, table)
                    )
                    self._sql.execute(
                        "SELECT pg_logical_emit_message(true, %s, %s)",
                        (prefix, TAKEN_IN.decode() + place.name),
                    )
            except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable):
                continue  # it is looked at once more

    def tables(self) -> list[TablePlace]:
        """The tables that the publication has now."""
        found = self._sql.execute(
            "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s "
            "ORDER BY 1, 2",
            (self._name,),
        )
        return [TablePlace(*row) for row in found]

    def place(self, name: str) -> TablePlace | None:
        """The published table that has this name in the stream."""
        return next((place for place in self.tables() if place.name == name), None)

    def shapes(self) -> dict[TablePlace, int]:
        """For each published table a number that is another one when it has been altered."""
        found = self._sql.execute(
            "SELECT nspname, relname, hashtext(string_agg(concat_ws(' ', attname, atttypid, "
            f"atttypmod, attnotnull, array_position({postgres_catalog.KEY}, attnum)), ',' "
            "ORDER BY attnum)) FROM pg_publication_rel JOIN pg_publication b ON b.oid = prpubid "
            "JOIN pg_class c ON c.oid = prrelid JOIN pg_namespace n ON n.oid = relnamespace "
            "JOIN pg_attribute ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped "
            "AND attgenerated = '' LEFT JOIN pg_index p ON p.indrelid = c.oid AND p.indisprimary "
            "WHERE pubname = %s GROUP BY 1, 2",
            (self._name,),
        )
        return {TablePlace(schema, table): number for schema, table, number in found}

    def _check_publication(self) -> None:
        """Raises SchemaError where somebody has made the publication leave changes out."""
        found = self._sql.execute(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate AND NOT pubviaroot "
            "FROM pg_publication WHERE pubname = %s",
            (self._name,),
        ).fetchone()
        if found != (True,):
            raise SchemaError(
                f"the publication {self._name} leaves changes out: ALTER PUBLICATION {self._name} "
                f"SET (publish = 'insert, update, delete, truncate', publish_via_partition_root = "
                f"false), and take a new snapshot (canopy sync run --snapshot)"
            )

    def remove(self) -> None:
        """Drop the publication, if it is there."""
        statement = sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self._name))
        self._sql.execute(statement)

    def user_tables(self) -> list[TablePlace]:
        """All tables that there are, but for those of extensions."""
        found = self._sql.execute(
            "SELECT nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' AND relkind = 'r' "
            "AND relpersistence = 'p' AND relname NOT LIKE 'canopy\\_%' AND NOT EXISTS (SELECT 1 "
            "FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid "
            "AND deptype = 'e') ORDER BY 1, 2"
        )
        return [TablePlace(*row) for row in found]

    def _wanted_tables(self) -> list[TablePlace]:
        places: dict[str, TablePlace] = {}
        there = self.user_tables()
        self._check_whole()
        wanted = set(wanted_of(self._wanted, [place.name for place in there]))
        for place in there:
            if place.name not in wanted:
                continue
            if (other := places.setdefault(place.name, place)) != place:
                raise SchemaError(
                    f"the tables {other.schema}.{other.table} and {place.schema}.{place.table} "
                    f"would both be called {place.name}: leave one out with --tables"
                )
        return list(places.values())

    def _check_whole(self) -> None:
        """Raises SchemaError for a partitioned table that is wanted by its name: its partitions
        have the rows."""
        found = self._sql.execute(
            "SELECT nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE relkind = 'p'"
        )
        for name in (TablePlace(*row).name for row in found):
            if name in self._wanted:
                raise SchemaError(
                    f"table {name} is partitioned, and each partition is a table of its own: name "
                    f"these, or a pattern that they match (--tables '{name}_*')"
                )


def check_identity(link: psycopg.Connection[Any], place: TablePlace) -> None:
    """Raises SchemaError where the server would not tell which row has changed, or would refuse
    programs that change rows of a published table."""
    columns = columns_of(link, place.quoted.as_string(link))
    key = [column for column in columns if column.place_in_key is not None]
    if not key:
        return
    for column in key:
        if column.is_generated:
            raise SchemaError(
                f"the primary key of table {place.name} has the generated column {column.name}, of "
                f"which the server's log says nothing: leave the table out with --tables, or give "
                f"it a key of other columns"
            )
    ((identity, has_key),) = link.execute(
        "SELECT relreplident::text, (SELECT array_agg(attname::text) @> %s::text[] "
        "FROM pg_index r JOIN pg_attribute ON attrelid = r.indrelid AND attnum = "
        "ANY((r.indkey::int2[])[0:r.indnkeyatts - 1]) WHERE r.indrelid = c.oid AND "
        "r.indisreplident) FROM pg_class c WHERE c.oid = to_regclass(%s)",
        ([column.name for column in key], place.quoted.as_string(link)),
    ).fetchall()
    if identity == "d" and not key[0].is_key_immediate:
        raise SchemaError(
            f"the primary key of table {place.name} is DEFERRABLE: the server would refuse UPDATE "
            f"and DELETE once it is captured. ALTER TABLE … REPLICA IDENTITY FULL first, or leave "
            f"it out with --tables"
        )
    if identity == "n" or (identity == "i" and not has_key):
        raise SchemaError(
            f"table {place.name} has a REPLICA IDENTITY without its primary key, so the server "
            f"does not say which row has changed: ALTER TABLE … REPLICA IDENTITY DEFAULT"
        )


@contextmanager
def _owning() -> Iterator[None]:
    """Raises SchemaError for a table of somebody else."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        said = in_one_line(error)
        raise SchemaError(f"{said}: only who owns it can capture it; see --tables") from None


def shape_of(
    link: psycopg.Connection[Any],
    place: TablePlace,
    columns: Sequence[tuple[str, int, int]] | None = None,
) -> Shape:
    """The shape of a table: as it is now, or with these columns (name, type's id, modifier) of
    before, whose types the catalogue still knows."""
    there = columns_of(link, place.quoted.as_string(link))
    by_name = {column.name: column for column in there if not column.is_generated}
    domains = dict(link.execute(DOMAINS).fetchall())
    made: list[Column] = []
    decoders: list[Decoder] = []
    keys: list[tuple[int, int]] = []
    now = [(known.name, known.type, known.modifier) for known in by_name.values()]
    for column, kind, modifier in columns or now:
        known = by_name.get(column)
        if known is not None and (known.type, known.modifier) == (kind, modifier):
            declared = known.words
        else:
            (declared,) = link.execute(
                "SELECT format_type(%s::oid, %s)", (kind, modifier)
            ).fetchone() or ("",)
        if known is not None and known.place_in_key is not None:
            keys.append((known.place_in_key, len(made)))
        means, decode = type_of(kind, domains)
        decoders.append(decode)
        made.append(Column(column, means, declared, known is None or not known.is_required))
    if not made:
        raise SchemaError(f"the database has no table {place.schema}.{place.table}")
    key = tuple(number for _, number in sorted(keys))
    schema = "" if place.schema == PUBLIC else place.schema
    return Shape(Table(place.name, tuple(made), key, "postgresql", schema), decoders)


def has_dropped_columns(link: psycopg.Connection[Any], place: TablePlace) -> bool:
    """Whether a table ever had other columns: one of the same name may have been made since."""
    found = link.execute(
        "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attisdropped LIMIT 1",
        (place.quoted.as_string(link),),
    )
    return found.fetchone() is not None


def behind(table: Table, key: Row | None, most: int) -> sql.Composable:
    """Return the clause that selects at most `most` rows in the order of their keys, those after
    `key`."""
    keys = sql.SQL(", ").join(map(sql.Identifier, table.keys))
    where: sql.Composable = sql.SQL("")
    if key is not None:
        values = sql.SQL(", ").join(sql.Literal(spelled(value)) for value in key)
        where = sql.SQL("WHERE ({}) > ({})").format(keys, values)
    return sql.SQL("{} ORDER BY {} LIMIT {}").format(where, keys, sql.Literal(most))


def scan(
    link: psycopg.Connection[Any],
    table: Table,
    decoders: Sequence[Decoder],
    condition: sql.Composable | None = None,
) -> Iterator[tuple[Any, ...]]:
    """All rows of a table, or those of a condition, without those of tables that inherit from it,
    which are captured themselves."""
    columns = sql.SQL(", ").join(map(sql.Identifier, table.names))
    statement = sql.SQL("COPY (SELECT {} FROM ONLY {} {}) TO STDOUT").format(
        columns, sql.Identifier(table.schema or PUBLIC, table.bare), condition or sql.SQL("")
    )
    with link.cursor() as cursor, cursor.copy(statement) as copy:
        yield from copied(map(bytes, copy), decoders)
