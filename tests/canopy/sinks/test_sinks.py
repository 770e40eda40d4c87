"""Effects and positions in one database: each event once, wherever the program is killed."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

import canopy
from canopy.client.errors import CommandFailed
from canopy.sinks.alchemy import SqlAlchemySink
from canopy.sinks.database import SinkError
from canopy.sinks.positions import Followed, SinkMovedError
from canopy.sinks.sqlite import SqliteSink
from overlay.client import BeginReading, CommitReading
from tests.canopy.sinks import killed_consumer
from tests.canopy.sinks.doomed import Doom, KilledError, open_database
from tests.support.real.scripted_stream import ScriptedStream

ROWS = [[3, 1, 4, 1, 5], [9, 2, 6]]


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[ScriptedStream]:
    with ScriptedStream(tmp_path / "node", *ROWS) as made:
        yield made


@pytest.fixture
def client(stream: ScriptedStream) -> Iterator[canopy.Client]:
    with canopy.connect(stream.data) as made:
        yield made


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "sink.db"


def seen(path: Path) -> list[int]:
    db = sqlite3.connect(path)
    found = sorted(row[0] for row in db.execute("SELECT n FROM seen"))
    db.close()
    return found


def add_and_fail(execute: Callable[[str], Any]) -> None:
    execute("INSERT INTO seen VALUES (100)")
    execute("INSERT INTO nowhere VALUES (100)")


def follow(client: canopy.Client, db: sqlite3.Connection, kind: type[SqliteSink]) -> None:
    """Add all rows that are there to the database."""
    sink = kind(db, "sum")
    with sink.read(client, "s") as reading:
        while events := reading.take(30):
            with sink.transaction(reading) as cursor:
                for event in events:
                    cursor.execute("INSERT INTO seen VALUES (?)", (event.attributes["n"],))


def killed_everywhere(
    client: canopy.Client, folder: Path, kind: type[SqliteSink]
) -> dict[int, list[int]]:
    """What is in the database if the program is killed at its n-th statement, and started again."""
    found = {}
    for at in itertools.count(1):
        path = folder / f"{at}.db"
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE seen (n)")
        db.close()
        doom = Doom(at)
        db = open_database(path, doom)
        try:
            follow(client, db, kind)
        except KilledError:
            db.close()
            db = open_database(path)
            follow(client, db, kind)
        db.close()
        found[at] = seen(path)
        if doom.count < at:
            return found
    raise AssertionError


def test_each_event_takes_effect_once_wherever_the_program_is_killed(
    client: canopy.Client, tmp_path: Path
) -> None:
    found = killed_everywhere(client, tmp_path, SqliteSink)
    assert len(found) > 20
    expected = sorted(n for shard in ROWS for n in shard)
    assert {at: rows for at, rows in found.items() if rows != expected} == {}


class PositionFirst(SqliteSink):
    """The planted fault: the position is committed before the effects are."""

    @contextmanager
    def transaction(self, reading: Followed) -> Iterator[sqlite3.Cursor]:
        with super().transaction(reading):
            pass
        with self._database.opened() as cursor:
            yield cursor


class EffectFirst(SqliteSink):
    """The other planted fault: the effects are committed before the position is."""

    @contextmanager
    def transaction(self, reading: Followed) -> Iterator[sqlite3.Cursor]:
        with self._database.opened() as cursor:
            yield cursor
        with super().transaction(reading):
            pass


@pytest.mark.parametrize(("kind", "is_lost"), [(PositionFirst, True), (EffectFirst, False)])
def test_two_transactions_instead_of_one_are_found(
    client: canopy.Client, tmp_path: Path, kind: type[SqliteSink], is_lost: bool
) -> None:
    expected = sum(len(rows) for rows in ROWS)
    wrong = [
        len(rows)
        for rows in killed_everywhere(client, tmp_path, kind).values()
        if len(rows) != expected
    ]
    assert wrong
    assert all((rows < expected) == is_lost for rows in wrong)


@pytest.mark.process
def test_a_consumer_process_that_is_killed_again_and_again_counts_each_event_once(
    tmp_path: Path, database: Path
) -> None:
    rows = list(range(200))
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE seen (n)")
    db.close()
    with ScriptedStream(tmp_path / "node", rows, most=7) as stream:
        script = [sys.executable, "-m", killed_consumer.__name__]
        for life in range(3):
            process = subprocess.Popen([*script, str(stream.data), str(database)])
            until = time.monotonic() + 30
            while life < 2 and len(seen(database)) < 50 * (life + 1):
                assert time.monotonic() < until
                time.sleep(0.002)
            if life < 2:
                process.kill()
            process.wait(30)
    assert process.returncode == 0
    assert seen(database) == rows


def test_of_two_programs_that_read_as_one_consumer_one_gets_on(
    client: canopy.Client, database: Path
) -> None:
    db = open_database(database)
    db.execute("CREATE TABLE seen (n)")
    one, two = SqliteSink(db, "sum"), SqliteSink(db, "sum")
    with one.read(client, "s") as reading, two.read(client, "s") as other:
        for sink, each in ((one, reading), (two, other)):
            events = each.take(30)
            assert len(events) == 6
            if sink is one:
                with sink.transaction(each) as cursor:
                    cursor.execute("INSERT INTO seen VALUES (1)")
            else:
                moved = pytest.raises(SinkMovedError, match="another process")
                with moved, sink.transaction(each) as cursor:
                    cursor.execute("INSERT INTO seen VALUES (2)")
    assert seen(database) == [1]


def test_events_whose_transaction_failed_are_not_passed_over(
    client: canopy.Client, stream: ScriptedStream, database: Path
) -> None:
    stream.most = 1
    db = open_database(database)
    db.execute("CREATE TABLE seen (n)")
    sink = SqliteSink(db, "sum")
    with sink.read(client, "s") as reading:
        events = reading.take(30)
        with pytest.raises(sqlite3.OperationalError), sink.transaction(reading) as cursor:
            add_and_fail(cursor.execute)
        with sink.transaction(reading) as cursor:  # the same events once more
            cursor.execute("INSERT INTO seen VALUES (?)", (len(events),))
        reading.take(30)
        with pytest.raises(sqlite3.OperationalError), sink.transaction(reading) as cursor:
            cursor.execute("INSERT INTO nowhere VALUES (1)")
        reading.take(30)
        with pytest.raises(SinkError, match="had no effect"), sink.transaction(reading):
            pass
        assert sink.positions("s") == {0: 1, 1: 1}
    assert seen(database) == [2]


def test_another_stream_or_selector_is_refused_and_so_is_what_is_not_kept(
    client: canopy.Client, stream: ScriptedStream, database: Path
) -> None:
    db = open_database(database)
    db.execute("CREATE TABLE seen (n)")
    follow(client, db, SqliteSink)
    assert SqliteSink(db, "sum").positions("s") == {0: 5, 1: 3}
    begun = [one for one in stream.commands if isinstance(one, BeginReading)]
    told = [one for one in stream.commands if isinstance(one, CommitReading)]
    assert {one.durable for one in begun} == {"sum"}
    assert told[0].positions == ((0, 3), (1, 3)), "so retention keeps the rest"
    with pytest.raises(SinkError, match="another selector: all events"):
        SqliteSink(db, "sum").read(client, "s", "n > 3")
    stream.first = 6
    with pytest.raises(CommandFailed, match="rows below 6 are no longer kept") as failed:
        SqliteSink(db, "sum").read(client, "s")
    assert failed.value.code == "offset-out-of-range"
    stream.first, stream.stream_id = 0, "id of another s"
    with pytest.raises(SinkError, match=r"another stream, with the id id of s\. Delete the rows"):
        SqliteSink(db, "sum").read(client, "s")
    foreign = client.read("s", start="first")
    refused = pytest.raises(SinkError, match="not begun with the sink")
    with refused, SqliteSink(db, "sum").transaction(foreign):
        pass


def test_a_reading_that_begins_with_new_events_goes_on_there_after_a_restart(
    client: canopy.Client, stream: ScriptedStream, database: Path
) -> None:
    db = open_database(database)
    SqliteSink(db, "late").read(client, "s", start="new").close()
    stream.shards[0].append(7)
    with SqliteSink(db, "late").read(client, "s", start="new") as reading:
        assert [event.attributes["n"] for event in reading.take(30)] == [7]
    stream.shards[0].pop()


def test_a_transaction_that_is_open_or_ended_from_inside_is_refused(
    client: canopy.Client, database: Path
) -> None:
    db = open_database(database)
    db.execute("CREATE TABLE seen (n)")
    sink = SqliteSink(db, "sum")
    with sink.read(client, "s") as reading:
        reading.take(30)
        with pytest.raises(SinkError, match="ended from inside"), sink.transaction(reading):
            db.commit()
        db.execute("INSERT INTO seen VALUES (1)")
        with pytest.raises(SinkError, match="not committed"), sink.transaction(reading):
            pass
        db.rollback()
    assert sink.positions("s") == {0: 0, 1: 0}


def test_any_database_of_sqlalchemy_is_a_sink(client: canopy.Client, database: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{database}")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE seen (n INTEGER)"))
    insert = sqlalchemy.text("INSERT INTO seen VALUES (:n)")
    for stops in (True, False):
        sink = SqlAlchemySink(engine, "sum")
        with sink.read(client, "s") as reading:
            while events := reading.take(30):
                with sink.transaction(reading) as db:
                    for event in events:
                        db.execute(insert, {"n": event.attributes["n"]})
                if stops:
                    break
                stale = SqlAlchemySink(engine, "sum")
                with pytest.raises(SinkMovedError, match="begins at"):
                    stale.begin(reading)
    assert seen(database) == sorted(n for shard in ROWS for n in shard)
    failed = pytest.raises(sqlalchemy.exc.OperationalError)
    with failed, sink.transaction(reading) as db:
        add_and_fail(lambda statement: db.execute(sqlalchemy.text(statement)))
    assert 100 not in seen(database)
