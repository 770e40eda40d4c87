"""Rows that are larger than one event may be, and values that a server refuses."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pymysql
import pytest

from canopy.sync.applier import Applier
from canopy.sync.assembler import LARGE, Assembler
from canopy.sync.capture import Capture
from canopy.sync.changes import INSERT, PIECE, Change, ChangeDrafts, Column, Table, change_of
from canopy.sync.databases import open_source
from canopy.sync.errors import MalformedError, UnfitError
from canopy.sync.row_filter import RowFilter
from harness.mariadb import MariadbServer
from harness.postgres import Server
from overlay.client import Draft
from overlay.upper_tree.publisher.admission import refusal
from tests.support.databases.memory import Killed
from tests.support.sync_pair import Pair, pg_url


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[sqlite3.Connection, Pair]]:
    db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE d (id INTEGER PRIMARY KEY, b BLOB, n INT)")
    db.execute("INSERT INTO d VALUES (1, randomblob(1000000), 0), (2, x'00', 0)")
    pair = Pair(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}")
    yield db, pair
    pair.close()
    db.close()


def both(tmp_path: Path) -> list[list[tuple[object, ...]]]:
    found = []
    for name in ("a.db", "b.db"):
        with sqlite3.connect(tmp_path / name) as database:
            found.append(database.execute("SELECT * FROM d ORDER BY id").fetchall())
        database.close()
    return found


def test_a_large_row_comes_in_parts_whoever_is_killed_between_them(
    made: tuple[sqlite3.Connection, Pair], tmp_path: Path
) -> None:
    db, pair = made
    pair.begin()
    assert all(refusal(event_draft) is None for event_draft in drafts(pair))
    db.execute("UPDATE d SET n = 1")
    pair.stream.kill_at = 6  # of 13 pieces
    with pytest.raises(Killed):
        pair.capture.run_once(0)
    while pair.apply.run_once(0):
        pass
    pair.source.close()
    pair.source = open_source("kept", f"sqlite:{tmp_path / 'a.db'}")
    capture = Capture(pair.source, pair.stream, RowFilter({}))
    capture.begin()
    while capture.run_once(0):
        pass
    pair.apply.close()
    pair.apply = Applier(pair.stream, pair.target, RowFilter({}), most=2)
    pair.apply.begin()
    pair.capture = capture
    pair.go_on()
    source, copy = both(tmp_path)
    assert copy == source
    db.execute("BEGIN; ")
    db.execute("UPDATE d SET b = randomblob(700000)")
    db.execute("DELETE FROM d WHERE id = 1")
    db.execute("COMMIT")
    pair.go_on()
    source, copy = both(tmp_path)
    assert copy == source
    assert pair.verified().identical


def drafts(pair: Pair) -> list[Draft]:
    return [Draft(e.attributes, e.payload, e.payload_type) for e in pair.stream.events]


def test_a_wide_row_has_the_attributes_that_there_is_room_for() -> None:
    columns = tuple(Column(f"c{n}", "text", "TEXT") for n in range(2_000))
    table = Table("wide", columns, (0,), "sqlite")
    change = Change(INSERT, "wide", None, ("x" * 250,) * 2_000, table)
    made = ChangeDrafts().drafts(change)
    assert len(made) == 4
    assert all(refusal(draft) is None for draft in made)
    assert [draft.attributes["_op"] for draft in made] == ["part"] * 3 + ["insert"]
    assert "c0" in made[-1].attributes
    found = Assembler().feed((n, change_of(draft.payload)) for n, draft in enumerate(made))
    assert not list(found)  # it is not committed
    with pytest.raises(MalformedError, match="a large row of wide"):
        list(Assembler().feed([(0, change_of(made[-1].payload))]))


def test_a_row_of_many_columns_or_long_names_is_an_event_all_the_same() -> None:
    columns = tuple(Column(f"c{n}" if n else "n" * 900, "int", "INT") for n in range(2_000))
    change = Change(INSERT, "t", None, tuple(range(2_000)), Table("t", columns, (0,), "sqlite"))
    (made,) = ChangeDrafts().drafts(change)
    assert refusal(made) is None
    assert "c1" in made.attributes


def test_many_large_rows_of_one_transaction_are_handed_on_in_parts() -> None:
    assembler = Assembler()
    change = Change(INSERT, "t", None, (1, b"x" * PIECE))
    parts = list(assembler.feed([(0, change)], LARGE + 1))
    assert [(part.next, part.whole) for part in parts] == [(1, False)]


def test_a_row_that_a_server_does_not_take_is_named(
    server: Server, maria: MariadbServer, tmp_path: Path
) -> None:
    db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    dsn = server.database()
    with psycopg.connect(dsn, autocommit=True) as link:
        link.execute("CREATE TABLE t (id bigint PRIMARY KEY, v varchar(5))")
    name = maria.database()
    with pymysql.connect(unix_socket=maria.socket, user="root", database=name) as admin:
        admin.query("SET GLOBAL max_allowed_packet = 1048576")
        try:
            maria_url = f"mariadb://root@localhost/{name}?unix_socket={maria.socket}"
            for url, said in (
                (pg_url(server, dsn), "too long for type"),
                (maria_url, "max_allowed_packet"),
            ):
                pair = Pair(f"sqlite:{tmp_path / 'a.db'}", url)
                db.execute("DELETE FROM t")
                pair.begin()
                db.execute("INSERT INTO t VALUES (1, 'a'), (2, hex(zeroblob(600000))), (3, 'b')")
                with pytest.raises(UnfitError, match=rf"t, key \(2,\).*{said}"):
                    pair.go_on()
                pair.apply.close()
                pair.capture.begin(snapshot=True)
                pair.apply.begin()
                with pytest.raises(UnfitError, match=rf"t, key \(2,\).*{said}"):
                    pair.go_on()
                pair.close()
        finally:
            admin.query("SET GLOBAL max_allowed_packet = 67108864")
    db.close()
