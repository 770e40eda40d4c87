"""From and to MariaDB on a real server, over a stream in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pymysql import OperationalError

from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.changes import MARK, Column, Table, change_of
from canopy.sync.databases import open_destination, open_source
from canopy.sync.destinations.mariadb import MariadbDestination
from canopy.sync.errors import SchemaError, SourceLostError, SyncError, UnfitError
from canopy.sync.row_filter import RowFilter
from canopy.sync.servers.mariadb_link import connected
from canopy.sync.sources.mariadb_tables import scan
from canopy.sync.verification import SyncComparison
from harness.databases.mariadb import Mariadb
from harness.databases.postgres import Postgres
from harness.databases.sqlite import Sqlite
from harness.mariadb import MariadbServer
from harness.postgres import Server
from tests.support.databases.memory import Killed, MemoryStream

TABLE = "CREATE TABLE t (id int PRIMARY KEY, n varchar(20), big longtext, UNIQUE (n))"


class Sides:
    """MariaDB, a stream and destinations; sides end and begin again."""

    def __init__(self, maria: MariadbServer, folder: Path) -> None:
        self.maria = maria
        self.folder = folder
        self.stream = MemoryStream()
        self.closing: list[Callable[[], object]] = []
        self.opened: list[Any] = []  # sources, of which some were closed
        self.db = Mariadb(maria)
        self.db.execute(TABLE)

    def capture(self, where: dict[str, str] | None = None, **options: Any) -> Capture:
        self.source = open_source("shop", self.db.url)
        self.opened.append(self.source)
        made = Capture(self.source, self.stream.session_of(), RowFilter(where or {}))
        made.begin(**options)
        return made

    def apply_to(self, target: Any, name: str = "shop") -> Applier:
        self.destination = open_destination(name, target.url)
        self.closing += [self.destination.close, target.close]
        made = Applier(self.stream, self.destination, RowFilter({}))
        made.begin()
        return made

    def sqlite(self) -> Sqlite:
        return Sqlite(self.folder / "t.db")


@pytest.fixture
def sides(maria: MariadbServer, tmp_path: Path) -> Iterator[Sides]:
    made = Sides(maria, tmp_path)
    yield made
    for close in reversed(made.closing):
        close()
    for source in made.opened:
        with suppress(Exception):
            source.close()
    made.db.close()


def captured(capture: Capture) -> None:
    source = capture._source
    target = source.target()
    while not source.reached(target):
        capture.run_once(0.05)
    capture.run_once(0)


def drained(apply: Applier) -> None:
    while apply.run_once(0):
        pass


def rows(database: Any, table: str = "t", columns: str = "*") -> list[str]:
    found = database.execute(f"SELECT {columns} FROM {table}")
    return sorted(repr([None if v is None else str(v) for v in row]) for row in found)


def work(db: Mariadb, rng: Random, count: int) -> None:
    for _ in range(count):
        db.execute("BEGIN")
        for _ in range(rng.randint(1, 4)):
            key, other = rng.randint(1, 9), rng.randint(1, 9)
            db.execute(
                rng.choice(
                    (
                        f"REPLACE INTO t VALUES ({key}, 'n{other}', repeat('x', {other * 50}))",
                        f"UPDATE IGNORE t SET id = id + 10, n = NULL WHERE id = {key}",
                        f"UPDATE t SET big = concat(big, 'y') WHERE id % 3 = {key % 3}",
                        f"DELETE FROM t WHERE id = {key} OR id > 12",
                        f"INSERT IGNORE INTO t VALUES ({key}, NULL, NULL)",
                    )
                )
            )
        db.execute("COMMIT" if rng.random() < 0.8 else "ROLLBACK")


def test_the_source_side_is_killed_at_every_append(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.sync.capture.BYTES", 2_000)
    rng = Random(2)
    work(sides.db, rng, 10)
    other = Mariadb(sides.maria)
    apply = sides.apply_to(other)
    for step in range(12):
        sides.stream.kill_at, sides.stream.lost = step % 4, step % 3 == 0
        try:
            capture = sides.capture()
            work(sides.db, rng, 3)
            captured(capture)
        except Killed:
            pass
        drained(apply)
    sides.stream.kill_at = -1
    captured(sides.capture())
    drained(apply)
    assert rows(other) == rows(sides.db)
    assert rows(other)


def test_a_snapshot_meets_the_log_without_a_gap(sides: Sides) -> None:
    sides.db.execute("INSERT INTO t SELECT seq, concat('n', seq), 'x' FROM seq_1_to_500")
    stop = threading.Event()
    writer = sides.db.again()

    def write() -> None:
        number = 1000
        while not stop.is_set():
            number += 1
            writer.execute("INSERT INTO t VALUES (?, NULL, NULL)", [number])
            writer.execute("DELETE FROM t WHERE id = ?", [number - 900])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        capture = sides.capture()
    finally:
        stop.set()
        thread.join()
    captured(capture)
    light = sides.sqlite()
    drained(sides.apply_to(light))
    assert rows(light) == rows(sides.db)
    writer.close()


def test_shapes_change_and_tables_come_and_are_emptied(sides: Sides) -> None:
    db, light, other = sides.db, sides.sqlite(), Mariadb(sides.maria)
    db.execute("INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    capture = sides.capture()
    applies = [sides.apply_to(light), sides.apply_to(other)]
    columns = "id, n, big"
    for statement in (
        "ALTER TABLE t ADD COLUMN more decimal(9,2) DEFAULT 1.50",
        "INSERT INTO t VALUES (3, 'c', 'z', 2)",
        "CREATE TABLE later (k varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v enum('x','y'))",
        "INSERT INTO later VALUES ('a', 'x'), ('B', 'y')",
        "UPDATE later SET k = 'A' WHERE k = 'a'",
        "ALTER TABLE later MODIFY v enum('z','y','x')",
        "UPDATE later SET v = 'z' WHERE k = 'b'",
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (3, 'c', 'z', 4)",
    ):
        db.execute(statement)
        captured(capture)
        for apply in applies:
            drained(apply)
        for there in (light, other):
            assert rows(there, columns=columns) == rows(db, columns=columns), statement
        if statement.startswith("INSERT INTO t"):
            columns = "id, n, big, more"
    for there in (light, other):
        assert rows(there, "later") == rows(db, "later")
        assert rows(there, columns="more") == rows(db, columns="more") == ["['4.00']"]


def test_a_log_that_is_lost_stops_the_sync(sides: Sides) -> None:
    sides.db.execute("INSERT INTO t VALUES (1, 'a', 'x')")
    capture = sides.capture()
    sides.db.execute("INSERT INTO t VALUES (2, 'b', 'x')")
    captured(capture)
    sides.db.execute("INSERT INTO t VALUES (3, 'c', 'x')")
    sides.source.close()
    sides.db.execute("FLUSH BINARY LOGS")
    sides.db.execute("INSERT INTO t VALUES (4, 'd', 'x')")
    ((file, *_),) = sides.db.execute("SHOW MASTER STATUS")
    while len(sides.db.execute("SHOW BINARY LOGS")) > 1:  # the server sends it for a moment
        sides.db.execute(f"PURGE BINARY LOGS TO '{file}'")
    with pytest.raises(SourceLostError, match="new snapshot"):
        captured(sides.capture())
    sides.db.execute("RESET MASTER")
    with pytest.raises(SourceLostError, match="older state"):
        sides.capture()
    captured(sides.capture(snapshot=True))


def test_what_a_sync_has_applied_is_not_captured_again(sides: Sides, tmp_path: Path) -> None:
    light = sides.sqlite()
    light.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n TEXT, big TEXT)")
    back = MemoryStream()
    source = open_source("back", light.url)
    sides.closing.append(source.close)
    capture = Capture(source, back, RowFilter({}))
    capture.begin(from_now=True)
    there = sides.capture(from_now=True)
    made = open_destination("back", sides.db.url)
    sides.closing += [made.close, light.close]
    apply = Applier(back, made, RowFilter({}))
    apply.begin()
    light.execute("INSERT INTO t VALUES (1, 'a', 'x')")
    capture.run_once(0.05)
    drained(apply)
    sides.db.execute("INSERT INTO t VALUES (2, 'b', 'y')")
    captured(there)
    found = [change_of(event.payload) for event in sides.stream.events]
    assert [c.after for c in found if c.after is not None] == [(2, "b", "y")]
    assert len(rows(sides.db)) == 2


def test_a_comparison_while_both_go_on(sides: Sides) -> None:
    work(sides.db, Random(5), 20)
    capture = sides.capture()
    other = Mariadb(sides.maria)
    apply = sides.apply_to(other)
    drained(apply)

    def pause(seconds: float) -> None:
        captured(capture)
        drained(apply)

    compared = SyncComparison(
        sides.source, sides.destination, sides.stream, RowFilter({}), pause=pause
    )
    assert compared.run().identical
    other.execute("UPDATE t SET big = 'bent' ORDER BY id LIMIT 1")
    found = compared.run()
    assert [one.what for one in found.differences] == ["different"]
    assert any(change_of(e.payload).op == MARK for e in sides.stream.events)


def test_days_zero_are_refused_where_there_are_none(sides: Sides, server: Server) -> None:
    sides.db.execute("CREATE TABLE d (id int PRIMARY KEY, at date)")
    sides.db.execute("INSERT INTO d VALUES (4, '0000-00-00')")
    sides.capture()
    with pytest.raises(UnfitError, match=r"d\.at, key \(4,\): 0000-00-00 is no date"):
        drained(sides.apply_to(Postgres(server)))
    light = sides.sqlite()
    drained(sides.apply_to(light))
    assert light.execute("SELECT at FROM d") == [("0000-00-00",)]


def test_a_key_that_would_merge_rows_is_refused(sides: Sides, tmp_path: Path) -> None:
    light = Sqlite(tmp_path / "keys.db")
    light.execute("CREATE TABLE k (id TEXT PRIMARY KEY)")
    light.execute("INSERT INTO k VALUES ('a'), ('A'), ('a ')")
    source = open_source("keys", light.url)
    Capture(source, sides.stream, RowFilter({})).begin()
    source.close()
    other = Mariadb(sides.maria)
    drained(sides.apply_to(other, "exact"))
    assert len(rows(other, "k")) == 3
    sides.db.execute("CREATE TABLE k (id varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY)")
    with pytest.raises(SchemaError, match="takes different keys for one"):
        drained(sides.apply_to(sides.db, "merging"))
    light.close()


def test_a_server_that_does_not_log_rows_is_refused(sides: Sides) -> None:
    sides.db.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        with pytest.raises(SyncError, match="binlog_row_metadata = FULL"):
            sides.capture()
    finally:
        sides.db.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
    capture = sides.capture()
    sides.db.execute("SET SESSION binlog_format = 'STATEMENT'")
    sides.db.execute("INSERT INTO t VALUES (1, 'a', 'x')")
    with pytest.raises(SyncError, match="a statement and not its rows"):
        captured(capture)


def test_a_table_is_emptied_whatever_its_name_and_the_comment_before(sides: Sides) -> None:
    for name in ("`a.b`", "`c``d`"):
        sides.db.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    capture, apply = sides.capture(), sides.apply_to(target := sides.sqlite())
    for name in ("t", "`a.b`", "`c``d`"):
        sides.db.execute(f"INSERT INTO {name} (id) VALUES (1)")
    sides.db.execute("/* an application */ TRUNCATE t")
    sides.db.execute("-- empty it\n TRUNCATE TABLE `a.b`")
    sides.db.execute("TRUNCATE /* now */ TABLE " + sides.db.named("c`d"))
    captured(capture)
    drained(apply)
    for name in ("t", '"a.b"', '"c`d"'):
        assert rows(target, name) == []


def test_a_text_where_numbers_were_is_kept_by_sqlite(sides: Sides) -> None:
    sides.db.execute("CREATE TABLE n (id int PRIMARY KEY, c int)")
    sides.db.execute("INSERT INTO n VALUES (1, 7)")
    capture, apply = sides.capture(), sides.apply_to(target := sides.sqlite())
    sides.db.execute("ALTER TABLE n MODIFY c longtext")
    sides.db.execute("INSERT INTO n VALUES (2, repeat('0123456789', 40)), (3, '007')")
    captured(capture)
    drained(apply)
    assert rows(target, "n", "id, c") == rows(sides.db, "n", "id, c")


def test_a_destination_whose_server_has_gone_has_nothing_to_take_back(sides: Sides) -> None:
    other = Mariadb(sides.maria)
    sides.apply_to(other)
    sides.destination.begin()
    other.execute(f"KILL {sides.destination._connection.thread_id()}")
    with pytest.raises(OperationalError):
        sides.destination.progress()
    sides.destination.rollback()


def test_a_table_in_the_place_of_another_has_its_rows_only(sides: Sides) -> None:
    capture, apply = sides.capture(), sides.apply_to(target := sides.sqlite())
    for statements in (
        ("CREATE OR REPLACE TABLE t (id int PRIMARY KEY)",),
        ("DROP TABLE t", "CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY)"),
        ("CREATE TABLE u LIKE t", "INSERT INTO u VALUES (4)", "RENAME TABLE t TO v, u TO t"),
        ("DROP TABLE v", "CREATE TABLE v (id int PRIMARY KEY)", "INSERT INTO v VALUES (7)"),
    ):
        sides.db.execute("INSERT INTO t (id) VALUES (1), (2)")
        captured(capture)
        for statement in statements:
            sides.db.execute(statement)
        if "RENAME" in statements[-1]:
            sides.db.execute("CREATE TABLE u (id int PRIMARY KEY)")
        captured(capture)
        drained(apply)
        assert rows(target, "t", "id") == rows(sides.db, "t", "id")
    for table in ("u", "v"):
        assert rows(target, table, "id") == rows(sides.db, table, "id")


def test_a_table_that_was_altered_while_no_sync_ran_is_sent_again(sides: Sides) -> None:
    sides.db.execute("INSERT INTO t VALUES (1, 'a', 'b')")
    sides.capture()
    apply = sides.apply_to(target := sides.sqlite())
    drained(apply)
    sides.db.execute("ALTER TABLE t ADD COLUMN more int DEFAULT 5")
    sides.db.execute("INSERT INTO t (id) VALUES (2)")
    captured(sides.capture())
    drained(apply)
    assert rows(target) == rows(sides.db)


def test_a_table_that_is_dropped_stops_the_sync_until_a_snapshot(sides: Sides) -> None:
    sides.db.execute("CREATE TABLE s (id int PRIMARY KEY)")
    capture, apply = sides.capture(), sides.apply_to(target := sides.sqlite())
    sides.db.execute("DROP TABLE s")
    with pytest.raises(SchemaError, match="table s is gone"):
        captured(capture)
    with pytest.raises(SchemaError, match="table s is gone"):
        captured(sides.capture())
    capture = sides.capture(snapshot=True)
    sides.db.execute("INSERT INTO t (id) VALUES (2)")
    captured(capture)
    drained(apply)
    assert rows(target) == rows(sides.db)


def test_what_foreign_keys_change_is_not_in_the_log_and_arrives(sides: Sides) -> None:
    acts = "FOREIGN KEY (up) REFERENCES"
    for statement in (
        f"CREATE TABLE tree (id int PRIMARY KEY, up int, {acts} tree (id) ON DELETE CASCADE)",
        f"CREATE TABLE loose (id int PRIMARY KEY, up int, {acts} tree (id) ON UPDATE CASCADE "
        "ON DELETE SET NULL)",
        f"CREATE TABLE leaf (id int PRIMARY KEY, up int, {acts} loose (id) ON UPDATE CASCADE "
        "ON DELETE CASCADE)",
        f"CREATE TABLE bound (id int PRIMARY KEY, up int, {acts} tree (id) ON DELETE CASCADE)",
        "INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (4, NULL), (5, NULL), (6, 5)",
        "INSERT INTO loose VALUES (1, 3), (2, 4), (3, NULL)",
        "INSERT INTO leaf VALUES (1, 1), (2, 2), (3, 3)",
        "INSERT INTO bound VALUES (1, 1), (3, 3), (4, NULL), (5, 5)",
    ):
        sides.db.execute(statement)
    capture, apply = sides.capture(), sides.apply_to(target := sides.sqlite())
    tables = ("tree", "loose", "leaf", "bound")
    for statements in (
        ("UPDATE tree SET id = 14 WHERE id = 4", "UPDATE loose SET id = 33 WHERE id = 3"),
        ("DELETE FROM tree WHERE id = 1", "INSERT INTO bound VALUES (9, 14)"),
        ("DELETE FROM loose WHERE id = 33",),
        ("ALTER TABLE bound DROP FOREIGN KEY bound_ibfk_1", "DELETE FROM tree WHERE id = 14"),
        ("REPLACE INTO tree VALUES (5, NULL)", "INSERT INTO tree VALUES (8, 5)"),
    ):
        for statement in statements:
            sides.db.execute(statement)
        captured(capture)
        drained(apply)
        for table in tables:
            assert rows(target, table) == rows(sides.db, table), (table, statements)
    assert rows(target, "tree", "id") == ["['5']", "['8']"]
    count = len(sides.stream.events)
    for number in range(100, 140):
        sides.db.execute(f"INSERT INTO tree VALUES ({number}, NULL)")
    for number in range(100, 140):
        sides.db.execute(f"DELETE FROM tree WHERE id = {number}")
    captured(capture)
    drained(apply)
    assert rows(target, "tree") == rows(sides.db, "tree")
    sent = [e.attributes for e in sides.stream.events[count:]]
    assert sum(one["_op"] == "truncate" for one in sent) < 40  # not once for each


def test_a_table_that_is_altered_has_its_shape_before_a_row_changes(sides: Sides) -> None:
    sides.db.execute("INSERT INTO t VALUES (1, 'a', 'b')")
    capture, apply = sides.capture(), sides.apply_to(target := sides.sqlite())
    sides.db.execute("ALTER TABLE t ADD COLUMN more int DEFAULT 7")
    sides.db.execute("CREATE TABLE IF NOT EXISTS later (id int PRIMARY KEY)")
    sides.db.execute("CREATE TABLE keyless (id int)")
    captured(capture)
    drained(apply)
    assert rows(target) == rows(sides.db)
    assert rows(target, "later") == []


def test_sequences_are_passed_over_and_rows_of_the_past_are_refused(sides: Sides) -> None:
    capture, apply = sides.capture(), sides.apply_to(target := sides.sqlite())
    sides.db.execute("CREATE SEQUENCE numbers")
    sides.db.execute("INSERT INTO t (id) VALUES (nextval(numbers)), (nextval(numbers))")
    captured(capture)
    drained(apply)
    assert rows(target) == rows(sides.db)
    sides.db.execute("CREATE TABLE past (id int PRIMARY KEY) WITH SYSTEM VERSIONING")
    sides.db.execute("INSERT INTO past VALUES (1)")
    with pytest.raises(SchemaError, match="past is system-versioned"):
        captured(capture)


def test_numbers_that_the_server_gives_go_on_behind_the_rows_that_came(sides: Sides) -> None:
    sides.db.execute("CREATE TABLE numbered (id int AUTO_INCREMENT PRIMARY KEY, n int)")
    other, light = Mariadb(sides.maria), sides.sqlite()
    other.execute("CREATE TABLE numbered (id int AUTO_INCREMENT PRIMARY KEY, n int)")
    light.execute("CREATE TABLE numbered (id INTEGER PRIMARY KEY AUTOINCREMENT, n int)")
    sides.db.execute("INSERT INTO numbered VALUES (41, 1)")
    sides.capture()
    for target in (other, light):
        drained(sides.apply_to(target))
        target.execute("INSERT INTO numbered (n) VALUES (2)")
        assert rows(target, "numbered", "id") == ["['41']", "['42']"]


class Mortal(MariadbDestination):
    """Its process is killed at a statement."""

    left = 10**9

    def _execute(self, statement: str, values: Any = ()) -> Any:
        self._count_down()
        return super()._execute(statement, values)

    def _query(self, statement: str) -> None:
        self._count_down()
        super()._query(statement)

    def _count_down(self) -> None:
        self.left -= 1
        if self.left < 0:
            self._connection._force_close()  # without a word, as a process that is killed
            raise Killed


def test_the_destination_side_is_killed_at_every_step(sides: Sides) -> None:
    rng = Random(4)
    other = Mariadb(sides.maria)
    sides.db.execute("CREATE TABLE plain (id int PRIMARY KEY, n int)")
    capture = sides.capture()
    for step in range(36):
        work(sides.db, rng, 2)
        sides.db.execute(
            f"REPLACE INTO plain (id, n) SELECT seq, {step} FROM seq_{step}_to_{step + 20}"
        )
        if step % 9 == 4:
            sides.db.execute(f"ALTER TABLE plain ADD COLUMN c{step} int DEFAULT {step}")
        captured(capture)
        mortal = Mortal("shop", other.url)
        mortal.left = step % 18
        with suppress(Killed):
            apply = Applier(sides.stream, mortal, RowFilter({}))
            apply.begin()
            drained(apply)
        mortal._connection._force_close()
    drained(sides.apply_to(other))
    assert rows(other) == rows(sides.db)
    assert rows(other, "plain") == rows(sides.db, "plain")


def test_a_server_that_goes_while_rows_are_read_is_waited_for(sides: Sides) -> None:
    link = connected(sides.db.url, streaming=True)
    table = Table("seq_1_to_9000000", (Column("seq", "int", "bigint", False),), (0,), "mariadb")
    found = scan(link, table)
    assert next(found) == (1,)
    sides.db.execute(f"KILL {link.thread_id()}")
    with pytest.raises(OperationalError):
        list(found)
    link.close()
