"""VENUS, table 5 and figures 6 and 7: changes captured from a database, and brought to another.

    python -m bench.papers.capture --changes 100000 --json
    python -m bench.papers.capture --sources sqlite postgresql --replicas 3 --json

The paper's table `student` (id, name, address, sex), with fsync and as many rows as `--changes`,
which are inserted, then updated, then deleted, 100 in a transaction, while `canopy sync run` works
in processes of its own and a node has each replica of the stream; all on one machine.

* `capture_s`, as in the paper: from the first of these changes that the source side has detected to
  the last. Detected means here that it is in the stream, by the stream's own times: on the disks of
  a majority of its replicas.
* `written_s`: what the source takes to commit them. No capture can take less.
* `way` is capture alone, or a copy: then both sides run, `through_s` is from the first statement
  at the source until the destination has committed the last change, and the tables are compared row
  by row (`same`).

A database that is not installed has a row that says how to get it.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

import canopy
from bench.command import parser, say, show
from bench.sync.processes import PATIENCE, Syncs
from canopy.sync.destinations.destination import SyncProgress
from harness.databases.database import Database
from harness.databases.mariadb import Mariadb
from harness.databases.postgres import Postgres
from harness.databases.sqlite import Sqlite
from harness.mariadb import MariadbServer
from harness.postgres import NoServerError, Server

TABLE: Final = (
    "CREATE TABLE student (id INTEGER PRIMARY KEY, name VARCHAR(40), address VARCHAR(100), "
    "sex VARCHAR(8))"
)
TOGETHER: Final = 100
"""Rows of a transaction."""

POSTGRES_SAFE: Final = ("fsync=on", "synchronous_commit=on", "max_wal_size=4GB")
MARIADB_SAFE: Final = ("innodb-flush-log-at-trx-commit=1", "sync-binlog=1")

COPIES: Final = {"sqlite": "postgresql", "postgresql": "sqlite", "mariadb": "postgresql"}
"""To which kind a source is copied."""

LOG: Final = {"sqlite": "triggers and a log table", "postgresql": "its log", "mariadb": "its log"}
"""What changes are captured from."""


class Work(NamedTuple):
    """One of the paper's operations on rows `first` to `last`."""

    operation: str

    def statement(self, first: int, last: int) -> str:
        """For all of these rows at once."""
        if self.operation == "insert":
            rows = (f"({n}, 'name {n % 1000}', 'street {n}', 'f')" for n in range(first, last + 1))
            return f"INSERT INTO student VALUES {', '.join(rows)}"
        where = f"WHERE id BETWEEN {first} AND {last}"
        if self.operation == "update":
            return f"UPDATE student SET address = 'avenue' {where}"
        return f"DELETE FROM student {where}"


WORK: Final = (Work("insert"), Work("update"), Work("delete"))


class Databases:
    """Those that this machine has, made when they are asked for."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._files = 0
        self._server: Server | None = None
        self._mariadb: MariadbServer | None = None

    def new(self, kind: str) -> Database:
        """A new database with fsync. Raises NoServerError where there is no server."""
        made: Any
        if kind == "postgresql":
            if self._server is None:
                self._server = Server(*POSTGRES_SAFE)
                self._stack.callback(self._server.stop)
            made = Postgres(self._server)
        elif kind == "mariadb":
            if self._mariadb is None:
                self._mariadb = MariadbServer(*MARIADB_SAFE)
                self._stack.callback(self._mariadb.stop)
            made = Mariadb(self._mariadb)
        else:
            self._files += 1
            made = Sqlite(self._folder / f"{self._files}.db")
            made.execute("PRAGMA synchronous = NORMAL")
        self._stack.callback(made.close)
        return made  # type: ignore[no-any-return]


class Captured:
    """The changes of one kind in a stream."""

    def __init__(self, client: canopy.Client, stream: str) -> None:
        self._client = client
        self._stream = stream

    def end(self) -> int:
        """The offset that the next event gets."""
        with self._client.read(self._stream, start="first") as reading:
            return reading.ends[0]

    def times(self, operation: str, first: int, count: int) -> tuple[float, float]:
        """When the first and the last of `count` such changes, from an offset on, came into the
        stream. Waits for them."""
        times: list[float] = []
        until = time.monotonic() + PATIENCE
        # Read when all are there: a reader takes processor time, too.
        while self.end() < first + count:
            if time.monotonic() > until:
                raise TimeoutError(f"{self.end() - first:,} of {count:,} changes have come")
            time.sleep(0.25)
        with self._client.read(self._stream, f"_op = '{operation}'", start=first) as reading:
            while len(times) < count:
                found = reading.take(PATIENCE)
                if not found:
                    raise TimeoutError(f"{len(times):,} of {count:,} changes are {operation}s")
                times += [event.time for event in found]
        return times[0], times[-1]


def write(source: Database, work: Work, count: int) -> float:
    """Execute an operation on `count` rows; the seconds that it took."""
    began = time.monotonic()
    for first in range(1, count + 1, TOGETHER):
        source.execute(work.statement(first, min(first + TOGETHER - 1, count)))
    return time.monotonic() - began


def capture(syncs: Syncs, databases: Databases, kind: str, count: int) -> Iterator[dict[str, Any]]:
    """The source side alone: a row for each operation."""
    source = databases.new(kind)
    source.execute(TABLE)
    name, files = syncs.defined(source.url, f"sqlite:{syncs.folder / 'unused.db'}")
    with canopy.connect(syncs.node) as client, syncs.running(files[0]):
        captured = Captured(client, name)
        _await_first(captured)
        for work in WORK:
            first = captured.end()
            written = write(source, work, count)
            begun, ended = captured.times(work.operation, first, count)
            took = ended - begun
            say(f"{kind}, {syncs.replicas} replicas, {work.operation}: captured in {took:.2f} s")
            yield {
                **_about(syncs, kind, work, count),
                "way": "capture",
                "written_s": round(written, 3),
                "capture_s": round(took, 3),
            }


def copy(syncs: Syncs, databases: Databases, kind: str, count: int) -> Iterator[dict[str, Any]]:
    """Both sides: a row for each operation."""
    source, target = databases.new(kind), databases.new(COPIES[kind])
    source.execute(TABLE)
    name, files = syncs.defined(source.url, target.url)
    with canopy.connect(syncs.node) as client, syncs.running(*files):
        captured = Captured(client, name)
        _await_first(captured)
        for work in WORK:
            end = captured.end() + count
            began, at = time.monotonic(), time.time()
            written = write(source, work, count)
            while (progress := _progress(target)) is None or progress.offset < end:
                if time.monotonic() > began + PATIENCE:
                    raise TimeoutError(f"the destination is at {progress and progress.offset}")
                time.sleep(0.02)
            took = progress.applied - at
            columns = ("id", "name", "address", "sex")
            mine, yours = (_texts(d.read("student", columns)) for d in (source, target))
            say(f"{kind} to {COPIES[kind]}, {work.operation}: {took:.2f} s")
            yield {
                **_about(syncs, kind, work, count),
                "way": "copy",
                "to": COPIES[kind],
                "written_s": round(written, 3),
                "through_s": round(took, 3),
                "rows": len(mine),
                "same": mine == yours,
            }


def _about(syncs: Syncs, kind: str, work: Work, count: int) -> dict[str, Any]:
    about = {"source": kind, "from": LOG[kind], "replicas": syncs.replicas}
    return {**about, "operation": work.operation, "changes": count}


def _progress(target: Database) -> SyncProgress | None:
    try:
        found = target.execute("SELECT progress FROM canopy_syncs")
    except (sqlite3.OperationalError, ValueError):  # the table is not made yet
        return None
    return msgspec.json.decode(found[0][0], type=SyncProgress) if found else None


def _await_first(captured: Captured) -> None:
    """Wait until the source side has said which tables there are."""
    until = time.monotonic() + PATIENCE
    while not captured.end():
        if time.monotonic() > until:
            raise TimeoutError("the source side does not begin")
        time.sleep(0.1)


def _texts(rows: Sequence[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    return sorted(tuple(map(str, row)) for row in rows)


def measured(sources: Sequence[str], replicas: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield the rows for a number of replicas; copies keep at most `replicas`, as streams are
    founded."""
    folder = Path(tempfile.mkdtemp(prefix="canopy-papers-"))
    try:
        with ExitStack() as stack:
            syncs = Syncs(folder, stack, replicas)
            databases = Databases(folder, stack)
            time.sleep(3.0 if replicas > 1 else 0.0)  # until views are filled, for all replicas
            for kind in sources:
                try:
                    yield from capture(syncs, databases, kind, count)
                    yield from copy(syncs, databases, kind, count)
                except NoServerError as error:
                    say(f"{kind}: {error}")
                    yield {"source": kind, "replicas": replicas, "absent": str(error)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the command `python -m bench.papers.capture`."""
    args = parser(
        __doc__,
        changes=(100_000, "of each operation"),
        sources=(list(LOG), "databases"),
        replicas=([3, 1], "of the stream"),
    ).parse_args()
    rows = [row for n in args.replicas for row in measured(args.sources, n, args.changes)]
    show(rows, args)
    return 0 if all(row.get("same", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
