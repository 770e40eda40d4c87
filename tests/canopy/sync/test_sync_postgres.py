"""From and to PostgreSQL on a real server, over a stream in memory."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.changes import change_of
from canopy.sync.databases import open_destination
from canopy.sync.destinations.postgres import PostgresDestination
from canopy.sync.destinations.sqlite import SqliteDestination
from canopy.sync.errors import SchemaError, SourceLostError, UnfitError
from canopy.sync.row_filter import RowFilter
from canopy.sync.sources.postgres import PostgresSource, remove_slot
from canopy.sync.sources.sqlite import SqliteSource
from harness.databases.mariadb import Mariadb
from harness.mariadb import MariadbServer
from harness.postgres import Server
from tests.support.databases.duck import Duck
from tests.support.databases.memory import Killed, MemoryStream

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE a (id bigint PRIMARY KEY, t text, n numeric, "odd %% ""c" int);
CREATE TABLE b (x text, y date, big text, m mood, PRIMARY KEY (x, y));
ALTER TABLE b ALTER big SET STORAGE EXTERNAL;
""".replace("%%", "%")


class Sides:
    """A source, a stream and a destination in PostgreSQL or SQLite; sides end and begin again."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.stream = MemoryStream()
        self.closing: list[Callable[[], object]] = []
        self.source = server.database()
        self.db = psycopg.connect(self.source, autocommit=True)
        self.closing.append(self.db.close)
        self._removing: PostgresSource | None = None

    def capture(self, where: dict[str, str] | None = None, **options: Any) -> Capture:
        made = PostgresSource("shop", self.source)
        self.closing.append(made.close)
        self._removing = made
        found = Capture(made, self.stream.session_of(), RowFilter(where or {}))
        found.begin(**options)
        return found

    def end_capture(self) -> None:
        assert self._removing is not None
        self._removing.close()
        used = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'canopy_shop' AND active"
        while self.db.execute(used).fetchone():
            time.sleep(0.01)

    def to_postgres(self, dsn: str = "") -> tuple[Applier, psycopg.Connection[Any]]:
        target = dsn or self.server.database()
        made = PostgresDestination("shop", target)
        self.closing.append(made.close)
        apply = Applier(self.stream, made, RowFilter({}))
        apply.begin()
        there = psycopg.connect(target, autocommit=True)
        self.closing.append(there.close)
        return apply, there

    def to_sqlite(self) -> tuple[Applier, sqlite3.Connection]:
        path = str(self.folder / "target.db")
        made = SqliteDestination("shop", path)
        self.closing.append(made.close)
        apply = Applier(self.stream, made, RowFilter({}))
        apply.begin()
        there = sqlite3.connect(path)
        self.closing.append(there.close)
        return apply, there

    def close(self) -> None:
        for close in reversed(self.closing):
            close()
        if self._removing is not None:
            remove_slot("shop", self.source)


@pytest.fixture
def sides(server: Server, tmp_path: Path) -> Iterator[Sides]:
    made = Sides(server, tmp_path)
    made.db.execute(TABLES)  # type: ignore[arg-type]
    yield made
    made.close()


def captured(capture: Capture) -> None:
    """Everything that is committed by now."""
    source = capture._source
    assert isinstance(source, PostgresSource)
    target = source.target()
    while not source.reached(target):
        capture.run_once(0.05)
    capture.run_once(0)


def drained(apply: Applier) -> None:
    while apply.run_once(0):
        pass


def rows(link: Any, table: str) -> list[str]:
    found = link.execute(f"SELECT * FROM {table}").fetchall()
    return sorted(map(repr, found))


def work(db: Any, rng: Random, count: int) -> None:
    for _ in range(count):
        with db.transaction(force_rollback=rng.random() < 0.2):
            for _ in range(rng.randint(1, 4)):
                key, other = rng.randint(1, 9), rng.randint(1, 9)
                ways: list[tuple[str, tuple[Any, ...]]] = [
                    (
                        "INSERT INTO a VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET t = "
                        "excluded.t",
                        (key, "x" * other, f"{other}.{key}0", None),
                    ),
                    ("UPDATE a SET id = id + 100 WHERE id = %s AND id < 50", (key,)),
                    ("UPDATE a SET n = n * 1.10 WHERE id %% 3 = %s", (key % 3,)),
                    ("DELETE FROM a WHERE id = %s OR id > 90 + %s", (key, other)),
                    (
                        "INSERT INTO b VALUES (%s, '2026-01-01', %s, 'ok') ON CONFLICT DO NOTHING",
                        (f"k{key}", "big" * 4_000),
                    ),
                    ("UPDATE b SET m = 'sad' WHERE x = %s", (f"k{key}",)),  # big is not repeated
                    ("UPDATE b SET y = y + 1 WHERE x = %s", (f"k{key}",)),
                    ("DELETE FROM b WHERE x = %s AND m = 'sad'", (f"k{key}",)),
                    ("TRUNCATE a", ()) if rng.random() < 0.1 else ("SELECT 1", ()),
                ]
                db.execute(*rng.choice(ways))


def test_what_is_committed_arrives_in_both_kinds_of_databases(sides: Sides) -> None:
    rng = Random(1)
    work(sides.db, rng, 20)
    capture = sides.capture()
    apply, there = sides.to_postgres()
    light, sqlite = sides.to_sqlite()
    for _ in range(8):
        work(sides.db, rng, 10)
        captured(capture)
        drained(apply)
        drained(light)
        for table in ("a", "b"):
            assert rows(there, table) == rows(sides.db, table)
        shown = sides.db.execute("SELECT id, t, n::text FROM a ORDER BY id").fetchall()
        assert sqlite.execute("SELECT id, t, n FROM a ORDER BY id").fetchall() == shown
        shown = sides.db.execute("SELECT x, y::text, big, m::text FROM b ORDER BY 1, 2").fetchall()
        assert sqlite.execute("SELECT * FROM b ORDER BY 1, 2").fetchall() == shown
    assert rows(sides.db, "b")


def test_the_source_side_is_killed_at_every_append(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.sync.capture.BYTES", 2_000)
    rng = Random(2)
    work(sides.db, rng, 10)
    apply, there = sides.to_postgres()
    for step in range(12):
        sides.stream.kill_at, sides.stream.lost = step % 4, step % 3 == 0
        try:
            capture = sides.capture()
            work(sides.db, rng, 3)
            captured(capture)
        except Killed:
            pass  # and its connection lives on: the next one ends it
        drained(apply)
    sides.stream.kill_at = -1
    captured(sides.capture())
    drained(apply)
    for table in ("a", "b"):
        assert rows(there, table) == rows(sides.db, table)


def test_rows_leave_a_filter_and_the_source_must_say_what_they_were(sides: Sides) -> None:
    sides.db.execute("INSERT INTO a SELECT g, 'x', g, 1 FROM generate_series(1, 9) g")
    capture = sides.capture({"a": "n > 5"})
    apply, there = sides.to_postgres()
    drained(apply)
    assert len(rows(there, "a")) == 4
    sides.db.execute("UPDATE a SET n = 10 - n")
    with pytest.raises(SchemaError, match="REPLICA IDENTITY FULL"):
        captured(capture)
    sides.db.execute("ALTER TABLE a REPLICA IDENTITY FULL")
    sides.end_capture()
    capture = sides.capture({"a": "n > 5"}, snapshot=True)
    sides.db.execute("UPDATE a SET n = 10 - n")
    captured(capture)
    drained(apply)
    expected = sides.db.execute("SELECT * FROM a WHERE n > 5").fetchall()
    assert rows(there, "a") == sorted(map(repr, expected))
    assert len(expected) == 4


def test_a_slot_that_is_gone_or_made_again_stops_the_sync(sides: Sides) -> None:
    sides.capture()
    sides.end_capture()
    sides.db.execute("SELECT pg_drop_replication_slot('canopy_shop')")
    with pytest.raises(SourceLostError, match="is gone"):
        sides.capture()
    sides.db.execute("INSERT INTO a VALUES (1)")
    sides.db.execute("SELECT pg_create_logical_replication_slot('canopy_shop', 'pgoutput')")
    with pytest.raises(SourceLostError, match="made again"):
        sides.capture()
    captured(sides.capture(snapshot=True))
    sides.end_capture()
    sides.capture()


def test_a_transaction_is_one_in_the_stream(sides: Sides) -> None:
    capture = sides.capture()
    with sides.db.transaction():
        sides.db.execute("INSERT INTO a VALUES (1, 'x', 1.50, 2)")
        sides.db.execute("UPDATE a SET t = 'y'")
    captured(capture)
    last = [change_of(event.payload) for event in sides.stream.events[-2:]]
    assert [each.commit is not None for each in last] == [False, True]
    assert last[1].commit is not None
    assert last[1].commit.transaction > 0
    assert sides.stream.events[-1].attributes["t"] == "y"


def test_columns_are_added_at_the_destination(sides: Sides) -> None:
    capture = sides.capture()
    apply, there = sides.to_postgres()
    sides.db.execute("INSERT INTO a VALUES (1, 'x', 1.50, 2)")
    sides.db.execute("ALTER TABLE a ADD COLUMN more timestamptz")
    sides.db.execute("INSERT INTO a VALUES (2, 'x', 1.50, 2, '2026-01-01 00:00:00.000001+02')")
    captured(capture)
    drained(apply)
    assert rows(there, "a") == rows(sides.db, "a")


def test_a_new_column_has_its_default_in_rows_that_were_there(sides: Sides) -> None:
    sides.db.execute("INSERT INTO a VALUES (1, 'x', 1.50, 2), (2, 'y', 2, 3)")
    capture = sides.capture()
    apply, there = sides.to_postgres()
    light, sqlite = sides.to_sqlite()
    sides.db.execute("ALTER TABLE a ADD COLUMN more int NOT NULL DEFAULT 7, ALTER t TYPE varchar")
    sides.db.execute("UPDATE a SET n = 9 WHERE id = 2")
    sides.db.execute("DELETE FROM a WHERE id = 1")
    sides.db.execute("INSERT INTO a VALUES (1, 'z', 1, 1, 5), (3, 'z', 1, 1, DEFAULT)")
    captured(capture)
    for one in (apply, light):
        drained(one)
    assert rows(there, "a") == rows(sides.db, "a")
    found = sqlite.execute("SELECT id, more FROM a ORDER BY id").fetchall()
    assert found == [(1, 5), (2, 7), (3, 7)]


def test_a_table_that_is_made_later_is_taken_in_with_its_rows(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.sync.sources.postgres.LOOK_EVERY", -1.0)
    capture = sides.capture()
    apply, there = sides.to_postgres()
    sides.db.execute("CREATE TABLE later (id int PRIMARY KEY, t text)")
    sides.db.execute("INSERT INTO later VALUES (0, 'stays'), (1, 'before')")
    sides.db.execute("CREATE UNLOGGED TABLE aside (id int)")
    captured(capture)  # which publishes it
    sides.db.execute("UPDATE later SET t = 'after' WHERE id = 1")
    sides.db.execute("INSERT INTO later VALUES (2, NULL)")
    sides.end_capture()
    captured(sides.capture())
    drained(apply)
    assert rows(there, "later") == rows(sides.db, "later")
    assert len(rows(there, "later")) == 3
    sides.db.execute("CREATE TABLE keyless (id int)")
    with pytest.raises(SchemaError, match="keyless has no primary key"):
        sides.capture().run_once(0)
    sides.db.execute("DROP TABLE keyless")


def test_unique_values_that_move_between_rows_find_room(sides: Sides) -> None:
    target = sides.server.database()
    with psycopg.connect(target, autocommit=True) as link:
        link.execute("CREATE TABLE a (id bigint PRIMARY KEY, t text UNIQUE, n numeric, "
                     '"odd % ""c" int)')  # fmt: skip
    sides.db.execute("INSERT INTO a VALUES (1, 'x'), (2, 'y')")
    capture = sides.capture()
    apply, there = sides.to_postgres(target)
    sides.db.execute("UPDATE a SET t = CASE t WHEN 'x' THEN 'y' ELSE 'x' END")
    captured(capture)
    drained(apply)
    assert rows(there, "a") == rows(sides.db, "a")


def test_a_decimal_key_gets_other_digits_of_the_same_worth(sides: Sides) -> None:
    sides.db.execute("CREATE TABLE d (n numeric PRIMARY KEY, t text)")
    sides.db.execute("INSERT INTO d VALUES (1.0, 'a'), (2, 'b')")
    capture = sides.capture()
    light, sqlite = sides.to_sqlite()
    apply, there = sides.to_postgres()
    drained(light)
    sides.db.execute("UPDATE d SET n = 1.00 WHERE n = 1")
    captured(capture)
    for one in (light, apply):
        drained(one)
    assert sqlite.execute("SELECT n FROM d ORDER BY n").fetchall() == [("1.00",), ("2",)]
    assert rows(there, "d") == rows(sides.db, "d")


def test_many_rows_are_merged(sides: Sides) -> None:
    sides.db.execute("INSERT INTO a SELECT g, E'a\\tb\\\\\\n' || g, g / 7.0, g FROM "
                     "generate_series(1, 3000) g")  # fmt: skip
    capture = sides.capture()
    apply, there = sides.to_postgres()
    sides.db.execute("UPDATE a SET n = n + 1 WHERE id % 2 = 0")
    sides.db.execute("DELETE FROM a WHERE id % 5 = 0")
    sides.db.execute("INSERT INTO a SELECT g, 'x', 1, 1 FROM generate_series(5000, 6000) g")
    captured(capture)
    drained(apply)
    assert rows(there, "a") == rows(sides.db, "a")


def test_what_postgresql_has_no_place_for_is_refused_with_its_place(
    server: Server, tmp_path: Path
) -> None:
    path = str(tmp_path / "source.db")
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
        db.execute("INSERT INTO t VALUES (1, 5), (2, 'five')")
    db.close()
    stream = MemoryStream()
    source = SqliteSource("s", path)
    Capture(source, stream, RowFilter({})).begin()
    source.close()
    target = PostgresDestination("s", server.database())
    apply = Applier(stream, target, RowFilter({}))
    apply.begin()
    with pytest.raises(UnfitError, match=r"t\.n, key \(2,\): 'five' is no 64-bit integer"):
        drained(apply)
    apply.close()
    target.close()


HARD = {
    "n numeric": ("NaN", "1.10", "-Infinity", "1" + "0" * 60, "0.000"),
    "n2 numeric(12,3)": ("1.100", "-99999999.999", "0", None, "1"),
    "i bigint": (str(2**53 + 1), str(2**63 - 1), str(-(2**63)), None, "0"),
    "f float8": ("NaN", "Infinity", "-0", "1e-300", "0.1"),
    "g real": ("0.1", "3.4e38", "-Infinity", None, "1"),
    "b boolean": ("t", "f", None, "t", "f"),
    "t text": ("", "\\N", "a\tb\nc\\.", "NULL", "é\U0001f600"),
    "c char(5)": ("a", "", "a b", "é", "abcde"),
    "y bytea": ("\\x", "\\x00ff", "\\x5c", None, "\\x4e"),
    "d date": ("infinity", "0044-03-15 BC", "10000-01-01", "0001-01-01", "-infinity"),
    "w time": ("24:00:00", "00:00:00.000001", "23:59:59.999999", None, "12:00"),
    "ts timestamp": ("infinity", "2026-01-02 03:04:05.000006", "0044-03-15 BC", None, "1969-12-31"),
    "tz timestamptz": ("2026-01-02 03:04:05.6+02", "-infinity", "0001-01-01 00:00+00", None, None),
    "u uuid": ("00000000-0000-0000-0000-000000000001", None, None, None, None),
    "j json": ('{"b": 1, "a": 2, "a": 3}', "[1.10]", '"x"', None, "1e3"),
    "jb jsonb": ('{"b": 1, "a": 2}', "[1.10]", '"x"', None, "1e3"),
    "a int[]": ("{1,NULL,3}", "{}", "{{1,2},{3,4}}", None, "{0}"),
    "iv interval": ("1 year -3 days 04:05:06.789", "-00:00:00.000001", "0", None, "1 mon"),
}  # fmt: skip


def test_hard_values_arrive_as_they_are(sides: Sides) -> None:
    names = [column.split()[0] for column in HARD]
    shown = ", ".join(f"{name}::text" for name in names)
    shown = shown.replace("c::text", "format('%s', c)", 1)  # the cast would drop the padding
    sides.db.execute(f"CREATE TABLE hard (id int PRIMARY KEY, {', '.join(HARD)})")
    marks = ", ".join(["%s"] * len(names))
    statement = f"INSERT INTO hard VALUES (%s, {marks})"
    for number, row in enumerate(zip(*HARD.values(), strict=True)):
        sides.db.execute(statement, [number, *row])  # in the snapshot
    capture = sides.capture()
    for number, row in enumerate(zip(*HARD.values(), strict=True), 100):
        sides.db.execute(statement, [number, *row])  # decoded
    captured(capture)
    apply, there = sides.to_postgres()
    light, sqlite = sides.to_sqlite()
    drained(apply)
    drained(light)
    for link in (sides.db, there):
        link.execute("SET timezone = 'UTC'; SET intervalstyle = 'iso_8601'")
    query = f"SELECT {shown} FROM hard ORDER BY id"
    expected = sides.db.execute(query).fetchall()
    assert there.execute(query).fetchall() == expected
    found = sqlite.execute(f"SELECT {', '.join(names)} FROM hard ORDER BY id").fetchall()
    assert len(found) == len(expected) == 10
    for kept, row in zip(found, expected, strict=True):
        for value, text in zip(kept, row, strict=True):
            if isinstance(value, float):
                assert value == float(text)
            elif isinstance(value, bytes):
                assert "\\x" + value.hex() == text
            elif text in ("true", "false"):
                assert value == (text == "true")
            elif isinstance(value, str) and value != text:  # the same moment in other words
                assert datetime.fromisoformat(value) == datetime.fromisoformat(text)
            else:
                assert value is text is None or str(value) == text


def looked(capture: Capture) -> None:
    """As `captured`, and whether tables have come or gone."""
    source = capture._source
    assert isinstance(source, PostgresSource)
    source._looked = 0.0
    capture.run_once(0.0)
    captured(capture)


def test_a_table_that_was_altered_while_no_sync_ran_is_sent_again(sides: Sides) -> None:
    sides.db.execute("INSERT INTO a VALUES (1), (2)")
    sides.capture()
    apply, there = sides.to_postgres()
    drained(apply)
    sides.end_capture()
    sides.db.execute("ALTER TABLE a ADD COLUMN more int DEFAULT 5")
    sides.db.execute("INSERT INTO a (id) VALUES (3)")
    captured(sides.capture())
    drained(apply)
    assert there.execute("SELECT id, more FROM a ORDER BY 1").fetchall() == [(1, 5), (2, 5), (3, 5)]


def test_a_table_in_the_place_of_another_has_its_rows_only(sides: Sides) -> None:
    sides.db.execute("INSERT INTO a VALUES (1), (2)")
    capture = sides.capture()
    apply, there = sides.to_postgres()
    with sides.db.transaction():
        sides.db.execute("CREATE TABLE new (id bigint PRIMARY KEY)")
        sides.db.execute("INSERT INTO new VALUES (2), (3)")
        sides.db.execute("DROP TABLE a")
        sides.db.execute("ALTER TABLE new RENAME TO a")
    looked(capture)
    drained(apply)
    assert there.execute("SELECT id FROM a ORDER BY 1").fetchall() == [(2,), (3,)]


def test_a_table_that_is_renamed_stops_the_sync_until_a_snapshot(sides: Sides) -> None:
    sides.db.execute("INSERT INTO a VALUES (1)")
    capture = sides.capture()
    apply, there = sides.to_postgres()
    sides.db.execute("ALTER TABLE a RENAME TO c")
    sides.db.execute("INSERT INTO c VALUES (2)")
    with pytest.raises(SchemaError, match="table a is gone"):
        looked(capture)
    sides.end_capture()
    looked(sides.capture(snapshot=True))
    drained(apply)
    assert there.execute("SELECT id FROM c ORDER BY 1").fetchall() == [(1,), (2,)]
    assert there.execute("SELECT id FROM a").fetchall() == [(1,)]  # stays


def test_rows_that_refer_to_one_another_arrive(sides: Sides) -> None:
    sides.db.execute("ALTER TABLE a ADD COLUMN friend bigint REFERENCES a DEFERRABLE")
    apply, there = sides.to_postgres()
    there.execute("CREATE TABLE a (id bigint PRIMARY KEY, friend bigint REFERENCES a)")
    capture = sides.capture()
    with sides.db.transaction():
        sides.db.execute("SET CONSTRAINTS ALL DEFERRED")
        sides.db.execute("INSERT INTO a (id, friend) VALUES (1, 2), (2, 1)")
    captured(capture)
    drained(apply)
    assert there.execute("SELECT id, friend FROM a ORDER BY 1").fetchall() == [(1, 2), (2, 1)]


def test_tables_of_other_schemas_are_kept_apart(sides: Sides) -> None:
    for statement in (
        'CREATE SCHEMA "s x"; CREATE TABLE "s x".a (id int PRIMARY KEY, big text)',
        "CREATE TYPE \"s x\".mood AS ENUM ('high')",
        "INSERT INTO a VALUES (1, 'public')",
        "INSERT INTO \"s x\".a VALUES (1, 'other'), (2, 'other')",
        'ALTER TABLE "s x".a REPLICA IDENTITY FULL',
    ):
        sides.db.execute(statement)  # type: ignore[arg-type]
    capture = sides.capture({"s x.a": "id > 1"})
    apply, there = sides.to_postgres()
    light, sqlite = sides.to_sqlite()
    for statement in (
        'CREATE TABLE "s x".later (id int PRIMARY KEY, m "s x".mood)',
        "INSERT INTO \"s x\".later VALUES (7, 'high')",
        'INSERT INTO "s x".a SELECT generate_series(3, 300)',
        'UPDATE "s x".a SET id = 0 WHERE id = 3',
        "UPDATE a SET t = 'more'",
    ):
        sides.db.execute(statement)  # type: ignore[arg-type]
        captured(capture)
        drained(apply)
        drained(light)
    for statement in ('SELECT * FROM "s x".a WHERE id > 1', 'SELECT * FROM "s x".later'):
        found = sides.db.execute(statement).fetchall()  # type: ignore[arg-type]
        assert sorted(there.execute(statement).fetchall()) == sorted(found)
        flat = sqlite.execute(statement.replace('s x".', "s x.").replace("x.a ", 'x.a" ')
                              .replace("x.later", 'x.later"')).fetchall()  # fmt: skip
        assert sorted(flat) == sorted(found)
    assert rows(there, "a") == rows(sides.db, "a")
    assert there.execute('SELECT count(*) FROM "s x".a').fetchone() == (298,)
    sides.db.execute('CREATE TABLE "s x.a" (id int PRIMARY KEY)')
    with pytest.raises(SchemaError, match=r"would both be called s x\.a"):
        captured(capture)
    sides.db.execute('DROP TABLE "s x.a"')


def test_a_table_that_is_altered_has_its_shape_before_a_row_changes(sides: Sides) -> None:
    sides.db.execute("INSERT INTO a VALUES (1, 'x', 1.5, 2)")
    capture = sides.capture()
    apply, there = sides.to_postgres()
    for statement in ("ADD COLUMN more int DEFAULT 7", "ALTER t TYPE varchar(9)", "DROP COLUMN n"):
        sides.db.execute(f"ALTER TABLE a {statement}")  # type: ignore[arg-type]
        captured(capture)
        drained(apply)
        shown = "SELECT id, t, more FROM a"
        assert there.execute(shown).fetchall() == sides.db.execute(shown).fetchall()
    drained(apply)
    count = len(sides.stream.events)
    captured(capture)
    assert len(sides.stream.events) == count


def test_tables_that_inherit_have_rows_of_their_own(sides: Sides) -> None:
    sides.db.execute("CREATE TABLE heir (more int, PRIMARY KEY (id)) INHERITS (a)")
    sides.db.execute("INSERT INTO a (id) VALUES (1)")
    sides.db.execute("INSERT INTO heir (id) VALUES (2)")
    capture = sides.capture()
    apply, there = sides.to_postgres()
    sides.db.execute("UPDATE a SET t = 'new'")
    captured(capture)
    drained(apply)
    assert there.execute("SELECT id, t FROM a").fetchall() == [(1, "new")]
    assert there.execute("SELECT id, t FROM heir").fetchall() == [(2, "new")]


def test_programs_that_take_over_the_copy_meet_no_number_that_is_taken(sides: Sides) -> None:
    made = "CREATE TABLE s (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, k serial, x int)"
    target = sides.server.database()
    there = psycopg.connect(target, autocommit=True)
    sides.closing.append(there.close)
    for db in (sides.db, there):
        db.execute(made)  # type: ignore[arg-type]
    sides.db.execute("INSERT INTO s (x) SELECT generate_series(1, 150)")
    capture = sides.capture()
    apply, _ = sides.to_postgres(target)
    drained(apply)
    insert = "INSERT INTO s (x) VALUES (0) RETURNING id, k"
    assert there.execute(insert).fetchone() == (151, 151)
    sides.db.execute("INSERT INTO s (x) SELECT generate_series(1, 5)")
    captured(capture)
    drained(apply)
    assert there.execute(insert).fetchone() == (156, 156)
    there.execute("CREATE PUBLICATION canopy_back FOR TABLE s")  # it is a source, too
    sides.db.execute("INSERT INTO s (x) SELECT generate_series(1, 50)")
    captured(capture)
    drained(apply)
    assert there.execute("SELECT last_value FROM s_k_seq").fetchone() == (156,)


def test_circles_of_foreign_keys_are_checked_at_the_end_of_a_transaction(sides: Sides) -> None:
    target = sides.server.database()
    with psycopg.connect(target, autocommit=True) as owner:
        owner.execute("CREATE ROLE plain LOGIN; GRANT ALL ON SCHEMA public TO plain")
    there = psycopg.connect(target.replace("user=canopy", "user=plain"), autocommit=True)
    sides.closing.append(there.close)
    for db in (sides.db, there):
        db.execute("CREATE TABLE p (id int PRIMARY KEY, q int)")
        db.execute("CREATE TABLE q (id int PRIMARY KEY, p int REFERENCES p DEFERRABLE)")
        db.execute("ALTER TABLE p ADD FOREIGN KEY (q) REFERENCES q DEFERRABLE")
    insert = "INSERT INTO p VALUES ({0}, {0}); INSERT INTO q VALUES ({0}, {0})"
    circle = f"BEGIN; SET CONSTRAINTS ALL DEFERRED; {insert}; COMMIT"
    sides.db.execute(circle.format(1))  # type: ignore[arg-type]
    capture = sides.capture()
    made = PostgresDestination("shop", target.replace("user=canopy", "user=plain"))
    sides.closing.append(made.close)
    apply = Applier(sides.stream, made, RowFilter({}))
    apply.begin()
    for statement in (circle.format(2), "BEGIN; SET CONSTRAINTS ALL DEFERRED; DELETE FROM p; "
                      "DELETE FROM q; COMMIT", circle.format(3)):  # fmt: skip
        sides.db.execute(statement)  # type: ignore[arg-type]
        captured(capture)
        drained(apply)
        for table in ("p", "q"):
            assert rows(there, table) == rows(sides.db, table)
    there.execute("ALTER TABLE p ADD CHECK (id < 4)")
    sides.db.execute(circle.format(4))  # type: ignore[arg-type]
    captured(capture)
    with pytest.raises(SchemaError, match=r"p: a constraint that the destination has"):
        drained(apply)


class Mortal(PostgresDestination):
    """Its process is killed at a statement."""

    left = 10**9

    def _execute(self, statement: str, values: Any = ()) -> Any:
        self.left -= 1
        if self.left < 0:
            self.close()
            raise Killed
        return super()._execute(statement, values)


def test_the_destination_side_is_killed_at_every_step(sides: Sides) -> None:
    rng = Random(4)
    capture = sides.capture()
    target = sides.server.database()
    for step in range(20):
        work(sides.db, rng, 2)
        captured(capture)
        mortal = Mortal("shop", target)
        mortal.left = step % 10 + step // 10 * 5
        with suppress(Killed):
            apply = Applier(sides.stream, mortal, RowFilter({}))
            apply.begin()
            drained(apply)
        mortal._connection.close()
    apply, there = sides.to_postgres(target)
    drained(apply)
    for table in ("a", "b"):
        assert rows(there, table) == rows(sides.db, table)


def test_another_column_of_the_same_name_has_its_own_values(
    sides: Sides, maria: MariadbServer
) -> None:
    sides.db.execute("INSERT INTO a VALUES (1, 'no number', 1, 1), (2, '7', 1, 1)")
    capture = sides.capture()
    apply, there = sides.to_postgres()
    others: list[Any] = [Duck(sides.folder / "t.duck"), Mariadb(maria)]
    applies = [apply]
    for other in others:
        made = open_destination("shop", other.url)
        sides.closing += [other.close, made.close]
        applies.append(Applier(sides.stream, made, RowFilter({})))
        applies[-1].begin()
    captured(capture)
    for one in applies:
        drained(one)
    sides.db.execute("ALTER TABLE a DROP COLUMN t")
    sides.db.execute("ALTER TABLE a ADD COLUMN t int DEFAULT 5")
    captured(capture)
    for one in applies:
        drained(one)
    for other in (there, *others):
        found = list(other.execute("SELECT id, t FROM a"))
        assert sorted((int(a), int(b)) for a, b in found) == [(1, 5), (2, 5)]


def test_an_identity_without_the_key_is_refused(sides: Sides) -> None:
    sides.db.execute("CREATE TABLE i (id int PRIMARY KEY, code text NOT NULL UNIQUE)")
    capture = sides.capture()
    sides.db.execute("ALTER TABLE i REPLICA IDENTITY USING INDEX i_code_key")
    sides.db.execute("INSERT INTO i VALUES (1, 'a')")
    with pytest.raises(SchemaError, match="i has a REPLICA IDENTITY without its primary key"):
        captured(capture)
    sides.db.execute("ALTER TABLE i REPLICA IDENTITY DEFAULT")
