"""Two databases that are each other's source and destination."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.changes import DELETE, INSERT, TRUNCATE, UPDATE, Change, Column, Table
from canopy.sync.conflicts import Conflict, Conflicts, parse_rule
from canopy.sync.databases import open_destination, open_source, remove_from_source
from canopy.sync.destinations.postgres import PostgresDestination
from canopy.sync.destinations.sqlite import SqliteDestination
from canopy.sync.dialects import SQLITE
from canopy.sync.errors import SchemaError, SyncError
from canopy.sync.row_filter import RowFilter
from canopy.sync.sources.postgres import PostgresSource, remove_slot
from canopy.sync.sources.sqlite import SqliteSource
from harness.databases.mariadb import Mariadb
from harness.databases.postgres import Postgres
from harness.mariadb import MariadbServer
from harness.postgres import Server
from tests.support.databases.memory import MemoryStream

T = Table("t", (Column("id", "int", "INTEGER", False), Column("n", "int", "INTEGER")), (0,))
SIDES = ("left", "right")


class Pair:
    """`left` and `right`, in SQLite."""

    def __init__(self, folder: Path, rules: dict[str, str]) -> None:
        self.paths = {side: str(folder / f"{side}.db") for side in SIDES}
        self.db = {}
        for side in SIDES:
            self.db[side] = sqlite3.connect(self.paths[side], isolation_level=None)
            self.db[side].execute("PRAGMA synchronous = OFF")
            self.db[side].execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, v INTEGER)")
        self.streams = {side: MemoryStream() for side in SIDES}
        self.captures, self.applies, self.closing = {}, {}, []
        for side in SIDES:
            source = SqliteSource(f"from_{side}", self.paths[side])
            self.captures[side] = Capture(source, self.streams[side], RowFilter({}))
            self.captures[side].begin(from_now=True)
            self.closing.append(source)
        for side, other in zip(SIDES, reversed(SIDES), strict=True):
            target = SqliteDestination(f"from_{side}", self.paths[other])
            made = Applier(self.streams[side], target, RowFilter({}), conflicts={"": rules[side]})
            made.begin()
            self.applies[side] = made
            self.closing.append(target)

    def settle(self) -> None:
        moved = True
        while moved:
            captured = [self.captures[side].run_once(0) for side in SIDES]
            applied = [self.applies[side].run_once(0) for side in SIDES]
            moved = any(captured + applied)

    def rows(self, side: str) -> list[Any]:
        return self.db[side].execute("SELECT * FROM t ORDER BY id").fetchall()

    def close(self) -> None:
        for one in [*self.closing, *self.db.values()]:
            one.close()


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    left, right = getattr(request, "param", ("incoming", "own"))
    made = Pair(tmp_path, {"left": left, "right": right})
    yield made
    made.close()


def test_changes_go_both_ways_and_do_not_come_back(pair: Pair) -> None:
    pair.db["left"].execute("INSERT INTO t VALUES (1, 10, 0)")
    pair.db["right"].execute("INSERT INTO t VALUES (2, 20, 0)")
    pair.settle()
    pair.db["right"].execute("UPDATE t SET n = 11 WHERE id = 1")
    pair.db["left"].execute("DELETE FROM t WHERE id = 2")
    pair.settle()
    assert pair.rows("left") == pair.rows("right") == [(1, 11, 0)]
    written = [[e.attributes["_op"] for e in pair.streams[s].events] for s in SIDES]
    assert written == [["schema", "insert", "delete"], ["schema", "insert", "update"]]
    assert [pair.applies[s].conflicts for s in SIDES] == [0, 0]


@pytest.mark.parametrize(
    "pair", [("incoming", "own"), ("newest v", "newest v")], ids=["one", "newest"], indirect=True
)
@pytest.mark.parametrize("seed", range(3))
def test_both_sides_come_to_the_same_rows(pair: Pair, seed: int) -> None:
    rng = Random(seed)
    clock = 0
    for _ in range(25):
        for side in SIDES:
            for key in rng.sample(range(1, 5), rng.randint(0, 4)):
                clock += 1
                pair.db[side].execute(
                    *rng.choice(
                        [
                            ("INSERT OR REPLACE INTO t VALUES (?, ?, ?)", (key, clock, clock)),
                            ("UPDATE t SET n = ?, v = ? WHERE id = ?", (clock, clock, key)),
                            ("DELETE FROM t WHERE id = ?", (key,)),
                            (
                                "UPDATE OR IGNORE t SET id = id + 4, v = ? WHERE id = ?",
                                (clock, key),
                            ),
                        ]
                    )
                )
        pair.settle()
        assert pair.rows("left") == pair.rows("right")
    assert sum(pair.applies[s].conflicts for s in SIDES) > 0


@pytest.mark.parametrize("pair", [("park", "park")], indirect=True)
def test_a_parked_change_is_kept_and_both_sides_stay_as_they_are(pair: Pair) -> None:
    pair.db["left"].execute("INSERT INTO t VALUES (1, 10, 0)")
    pair.settle()
    pair.db["left"].execute("UPDATE t SET n = 11")
    pair.db["right"].execute("UPDATE t SET n = 12")
    pair.settle()
    assert pair.rows("left") == [(1, 11, 0)]
    assert pair.rows("right") == [(1, 12, 0)]
    found = pair.db["right"].execute("SELECT name, tab, row_key, applied, before, incoming, own "
                                     "FROM canopy_conflicts").fetchall()  # fmt: skip
    assert found == [
        ("from_left", "t", "(1,)", "no", "(1, 10, 0)", "(1, 11, 0)", "(1, 12, 0)"),
    ]


@pytest.mark.parametrize(
    ("rule", "change", "own", "applied", "conflict"),
    [
        ("incoming", Change(INSERT, "t", None, (1, 5)), None, True, False),
        ("incoming", Change(INSERT, "t", None, (1, 5)), (1, 5), False, False),
        ("incoming", Change(INSERT, "t", None, (1, 5)), (1, 6), True, True),
        ("own", Change(INSERT, "t", None, (1, 5)), (1, 6), False, True),
        ("own", Change(UPDATE, "t", (1, 4), (1, 5)), None, False, True),
        ("newest n", Change(UPDATE, "t", (1, 4), (1, 5)), (1, 6), False, True),
        ("newest n", Change(UPDATE, "t", (1, 4), (1, 7)), (1, 6), True, True),
        ("newest n", Change(UPDATE, "t", (1, 4), (1, 7)), None, True, True),
        ("newest n", Change(DELETE, "t", (1, 4)), (1, 6), False, True),
        ("newest n", Change(DELETE, "t", (1, 4)), None, False, False),
        ("incoming", Change(DELETE, "t", (1, 4)), (1, 6), True, True),
        ("park", Change(DELETE, "t", (1, 4)), (1, 4), True, False),
    ],
)
def test_the_rules(rule: str, change: Change, own: Any, applied: bool, conflict: bool) -> None:
    rows = {} if own is None else {(1,): own}
    found, conflicts = Conflicts({"t": rule}, SQLITE).decide([change], T, rows)
    assert (bool(found), bool(conflicts)) == (applied, conflict)


@pytest.mark.parametrize(
    ("rows", "applied"),
    [
        ({(1,): (1, 4), (2,): (2, 9)}, Change(DELETE, "t", (1, 4))),
        ({(1,): (1, 9)}, Change(INSERT, "t", None, (2, 4))),
    ],
    ids=["the key is taken", "the row was changed"],
)
def test_a_row_that_gets_another_key_is_two_changes(rows: Any, applied: Change) -> None:
    change = Change(UPDATE, "t", (1, 4), (2, 4))
    found, conflicts = Conflicts({"": "own"}, SQLITE).decide([change], T, rows)
    assert (found, len(conflicts)) == ([applied], 1)


def test_rows_that_come_again_after_a_table_was_emptied_are_there() -> None:
    changes = [Change(TRUNCATE, "t"), Change(INSERT, "t", None, (1, 10))]
    found, conflicts = Conflicts({"": "own"}, SQLITE).decide(changes, T, {(1,): (1, 10)})
    assert (found, conflicts) == (changes, [])


def test_rules_that_cannot_be_followed_are_errors() -> None:
    for text in ("", "newest", "own n", "latest n"):
        with pytest.raises(SyncError, match="no rule"):
            parse_rule(text)
    with pytest.raises(SchemaError, match="asks for v"):
        Conflicts({"": "newest v"}, SQLITE).decide([], T, {})
    change = Change(UPDATE, "t", None, (1, 5))
    with pytest.raises(SchemaError, match="REPLICA IDENTITY FULL"):
        Conflicts({"": "own"}, SQLITE).decide([change], T, {})


def test_sqlite_and_postgresql_both_ways(server: Server, tmp_path: Path) -> None:
    import psycopg

    path, dsn = str(tmp_path / "a.db"), server.database()
    light = sqlite3.connect(path, isolation_level=None)
    light.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n NUMERIC, x TEXT)")
    light.execute("INSERT INTO t VALUES (1, 1.5, 'first')")
    heavy = psycopg.connect(dsn, autocommit=True)
    there, back = MemoryStream(), MemoryStream()
    source = SqliteSource("there", path)
    capture = Capture(source, there, RowFilter({}))
    capture.begin()
    target = PostgresDestination("there", dsn)
    apply = Applier(there, target, RowFilter({}), conflicts={"": "incoming"})
    apply.begin()
    apply.run_once(0)
    heavy.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    source_back = PostgresSource("back", dsn)
    capture_back = Capture(source_back, back, RowFilter({}))
    capture_back.begin(from_now=True)
    target_back = SqliteDestination("back", path)
    apply_back = Applier(back, target_back, RowFilter({}), conflicts={"": "own"})
    apply_back.begin()

    def settle() -> None:
        for _ in range(2):
            capture.run_once(0)
            apply.run_once(0)
            goal = source_back.target()
            while not source_back.reached(goal):
                capture_back.run_once(0.05)
            apply_back.run_once(0)

    light.execute("INSERT INTO t VALUES (2, 2.25, 'of sqlite')")
    heavy.execute("INSERT INTO t VALUES (3, 3.10, 'of postgresql')")
    settle()
    heavy.execute("UPDATE t SET x = 'b' WHERE id = 2")
    light.execute("UPDATE t SET x = 'a' WHERE id = 2")
    heavy.execute("UPDATE t SET x = 'c' WHERE id = 3")
    settle()
    assert light.execute("SELECT id, x FROM t ORDER BY id").fetchall() == [
        *((1, "first"), (2, "a"), (3, "c")),
    ]
    assert heavy.execute("SELECT id, x FROM t ORDER BY id").fetchall() == [
        *((1, "first"), (2, "a"), (3, "c")),
    ]
    assert (apply.conflicts, apply_back.conflicts) == (1, 1)
    written = [event.attributes["_op"] for event in back.events]
    assert written == ["schema", "insert", "update", "update"]
    apply.close()
    apply_back.close()
    remove_slot("back", dsn)
    for one in (source, source_back, target, target_back, light, heavy):
        one.close()


def test_postgresql_and_mariadb_both_ways(server: Server, maria: MariadbServer) -> None:
    databases = [Postgres(server), Mariadb(maria)]
    for database in databases:
        database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    databases[0].execute("ALTER TABLE t REPLICA IDENTITY FULL")
    sources, targets, captures, applies = [], [], [], []
    for number, rule in enumerate(("incoming", "own")):
        stream, name = MemoryStream(), f"way{number}"
        sources.append(open_source(name, databases[number].url))
        captures.append(Capture(sources[-1], stream, RowFilter({})))
        captures[-1].begin(from_now=True)
        targets.append(open_destination(name, databases[1 - number].url))
        applies.append(Applier(stream, targets[-1], RowFilter({}), conflicts={"": rule}))
        applies[-1].begin()

    def settle() -> None:
        for _ in range(2):
            for source, capture in zip(sources, captures, strict=True):
                goal = source.target()
                while not source.reached(goal):
                    capture.run_once(0.05)
                capture.run_once(0)
            for apply in applies:
                apply.run_once(0)

    databases[1].execute("INSERT INTO t VALUES (1, 1)")
    settle()
    for number, database in enumerate(databases):
        database.execute(f"UPDATE t SET n = {number + 10}")
        database.execute(f"INSERT INTO t VALUES ({number + 2}, 0)")
    settle()
    found = [sorted((int(a), int(b)) for a, b in d.read("t", ("id", "n"))) for d in databases]
    assert found == [[(1, 10), (2, 0), (3, 0)]] * 2
    assert [apply.conflicts for apply in applies] == [1, 1]
    noted = [database.execute("SELECT applied FROM canopy_conflicts") for database in databases]
    assert noted == [[("no",)], [("yes",)]]
    conflict = Conflict("t", "(1,)", "own", False, "", "", "")
    targets[0].begin()
    targets[0].clear(T)
    targets[0].note([conflict])
    targets[0].rollback()
    assert len(databases[1].read("t", ("id",))) == 3
    for number, database in enumerate(databases):
        remove_from_source(f"way{number}", database.url)
    for one in (*sources, *targets, *databases):
        one.close()
