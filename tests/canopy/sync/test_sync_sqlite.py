"""From one SQLite database to another, over a stream in memory; sides are killed at every step."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from canopy.sync.applier import STALL, Applier
from canopy.sync.assembler import Assembler
from canopy.sync.capture import Capture
from canopy.sync.changes import INSERT, change_of
from canopy.sync.destinations.sqlite import SqliteDestination
from canopy.sync.errors import FencedError, SchemaError, SourceLostError, SyncError
from canopy.sync.row_filter import RowFilter
from canopy.sync.sources.sqlite import SqliteSource, remove_reader
from tests.support.databases.memory import Killed, MemoryStream, Reading

SHOP = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, total NUMERIC, code TEXT UNIQUE);
CREATE TABLE stock (shelf TEXT, place INT, n ANY, PRIMARY KEY (shelf, place)) WITHOUT ROWID;
CREATE TABLE "odd ""name" ("a b" BLOB PRIMARY KEY, "select" REAL);
"""


class Kit:
    """A source, a stream and a destination, each of which can be ended and begun again."""

    def __init__(self, folder: Path, where: dict[str, str] | None = None) -> None:
        self.stream = MemoryStream()
        self.source = folder / "source.db"
        self.target = folder / "target.db"
        self.where = where or {}
        self.db = sqlite3.connect(self.source, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = OFF")
        self.open: list[Any] = []
        self.most = 3

    def capture(self, **options: Any) -> Capture:
        source = SqliteSource("shop", str(self.source))
        self.open.append(source)
        made = Capture(source, self.stream.session_of(), RowFilter(self.where))
        made.begin(**options)
        return made

    def apply(self, destination: SqliteDestination | None = None) -> Applier:
        made = destination or SqliteDestination("shop", str(self.target))
        made._execute("PRAGMA synchronous = OFF")
        self.open.append(made)
        found = Applier(self.stream, made, RowFilter({}), most=self.most)
        found.begin()
        return found

    def rows(self, path: Path, table: str, where: str = "") -> list[Any]:
        with sqlite3.connect(path) as database:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            typed = ", ".join(f'"{c}", typeof("{c}")'.replace('"a b"', '"a b"') for c in columns)
            found = database.execute(f"SELECT {typed} FROM {table} {where}").fetchall()
        database.close()
        return sorted(found, key=repr)

    def check(self, tables: Iterable[str] = ("orders", "stock", '"odd ""name"')) -> None:
        for table in tables:
            where = f"WHERE {self.where[table]}" if table in self.where else ""
            assert self.rows(self.target, table) == self.rows(self.source, table, where), table

    def close(self) -> None:
        for one in self.open:
            one.close()
        self.db.close()


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    made.db.executescript(SHOP)
    yield made
    made.close()


def drained(side: Any) -> None:
    while side.run_once(0):
        pass


def work(db: sqlite3.Connection, rng: Random, count: int) -> None:
    """Some transactions of all kinds of changes; some are rolled back, some fail half way."""
    for _ in range(count):
        db.execute("BEGIN")
        for _ in range(rng.randint(1, 4)):
            key, other = rng.randint(1, 12), rng.randint(1, 12)
            value = rng.choice([1, 2.5, "x", b"\0\xff", None, 2**62, "1e3", -0.0, "a\0b"])
            ways = [
                ("INSERT OR REPLACE INTO orders VALUES (?, ?, ?, ?)", (key, value, value, other)),
                ("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?)", (key, "i", value, other)),
                ("UPDATE OR REPLACE orders SET id = ?, total = ? WHERE id = ?", (other, 1, key)),
                ("UPDATE OR REPLACE orders SET code = ? WHERE id = ?", (other, key)),
                ("UPDATE orders SET total = total * 1.5 WHERE id % 3 = ?", (key % 3,)),
                ("DELETE FROM orders WHERE id = ?", (key,)),
                (
                    "INSERT INTO stock VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET n = excluded.n",
                    (f"s{key % 3}", other % 3, value),
                ),
                ("UPDATE OR IGNORE stock SET place = place + 1 WHERE shelf = ?", (f"s{key % 3}",)),
                ('INSERT OR REPLACE INTO "odd ""name" VALUES (?, ?)', (bytes([key]), 1 / other)),
                ('DELETE FROM "odd ""name" WHERE "select" > ?', (rng.random(),)),
                ("DELETE FROM stock WHERE ? = 1", (key,)),
            ]
            db.execute(*rng.choice(ways))
        db.execute(rng.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_committed_arrives_and_nothing_else(kit: Kit, seed: int) -> None:
    rng = Random(seed)
    work(kit.db, rng, 20)
    capture, apply = kit.capture(), kit.apply()
    drained(apply)
    kit.check()
    for _ in range(25):
        work(kit.db, rng, rng.randint(0, 3))
        capture.run_once(0)
        if rng.random() < 0.2:
            kit.open[0].confirm(10**9)  # the log is cut; what is read is in the stream
            kit.open[0]._forgotten = 0.0
        drained(apply)
        kit.check()
    assert len(kit.rows(kit.source, "canopy_candidates")) <= 3


def test_replace_removes_rows_that_sqlite_tells_no_trigger_of(kit: Kit) -> None:
    kit.db.executescript(
        "INSERT INTO orders VALUES (1, 'a', 1, 'x'), (2, 'b', 2, 'y'), (3, 'c', 3, 'z')"
    )
    capture, apply = kit.capture(), kit.apply()
    kit.db.execute("INSERT OR REPLACE INTO orders VALUES (4, 'd', 4, 'x')")
    kit.db.execute("UPDATE OR REPLACE orders SET code = 'z' WHERE id = 2")
    kit.db.execute("INSERT OR IGNORE INTO orders VALUES (9, 'e', 5, 'z')")
    kit.db.execute("UPDATE orders SET id = 7 WHERE id = 2")
    drained(capture)
    drained(apply)
    kit.check()
    assert [row[0] for row in kit.rows(kit.target, "orders")] == [4, 7]


def test_rows_enter_and_leave_the_filter(tmp_path: Path) -> None:
    kit = Kit(tmp_path, {"orders": "total > 10"})
    kit.db.executescript(SHOP)
    rng = Random(5)
    capture, apply = kit.capture(), kit.apply()
    for _ in range(60):
        kit.db.execute(
            "INSERT OR REPLACE INTO orders VALUES (?, ?, ?, ?)",
            (rng.randint(1, 9), rng.choice(["a", None]), rng.choice([5, 20.5, None, 11]), None),
        )
        kit.db.execute("UPDATE orders SET total = total + 3 WHERE id = ?", (rng.randint(1, 9),))
        kit.db.execute("DELETE FROM orders WHERE id = ?", (rng.randint(1, 30),))
        capture.run_once(0)
        drained(apply)
        kit.check(["orders"])
    assert kit.rows(kit.target, "orders")
    kit.close()


class Mortal(SqliteDestination):
    """Is killed at a statement."""

    left = 10**9

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return super()._execute(statement, values)


@pytest.mark.parametrize("lost", [False, True], ids=["appended", "lost"])
def test_either_side_is_killed_at_every_step(
    kit: Kit, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.sync.capture.BYTES", 1_500)  # transactions in parts
    monkeypatch.setattr(Reading, "most", 4)
    rng = Random(3)
    work(kit.db, rng, 30)
    drained(kit.capture())
    drained(kit.apply())
    kit.open.pop().close()
    kit.open.pop().close()
    for step in range(60):
        kit.stream.kill_at, kit.stream.lost = step % 7, lost
        try:
            capture = kit.capture()
            work(kit.db, rng, 2)
            drained(capture)
        except Killed:
            pass
        kit.stream.kill_at = -1
        kit.open.pop().close()
        target = Mortal("shop", str(kit.target))
        target.left = step % 37 + 3
        try:
            drained(kit.apply(target))
        except Killed:
            target._connection.close()
            kit.open.remove(target)
        whole = kit.rows(kit.target, "canopy_syncs")
        assert not whole or '"applied"' in repr(whole)
    drained(kit.capture())
    drained(kit.apply())
    kit.check()


def test_a_killed_snapshot_is_taken_again_and_a_second_one_replaces_all(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.sync.capture.BYTES", 1_500)
    work(kit.db, Random(1), 30)
    kit.stream.kill_at = 0
    with pytest.raises(Killed):
        kit.capture()
    kit.db.execute("DELETE FROM orders")
    capture, apply = kit.capture(), kit.apply()
    drained(apply)
    kit.check()
    with sqlite3.connect(kit.target) as there:
        there.execute("INSERT INTO orders VALUES (99, 'not of the source', 1, NULL)")
    there.close()
    kit.open[-2].close()
    capture = kit.capture(snapshot=True)
    drained(apply)
    kit.check()
    work(kit.db, Random(2), 5)
    drained(capture)
    drained(apply)
    kit.check()


def test_without_a_snapshot_it_begins_with_the_next_change(kit: Kit) -> None:
    work(kit.db, Random(1), 10)
    capture, apply = kit.capture(from_now=True), kit.apply()
    kit.db.execute("INSERT INTO orders VALUES (100, 'new', 1, NULL)")
    drained(capture)
    drained(apply)
    assert [row[0] for row in kit.rows(kit.target, "orders")] == [100]


def test_a_column_more_is_a_barrier_and_its_values_are_not_lost(kit: Kit) -> None:
    work(kit.db, Random(1), 10)
    capture, apply = kit.capture(), kit.apply()
    drained(apply)
    kit.db.execute("INSERT INTO orders VALUES (50, 'before', 1, NULL)")
    kit.db.execute("ALTER TABLE orders ADD COLUMN note TEXT DEFAULT 'none'")
    kit.db.execute("INSERT INTO orders VALUES (51, 'between', 1, NULL, 'seen by no trigger')")
    kit.db.execute("CREATE TABLE later (id INTEGER PRIMARY KEY)")
    kit.db.execute("INSERT INTO later VALUES (1)")
    drained(capture)
    kit.db.execute("INSERT INTO orders VALUES (52, 'after', 1, NULL, 'x')")
    kit.db.execute("INSERT INTO later VALUES (2)")
    drained(capture)
    drained(apply)
    kit.check(["orders", "stock", "later"])
    kit.open[0].close()
    kit.open[0] = kit.open[1]
    kit.db.execute("DROP TABLE later")
    with pytest.raises(SchemaError, match="later is gone"):
        kit.capture().run_once(0)


def test_tables_need_a_key_and_the_same_key(kit: Kit) -> None:
    with sqlite3.connect(kit.target) as there:
        there.execute("CREATE TABLE orders (id INTEGER, item, total, code TEXT PRIMARY KEY)")
    there.close()
    capture, apply = kit.capture(), kit.apply()
    with pytest.raises(SchemaError, match=r"primary key \(id\)"):
        drained(apply)
    kit.db.execute("CREATE TABLE keyless (x)")
    with pytest.raises(SchemaError, match="keyless has no primary key"):
        drained(capture)


def test_what_the_source_cannot_know_any_more_stops_the_sync(kit: Kit, tmp_path: Path) -> None:
    work(kit.db, Random(1), 5)
    capture = kit.capture()
    work(kit.db, Random(2), 5)
    drained(capture)
    older = sqlite3.connect(tmp_path / "older.db")
    kit.db.backup(older)
    older.close()
    work(kit.db, Random(3), 9)
    drained(capture)
    with pytest.raises(SourceLostError, match="older state"):
        Capture(SqliteSource("shop", str(tmp_path / "older.db")), kit.stream, RowFilter({})).begin()
    grown = sqlite3.connect(tmp_path / "older.db", isolation_level=None)
    work(grown, Random(4), 40)  # its log goes beyond what the stream has
    with pytest.raises(SourceLostError, match="older state"):
        Capture(SqliteSource("shop", str(tmp_path / "older.db")), kit.stream, RowFilter({})).begin()
    grown.close()
    work(kit.db, Random(5), 5)
    kit.db.execute("DELETE FROM canopy_changes")
    with pytest.raises(SourceLostError, match="not in the log"):
        kit.capture()
    kit.db.execute("UPDATE canopy_source SET id = 'another'")
    with pytest.raises(SourceLostError, match="another database"):
        kit.capture()


def test_of_two_processes_on_one_side_the_older_one_ends(kit: Kit) -> None:
    work(kit.db, Random(1), 5)
    old, new = kit.capture(), kit.capture()
    first, second = kit.apply(), kit.apply()
    drained(first)
    with pytest.raises(FencedError):
        drained(second)
    kit.db.execute("INSERT INTO orders VALUES (60, 'x', 1, NULL)")
    drained(new)
    with pytest.raises(FencedError):
        drained(old)
    drained(first)
    kit.check()
    kit.stream.id = "another"
    with pytest.raises(SyncError, match="another stream"):
        kit.apply()


def test_a_transaction_that_stalls_is_taken_back_and_read_again(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.sync.capture.BYTES", 400)
    capture = kit.capture()
    kit.db.executescript(
        "BEGIN;" + "".join(f"INSERT INTO orders VALUES ({n}, 'x', 1, NULL);" for n in range(9))
        + "COMMIT"
    )  # fmt: skip
    drained(capture)
    rest = kit.stream.events[-3:]
    del kit.stream.events[-3:]
    now = [0.0]
    target = SqliteDestination("shop", str(kit.target))
    kit.open.append(target)
    apply = Applier(kit.stream, target, RowFilter({}), clock=lambda: now[0], most=2)
    apply.begin()
    drained(apply)
    assert target._connection.in_transaction
    now[0] = STALL + 1
    assert not apply.run_once(0)
    assert not target._connection.in_transaction
    kit.stream.events += rest
    drained(apply)
    kit.check(["orders"])


def test_removing_a_source_leaves_nothing_behind(kit: Kit) -> None:
    before = kit.db.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall()
    kit.capture()
    other = SqliteSource("other", str(kit.source))
    remove_reader(kit.db, "shop")
    assert kit.db.execute("SELECT count(*) FROM canopy_readers").fetchone() == (1,)
    remove_reader(kit.db, "other")
    kit.db.execute("DROP TABLE canopy_applying")
    kit.db.execute("DELETE FROM sqlite_sequence")
    after = kit.db.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall()
    assert [row for row in after if "sqlite_sequence" not in str(row)] == before
    other.close()


def test_events_have_both_images(kit: Kit) -> None:
    kit.db.execute("INSERT INTO orders VALUES (1, 'a', 1.5, NULL)")
    capture = kit.capture()
    kit.db.execute("UPDATE orders SET item = 'b'")
    drained(capture)
    last = kit.stream.events[-1]
    assert last.attributes == {
        "id": 1,
        "item": "b",
        "total": 1.5,
        "_table": "orders",
        "_op": "update",
    }
    found = change_of(last.payload)
    assert (found.before, found.after) == ((1, "a", 1.5, None), (1, "b", 1.5, None))
    assert found.commit is not None
    assert found.commit.time > 0


def test_what_a_killed_source_side_has_begun_is_taken_back(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.sync.capture.BYTES", 700)
    capture = kit.capture()
    kit.db.execute("BEGIN")
    kit.db.executemany("INSERT INTO orders VALUES (?, 'x', 1, NULL)", [(n,) for n in range(9)])
    kit.db.execute("COMMIT")
    kit.stream.kill_at = 1
    with pytest.raises(Killed):
        drained(capture)
    drained(kit.capture())
    found = [(event.offset, change_of(event.payload)) for event in kit.stream.events]
    assert sum(change.op == INSERT for _, change in found) > 9  # some of them twice
    whole = [change for part in Assembler().feed(found) for change in part.changes]
    assert [change.after[0] for change in whole if change.after] == list(range(9))


def test_a_table_that_was_built_again_and_a_unique_index_are_seen(kit: Kit) -> None:
    kit.db.executescript("INSERT INTO stock VALUES ('a', 1, 'x'), ('b', 2, 'y')")
    capture, apply = kit.capture(), kit.apply()
    drained(capture)
    drained(apply)
    (made,) = kit.db.execute("SELECT sql FROM sqlite_schema WHERE name = 'stock'").fetchone()
    body = made[made.index("(") :]
    kit.db.executescript(
        f"BEGIN; CREATE TABLE made {body}; INSERT INTO made SELECT * FROM stock WHERE shelf = 'a';"
        "INSERT INTO made VALUES ('c', 3, 'z'); DROP TABLE stock; ALTER TABLE made RENAME TO stock;"
        "COMMIT"
    )
    drained(capture)
    kit.db.execute("CREATE UNIQUE INDEX by_place ON stock (place)")
    drained(capture)
    kit.db.execute("INSERT OR REPLACE INTO stock VALUES ('d', 3, 'w')")  # 'c' goes
    drained(capture)
    drained(apply)
    kit.check(["stock"])
    assert len(kit.rows(kit.source, "stock")) == 2
    before = len(kit.stream.events)
    kit.db.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    drained(capture)
    sent = [event.attributes["_table"] for event in kit.stream.events[before:]]
    assert sent == ["other"], "tables that are as they were are not sent again"


def test_rows_of_a_column_that_comes_while_the_log_is_read_wait_for_it(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture, apply = kit.capture(), kit.apply()
    source = capture._source
    assert isinstance(source, SqliteSource)
    refresh = source._refresh

    def slow() -> None:
        refresh()
        monkeypatch.setattr(source, "_refresh", refresh)
        kit.db.execute("ALTER TABLE orders ADD COLUMN more TEXT DEFAULT 'x'")
        kit.db.execute("INSERT INTO orders (id, more) VALUES (1, 'y')")

    monkeypatch.setattr(source, "_refresh", slow)
    kit.db.execute("INSERT INTO orders (id) VALUES (2)")
    capture.run_once(0)
    drained(apply)
    assert kit.rows(kit.target, "orders") == kit.rows(kit.source, "orders")


def test_a_table_that_is_renamed_stops_the_sync_until_a_snapshot(kit: Kit) -> None:
    kit.db.execute("INSERT INTO orders (id) VALUES (1)")
    capture, apply = kit.capture(), kit.apply()
    drained(apply)
    kit.db.execute("ALTER TABLE orders RENAME TO sales")
    for each in (capture, kit.capture()):
        with pytest.raises(SchemaError, match="table orders is gone"):
            each.run_once(0)
    capture = kit.capture(snapshot=True)
    kit.db.execute("INSERT INTO sales (id) VALUES (2)")
    drained(capture)
    drained(apply)
    assert kit.rows(kit.target, "sales") == kit.rows(kit.source, "sales")
    assert kit.rows(kit.target, "orders")  # stay


def test_what_triggers_and_foreign_keys_do_to_a_row_is_not_overtaken(kit: Kit) -> None:
    """They change a row once more before the trigger that logs the first change has fired."""
    capture, apply = kit.capture(), kit.apply()
    kit.db.execute("PRAGMA foreign_keys = ON")
    tree = "REFERENCES tree ON UPDATE CASCADE ON DELETE CASCADE"
    for statement in (
        f"CREATE TABLE tree (id INTEGER PRIMARY KEY, up INTEGER {tree}, n INTEGER DEFAULT 0)",
        f"CREATE TABLE leaf (k TEXT PRIMARY KEY, up INTEGER {tree}) WITHOUT ROWID",
    ):
        kit.db.execute(statement)
    drained(capture)  # whose triggers are older than those that follow
    n = "UPDATE tree SET n = n +"
    for name, what in (
        ("a", f"INSERT ON tree BEGIN {n} 1 WHERE id = NEW.id; END"),
        ("b", f"UPDATE OF id ON tree BEGIN {n} 10 WHERE id = NEW.id; END"),
        ("c", "DELETE ON tree WHEN OLD.id = 9 BEGIN INSERT INTO tree VALUES (9, NULL, 5); END"),
        ("d", "INSERT ON leaf WHEN NEW.k = 'x' BEGIN DELETE FROM leaf WHERE k = 'x'; END"),
        ("e", "UPDATE ON leaf WHEN NEW.k = 'y' BEGIN UPDATE leaf SET k = 'z' WHERE k = 'y'; END"),
    ):
        kit.db.execute(f"CREATE TRIGGER {name} AFTER {what}")
    for statement in (
        "INSERT INTO tree (id, up) VALUES (1, 1), (2, 1), (3, 2), (9, NULL)",
        "INSERT INTO leaf VALUES ('l', 3), ('x', NULL), ('w', 1)",
        "UPDATE tree SET id = 7 WHERE id = 1",
        "UPDATE leaf SET k = 'y' WHERE k = 'w'",
        "DELETE FROM tree WHERE id = 9",
        "DELETE FROM tree WHERE id = 2",
    ):
        kit.db.execute(statement)
        drained(capture)
        drained(apply)
        kit.check(("tree", "leaf"))
    assert [row[0] for row in kit.rows(kit.target, "tree")] == [7, 9]


def test_a_filter_of_no_table_is_refused(tmp_path: Path) -> None:
    kit = Kit(tmp_path, {"order": "total > 100"})
    kit.db.executescript(SHOP)
    with pytest.raises(SchemaError, match="a filter of order, and no such table"):
        kit.capture()
    kit.close()


def test_a_key_that_is_null_is_refused(kit: Kit) -> None:
    capture, apply = kit.capture(), kit.apply()
    kit.db.execute('INSERT INTO "odd ""name" VALUES (NULL, 1)')
    drained(capture)
    with pytest.raises(SchemaError, match=r"NOT NULL constraint failed: odd .name\.a b"):
        drained(apply)


def test_rows_that_a_change_within_a_change_replaces_are_told_of(tmp_path: Path) -> None:
    kit = Kit(tmp_path, {"orders": "total > 100"})
    kit.db.executescript(SHOP)
    kit.db.executescript(
        "INSERT INTO orders VALUES (1, 'a', 200, 'x'), (2, 'b', 200, 'y'), (3, 'c', 200, 'z')"
    )
    capture, apply = kit.capture(), kit.apply()
    n = "INSERT OR REPLACE INTO orders VALUES (NEW.id, NEW.item, NEW.total + 1, NEW.code)"
    for name, what in (
        ("a", f"UPDATE ON orders WHEN NEW.total = 300 BEGIN {n}; END"),
        ("b", "INSERT ON orders WHEN NEW.total = 50 BEGIN "
         "UPDATE orders SET code = code || 'n' WHERE id = 3; END"),
    ):  # fmt: skip
        kit.db.execute(f"CREATE TRIGGER {name} AFTER {what}")
    for statement in (
        "INSERT OR REPLACE INTO orders VALUES (1, 'd', 50, 'u')",  # leaves the filter
        "UPDATE OR REPLACE orders SET code = 'same', total = 300",  # each replaces the one before
    ):
        kit.db.execute(statement)
        drained(capture)
        drained(apply)
        kit.check(("orders",))
    assert [row[0] for row in kit.rows(kit.target, "orders")] == [3]
    kit.close()
