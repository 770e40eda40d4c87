"""Any database for which SQLAlchemy has a dialect, as a destination.

Rows are deleted by their keys and inserted, which every database can do. The position commits with
them. What holds of the database's own collations and types is said in docs/design/sync.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from canopy.sinks import positions
from canopy.sinks.alchemy import make_table, table_of
from canopy.sync.changes import Table
from canopy.sync.conflicts import Conflict
from canopy.sync.destinations.destination import Progress
from canopy.sync.destinations.sql import SHARD, Statements, durable_name
from canopy.sync.errors import FencedError, SchemaError, SyncError, UnfitError
from canopy.sync.folding import Step
from canopy.sync.values import ABSENT, Literal, Row

AT_ONCE: Final = 1_000
"""Rows of one statement."""
KEY: Final = 255
"""Characters of a text in a key."""
_MYSQL: Final = ("mysql", "mariadb")


def _type(means: str, is_key: bool) -> sa.types.TypeEngine[Any]:
    """The type of columns that every dialect has, such that nothing of a value is lost."""
    if means in ("timestamp", "instant"):
        return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *_MYSQL)
    if means == "time":
        return sa.Time().with_variant(mysql.TIME(fsp=6), *_MYSQL)
    if means == "bytes":
        return sa.LargeBinary(KEY if is_key else None).with_variant(
            mysql.VARBINARY(KEY) if is_key else mysql.LONGBLOB(), *_MYSQL
        )
    plain: dict[str, type[sa.types.TypeEngine[Any]]] = {
        "int": sa.BigInteger,
        "float": sa.Double,
        "bool": sa.Boolean,
        "date": sa.Date,
    }
    if means in plain:
        return plain[means]()
    if is_key:
        return sa.String(KEY).with_variant(mysql.VARCHAR(KEY, collation="utf8mb4_bin"), *_MYSQL)
    return sa.Text().with_variant(mysql.LONGTEXT(collation="utf8mb4_bin"), *_MYSQL)


class AlchemyView:
    """A destination in one transaction."""

    def __init__(self, destination: AlchemyDestination, progress: Progress) -> None:
        self.progress = progress
        self._destination = destination

    def rows(self, table: Table) -> Iterator[Row]:
        """All rows of a table, as often as wanted."""
        yield from self._destination.scan(table)


class AlchemyDestination:
    """Tables of one database."""

    kind = "sqlalchemy"

    def __init__(self, name: str, url: str) -> None:
        """Raises SyncError when there is no such dialect, or its driver is not installed."""
        self._name = name
        try:
            self._engine = sa.create_engine(url)
            self._link = self._engine.connect()
        except (sa.exc.NoSuchModuleError, ImportError) as error:
            raise SyncError(f"{url.partition(':')[0]}: {error}; install its dialect") from None
        self._meta = sa.MetaData()
        self._syncs = sa.Table(
            positions.SYNCS,
            self._meta,
            sa.Column("name", sa.String(60), primary_key=True),
            sa.Column("next_offset", sa.BigInteger, nullable=False),
            sa.Column("progress", _type("text", False), nullable=False),
        )
        words = ("name", "at", "tab", "row_key", "rule", "applied", "before", "incoming", "own")
        columns = [sa.Column(word, _type("text", False)) for word in words]
        self._noted = sa.Table("canopy_conflicts", self._meta, *columns)
        self._positions = table_of(positions.TABLE, positions.COLUMNS)
        with self._engine.begin() as connection:
            make_table(connection, positions.TABLE, positions.COLUMNS)
            self._meta.create_all(connection)
        self._tables: dict[str, tuple[Statements, sa.Table]] = {}
        self._offset: int | None = None  # of the last commit
        self._began = False

    def close(self) -> None:
        """See `Destination`."""
        self._link.close()
        self._engine.dispose()

    def progress(self) -> Progress:
        """See `Destination`."""
        own, there = self._syncs, self._positions
        found = self._link.execute(sa.select(own.c.progress).where(own.c.name == self._name))
        text = found.scalar()
        mine = there.c.durable == durable_name(self._name)
        offset = self._link.execute(sa.select(there.c.next_offset).where(mine)).scalar()
        if not self._began:
            self._link.rollback()  # SQLAlchemy begins a transaction with each first statement
        if text is None:
            self._offset = None
            return Progress()
        progress = msgspec.json.decode(text, type=Progress)
        self._offset = None if offset is None else int(offset)
        for table in progress.tables.values():
            self._learn(table)
        return progress

    def begin(self) -> None:
        """See `Destination`."""
        self._link.begin()
        self._began = True

    def commit(self, progress: Progress) -> None:
        """See `Destination`."""
        there, durable = self._positions, durable_name(self._name)
        if self._offset is None:
            place = {"stream": progress.name, "shard": SHARD, "durable": durable}
            place |= {"stream_id": progress.stream, "selector": "", "next_offset": progress.offset}
            try:
                self._link.execute(sa.insert(there).values(**place))
                done = 1
            except sa.exc.IntegrityError:
                done = 0
        else:
            mine = (there.c.durable == durable) & (there.c.next_offset == self._offset)
            at = {"next_offset": progress.offset, "stream_id": progress.stream}
            done = self._link.execute(sa.update(there).where(mine).values(**at)).rowcount
        if done != 1:
            self.rollback()
            raise FencedError(f"another process applies the sync {self._name}")
        own, text = self._syncs, msgspec.json.encode(progress).decode()
        values = {"next_offset": progress.offset, "progress": text}
        changed = sa.update(own).where(own.c.name == self._name).values(**values)
        if not self._link.execute(changed).rowcount:
            self._link.execute(sa.insert(own).values(name=self._name, **values))
        self._link.commit()
        self._began = False
        self._offset = progress.offset

    def rollback(self) -> None:
        """See `Destination`."""
        self._began = False
        self._link.rollback()

    def take_up(self, table: Table) -> None:
        """See `Destination`. A table that is there is not altered."""
        there = sa.inspect(self._link)
        self._learn(table)
        _, target = self._tables[table.name]
        if not there.has_table(table.name):
            target.create(self._link)
            return
        names = {column["name"] for column in there.get_columns(table.name)}
        lacking = [name for name in table.names if name not in names]
        if lacking:
            raise SchemaError(
                f"the destination's table {table.name} lacks {lacking[0]}: add the column there, "
                f"and run the sync again"
            )
        if sorted(there.get_pk_constraint(table.name)["constrained_columns"]) != sorted(table.keys):
            raise SchemaError(
                f"the destination's table {table.name} needs the primary key "
                f"({', '.join(table.keys)})"
            )

    def clear(self, table: Table) -> None:
        """See `Destination`."""
        self._link.execute(sa.delete(self._tables[table.name][1]))

    def load(self, table: Table, rows: Iterable[Row]) -> None:
        """See `Destination`."""
        statements, target = self._tables[table.name]
        self._many(sa.insert(target), statements.table, statements.fitted(rows))

    def apply(self, step: Step) -> None:
        """See `Destination`."""
        statements, target = self._tables[step.table.name]
        if step.clear:
            self.clear(step.table)
        keys = [*step.deletes, *(step.table.key_of(row) for row in step.upserts)]
        if keys:
            columns = [target.c[f"c{place}"] for place in step.table.key]
            same = [column == sa.bindparam(f"k{n}") for n, column in enumerate(columns)]
            fitted = statements.fitted_keys(keys)
            rows = [{f"k{n}": _plain(v) for n, v in enumerate(key)} for key in fitted]
            self._guarded(sa.delete(target).where(*same), rows)
        self.load(step.table, step.upserts)
        for key, row in step.updates:
            moved = step.table.key_of(row)
            if moved != key and ABSENT not in moved and self.fetch(step.table, [moved]):
                # The row was sent again meanwhile, with its new key.
                self._link.execute(sa.delete(target).where(*self._same(step.table, key)))
                key = moved
            (values,) = statements.fitted([row])
            sets = {f"c{n}": _plain(v) for n, v in enumerate(values) if v is not ABSENT}
            self._link.execute(sa.update(target).where(*self._same(step.table, key)).values(sets))

    def _same(self, table: Table, key: Row) -> list[sa.ColumnElement[bool]]:
        """The conditions for the row with this key."""
        statements, target = self._tables[table.name]
        (fitted,) = statements.fitted_keys([key])
        return [target.c[f"c{p}"] == _plain(v) for p, v in zip(table.key, fitted, strict=True)]

    def fill(self, table: Table, row: Row, only_null: bool) -> None:
        """See `Destination`."""
        statements, target = self._tables[table.name]
        (values,) = statements.fitted([row])
        for place, value in enumerate(values):
            if row[place] is not ABSENT:
                column = target.c[f"c{place}"]
                changed = sa.update(target).values({f"c{place}": _plain(value)})
                self._link.execute(changed.where(column.is_(None)) if only_null else changed)

    def fetch(self, table: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        """See `Destination`."""
        _, target = self._tables[table.name]
        rows = {}
        for key in keys:
            wanted = sa.select(target).where(*self._same(table, key)).with_for_update()
            found = self._link.execute(wanted).fetchone()
            if found is not None:
                rows[key] = _zoned(table, found)
        return rows

    def scan(self, table: Table) -> Iterator[Row]:
        """See `Destination`."""
        found = self._link.execution_options(yield_per=AT_ONCE).execute(
            sa.select(self._tables[table.name][1])
        )
        for row in found:
            yield _zoned(table, row)

    def note(self, conflicts: Sequence[Conflict]) -> None:
        """See `Destination`."""
        now = datetime.fromtimestamp(time.time(), UTC).isoformat(" ", "seconds")
        for one in conflicts:
            self._link.execute(
                sa.insert(self._noted).values(
                    *((self._name, now, one.table, one.key, one.rule)),
                    *("yes" if one.applied else "no", one.before, one.incoming, one.own),
                )
            )

    @contextmanager
    def view(self) -> Iterator[AlchemyView]:
        """See `Destination`."""
        self.begin()
        try:
            yield AlchemyView(self, self.progress())
        finally:
            self.rollback()

    def remove(self) -> None:
        """See `Destination`."""
        own, there = self._syncs, self._positions
        self._link.execute(sa.delete(own).where(own.c.name == self._name))
        self._link.execute(sa.delete(there).where(there.c.durable == durable_name(self._name)))
        self._link.commit()

    def _learn(self, table: Table) -> None:
        """Columns have keys of their own here, as names may be those of parameters."""
        columns = [
            sa.Column(
                column.name,
                _type(column.type, place in table.key),
                key=f"c{place}",
                primary_key=place in table.key,
                autoincrement=False,
                nullable=column.nullable and place not in table.key,
            )
            for place, column in enumerate(table.columns)
        ]
        made = sa.Table(table.name, sa.MetaData(), *columns)
        self._tables[table.name] = (Statements(table, self.kind, "?"), made)

    def _many(self, statement: Any, table: Table, rows: Iterable[Sequence[Any]]) -> None:
        some: list[dict[str, Any]] = []
        for row in rows:
            some.append({f"c{place}": _plain(value) for place, value in enumerate(row)})
            if len(some) == AT_ONCE:
                self._guarded(statement, some)
                some = []
        if some:
            self._guarded(statement, some)

    def _guarded(self, statement: Any, rows: list[dict[str, Any]]) -> None:
        try:
            self._link.execute(statement, rows)
        except sa.exc.DataError as error:
            raise UnfitError(f"the destination says: {error.orig}") from None


def _plain(value: Any) -> Any:
    return value.text if type(value) is Literal else value


def _zoned(table: Table, row: Iterable[Any]) -> Row:
    """A row as the database keeps it, but moments of a zone with theirs."""
    return tuple(
        value.replace(tzinfo=UTC)
        if column.type == "instant" and type(value) is datetime and value.tzinfo is None
        else value
        for column, value in zip(table.columns, row, strict=True)
    )
