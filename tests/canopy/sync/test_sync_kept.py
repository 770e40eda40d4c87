"""What a value is, its type and its bytes, survives, or is refused with table, column and key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pymysql
import pytest

from canopy.sync.capture import Capture
from canopy.sync.changes import DELETE, INSERT, Change, Column, Table
from canopy.sync.databases import open_destination
from canopy.sync.errors import SchemaError, SyncError, UnfitError
from canopy.sync.folded import fold
from canopy.sync.row_filter import RowFilter
from canopy.sync.verification import SyncComparison
from harness.mariadb import MariadbServer
from harness.postgres import Server
from tests.support.sync_pair import Pair, pg_url

TABLES = """
CREATE TABLE st (id INTEGER PRIMARY KEY, x ANY) STRICT;
CREATE TABLE un (id INTEGER PRIMARY KEY, v, w ANY);
CREATE TABLE u (k PRIMARY KEY NOT NULL, v);
CREATE TABLE a (k ANY PRIMARY KEY, v TEXT) STRICT;
CREATE TABLE down (k INTEGER PRIMARY KEY DESC, v TEXT);
CREATE TABLE bare (k INTEGER NOT NULL PRIMARY KEY, v TEXT) WITHOUT ROWID;
"""
VALUES = ("007", "12345678901234567890", "+4930", "1.10", "1e5", 10, 9, 1.0, -0.0, b"7", None, "")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    made.execute("PRAGMA journal_mode = WAL")
    yield made
    made.close()


def stored(path: Path, table: str) -> list[str]:
    """All rows with their types."""
    with sqlite3.connect(path) as database:
        names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        typed = ", ".join(f"typeof({name}), quote({name})" for name in names)
        found = sorted(map(repr, database.execute(f"SELECT {typed} FROM {table}")))
    database.close()
    return found


def test_sqlite_columns_without_a_type_keep_what_a_value_is(
    db: sqlite3.Connection, pairs: list[Pair], tmp_path: Path
) -> None:
    db.executescript(TABLES)
    for number, value in enumerate(VALUES):
        db.execute("INSERT INTO st VALUES (?, ?)", (number, value))
        db.execute("INSERT INTO un VALUES (?, ?, ?)", (number, value, value))
        if value not in (None, 1.0):
            db.execute("INSERT INTO u VALUES (?, ?)", (value, value))
            db.execute("INSERT INTO a VALUES (?, 'x')", (value,))
    pair = Pair(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}")
    pairs.append(pair)
    pair.begin()
    names = ("st", "un", "u", "a", "down", "bare")

    def check() -> None:
        pair.go_on()
        for name in names:
            assert stored(tmp_path / "b.db", name) == stored(tmp_path / "a.db", name), name

    check()
    for statement in (
        "INSERT INTO u VALUES (1, 'int'), ('1', 'text'), (x'31', 'blob')",
        "INSERT INTO a VALUES (7, 'int 7'), ('7', 'text 7')",
        "INSERT INTO down VALUES ('text', 'v'), (3, 'w')",
        "INSERT INTO bare VALUES ('text', 'v'), (3, 'w')",
        "UPDATE u SET k = 1.0 WHERE typeof(k) = 'integer' AND k = 1",
        "UPDATE st SET x = '007' WHERE typeof(x) = 'integer'",
        "DELETE FROM u WHERE typeof(k) = 'text'",
        "DELETE FROM a WHERE k = 7",
        "UPDATE u SET k = CAST(k AS TEXT) WHERE k = 1",
    ):
        db.execute(statement)
        check()
    assert pair.verified().identical


def test_verifying_sees_a_value_that_has_become_another(
    db: sqlite3.Connection, pairs: list[Pair], tmp_path: Path
) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    db.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(["007", 1, 1.0, "1.10", b"x"])))
    pair = Pair(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}")
    pairs.append(pair)
    pair.begin()
    assert pair.verified().identical
    with sqlite3.connect(tmp_path / "b.db") as copy:
        copy.executemany(
            "UPDATE t SET v = ? WHERE id = ?", [(7, 0), (1.0, 1), (1, 2), (1.1, 3), ("x", 4)]
        )
    copy.close()
    assert [row.key for row in pair.verified().differences] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("columns", "declared", "rows", "said"),
    [
        ("k, v TEXT", "k INTEGER, v TEXT", [("7", "a")], r"t\.k, key \('7',\)"),
        ("k TEXT, v", "k TEXT, v TEXT", [("a", 10)], r"t\.v, key \('a',\): 10 would become '10'"),
        ("k TEXT, v", "k TEXT, v DECIMAL", [("a", "1.10")], r"t\.v, key \('a',\)"),
        ("k TEXT, v", "k TEXT, v REAL", [("a", 2**60 + 1)], r"t\.v, key \('a',\)"),
        ("k TEXT, v", "k TEXT COLLATE NOCASE, v", [("a", 1), ("A", 2)], r"t\.k, key \('a',\)"),
    ],
)
def test_a_table_that_bends_values_is_refused(
    db: sqlite3.Connection,
    pairs: list[Pair],
    tmp_path: Path,
    columns: str,
    declared: str,
    rows: list[Any],
    said: str,
) -> None:
    db.execute(f"CREATE TABLE t ({columns}, PRIMARY KEY (k))")
    with sqlite3.connect(tmp_path / "b.db") as copy:
        copy.execute(f"CREATE TABLE t ({declared}, PRIMARY KEY (k))")
    copy.close()
    pair = Pair(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}")
    pairs.append(pair)
    pair.begin()
    db.executemany("INSERT INTO t VALUES (?, ?)", rows)
    with pytest.raises(UnfitError, match=said):
        pair.go_on()
    pair.apply.close()
    pair.capture.begin(snapshot=True)
    pair.apply.begin()
    with pytest.raises((UnfitError, SchemaError), match=said if "NOCASE" not in declared else "t"):
        pair.go_on()
    assert stored(tmp_path / "b.db", "t") == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1, 1.555, 'abc', 0", r"t\.n, key \(1,\): .*1\.555.* would become .*1\.56"),
        ("1, 1.50, 'abc  ', 0", r"t\.c, key \(1,\)"),
        ("1, 1.50, 'abc', 0.123456789", r"t\.f, key \(1,\)"),
    ],
)
def test_a_table_of_postgresql_that_rounds_is_refused(
    server: Server, pairs: list[Pair], row: str, said: str
) -> None:
    dsns = [server.database(), server.database()]
    with psycopg.connect(dsns[0], autocommit=True) as link:
        link.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric, c varchar, f float8)")
        link.execute("INSERT INTO t VALUES (7, 1.50, 'abc', 1.5)")
    with psycopg.connect(dsns[1], autocommit=True) as link:
        link.execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, n numeric(9, 2), c varchar(3), f real)"
        )
    pair = Pair(*(pg_url(server, dsn) for dsn in dsns))
    pairs.append(pair)
    pair.begin()
    with psycopg.connect(dsns[0], autocommit=True) as link:
        link.execute(f"INSERT INTO t VALUES ({row})")
    pair.capture.run_once(5)
    with pytest.raises(UnfitError, match=said):
        pair.go_on()


def test_tables_of_other_databases_that_round_are_refused(
    db: sqlite3.Connection, maria: MariadbServer, pairs: list[Pair], tmp_path: Path
) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, f REAL)")
    with duckdb.connect(str(tmp_path / "b.duck")) as copy:
        copy.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, f FLOAT)")
    name = maria.database()
    with pymysql.connect(unix_socket=maria.socket, user="root", database=name) as link:
        link.query("CREATE TABLE t (id bigint PRIMARY KEY, f decimal(5, 1))")
    db.execute("INSERT INTO t VALUES (2, 0.123456789012)")
    for url in (
        f"duckdb:{tmp_path / 'b.duck'}",
        f"mariadb://root@localhost/{name}?unix_socket={maria.socket}",
        f"sqlalchemy:mysql+pymysql://root@localhost/{name}?unix_socket={maria.socket}",
    ):
        pair = Pair(f"sqlite:{tmp_path / 'a.db'}", url)
        pairs.append(pair)
        with pytest.raises(UnfitError, match=r"t\.f, key \(2,\)"):
            pair.begin()
        pair.apply.close()


def test_a_text_that_is_no_utf_8_is_refused_with_its_key(
    db: sqlite3.Connection, pairs: list[Pair], tmp_path: Path
) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    pair = Pair(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}")
    pairs.append(pair)
    pair.begin()
    db.execute("INSERT INTO t VALUES (3, CAST(x'61ff' AS TEXT))")
    with pytest.raises(UnfitError, match=r"t\.v, key \(3,\): a text is no UTF-8.*--snapshot"):
        pair.go_on()
    db.execute("UPDATE t SET v = 'mended'")
    pair.capture = Capture(pair.source, pair.stream, RowFilter({}))
    pair.capture.begin(snapshot=True)
    pair.go_on()
    assert stored(tmp_path / "b.db", "t") == stored(tmp_path / "a.db", "t")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((2, "NaN", None), r"t\.v, key \(2,\): 'NaN' is no number"),
        ((3, 1, "2026-01-01 10:00:00.1234567"), r"t\.d, key \(3,\)"),
    ],
)
def test_numbers_in_sqlite_are_no_texts_that_look_like_them(
    db: sqlite3.Connection, pairs: list[Pair], tmp_path: Path, row: tuple[Any, ...], said: str
) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v DECIMAL, d DATETIME)")
    db.execute("INSERT INTO t VALUES (1, 1.5, '2026-01-01 10:00:00.123456')")
    pair = Pair(f"sqlite:{tmp_path / 'a.db'}", f"duckdb:{tmp_path / 'b.duck'}")
    pairs.append(pair)
    pair.begin()
    assert pair.verified().identical
    db.execute("INSERT INTO t VALUES (?, ?, ?)", row)
    with pytest.raises(UnfitError, match=said):
        pair.go_on()


def test_waiting_for_a_destination_is_told_of(
    db: sqlite3.Connection, pairs: list[Pair], tmp_path: Path
) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    pair = Pair(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}")
    pairs.append(pair)
    pair.begin()
    now, said = 0.0, []

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    comparison = SyncComparison(
        *(pair.source, pair.target, pair.stream, RowFilter({})),
        clock=lambda: now,
        pause=pause,
        say=said.append,
    )
    with pytest.raises(SyncError, match="within 10 s"):
        comparison.run(10)
    assert len(said) >= 9
    assert "waiting for the destination" in said[0]


def test_one_nan_in_a_key_is_as_another() -> None:
    table = Table("t", (Column("k", "float", "double precision"),), (0,), "postgresql")
    changes = [
        Change(INSERT, "t", None, (float("nan"),)),
        Change(DELETE, "t", (float("nan"),), None),
    ]
    (step,) = fold(changes, {"t": table})
    assert not step.upserts
    assert len(step.deletes) == 1


def test_dates_of_mariadb_are_the_same_in_duckdb(
    maria: MariadbServer, pairs: list[Pair], tmp_path: Path
) -> None:
    name = maria.database()
    with pymysql.connect(unix_socket=maria.socket, user="root", database=name) as link:
        link.query("CREATE TABLE t (d date PRIMARY KEY, m datetime(6), i timestamp(6))")
        link.query("INSERT INTO t VALUES ('2026-01-02', '2026-01-02 03:04:05.000006', now())")
        link.commit()
    pairs.append(Pair(maria.url(name), f"duckdb:{tmp_path / 'b.duck'}"))
    pairs[0].begin()
    assert pairs[0].verified(5).identical


def test_a_table_that_the_sync_has_made_is_not_read_back(
    server: Server, maria: MariadbServer, tmp_path: Path
) -> None:
    names = ("int", "float", "decimal", "bool", "text", "bytes", "date", "time", "instant", "json")
    columns = (Column("k", "text", ""), *(Column(name, name, "") for name in names))
    postgres = pg_url(server, server.database()).replace("postgresql:", "postgresql+psycopg:")
    for url in (
        f"duckdb:{tmp_path / 'b.duck'}",
        maria.url(maria.database()),
        f"sqlalchemy:{maria.url(maria.database()).replace('mariadb:', 'mysql+pymysql:')}",
        f"sqlalchemy:{postgres}",
        f"sqlalchemy:sqlite:///{tmp_path / 'b.db'}",
    ):
        target = open_destination("kept", url)
        table = Table("made", columns, (0,), "postgresql")
        target.begin()
        target.take_up(table)
        assert target._doubtful(table) == {}, url
        target.rollback()
        target.close()
