"""A database to which a sync is applied: a sink that has a schema.

A transaction is begun, rows are applied, the position is stored, and all of it is committed, or
rolled back. Positions are those of any sink (canopy/sinks/positions.py). All of it is written here
for a DBAPI connection, but for the catalogue: what a kind of database does in its own way, its
class overrides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from canopy.sinks import positions
from canopy.sinks.database import Answer, ColumnDefinition, create_table, quoted
from canopy.sinks.positions import SYNCS, Position, PositionTable, SinkMovedError
from canopy.sync.changes import Column, Commit, Table
from canopy.sync.conflicts import Conflict
from canopy.sync.destinations.kept_values import KeptValues
from canopy.sync.destinations.statements import Statements
from canopy.sync.dialects import Dialect
from canopy.sync.errors import FencedError, SchemaError, UnfitError
from canopy.sync.folded import Step
from canopy.sync.values import ABSENT, Row, Value
from overlay.phrases import in_one_line

_NAMED: Final = re.compile(r":([a-z_]+)")
_MOVED: Final = ("UniqueViolation", "ExclusionViolation", "IntegrityError")
READ: Final = 1_000
"""Rows that are read together."""
SHARD: Final = 0
"""The shard of a synced stream, which has one."""
CHECKED: Final = 1_000
"""Rows that are read back together."""
SYNC_COLUMNS: Final = (
    ColumnDefinition("name", "VARCHAR(60)", is_key=True),
    ColumnDefinition("next_offset", "BIGINT"),
    ColumnDefinition("progress", "TEXT"),
)
CONFLICTS: Final = "canopy_conflicts"
CONFLICT_COLUMNS: Final = tuple(
    ColumnDefinition(name, "TEXT")
    for name in ("name", "at", "tab", "row_key", "rule", "applied", "before", "incoming", "own")
)
_FIND: Final = f"SELECT progress FROM {SYNCS} WHERE name = :name"
_CHANGE: Final = (
    f"UPDATE {SYNCS} SET next_offset = :next_offset, progress = :progress WHERE name = :name"
)
_ADD: Final = (
    f"INSERT INTO {SYNCS} (name, next_offset, progress) VALUES (:name, :next_offset, :progress)"
)
_REMOVE: Final = f"DELETE FROM {SYNCS} WHERE name = :name"
_NOTE: Final = (
    f"INSERT INTO {CONFLICTS} VALUES ({', '.join(f':{c.name}' for c in CONFLICT_COLUMNS)})"
)


class SyncProgress(msgspec.Struct):
    """The progress of a sync, as its destination has it: the offset in the table
    `canopy_positions`, as for any consumer (canopy/sinks), and all fields in `canopy_syncs`."""

    stream: str = ""
    """The stream's founding id; "": nothing was applied yet."""
    offset: int = 0
    """The offset in the stream behind everything that was applied."""
    losses: int = 0
    """Number of times that the stream's log had lost rows at its end when that was told."""
    commit: Commit | None = None
    """The newest of the source's commits that was applied."""
    tables: dict[str, Table] = msgspec.field(default_factory=dict)
    """The shapes of the tables, as the stream has said them so far."""
    name: str = ""
    """The stream's name."""
    applied: float = 0.0
    """When, seconds since 1970 by the clock of the side that applies."""


class Existing(NamedTuple):
    """A column of a table that is there, as the database's catalogue has it."""

    name: str
    type: str
    is_key: bool = False
    is_generated: bool = False
    doubt: str = ""
    """Why it may take two values of a key for one."""


class DestinationView(NamedTuple):
    """The tables of a destination as one transaction sees them."""

    progress: SyncProgress
    rows: Callable[[Table], Iterator[Row]]
    """All rows of a table, as often as wanted."""


class Destination:
    """A database that a sync is applied to, for one thread. The base is any DBAPI connection."""

    dialect: Dialect
    has_savepoints = True

    def __init__(self, name: str, connection: Any) -> None:
        """`name`: of the sync; `connection`: it is ended where this fails."""
        self._name = name
        self._connection = connection
        self._in_transaction = False
        self._positions = PositionTable(f"sync:{name}")
        self._at: Position | None = None  # as of the last commit
        self._stored: Position | None = None  # in the transaction that is open
        self._statements: dict[str, Statements] = {}
        self._keepings: dict[str, KeptValues | None] = {}  # None: the table keeps all values
        with ExitStack() as failed:
            failed.callback(connection.close)
            self._prepare()
            failed.pop_all()

    def _prepare(self) -> None:
        """Make the tables of positions."""
        self._make(SYNCS, SYNC_COLUMNS)
        self._make(positions.TABLE, positions.COLUMNS)

    def progress(self) -> SyncProgress:
        """Return the progress of the sync in the database. `store` continues from there."""
        rows = self.run(_FIND, {"name": self._name}).rows
        self._at = None
        if not rows:
            return SyncProgress()
        progress = msgspec.json.decode(rows[0][0], type=SyncProgress)
        for place in self._positions.stored(self.run):
            self._at = place
        for table in progress.tables.values():
            self._learn(table)
        return progress

    def store(self, progress: SyncProgress) -> None:
        """Keep the position, at the end of a transaction. Raises FencedError, and takes the
        transaction back, when it is not any more what `progress` or the last commit here has
        said."""
        stream = progress.name if self._at is None else self._at.stream
        place = Position(stream, SHARD, progress.offset, progress.stream, progress.losses)
        try:
            former = None if self._at is None else self._at.next_offset
            self._positions.store(self.run, place, former)
        except SinkMovedError:
            self.rollback()
            raise FencedError(f"another process applies the sync {self._name}") from None
        text = msgspec.json.encode(progress).decode()
        values = {"name": self._name, "next_offset": progress.offset, "progress": text}
        if not self.run(_CHANGE, values).changed:
            self.run(_ADD, values)
        self._stored = place

    def commit(self) -> None:
        """Commit the transaction, and with it the position that was stored."""
        with self._told("the end of a transaction"):
            self._end(True)
        if self._stored is not None:
            self._at, self._stored = self._stored, None

    def rollback(self) -> None:
        """Take the transaction back, if there is one."""
        self._stored = None
        self._end(False)

    @contextmanager
    def view(self) -> Iterator[DestinationView]:
        """All tables as of one moment: in a single transaction."""
        self._begin_view()
        try:
            yield DestinationView(self.progress(), self.scan)
        finally:
            self.rollback()

    def remove(self) -> None:
        """Delete the sync's position and progress. Its rows stay."""
        self.run(_REMOVE, {"name": self._name})
        self._positions.remove(self.run)

    def take_up(self, table: Table) -> None:
        """Rows of this shape follow: make the table, or see that it has the columns and the key.
        Raises SchemaError when a person has to alter it."""
        place = self._place(table)
        for other in self._statements.values():
            if other.table.name != table.name and self._place(other.table) == place:
                raise SchemaError(
                    f"{table.name} and {other.table.name} would be the same table of the "
                    f"destination, {'.'.join(filter(None, place))}"
                )
        there = self._catalog(table)
        if there:
            for column in there:
                if column.is_generated and column.name in table.names:
                    raise SchemaError(
                        f"the destination computes its column {table.name}.{column.name}, which "
                        f"the source sends: make it a plain column there"
                    )
            self._alter(table, [column.name for column in there])
            if sorted(column.name for column in there if column.is_key) != sorted(table.keys):
                raise SchemaError(
                    f"the destination's table {table.name} needs the primary key "
                    f"({', '.join(table.keys)})"
                )
        else:
            self._create(table)
        self._learn(table)
        if not there:
            self._keepings[table.name] = None

    def load(self, table: Table, rows: Iterable[Row]) -> None:
        """Insert rows into a table that has none of them."""
        found, keeping = self._statements[table.name], self._keeping(table)
        rest = iter(rows)
        with self._told(table.name):
            if keeping is None:
                self._load(found, rest)
            while keeping is not None and (some := list(islice(rest, CHECKED))):
                keys = [table.key_of(row) for row in some]
                self._check_met(keeping, table, keys)
                self._load(found, some)
                keeping.check_kept(zip(keys, some, strict=True), self.fetch(table, keys))

    def apply(self, step: Step) -> None:
        """Carry out a step; its rows are values of the source."""
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
        if step.upserts:
            self._write(found, step.upserts)
        self._check_met(keeping, table, [key for key, _ in step.updates])
        for key, row in step.updates:
            moved = table.key_of(row)
            if moved != key and ABSENT not in moved and self.fetch(table, [moved]):
                self._delete(found, [key])  # the row was sent again meanwhile, with its new key
                key = moved
            self._update(found, key, row)
            if keeping is not None:
                written.append((table.key_of(row), row))
        if keeping is not None and written:
            rows = dict(written)  # the last of each
            keeping.check_kept(rows.items(), self.fetch(table, list(rows)))

    def fill(self, table: Table, row: Row, only_null: bool) -> None:
        """Give all rows the values of `row`, a row of the source, but where that is ABSENT;
        `only_null`: those rows that have NULL there."""
        found, keeping = self._statements[table.name], self._keeping(table)
        (values,) = found.fitted([row])
        with self._told(table.name):
            for place, value in enumerate(values):
                if row[place] is not ABSENT:
                    self._fill(found, place, value, only_null)
        if keeping is not None and not only_null:
            for there in self.scan(table):
                key = table.key_of(there)
                keeping.check_kept([(key, row)], {key: there})
                break

    def note(self, conflicts: Sequence[Conflict]) -> None:
        """Add conflicts to the table `canopy_conflicts`, which is made if it is missing."""
        self._make_conflicts()
        now = datetime.now(UTC).isoformat(" ", "seconds")
        for one in conflicts:
            known = {"name": self._name, "at": now, "tab": one.table, "row_key": one.key}
            images = {"before": one.before, "incoming": one.incoming, "own": one.own}
            applied = "yes" if one.applied else "no"
            self.run(_NOTE, {**known, **images, "rule": one.rule, "applied": applied})

    def _make_conflicts(self) -> None:
        self._make(CONFLICTS, CONFLICT_COLUMNS)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Raises SchemaError for a constraint of the destination that refuses a row."""
        try:
            yield
        except Exception as error:
            if not any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__):
                raise
            said = in_one_line(error)
            raise SchemaError(
                f"{what}: a constraint that the destination has of its own refuses rows of the "
                f"source ({said}): take it away, or let it be checked at the end of a transaction"
            ) from None

    def _check_met(self, keeping: KeptValues | None, table: Table, keys: Sequence[Row]) -> None:
        if keeping is not None and keeping.has_keys and keys:
            keeping.check_met(self.fetch(table, keys))

    def _keeping(self, table: Table) -> KeptValues | None:
        """Return the check whether the destination's table keeps values unchanged; None: it
        does."""
        if table.name not in self._keepings:
            doubtful = self._doubtful(table)
            made = KeptValues(table, self.dialect, doubtful) if doubtful else None
            self._keepings[table.name] = made
        return self._keepings[table.name]

    def _doubtful(self, table: Table) -> dict[str, str]:
        """Return, by name, the columns of the destination's table that differ from those that the
        sync would make, and may change values, each with its type."""
        columns = {column.name: column for column in table.columns}
        found = {}
        for there in self._catalog(table):
            if there.name not in columns:
                continue
            if not self._holds(table, there.type, self._type(table, columns[there.name])):
                found[there.name] = there.type
            if there.is_key and there.doubt:
                found[there.name] = f"{there.type} {there.doubt}".strip()
        return found

    def _learn(self, table: Table) -> None:
        self._statements[table.name] = Statements(table, self.dialect, self._named(table))
        self._keepings.pop(table.name, None)

    def _place(self, table: Table) -> tuple[str, str]:
        """The schema and the name that a table has here; "": there are no schemas."""
        return "", table.name

    def _named(self, table: Table) -> str:
        """A table for SQL."""
        return ".".join(quoted(part) for part in self._place(table) if part)

    def _type(self, table: Table, column: Column) -> str:
        return self.dialect.type_of(table, column)

    def _holds(self, table: Table, own: str, wanted: str) -> bool:
        """Whether a column of the type `own` keeps each value of the type `wanted`, or refuses
        it."""
        return own == wanted

    # What follows is how this is done over a DBAPI connection whose transactions are begun by hand.

    def close(self) -> None:
        """End the connection; a transaction that is open is taken back."""
        self._connection.close()

    def run(self, statement: str, parameters: Mapping[str, object]) -> Answer:
        """Carry out a statement with its `:named` parameters."""
        values = [parameters[name] for name in _NAMED.findall(statement)]
        cursor = self._execute(_NAMED.sub(self.dialect.mark, statement), values)
        found = cursor.fetchall() if statement.startswith("SELECT") else ()
        return Answer(cursor.rowcount, found)

    def begin(self) -> None:
        """Begin the transaction that `apply` and `store` belong to, until `commit` or
        `rollback`."""
        self._execute("BEGIN")
        self._in_transaction = True

    def _begin_view(self) -> None:
        self._execute(self.dialect.begin_view)
        self._in_transaction = True

    def _end(self, is_committed: bool) -> None:
        if is_committed:
            self._execute("COMMIT")
            self._in_transaction = False
        elif self._in_transaction:
            self._in_transaction = False
            self._execute("ROLLBACK")

    def _make(self, table: str, columns: Sequence[ColumnDefinition]) -> None:
        self._execute(create_table(table, columns, self.dialect.kinds))

    def _create(self, table: Table) -> None:
        columns = [
            f"{quoted(column.name)} {self._type(table, column)}"
            # SQLite takes NULL in a key, by which a row cannot be found again.
            + ("" if column.nullable and column.name not in table.keys else " NOT NULL")
            for column in table.columns
        ]
        keys = ", ".join(map(quoted, table.keys))
        options = f" {table.options}" if table.dialect == self.dialect.name else ""
        self._execute(
            f"CREATE TABLE {self._named(table)} ({', '.join(columns)}, PRIMARY KEY ({keys}))"
            f"{options}"
        )

    def _alter(self, table: Table, there: Sequence[str]) -> None:
        """Columns that are added may be NULL, since the table's rows have no values in them until
        they come once more."""
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

    def _change(self, table: Table, former: Table, old: Column) -> None:
        """Give a column of `former` the type that it has in `table`."""
        new = next((column for column in table.columns if column.name == old.name), None)
        altering = f"ALTER TABLE {self._named(table)} ALTER COLUMN {quoted(old.name)}"
        if not old.nullable and (new is None or new.nullable):
            self._execute(f"{altering} DROP NOT NULL")
        if new is not None and (kind := self._type(table, new)) != self._type(former, old):
            self._retype(table, old.name, kind)

    def _catalog(self, table: Table) -> Sequence[Existing]:
        """The columns of a table; none, if there is no such table."""
        raise NotImplementedError

    def _retype(self, table: Table, name: str, kind: str) -> None:
        """Give a column another type, and keep its values where they have it."""
        raise NotImplementedError

    def _remake(self, table: Table, name: str, kind: str) -> None:
        """Make a column again that has values which are none of its new type: it was dropped at the
        source and another one added, whose values follow with all rows."""
        if name in table.keys:
            raise SchemaError(f"the key {table.name}.{name} cannot be made {kind}: alter it")
        self._execute(f"ALTER TABLE {self._named(table)} DROP COLUMN {quoted(name)}")
        self._execute(f"ALTER TABLE {self._named(table)} ADD COLUMN {quoted(name)} {kind}")

    def clear(self, table: Table) -> None:
        """Delete all rows of a table."""
        self._execute(f"DELETE FROM {self._named(table)}")

    def _load(self, found: Statements, rows: Iterable[Row]) -> None:
        self._execute_many(found.insert, found.fitted(rows))

    def _write(self, found: Statements, rows: Sequence[Row]) -> None:
        """With savepoints also where unique values have moved between the rows."""
        if not self.has_savepoints:
            self._upsert(found, rows)
            return
        self._execute("SAVEPOINT canopy_step")
        try:
            self._upsert(found, rows)
        except Exception as error:
            if any(kind.__name__ == "DataError" for kind in type(error).__mro__):
                self._execute("ROLLBACK TO SAVEPOINT canopy_step")
                raise self._refused(found, rows, error) from None
            if type(error).__name__ not in _MOVED:
                raise
            # Make room for all of them first.
            self._execute("ROLLBACK TO SAVEPOINT canopy_step")
            self._delete(found, [found.table.key_of(row) for row in rows])
            self._upsert(found, rows)
        self._execute("RELEASE SAVEPOINT canopy_step")

    def _refused(self, found: Statements, rows: Sequence[Row], error: Exception) -> UnfitError:
        """Return the server's error for one of the rows, with its key. The rows are tried one by
        one."""
        for row in rows:
            try:
                self._execute(found.upsert, *found.fitted([row]))
            except Exception as refused:
                said = in_one_line(refused)
                key = found.table.key_of(row)
                return UnfitError(f"{found.table.name}, key {key}: the destination says: {said}")
        return UnfitError(f"{found.table.name}: the destination says: {error}")

    def _delete(self, found: Statements, keys: Sequence[Row]) -> None:
        self._execute_many(found.delete, found.fitted_keys(keys))

    def _upsert(self, found: Statements, rows: Sequence[Row]) -> None:
        self._execute_many(found.upsert, found.fitted(rows))

    def _update(self, found: Statements, key: Row, row: Row) -> None:
        (values,), (where,) = found.fitted([row]), found.fitted_keys([key])
        sets = [value for value in values if value is not ABSENT]
        self._execute(found.update(row), [*sets, *where])

    def _fill(self, found: Statements, place: int, value: Value, only_null: bool) -> None:
        name = found.table.names[place]
        kept = [each for each in self._changing(found.table) if each != name]
        self._execute(found.fill(place, only_null, kept), [value])

    def _changing(self, table: Table) -> list[str]:
        """Columns of the destination's table that it changes by itself in an update."""
        return []

    def fetch(self, table: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        """The rows with these keys, as this database keeps them. They are locked, where it has such
        locks."""
        found = self._statements[table.name]
        columns, lock, decoded = self._reading(table)
        shown = ", ".join(columns).replace("%", "%%" if self.dialect.mark == "%s" else "%")
        statement = f"SELECT {shown} FROM {found.name} WHERE {found.key}{lock}"
        rows = {}
        for key, fitted in zip(keys, found.fitted_keys(keys), strict=True):
            row = self._execute(statement, fitted).fetchone()
            if row is not None:
                rows[key] = decoded(row)
        return rows

    def scan(self, table: Table) -> Iterator[Row]:
        """All rows, as this database keeps them."""
        shown, _, decoded = self._reading(table)
        cursor = self._execute(f"SELECT {', '.join(shown)} FROM {self._named(table)}")
        while rows := cursor.fetchmany(READ):
            yield from map(decoded, rows)

    def _reading(self, table: Table) -> tuple[list[str], str, Callable[[Sequence[Any]], Row]]:
        """Return how columns are selected, the clause that locks their rows, and the function that
        makes a row from the driver's."""
        return list(map(quoted, table.names)), "", tuple

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(statement, values)

    def _execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(statement, rows)
