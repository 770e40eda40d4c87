"""From SQLite to DuckDB, over a stream in memory."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random

import duckdb

from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.destinations.duckdb import DuckdbDestination
from canopy.sync.row_filter import RowFilter
from canopy.sync.sources.sqlite import SqliteSource
from tests.support.databases.memory import MemoryStream


def test_changes_arrive_in_duckdb(tmp_path: Path) -> None:
    source, target = str(tmp_path / "a.db"), str(tmp_path / "b.duckdb")
    db = sqlite3.connect(source, isolation_level=None)
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n REAL, d DATE, b BLOB, x TEXT)")
    stream, rng = MemoryStream(), Random(1)
    log = SqliteSource("s", source)
    capture = Capture(log, stream, RowFilter({}))
    capture.begin()
    for _ in range(4):
        db.execute("BEGIN")
        for _ in range(60):
            key = rng.randint(1, 40)
            db.execute(
                "INSERT OR REPLACE INTO t VALUES (?, ?, '2026-01-02', x'00ff', ?)",
                (key, rng.random(), rng.choice([None, "a\0b", "é"])),
            )
            db.execute("DELETE FROM t WHERE id = ?", (rng.randint(1, 40),))
            db.execute("UPDATE OR REPLACE t SET id = id + 100 WHERE id = ?", (rng.randint(1, 40),))
        db.execute("UPDATE t SET x = 'no zero' WHERE instr(x, char(0))")
        db.execute("COMMIT")
        capture.run_once(0)
        to = DuckdbDestination("s", target)  # begins again each time
        apply = Applier(stream, to, RowFilter({}))
        apply.begin()
        while apply.run_once(0):
            pass
        apply.close()
        to.close()
        with duckdb.connect(target) as there:
            found = there.execute("SELECT id, n, d::varchar, b, x FROM t ORDER BY id").fetchall()
        assert found == db.execute("SELECT * FROM t ORDER BY id").fetchall()
    assert found
    log.close()
    db.close()
