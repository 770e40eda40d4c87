"""What SQLite, DuckDB and PostgreSQL have in common as destinations: a DBAPI connection, and
``INSERT … ON CONFLICT DO UPDATE``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import msgspec

from canopy.sinks import positions
from canopy.sinks.positions import SYNCS, TABLE, TAKE_OVER
from canopy.sync.changes import Column, Table
from canopy.sync.conflicts import Conflict
from canopy.sync.destinations.destination import Progress
from canopy.sync.destinations.keeping import Keeping
from canopy.sync.errors import FencedError, SchemaError, UnfitError
from canopy.sync.fitting import column_type, fits, whole_fits
from canopy.sync.folding import Step
from canopy.sync.values import ABSENT, Row

CONFLICTS = """
CREATE TABLE IF NOT EXISTS canopy_conflicts (
  name {text}, at {text}, tab {text}, row_key {text}, rule {text}, applied {text},
  "before" {text}, incoming {text}, own {text})"""
SYNCS_MADE = """
CREATE TABLE IF NOT EXISTS {syncs} (
  name {name} PRIMARY KEY, next_offset {int} NOT NULL, progress {text} NOT NULL)"""
SHARD: Final = 0
"""Of a stream that is synced, which has one."""
_NAMED: Final = re.compile(r":([a-z_]+)")


OVERRIDING: Final = "OVERRIDING SYSTEM VALUE"
"""In an INSERT for PostgreSQL: also into identity columns that are always generated."""
_MOVED: Final = ("UniqueViolation", "ExclusionViolation", "IntegrityError")
FITTED: Final = 1_000
"""Rows whose values are made fit together, column by column."""


def quoted(name: str) -> str:
    """A name for SQL."""
    return '"' + name.replace('"', '""') + '"'


class Statements:
    """The statements for one table, and how its values fit."""

    def __init__(self, table: Table, kind: str, mark: str, name: str = "") -> None:
        """`mark`: how the driver spells a parameter; `name`: the table's for SQL, "": its own."""
        self.table = table
        double = "%%" if mark == "%s" else "%"  # psycopg's spelling where there are parameters
        self.name = (name or quoted(table.name)).replace("%", double)
        self.columns = ", ".join(map(quoted, table.names)).replace("%", double)
        marks = ", ".join([mark] * len(table.columns))
        self.key = " AND ".join(
            f"{quoted(key).replace('%', double)} = {mark}" for key in table.keys
        )
        overriding = f" {OVERRIDING}" if kind == "postgresql" else ""
        self.insert = f"INSERT INTO {self.name} ({self.columns}){overriding} VALUES ({marks})"
        self.conflict = _on_conflict(table, kind).replace("%", double)
        self.upsert = f"{self.insert} {self.conflict}"
        self.delete = f"DELETE FROM {self.name} WHERE {self.key}"
        self.select = f"SELECT {self.columns} FROM {self.name}"
        self._fits = fits(table, kind)
        self._whole = whole_fits(table, kind)
        self._mark, self._double = mark, double

    def update(self, row: Row) -> str:
        """The statement that sets what is not ABSENT in `row`."""
        sets = [
            f"{quoted(column.name).replace('%', self._double)} = {self._mark}"
            for column, value in zip(self.table.columns, row, strict=True)
            if value is not ABSENT
        ]
        return f"UPDATE {self.name} SET {', '.join(sets)} WHERE {self.key}"

    def fill(self, place: int, only_null: bool, kept: Iterable[str]) -> str:
        """The statement that sets one column of all rows, or of those that have NULL there;
        `kept`: columns that would change with it otherwise."""
        name = quoted(self.table.names[place]).replace("%", self._double)
        same = [quoted(each).replace("%", self._double) for each in kept]
        sets = ", ".join([f"{name} = {self._mark}", *(f"{each} = {each}" for each in same)])
        where = f" WHERE {name} IS NULL" if only_null else ""
        return f"UPDATE {self.name} SET {sets}{where}"

    def fitted(self, rows: Iterable[Row]) -> Iterator[Sequence[Any]]:
        """The rows as the driver is handed them. Raises UnfitError."""
        for columns in self.fitted_columns(rows):
            yield from zip(*columns, strict=True)

    def fitted_columns(self, rows: Iterable[Row]) -> Iterator[list[Sequence[Any]]]:
        """The columns of some rows after the other, as the driver is handed them. Raises
        UnfitError."""
        rest = iter(rows)
        while some := list(islice(rest, FITTED)):
            try:
                yield [
                    fit(values)
                    for fit, values in zip(self._whole, zip(*some, strict=True), strict=True)
                ]
            except UnfitError as error:
                raise self._named(error, some) from None

    def fitted_keys(self, keys: Iterable[Row]) -> Iterator[Sequence[Any]]:
        """The keys as the driver is handed them."""
        for columns in self.fitted_key_columns(keys):
            yield from zip(*columns, strict=True)

    def fitted_key_columns(self, keys: Iterable[Row]) -> Iterator[list[Sequence[Any]]]:
        """The columns of some keys after the other, as the driver is handed them."""
        rest = iter(keys)
        whole = [self._whole[place] for place in self.table.key]
        while some := list(islice(rest, FITTED)):
            yield [fit(values) for fit, values in zip(whole, zip(*some, strict=True), strict=True)]

    def _named(self, error: UnfitError, rows: Sequence[Row]) -> UnfitError:
        for row in rows:
            for column, fit, value in zip(self.table.columns, self._fits, row, strict=True):
                try:
                    fit(value)
                except UnfitError as found:
                    where = f"{self.table.name}.{column.name}, key {self.table.key_of(row)}"
                    return UnfitError(f"{where}: {found}")
        return error


def _on_conflict(table: Table, kind: str) -> str:
    """A key is set as well where two that differ are the same for the database: 1 and 1.0 for
    SQLite, 0.0 and -0.0."""
    keys = ", ".join(map(quoted, table.keys))
    set_ = [
        quoted(column.name)
        for place, column in enumerate(table.columns)
        if place not in table.key
        or kind == "sqlite"
        or (kind == "postgresql" and column.type == "float")
    ]
    if not set_:
        return f"ON CONFLICT ({keys}) DO NOTHING"
    return f"ON CONFLICT ({keys}) DO UPDATE SET " + ", ".join(
        f"{name} = excluded.{name}" for name in set_
    )


def durable_name(sync: str) -> str:
    """What the consumer is called that a sync is to its stream, in the table of positions."""
    return f"sync:{sync}"


def computed(table: Table, name: str) -> str:
    """What is said of a column that the destination computes, and the source does not."""
    return (
        f"the destination computes its column {table.name}.{name}, which the source sends: make it "
        f"a plain column there"
    )


class SqlView:
    """A destination in one transaction."""

    def __init__(self, destination: SqlDestination, progress: Progress) -> None:
        self.progress = progress
        self._destination = destination

    def rows(self, table: Table) -> Iterator[Row]:
        """All rows of a table, as often as wanted."""
        yield from self._destination.scan(table)


class SqlDestination:
    """A destination over a DBAPI connection whose transactions are begun by hand."""

    kind = ""
    mark = "?"
    text_type, int_type = "TEXT", "BIGINT"
    name_type = ""  # of a text that is a key
    begin_view = "BEGIN"
    has_savepoints = True
    unless_there = f"{positions.ADD} ON CONFLICT DO NOTHING"
    """Adds a position, unless there is one."""

    def __init__(self, name: str, connection: Any) -> None:
        self._name = name
        self._connection = connection
        self._statements: dict[str, Statements] = {}
        self._keepings: dict[str, Keeping | None] = {}  # None: the table keeps all values
        self._offset = 0  # of the last commit
        self._known: str | None = None  # the stream of the sync's row; None: there is none
        self._in_transaction = False
        with ExitStack() as failed:
            failed.callback(connection.close)
            self._prepare()
            failed.pop_all()

    def _prepare(self) -> None:
        """Make the tables of positions. One of an earlier version is taken over: it had what
        `canopy_syncs` has now, in the place of the sinks' own."""
        there = {name: self._columns(Table(name, (), ())) for name in (TABLE, SYNCS)}
        if positions.FORMER_COLUMN in there[TABLE]:
            if not there[SYNCS]:
                self._execute(TAKE_OVER)
            else:  # it was made once more, by an earlier version
                self._execute(
                    f"INSERT INTO {SYNCS} SELECT name, next_offset, progress FROM {TABLE} "
                    f"WHERE name NOT IN (SELECT name FROM {SYNCS})"
                )
                self._execute(f"DROP TABLE {TABLE}")
        name = self.name_type or self.text_type
        self._execute(
            SYNCS_MADE.format(syncs=SYNCS, text=self.text_type, int=self.int_type, name=name)
        )
        parts = [f"{column.name} {column.kind} NOT NULL" for column in positions.COLUMNS]
        key = ", ".join(column.name for column in positions.COLUMNS if column.is_key)
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} ({', '.join(parts)}, PRIMARY KEY ({key}))"
        )

    def close(self) -> None:
        """See `Destination`."""
        self._connection.close()

    def progress(self) -> Progress:
        """See `Destination`."""
        found = self._execute(
            f"SELECT progress FROM {SYNCS} WHERE name = {self.mark}", [self._name]
        ).fetchone()
        self._known, self._offset = None, 0
        if found is None:
            return Progress()
        progress = msgspec.json.decode(found[0], type=Progress)
        place = self._execute(
            f"SELECT stream, next_offset FROM {TABLE} WHERE durable = {self.mark}",
            [durable_name(self._name)],
        ).fetchone()
        if place is not None:  # else an earlier version has made the row, and there is none yet
            self._known, self._offset = str(place[0]), int(place[1])
        for table in progress.tables.values():
            self._learn(table)
        return progress

    def begin(self) -> None:
        """See `Destination`."""
        self._execute("BEGIN")
        self._in_transaction = True

    def commit(self, progress: Progress) -> None:
        """See `Destination`."""
        stream = progress.name if self._known is None else self._known
        place: dict[str, Any] = {"stream": stream, "shard": SHARD}
        place |= {"durable": durable_name(self._name), "position": progress.offset}
        place |= {"stream_id": progress.stream}
        if self._known is None:
            done = self._carried_out(self.unless_there, place | {"selector": ""})
        else:
            done = self._carried_out(positions.MOVE, place | {"former": self._offset})
        if done == 1:
            self._keep_progress(progress)
        else:
            self.rollback()
            raise FencedError(f"another process applies the sync {self._name}")
        with self._told("the end of a transaction"):
            self._execute("COMMIT")
        self._in_transaction = False
        self._known, self._offset = stream, progress.offset

    def _carried_out(self, statement: str, values: Mapping[str, Any]) -> int:
        """Execute a statement of canopy/sinks, with `:named` values; how many rows it has
        changed."""
        names = _NAMED.findall(statement)
        return self._count(_NAMED.sub(self.mark, statement), [values[name] for name in names])

    def _keep_progress(self, progress: Progress) -> None:
        values = [progress.offset, msgspec.json.encode(progress).decode(), self._name]
        one = self.mark
        found = f"UPDATE {SYNCS} SET next_offset = {one}, progress = {one} WHERE name = {one}"
        if not self._count(found, values):
            marks = ", ".join([one] * 3)
            self._execute(
                f"INSERT INTO {SYNCS} (next_offset, progress, name) VALUES ({marks})", values
            )

    def rollback(self) -> None:
        """See `Destination`."""
        if self._in_transaction:
            self._in_transaction = False
            self._execute("ROLLBACK")

    def take_up(self, table: Table) -> None:
        """See `Destination`."""
        place = self._place(table)
        for other in self._statements.values():
            if other.table.name != table.name and self._place(other.table) == place:
                raise SchemaError(
                    f"{table.name} and {other.table.name} would be the same table of the "
                    f"destination, {'.'.join(filter(None, place))}"
                )
        there = self._columns(table)
        if not there:
            columns = [
                f"{quoted(column.name)} {self._type(table, column)}"
                # SQLite takes NULL in a key, by which a row cannot be found again.
                + ("" if column.nullable and column.name not in table.keys else " NOT NULL")
                for column in table.columns
            ]
            keys = ", ".join(map(quoted, table.keys))
            self._execute(
                f"CREATE TABLE {self._named(table)} ({', '.join(columns)}, PRIMARY KEY ({keys}))"
                + self._options(table)
            )
        else:
            self._alter(table, there)
        self._learn(table)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Raises SchemaError for a constraint of the destination that refuses a row."""
        try:
            yield
        except Exception as error:
            if not any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__):
                raise
            said = " ".join(str(error).split())
            raise SchemaError(
                f"{what}: a constraint that the destination has of its own refuses rows of the "
                f"source ({said}): take it away, or let it be checked at the end of a transaction"
            ) from None

    def clear(self, table: Table) -> None:
        """See `Destination`."""
        self._execute(f"DELETE FROM {self._named(table)}")

    def load(self, table: Table, rows: Iterable[Row]) -> None:
        """See `Destination`."""
        found, keeping = self._statements[table.name], self._keeping(table)
        rest = iter(rows)
        with self._told(table.name):
            if keeping is None:
                self._load(found, rest)
            while keeping is not None and (some := list(islice(rest, FITTED))):
                keys = [table.key_of(row) for row in some]
                if keeping.has_keys:
                    keeping.check_met(self.fetch(table, keys))
                self._load(found, some)
                keeping.check_kept(zip(keys, some, strict=True), self.fetch(table, keys))

    def _load(self, found: Statements, rows: Iterable[Row]) -> None:
        self._execute_many(found.insert, found.fitted(rows))

    def apply(self, step: Step) -> None:
        """See `Destination`."""
        with self._told(step.table.name):
            self._apply(step)

    def _apply(self, step: Step) -> None:
        table = step.table
        found, keeping = self._statements[table.name], self._keeping(table)
        if step.clear:
            self.clear(table)
        if step.deletes:
            self._check_met(keeping, table, step.deletes)
            self._delete(found, step.deletes)
        written = [(table.key_of(row), row) for row in step.upserts] if keeping else []
        self._check_met(keeping, table, [key for key, _ in written])
        if step.upserts and self.has_savepoints:
            self._upsert_or_replace(found, step.upserts)
        elif step.upserts:
            self._upsert(found, step.upserts)
        self._check_met(keeping, table, [key for key, _ in step.updates])
        for key, row in step.updates:
            (values,) = found.fitted([row])
            moved = table.key_of(row)
            if moved != key and ABSENT not in moved and self.fetch(table, [moved]):
                self._delete(found, [key])  # the row was sent again meanwhile, with its new key
                key = moved
            (where,) = found.fitted_keys([key])
            sets = [value for value in values if value is not ABSENT]
            self._execute(found.update(row), [*sets, *where])
            if keeping is not None:
                written.append((table.key_of(row), row))
        if keeping is not None and written:
            rows = dict(written)  # the last of each
            keeping.check_kept(rows.items(), self.fetch(table, list(rows)))

    def _check_met(self, keeping: Keeping | None, table: Table, keys: Sequence[Row]) -> None:
        if keeping is not None and keeping.has_keys and keys:
            keeping.check_met(self.fetch(table, keys))

    def _keeping(self, table: Table) -> Keeping | None:
        """What looks whether the destination's table keeps values as they are; None: it does."""
        if table.name not in self._keepings:
            doubtful = self._doubtful(table)
            self._keepings[table.name] = Keeping(table, self.kind, doubtful) if doubtful else None
        return self._keepings[table.name]

    def _doubtful(self, table: Table) -> dict[str, str]:
        """By name, the columns of the destination's table that are others than the sync would make,
        and may bend values; and what they are."""
        raise NotImplementedError

    def _options(self, table: Table) -> str:
        """What CREATE TABLE says behind the columns."""
        return ""

    def fill(self, table: Table, row: Row, only_null: bool) -> None:
        """See `Destination`."""
        found, keeping = self._statements[table.name], self._keeping(table)
        (values,) = found.fitted([row])
        with self._told(table.name):
            for place, value in enumerate(values):
                if row[place] is not ABSENT:
                    kept = [name for name in self._changing(table) if name != table.names[place]]
                    self._execute(found.fill(place, only_null, kept), [value])
        if keeping is not None and not only_null:
            for there in self.scan(table):
                key = table.key_of(there)
                keeping.check_kept([(key, row)], {key: there})
                break

    def _changing(self, table: Table) -> list[str]:
        """Columns of the destination's table that it changes by itself in an update."""
        return []

    def fetch(self, table: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        """See `Destination`."""
        found = self._statements[table.name]
        rows = {}
        for key, fitted in zip(keys, found.fitted_keys(keys), strict=True):
            row = self._execute(f"{found.select} WHERE {found.key}", fitted).fetchone()
            if row is not None:
                rows[key] = tuple(row)
        return rows

    def scan(self, table: Table) -> Iterator[Row]:
        """See `Destination`."""
        cursor = self._execute(self._statements[table.name].select)
        while rows := cursor.fetchmany(1_000):
            yield from map(tuple, rows)

    def note(self, conflicts: Sequence[Conflict]) -> None:
        """See `Destination`."""
        self._make_conflicts()
        marks = ", ".join([self.mark] * 9)
        now = datetime.now(UTC).isoformat(" ", "seconds")
        for one in conflicts:
            self._execute(
                f"INSERT INTO canopy_conflicts VALUES ({marks})",
                [
                    *(self._name, now, one.table, one.key, one.rule),
                    *("yes" if one.applied else "no", one.before, one.incoming, one.own),
                ],
            )

    def _make_conflicts(self) -> None:
        """Make the table that conflicts are kept in, if there is none."""
        self._execute(CONFLICTS.format(text=self.text_type))

    @contextmanager
    def view(self) -> Iterator[SqlView]:
        """See `Destination`."""
        self._execute(self.begin_view)
        try:
            yield SqlView(self, self.progress())
        finally:
            self._execute("ROLLBACK")

    def remove(self) -> None:
        """See `Destination`."""
        self._execute(f"DELETE FROM {SYNCS} WHERE name = {self.mark}", [self._name])
        durable = durable_name(self._name)
        self._execute(f"DELETE FROM {TABLE} WHERE durable = {self.mark}", [durable])

    def _learn(self, table: Table) -> None:
        self._statements[table.name] = Statements(table, self.kind, self.mark, self._named(table))
        self._keepings.pop(table.name, None)

    def _place(self, table: Table) -> tuple[str, str]:
        """The schema and the name that a table has here; "": there are no schemas."""
        return "", table.name

    def _named(self, table: Table) -> str:
        """A table for SQL."""
        return ".".join(quoted(part) for part in self._place(table) if part)

    def _type(self, table: Table, column: Column) -> str:
        return column_type(column, table.dialect, self.kind)

    def _alter(self, table: Table, there: Sequence[str]) -> None:
        """Give a table of the destination the columns that it lacks. They may be NULL, since its
        rows have no values in them until they come once more."""
        for column in table.columns:
            if column.name not in there:
                declared = self._type(table, column)
                name = quoted(column.name)
                self._execute(f"ALTER TABLE {self._named(table)} ADD COLUMN {name} {declared}")
        former = self._statements.get(table.name)
        if former is not None:
            for old in former.table.columns:
                if old.name in there:
                    self._change(table, former.table, old)
        if sorted(self._keys(table)) != sorted(table.keys):
            raise SchemaError(
                f"the destination's table {table.name} needs the primary key "
                f"({', '.join(table.keys)})"
            )

    def _change(self, table: Table, former: Table, old: Column) -> None:
        """Give a column of `former` the type that it has in `table`."""
        new = next((column for column in table.columns if column.name == old.name), None)
        altering = f"ALTER TABLE {self._named(table)} ALTER COLUMN {quoted(old.name)}"
        if not old.nullable and (new is None or new.nullable):
            self._execute(f"{altering} DROP NOT NULL")
        if new is not None and (kind := self._type(table, new)) != self._type(former, old):
            self._retype(table, old.name, kind)

    def _retype(self, table: Table, name: str, kind: str) -> None:
        """Give a column another type, and keep its values where they have it."""
        raise NotImplementedError

    def _remake(self, table: Table, name: str, kind: str) -> None:
        """Make a column anew that has values which are none of its new type: it was dropped at the
        source and another one added, whose values follow with all rows."""
        if name in table.keys:
            raise SchemaError(f"the key {table.name}.{name} cannot be made {kind}: alter it")
        self._execute(f"ALTER TABLE {self._named(table)} DROP COLUMN {quoted(name)}")
        self._execute(f"ALTER TABLE {self._named(table)} ADD COLUMN {quoted(name)} {kind}")

    def _upsert_or_replace(self, found: Statements, rows: Sequence[Row]) -> None:
        self._execute("SAVEPOINT canopy_step")
        try:
            self._upsert(found, rows)
        except Exception as error:
            if any(kind.__name__ == "DataError" for kind in type(error).__mro__):
                self._execute("ROLLBACK TO SAVEPOINT canopy_step")
                raise self._refused(found, rows, error) from None
            if type(error).__name__ not in _MOVED:
                raise
            # Unique values have moved between the rows: make room for all of them first.
            self._execute("ROLLBACK TO SAVEPOINT canopy_step")
            self._delete(found, [found.table.key_of(row) for row in rows])
            self._upsert(found, rows)
        self._execute("RELEASE SAVEPOINT canopy_step")

    def _refused(self, found: Statements, rows: Sequence[Row], error: Exception) -> UnfitError:
        """What the server says of one of the rows, with its key: they are tried one by one."""
        for row in rows:
            try:
                self._execute(found.upsert, *found.fitted([row]))
            except Exception as refused:
                said = " ".join(str(refused).split())
                key = found.table.key_of(row)
                return UnfitError(f"{found.table.name}, key {key}: the destination says: {said}")
        return UnfitError(f"{found.table.name}: the destination says: {error}")

    def _delete(self, found: Statements, keys: Sequence[Row]) -> None:
        self._execute_many(found.delete, found.fitted_keys(keys))

    def _upsert(self, found: Statements, rows: Sequence[Row]) -> None:
        self._execute_many(found.upsert, found.fitted(rows))

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(statement, values)

    def _execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(statement, rows)

    def _count(self, statement: str, values: Sequence[Any]) -> int:
        """Execute it; how many rows it has changed."""
        return int(self._execute(statement, values).rowcount)

    def _columns(self, table: Table) -> list[str]:
        """The names of a table's columns; none: there is no such table."""
        raise NotImplementedError

    def _keys(self, table: Table) -> list[str]:
        """The names of its primary key's columns."""
        raise NotImplementedError
