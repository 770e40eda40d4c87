"""SQLite as a source: a log that triggers write (``sqlite_triggers``), read from a position on.

SQLite has one writer at a time, so the order of the log's ids is the order of commits, and the
log's id is the position. Triggers cannot tell one transaction from the next. So all that was
committed between two looks is handed on as one: whoever applies it never has a part of a
transaction, and may have several at once. A look is a comparison of SQLite's own counter of commits
(`data_version`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from canopy.sinks.database import quoted
from canopy.sync.changes import (
    DELETE,
    END,
    FILL,
    INSERT,
    MARK,
    SCHEMA,
    TRUNCATE,
    Change,
    Commit,
    Table,
    check_table,
)
from canopy.sync.errors import SourceLostError, SyncError
from canopy.sync.sources.altered_rows import SAMPLE, added, filling
from canopy.sync.sources.source import (
    ASKED,
    SourceView,
    check_source,
    check_there,
    is_wanted,
    snapshot,
    wanted_of,
)
from canopy.sync.sources.sqlite_triggers import (
    NOW,
    install,
    is_installed,
    prepare,
    shape_of,
    uninstall,
    user_tables,
)
from canopy.sync.values import ABSENT

LOOK: Final = 0.004
"""Seconds between two looks for commits: a look takes 4 µs."""
AT_ONCE: Final = 5_000
"""Changes that are read with one statement; no lock is held between two."""
BUSY: Final = 30.0
"""Seconds to wait for another writer."""
FORGET_EVERY: Final = 2.0
"""Seconds between two deletions of what is in the stream."""


def open_sqlite(path: str) -> sqlite3.Connection:
    """A connection whose transactions are begun and ended by hand."""
    if not Path(path).exists():
        raise SyncError(f"there is no database {path}")
    database = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
    database.text_factory = _text
    return database


def _text(data: bytes) -> str:
    """Decode a text of SQLite, which need not be UTF-8. Invalid bytes become lone surrogates, so
    that the text is refused where its table and key are known."""
    return data.decode("utf-8", "surrogateescape")


class SqliteSource:
    """The tables of one database file, whose triggers and log this makes."""

    mark_every = 10_000  # changes in the log that nobody wants

    def __init__(
        self, name: str, path: str, tables: Sequence[str] = (), echoes: bool = False
    ) -> None:
        """`name`: of the sync; `tables`: those that are captured, () for all that there are and
        will be; `echoes`: also what other syncs apply here."""
        self._name = name
        self._wanted = tuple(tables)
        self._echoes = echoes
        self._path = path
        self._database = open_sqlite(path)
        self._shapes: dict[int, Table] = {}  # by the number under which changes are logged
        self._live: dict[str, int] = {}  # by name, the newest number
        self._there: set[str] = set()
        self._position = 0
        self._seen = -1  # SQLite's counter of commits
        self._schema = -1  # and of changed schemas
        self._forgotten = 0.0
        with ExitStack() as failed:
            failed.callback(self._database.close)
            with _writing(self._database):
                self.id = prepare(self._database)
                self._database.execute(
                    "INSERT OR IGNORE INTO canopy_readers VALUES (?, 0, NULL)", (name,)
                )
            self._refresh()
            failed.pop_all()

    def close(self) -> None:
        """Close the sync's connection to the file."""
        self._database.close()

    def target(self) -> int:
        """Return the number of the last logged change."""
        found = self._database.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'canopy_changes'"
        ).fetchone()
        return int(found[0]) if found else 0

    def reached(self, target: int) -> bool:
        """Whether the log was read up to this change."""
        return self._position >= target

    def mark(self) -> int:
        """Log a mark, and return its number."""
        done = self._database.execute(
            f"INSERT INTO canopy_changes (tab, op, at) VALUES (0, {MARK}, {NOW})"
        )
        self._seen = -1  # SQLite's counter does not count its own connection's commits
        return int(done.lastrowid or 0)

    @contextmanager
    def view(self) -> Iterator[SourceView]:
        """See `Source`. Raises SyncError where a reader would keep all writers waiting."""
        if self._database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            raise SyncError(
                "a comparison would keep all writers of the source waiting: PRAGMA journal_mode = "
                "WAL, once, and they go on"
            )
        self._refresh()
        database = open_sqlite(self._path)
        try:
            database.execute("BEGIN")
            found = database.execute("SELECT max(id) FROM canopy_changes").fetchone()[0]
            tables = [self._shapes[number] for number in self._live.values()]
            yield SourceView(found or 0, tables, partial(scan, database))
        finally:
            database.close()

    def resume(self, commit: Commit, known: Mapping[str, Table]) -> None:
        """Go on behind the stream's last change, if the log still has the next one."""
        check_source(commit, self.id)
        end = self.target()
        at = self._database.execute(
            "SELECT at FROM canopy_changes WHERE id = ?", (commit.position,)
        ).fetchone()
        if end < commit.position or (at is not None and at[0] != commit.time and commit.time):
            raise SourceLostError(
                f"the database was put back to an older state: its log ends at {end}, and the "
                f"stream has {commit.position}; take a new snapshot (canopy sync run --snapshot)"
            )
        (lowest,) = self._database.execute("SELECT min(id) FROM canopy_changes").fetchone()
        if end > commit.position and (lowest is None or lowest > commit.position + 1):
            raise SourceLostError(
                f"changes {commit.position + 1} to {(lowest or end + 1) - 1} are not in the log "
                f"any more; take a new snapshot (canopy sync run --snapshot)"
            )
        self._position = commit.position

    def snapshot(self) -> Iterator[Change | Commit]:
        """See `Source`. Other programs can write meanwhile if the database is in WAL mode."""
        self._refresh()
        for name in sorted(self._live.keys() - self._there):
            self._forget(name)
        self._begin_log()
        self._database.execute("BEGIN")
        try:
            position = self.target()
            tables = [self._shapes[number] for number in self._live.values()]
            yield from snapshot((table, scan(self._database, table)) for table in tables)
            self._position = position
        finally:
            self._database.execute("COMMIT")
        yield Change(END)
        yield Commit(position, position, 0.0, self.id)

    def changes(self, wait: float) -> Iterator[Change | Commit]:
        """Yield the changes of all transactions since the last call, as one transaction."""
        if not self._await_commit(wait):
            return
        end = self._end_of_known()
        if self._position < end:
            yield from self._read_to(end)

    def _read_to(self, end: int) -> Iterator[Change | Commit]:
        width = 2 * max((len(table.columns) for table in self._shapes.values()), default=0)
        values = "".join(f", v{place}" for place in range(width))
        last = 0.0
        while self._position < end:
            found = self._database.execute(
                f"SELECT id, tab, op, at, applied{values} FROM canopy_changes "
                f"WHERE id > ? AND id <= ? ORDER BY id LIMIT {AT_ONCE}",
                (self._position, end),
            ).fetchall()
            if not found:
                break
            for row in found:
                change = self._change(row)
                if change is not None:
                    yield change
            self._position, last = found[-1][0], found[-1][3]
        yield Commit(self._position, self._position, last, self.id)

    def confirm(self, position: int) -> None:
        """See `Source`. The last change is kept, by which a database that was put back is known."""
        now = time.monotonic()
        if now < self._forgotten + FORGET_EVERY:
            return
        self._forgotten = now
        with _writing(self._database):
            self._database.execute(
                "UPDATE canopy_readers SET position = ? WHERE name = ?", (position, self._name)
            )
            (least,) = self._database.execute("SELECT min(position) FROM canopy_readers").fetchone()
            self._database.execute("DELETE FROM canopy_changes WHERE id < ?", (least,))

    def _begin_log(self) -> None:
        """Have something in the log: as long as nothing is, a table that is new is one that the
        first snapshot will have."""
        if not self.target():
            self.mark()

    def _await_commit(self, wait: float) -> bool:
        until = time.monotonic() + wait
        while True:
            (seen,) = self._database.execute("PRAGMA data_version").fetchone()
            if seen != self._seen:
                self._seen = seen
                return True
            if (rest := until - time.monotonic()) <= 0:
                return False
            time.sleep(min(LOOK, rest))

    def _end_of_known(self) -> int:
        """Up to which change no table was altered without being taken up."""
        self._refresh()
        while True:
            (end,) = self._database.execute("SELECT max(id) FROM canopy_changes").fetchone()
            (schema,) = self._database.execute("PRAGMA schema_version").fetchone()
            if schema == self._schema:
                check_there(self._live, self._there)
                return end or 0
            self._refresh()  # a table was altered in between, and rows of it are in the log

    def _change(self, row: tuple[Any, ...]) -> Change | None:
        if row[4] is not None and not self._echoes:
            return None
        if row[2] == MARK:
            return Change(MARK, ASKED)
        table = self._shapes.get(row[1])
        if table is None or not is_wanted(table.name, self._wanted):
            return None
        op, width = row[2], 5 + len(table.columns)
        if op in (SCHEMA, TRUNCATE):
            return Change(op, table.name, schema=table)
        if op == INSERT:
            return Change(INSERT, table.name, None, row[5:width], table)
        if op == FILL:
            at = zip(row[5:width], row[width : 2 * width - 5], strict=True)
            fill = tuple(value if is_set else ABSENT for value, is_set in at)
            return Change(FILL, table.name, None, fill, table)
        if op == DELETE:
            return Change(DELETE, table.name, row[5:width], None, table)
        return Change(op, table.name, row[width : 2 * width - 5], row[5:width], table)

    def _refresh(self) -> None:
        """Handle changes of the tables. All rows are logged again of a table that is new, has
        another shape, or lost its triggers (as one that was rebuilt has), since changes in the
        meantime are unknown. Of a table that only got columns, the values of these are logged: its
        triggers have logged the others."""
        (schema,) = self._database.execute("PRAGMA schema_version").fetchone()
        if schema == self._schema:
            return
        with _writing(self._database):
            self._read_shapes()
            for name in wanted_of(self._wanted, user_tables(self._database)):
                table = shape_of(self._database, name)
                assert table is not None
                number = self._live.get(name)
                if (
                    number is None
                    or self._shapes[number] != table
                    or not is_installed(self._database, table, number)
                ):
                    self._take_up(check_table(table))
            self._there = set(user_tables(self._database))
        (self._schema,) = self._database.execute("PRAGMA schema_version").fetchone()

    def _read_shapes(self) -> None:
        found = self._database.execute("SELECT id, shape FROM canopy_tables ORDER BY id")
        self._shapes = {number: msgspec.json.decode(text, type=Table) for number, text in found}
        self._live = {table.name: number for number, table in self._shapes.items()}
        self._live = {name: n for name, n in self._live.items() if is_wanted(name, self._wanted)}

    def _take_up(self, table: Table) -> None:
        known = table.name in self._live
        count = self._added(table)
        number = install(self._database, table)
        self._shapes[number] = table
        self._live[table.name] = number
        if not known and not self.target():
            return  # the first snapshot has its rows
        columns = ", ".join(map(quoted, table.names))
        places = ", ".join(f"v{place}" for place in range(len(table.columns)))
        log = f"INSERT INTO canopy_changes (tab, op, at{{}}) SELECT {number}, {{}}, {NOW}{{}}"
        self._database.execute(log.format("", SCHEMA, ""))
        rows = log.format(", " + places, INSERT, ", " + columns) + f" FROM {quoted(table.name)}"
        fill = self._filling(table, count)
        if fill is not None:
            names, values = table.names[-count:], fill[-count:]
            set_ = range(len(fill) - count, len(fill))
            into = "".join(f", v{place}, v{len(fill) + place}" for place in set_)
            self._database.execute(log.format(into, FILL, ", ?, 1" * count), values)
            # quote() tells 1 from 1.0, and ends a text at a character 0.
            other = " OR ".join(
                f"{name} COLLATE BINARY IS NOT ? OR quote({name}) IS NOT quote(?)"
                for name in map(quoted, names)
            )
            twice = [each for value in values for each in (value, value)]
            self._database.execute(f"{rows} WHERE {other}", twice)
            return
        if known:
            self._database.execute(log.format("", TRUNCATE, ""))
        self._database.execute(rows)

    def _added(self, table: Table) -> int:
        """Return how many columns a table has after those known to its triggers, which are present;
        0: there are other changes as well."""
        number = self._live.get(table.name)
        if number is None or not is_installed(self._database, self._shapes[number], number):
            return 0
        return added(self._shapes[number], table)

    def _filling(self, table: Table, count: int) -> tuple[Any, ...] | None:
        """See `filling`; None also for a text that SQLite would not take back."""
        columns = ", ".join(map(quoted, table.names))
        sample = self._database.execute(
            f"SELECT {columns} FROM {quoted(table.name)} LIMIT {SAMPLE if count else 0}"
        ).fetchall()
        fill = filling(table, count, sample)
        try:
            "".join(value for value in fill or () if type(value) is str).encode()
        except UnicodeEncodeError:
            return None
        return fill

    def _forget(self, name: str) -> None:
        """A table that is gone is none of the sync's any more."""
        del self._live[name]
        numbers = [number for number, table in self._shapes.items() if table.name == name]
        for number in numbers:
            self._database.execute("DELETE FROM canopy_tables WHERE id = ?", (number,))


@contextmanager
def _writing(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def remove_reader(database: sqlite3.Connection, name: str) -> None:
    """Take a sync out of a database, and the log and its triggers, when no other sync reads it."""
    with _writing(database):
        there = {row[0] for row in database.execute("SELECT name FROM sqlite_schema")}
        if "canopy_readers" not in there:
            return
        database.execute("DELETE FROM canopy_readers WHERE name = ?", (name,))
        if database.execute("SELECT count(*) FROM canopy_readers").fetchone()[0]:
            return
        for table in user_tables(database):
            uninstall(database, table)
        for table in ("changes", "tables", "readers", "candidates", "source"):
            database.execute(f"DROP TABLE IF EXISTS canopy_{table}")


def scan(database: sqlite3.Connection, table: Table) -> Iterator[tuple[Any, ...]]:
    """All rows of a table, as tuples of its columns in their order."""
    columns = ", ".join(map(quoted, table.names))
    yield from database.execute(f"SELECT {columns} FROM {quoted(table.name)}")
