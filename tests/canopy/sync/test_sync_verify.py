"""Whether differences of source and destination are found, and none that are not there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.destinations.postgres import PostgresDestination
from canopy.sync.destinations.sqlite import SqliteDestination
from canopy.sync.errors import SyncError
from canopy.sync.row_filter import RowFilter
from canopy.sync.sources.postgres import PostgresSource, remove_slot
from canopy.sync.sources.sqlite import SqliteSource
from canopy.sync.verification import RowDifference, SyncComparison
from harness.postgres import Server
from tests.support.databases.memory import MemoryStream

WHERE = {"t": "n > 3"}


class Sides:
    """SQLite to PostgreSQL and back to SQLite, with a filter on the first way."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.rng = Random(1)
        self.paths = [str(folder / "a.db"), str(folder / "c.db")]
        self.dsn = server.database()
        self.db = sqlite3.connect(self.paths[0], isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n NUMERIC, x TEXT, d DATETIME)")
        for _ in range(300):
            self.change()
        self.streams = [MemoryStream(), MemoryStream()]
        self.first: Any = SqliteSource("one", self.paths[0])
        self.captures = [Capture(self.first, self.streams[0], RowFilter(WHERE))]
        self.captures[0].begin()
        self.middle = PostgresDestination("one", self.dsn)
        self.applies = [Applier(self.streams[0], self.middle, RowFilter({}))]
        self.applies[0].begin()
        self.applies[0].run_once(0)
        self.second: Any = PostgresSource("two", self.dsn, ("t",), echoes=True)
        self.captures.append(Capture(self.second, self.streams[1], RowFilter({})))
        self.captures[1].begin()
        self.last = SqliteDestination("two", self.paths[1])
        self.applies.append(Applier(self.streams[1], self.last, RowFilter({})))
        self.applies[1].begin()

    def change(self) -> None:
        key, value = self.rng.randint(1, 90), self.rng.choice([1, 2.5, 7, 2**60, 4.25, None])
        day = f"2026-01-{key % 28 + 1:02} 10:00:00.5"
        self.db.execute("INSERT OR REPLACE INTO t VALUES (?, ?, ?, ?)", (key, value, "x", day))
        self.db.execute("DELETE FROM t WHERE id = ?", (self.rng.randint(1, 200),))

    def go_on(self, seconds: float = 0) -> None:
        for _ in range(5):
            self.change()
        for capture, apply in zip(self.captures, self.applies, strict=True):
            capture.run_once(0.02)
            while apply.run_once(0):
                pass
        self.change()

    def comparison(self, way: int, **options: Any) -> SyncComparison:
        source = SqliteSource("one", self.paths[0]) if way == 0 else self.other()
        self.closing.append(source)
        target: Any = (
            PostgresDestination("one", self.dsn)
            if way == 0
            else SqliteDestination("two", self.paths[1])
        )
        self.closing.append(target)
        rows = RowFilter(WHERE if way == 0 else {})
        return SyncComparison(source, target, self.streams[way], rows, pause=self.go_on, **options)

    def other(self) -> Any:
        return PostgresSource("two", self.dsn, ("t",))

    closing: list[Any]

    def close(self) -> None:
        for one in [*self.closing, self.applies[0], self.applies[1]]:
            one.close()
        remove_slot("two", self.dsn)
        for one in (self.db, self.first, self.middle, self.second, self.last):
            one.close()


@pytest.fixture
def sides(server: Server, tmp_path: Path) -> Iterator[Sides]:
    made = Sides(server, tmp_path)
    made.closing = []
    yield made
    made.close()


@pytest.mark.parametrize("way", [0, 1], ids=["sqlite-postgresql", "postgresql-sqlite"])
def test_sides_that_change_meanwhile_are_identical(sides: Sides, way: int) -> None:
    for _ in range(3):
        sides.go_on()
        found = sides.comparison(way).run()
        assert found.identical, found.differences
        assert found.rows["t"] > 10
        assert found.position > 0


@pytest.mark.parametrize("way", [0, 1], ids=["sqlite-postgresql", "postgresql-sqlite"])
def test_rows_that_differ_are_named(sides: Sides, way: int) -> None:
    sides.db.execute("INSERT OR REPLACE INTO t VALUES (900, 50, 'x', NULL), (901, 51, NULL, NULL)")
    for _ in range(500):  # the server's log comes when the server has read it
        sides.go_on()
        with sqlite3.connect(sides.paths[1]) as light:
            arrived = light.execute("SELECT count(*) FROM t WHERE id >= 900").fetchone()
        light.close()
        if arrived == (2,):
            break
    changes = (
        "UPDATE t SET n = 50.000001 WHERE id = 900",
        "DELETE FROM t WHERE id = 901",
        "INSERT INTO t VALUES (902, 99, '', NULL)",
    )
    if way == 0:
        with psycopg.connect(sides.dsn, autocommit=True) as link:
            for change in changes:
                link.execute(change)  # type: ignore[arg-type]
    else:
        with sqlite3.connect(sides.paths[1]) as light:
            for change in changes:
                light.execute(change)
        light.close()
    found = sides.comparison(way).run()
    assert found.differences == [
        RowDifference("t", "900", "different"),
        RowDifference("t", "901", "missing"),
        RowDifference("t", "902", "surplus"),
    ]
    assert found.differing == {"t": 3}


def test_a_destination_that_does_not_come_so_far_is_said(sides: Sides) -> None:
    comparison = sides.comparison(0)
    comparison._pause = lambda seconds: None
    with pytest.raises(SyncError, match="is canopy sync run running"):
        comparison.run(0.01)
