"""What is sent of a table that was altered: the value of a new column once, and the rows that have
another; or all rows, in pieces."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from canopy.cli.sync.manage import _place
from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.changes import Table, change_of
from canopy.sync.conflicts import parse_rule
from canopy.sync.databases import open_destination, open_source
from canopy.sync.row_filter import RowFilter
from canopy.sync.sources import altered_rows
from harness.databases.mariadb import Mariadb
from harness.mariadb import MariadbServer
from harness.postgres import Server
from tests.support.databases.memory import Killed, MemoryStream
from tests.support.sync_pair import Pair, pg_url

ROWS = 40
PIECE = 7


def altered(pair: Pair, alter: Callable[[], object]) -> dict[str, int]:
    """What comes into the stream because of `alter`, by operation."""
    before = len(pair.stream.events)
    alter()
    pair.go_on(0.1)
    return Counter(str(event.attributes["_op"]) for event in pair.stream.events[before:])


def transactions(stream: MemoryStream, begin: int) -> list[list[str]]:
    """The tables of the rows of each transaction."""
    found: list[list[str]] = [[]]
    for event in stream.events[begin:]:
        change = change_of(event.payload)
        if event.attributes["_op"] == "insert":
            found[-1].append(change.table)
        if change.commit is not None:
            found.append([])
    return found


@pytest.fixture
def lite(tmp_path: Path, pairs: list[Pair]) -> tuple[Pair, sqlite3.Connection, sqlite3.Connection]:
    db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    db.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"row {n}") for n in range(ROWS)])
    pairs.append(Pair(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}"))
    pairs[-1].begin()
    return pairs[-1], db, sqlite3.connect(tmp_path / "b.db")


def stored(db: sqlite3.Connection, column: str) -> list[Any]:
    return db.execute(
        f"SELECT id, v, typeof({column}), quote({column}), hex({column}) FROM t ORDER BY id"
    ).fetchall()


@pytest.mark.parametrize(
    ("declared", "default", "others"),
    [
        ("INT", "7", ["9"]),
        ("", "1", ["1.0", "'1'", "NULL"]),
        ("TEXT COLLATE NOCASE", "'none'", ["'NONE'", "'none ' || char(0)"]),
        ("REAL", "0.0", ["1e300"]),
        ("", "0.0", ["-0.0", "0"]),
        ("BLOB", "x'00ff'", ["'a' || char(0)", "x'00'"]),
        ("DECIMAL(9, 2)", "1.50", ["'much'"]),
        ("TEXT", "NULL", ["''"]),
    ],
)
def test_a_column_with_a_default_is_one_value_in_sqlite(
    lite: tuple[Pair, sqlite3.Connection, sqlite3.Connection],
    declared: str,
    default: str,
    others: list[str],
) -> None:
    pair, db, copy = lite

    def alter() -> None:
        db.execute(f"ALTER TABLE t ADD COLUMN d {declared} DEFAULT {default}")
        for number, other in enumerate(others):  # the triggers that are there know nothing of d
            db.execute(f"UPDATE t SET d = {other} WHERE id = {number}")

    said = altered(pair, alter)
    differing = [row for row in stored(db, "d") if row[2:] != stored(db, "d")[-1][2:]]
    assert said == Counter(update=len(others), schema=1, fill=1, insert=len(differing))
    assert stored(copy, "d") == stored(db, "d")
    db.execute("INSERT INTO t (id, v) VALUES (99, 'later')")
    db.execute("DELETE FROM t WHERE id = 3")
    pair.go_on()
    assert stored(copy, "d") == stored(db, "d")
    assert pair.verified().identical


def test_several_columns_come_with_their_values_and_other_values_as_rows(
    lite: tuple[Pair, sqlite3.Connection, sqlite3.Connection],
) -> None:
    pair, db, copy = lite

    def two() -> None:
        db.execute("ALTER TABLE t ADD COLUMN d INT DEFAULT 7")
        db.execute("ALTER TABLE t ADD COLUMN e TEXT DEFAULT 'e'")

    assert altered(pair, two) == {"schema": 1, "fill": 1}

    def each() -> None:
        db.execute("ALTER TABLE t ADD COLUMN f")
        db.execute("UPDATE t SET f = id")

    assert altered(pair, each) == {"update": ROWS, "schema": 1, "truncate": 1, "insert": ROWS}
    every = "SELECT * FROM t ORDER BY id"
    assert copy.execute(every).fetchall() == db.execute(every).fetchall()


def test_a_value_that_the_other_side_has_is_not_filled_over_where_a_rule_decides(
    tmp_path: Path, lite: tuple[Pair, sqlite3.Connection, sqlite3.Connection]
) -> None:
    pair, db, copy = lite
    pair.apply._conflicts.rules["t"] = parse_rule("incoming")
    copy.execute("ALTER TABLE t ADD COLUMN d INT")
    copy.execute("UPDATE t SET d = 5 WHERE id = 1")
    copy.commit()
    altered(pair, lambda: db.execute("ALTER TABLE t ADD COLUMN d INT DEFAULT 7"))
    assert copy.execute("SELECT d, count(*) FROM t GROUP BY d").fetchall() == [
        (5, 1),
        (7, ROWS - 1),
    ]


@pytest.mark.parametrize("target", ["duckdb:{}/c.duck", "sqlalchemy:sqlite:///{}/c.db"])
def test_other_destinations_are_filled(
    tmp_path: Path, lite: tuple[Pair, sqlite3.Connection, sqlite3.Connection], target: str
) -> None:
    pair, db, _ = lite
    made = open_destination("other", target.format(tmp_path))
    apply = Applier(pair.stream, made, RowFilter({}))
    apply.begin()
    try:
        while apply.run_once(0):
            pass
        if "sqlalchemy" in target:  # whose tables are altered by hand
            with sqlite3.connect(tmp_path / "c.db") as there:
                there.execute("ALTER TABLE t ADD COLUMN d TEXT")
            there.close()

        def alter() -> None:
            db.execute("ALTER TABLE t ADD COLUMN d TEXT DEFAULT 'none'")
            db.execute("UPDATE t SET d = NULL WHERE id = 3")

        assert altered(pair, alter)["fill"] == 1
        while apply.run_once(0):
            pass
        rows = sorted(made.scan(apply.progress.tables["t"]))
        assert [row[2] for row in rows] == [None if n == 3 else "none" for n in range(ROWS)]
    finally:
        apply.close()
        made.close()


@pytest.fixture
def dsns(server: Server, pairs: list[Pair]) -> list[str]:
    return [server.database(), server.database()]


POSTGRES = """
CREATE TABLE t (id bigint, k text, v text, PRIMARY KEY (k, id));
INSERT INTO t SELECT n, 'k''' || n % 3, 'row ' || n FROM generate_series(1, 40) n;
CREATE TABLE u (id int PRIMARY KEY);
"""


def test_a_column_with_a_default_is_one_value_in_postgresql(
    server: Server, dsns: list[str], pairs: list[Pair]
) -> None:
    with psycopg.connect(dsns[0], autocommit=True) as db, psycopg.connect(dsns[1]) as copy:
        db.execute(POSTGRES)
        pairs.append(pair := Pair(pg_url(server, dsns[0]), pg_url(server, dsns[1])))
        pair.begin()

        def check() -> None:
            rows = [each.execute("SELECT * FROM t ORDER BY id").fetchall() for each in (db, copy)]
            copy.rollback()
            assert list(map(repr, rows[1])) == list(map(repr, rows[0]))

        def alter() -> None:
            db.execute("ALTER TABLE t ADD COLUMN n numeric NOT NULL DEFAULT 1.0")
            db.execute("UPDATE t SET n = 1.00 WHERE id = 1")
            db.execute("DELETE FROM t WHERE id = 2")

        said = altered(pair, alter)
        assert (said["schema"], said["fill"], said["insert"]) == (1, 1, 1)
        check()
        # The moment of the statement, in all rows: no catalogue says so after VACUUM FULL.
        db.execute("BEGIN")
        db.execute("ALTER TABLE t ADD COLUMN at timestamptz DEFAULT now()")
        db.execute("COMMIT")
        db.execute("VACUUM FULL t")
        assert altered(pair, lambda: None) == {"schema": 1, "fill": 1}
        check()

        # A column in the place of another of its name, and one more: not only one was added.
        def again() -> None:
            with db.transaction():
                db.execute("ALTER TABLE t DROP COLUMN at")
                db.execute("ALTER TABLE t ADD COLUMN at timestamptz DEFAULT '2026-01-01'")
                db.execute("ALTER TABLE t ADD COLUMN w int DEFAULT 1")

        assert altered(pair, again) == {"schema": 2, "insert": 39}
        check()
        assert pair.verified(0.1).identical


def killed_between_pieces(
    pair: Pair,
    url: str,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
    alter: Callable[[], object],
) -> None:
    """Another process goes on after each piece, and other tables do not wait for the rest."""
    monkeypatch.setattr(altered_rows, "PIECE_ROWS", PIECE)
    begin = len(pair.stream.events)
    alter()
    for _ in range(2):
        pair.stream.kill_at = 2
        with pytest.raises(Killed):
            pair.go_on(0.2)
        while pair.apply.run_once(0):
            pass
        assert _place("kept", "destination", target)["partial"] == ["t"]
        pair.source.close()
        pair.source = open_source("kept", url)
        pair.capture = Capture(pair.source, pair.stream, RowFilter({}))
        pair.capture.begin()
    pair.stream.kill_at = -1
    pair.go_on(0.2)
    found = [each for each in transactions(pair.stream, begin) if each]
    assert max(map(len, found)) == PIECE
    assert sum(len(each) for each in found if "t" in each) >= ROWS
    assert ["u"] in found[:-1]  # it did not wait for the rest
    shapes: dict[str, Table] = pair.apply.progress.tables
    assert not shapes["t"].is_partial


def test_values_that_differ_come_in_pieces_from_postgresql(
    server: Server, dsns: list[str], pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(dsns[0], autocommit=True) as db, psycopg.connect(dsns[1]) as copy:
        db.execute(POSTGRES)
        pairs.append(pair := Pair(pg_url(server, dsns[0]), pg_url(server, dsns[1])))
        pair.begin()

        def alter() -> None:
            db.execute("ALTER TABLE t ADD COLUMN r float8 DEFAULT random()")
            db.execute("INSERT INTO u VALUES (1)")
            db.execute("UPDATE t SET v = 'changed' WHERE id = 40")

        urls = [pg_url(server, each) for each in dsns]
        killed_between_pieces(pair, urls[0], urls[1], monkeypatch, alter)
        for table in ("t", "u"):
            every = f"SELECT * FROM {table} ORDER BY id"
            assert copy.execute(every).fetchall() == db.execute(every).fetchall()


def test_a_large_value_moves_to_a_key_that_pieces_have_passed(
    server: Server, dsns: list[str], pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(altered_rows, "PIECE_ROWS", PIECE)
    with psycopg.connect(dsns[0], autocommit=True) as db, psycopg.connect(dsns[1]) as copy:
        db.execute(POSTGRES)
        pairs.append(pair := Pair(pg_url(server, dsns[0]), pg_url(server, dsns[1])))
        pair.begin()
        db.execute(
            "ALTER TABLE t ADD COLUMN big text DEFAULT random() || repeat('x', 3000), "
            "ALTER big SET STORAGE EXTERNAL"  # an update does not repeat it
        )
        pair.source.target()
        while pair.stream.events[-1].attributes["_op"] != "insert":
            pair.capture.run_once(0.1)
        db.execute("UPDATE t SET k = 'a' WHERE k = 'k''2' AND id = 38")
        db.execute(
            "UPDATE t SET k = 'z' WHERE k = 'k''2' AND id = 35"
        )  # and to one before they come
        pair.go_on(0.1)
        every = "SELECT * FROM t ORDER BY id"
        assert copy.execute(every).fetchall() == db.execute(every).fetchall()


def test_columns_come_as_values_and_in_pieces_from_mariadb(
    maria: MariadbServer, tmp_path: Path, pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    db, copy = Mariadb(maria), Mariadb(maria)
    try:
        db.execute("CREATE TABLE t (k varchar(9), id int, v text, PRIMARY KEY (k, id))")
        db.execute(f"INSERT INTO t SELECT seq MOD 3, seq, 'row' FROM seq_1_to_{ROWS}")
        db.execute("CREATE TABLE e (k enum('z', 'a', 'b') PRIMARY KEY)")
        db.execute("INSERT INTO e VALUES ('a'), ('b'), ('z')")
        db.execute("CREATE TABLE u (id int PRIMARY KEY)")
        copy.execute(  # a column that this server changes by itself
            "CREATE TABLE t (k varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, id int, "
            "v text, own timestamp DEFAULT '2001-01-01' ON UPDATE current_timestamp, "
            "PRIMARY KEY (k, id))"
        )
        pairs.append(pair := Pair(db.url, copy.url))
        pair.begin()

        def check(columns: str) -> None:
            for table, some in (("t", columns), ("e", "k"), ("u", "id")):
                every = f"SELECT {some} FROM {table} ORDER BY 1"
                assert list(copy.execute(every)) == list(db.execute(every))

        def alter() -> None:
            db.execute("ALTER TABLE t ADD COLUMN n decimal(9,2) DEFAULT 1.50")
            db.execute("UPDATE t SET n = 2 WHERE id = 1")

        said = altered(pair, alter)
        assert (said["schema"], said["fill"], said["insert"]) == (1, 1, 1)
        check("id, k, v, n")
        own = list(copy.execute("SELECT count(*) FROM t WHERE own = '2001-01-01'"))
        assert int(own[0][0]) == ROWS - 1  # but for the row that was changed

        def both() -> None:
            db.execute("ALTER TABLE t ADD COLUMN m int DEFAULT 1")
            db.execute("ALTER TABLE t DROP COLUMN n")
            db.execute("ALTER TABLE t ADD COLUMN n decimal(9,2) DEFAULT 3 AFTER v")
            db.execute("ALTER TABLE e ADD COLUMN r int DEFAULT 4 FIRST")

        altered(pair, both)
        check("id, k, v, n, m")

        def retype() -> None:
            db.execute("ALTER TABLE t MODIFY id bigint")
            db.execute("INSERT INTO u VALUES (1)")

        killed_between_pieces(pair, db.url, copy.url, monkeypatch, retype)
        check("id, k, v, n, m")
    finally:
        db.close()
        copy.close()
