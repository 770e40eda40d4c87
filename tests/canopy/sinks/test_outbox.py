"""Events of a transaction: in the stream exactly if they are in the database, wherever the program
is killed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

import canopy
from canopy.client.errors import CommandFailed
from canopy.client.faces import either
from canopy.sinks import outbox as outbox_module
from canopy.sinks.alchemy import SqlAlchemyOutbox
from canopy.sinks.database import SinkError
from canopy.sinks.outbox import Outbox, OutboxCore, OutboxTransaction
from canopy.sinks.records import Records
from canopy.sinks.sqlite import SqliteOutbox
from tests.canopy.sinks.doomed import open_database
from tests.canopy.sinks.shop import killed_everywhere, orders, shop
from tests.support.real.scripted_stream import ScriptedStream


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[ScriptedStream]:
    with ScriptedStream(tmp_path / "node", []) as made:
        yield made


@pytest.fixture
def client(stream: ScriptedStream) -> Iterator[canopy.Client]:
    with canopy.connect(stream.data) as made:
        yield made


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return shop(tmp_path / "shop.db")


def work(client: canopy.Client, db: sqlite3.Connection) -> None:
    """Three transactions, of which the second one fails, and none is left over."""
    outbox = SqliteOutbox(db, client, "s", "shop")
    outbox.relay()
    for n in (10, 20, 30):
        failed = pytest.raises(ZeroDivisionError) if n == 20 else nothing()
        with failed, outbox.transaction() as one:
            one.db.execute("INSERT INTO orders VALUES (?)", (n,))
            one.send({"n": n})
            one.send({"n": n + 1})
            assert n != 20 or 1 // 0
    outbox.relay()


@contextmanager
def nothing() -> Iterator[None]:
    yield


def test_a_stream_has_what_the_database_has_wherever_the_program_is_killed(
    client: canopy.Client, stream: ScriptedStream, tmp_path: Path
) -> None:
    assert list(killed_everywhere(client, stream, tmp_path, partial(work, client))) == []


def commit_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the stream hears of the commit before the database has it."""
    original = Outbox._preparing

    async def preparing(self: Any, made: Any, half: Any, *arguments: Any) -> None:
        await original(self, made, half, *arguments)
        await either(half.commit())

    monkeypatch.setattr(OutboxCore, "_preparing", preparing)


def no_record_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: nothing is recorded before the half leaves."""
    monkeypatch.setattr(Records, "add", lambda self, run, transaction: None)
    monkeypatch.setattr(Records, "settle", lambda self, run, transaction, state: True)


@pytest.mark.parametrize("plant", [commit_first, no_record_before])
def test_faults_planted_in_the_outbox_are_found(
    client: canopy.Client,
    stream: ScriptedStream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    plant(monkeypatch)
    try:
        wrong = next(killed_everywhere(client, stream, tmp_path, partial(work, client)), None)
    except SinkError as error:  # the outbox itself sees that the two differ
        wrong = (0, str(error))
    assert wrong is not None


def test_what_a_stream_asks_is_answered_from_the_record(
    client: canopy.Client, stream: ScriptedStream, database: Path
) -> None:
    db = open_database(database)
    outbox = SqliteOutbox(db, client, "s", "shop")
    run = outbox._database.runner(db.cursor())
    records = outbox._records
    for name, state in (("a", "committed"), ("b", "rolled-back"), ("c", ""), ("d", "")):
        client.transaction("s", "shop", name).prepare([{"n": ord(name)}])
        records.add(run, name)
        if state:
            records.settle(run, name, state)
    db.commit()
    client.transaction("s", "shop", "e").prepare([{"n": 0}])
    outbox_module.RUNNING.add("d")
    assert outbox.answer(0.01) == 0
    stream.reviews = ["a", "b", "c", "d", "e"]
    stream.hang_up()
    assert outbox.answer(30) == 5
    assert stream.outcomes == {"a": "committed", "b": "rolled-back", "c": "rolled-back"}
    assert stream.unknown == ["d", "e"], "one is in preparation, of one there is no record"
    assert stream.shards[0] == [ord("a")]
    assert sorted(stream.halves) == ["d", "e"]
    outbox_module.RUNNING.discard("d")
    assert outbox.relay() == 1
    assert stream.outcomes["d"] == "rolled-back"
    assert orders(database, "canopy_outbox") == []


def test_a_review_that_rolls_back_and_the_commit_exclude_each_other(
    client: canopy.Client, stream: ScriptedStream, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = SqliteOutbox(open_database(database), client, "s", "shop")
    original = OutboxTransaction.send

    def send(self: OutboxTransaction[sqlite3.Cursor], event: Any) -> None:
        """Another process with the same name looks at what is in preparation."""
        original(self, event)
        self.db.execute("UPDATE canopy_outbox SET state = 'rolled-back'")

    monkeypatch.setattr(OutboxTransaction, "send", send)
    refused = pytest.raises(SinkError, match="another process that is shop")
    with refused, outbox.transaction() as one:
        one.db.execute("INSERT INTO orders VALUES (1)")
        one.send({"n": 1})
    assert orders(database) == []
    assert stream.shards[0] == []
    assert set(stream.outcomes.values()) == {"rolled-back"}


def test_what_an_operator_has_decided_otherwise_is_said(
    client: canopy.Client, stream: ScriptedStream, database: Path
) -> None:
    outbox = SqliteOutbox(open_database(database), client, "s", "shop")
    stream.operator = "rolled-back"
    said = pytest.raises(SinkError, match="committed in this database, and an operator has it rol")
    with said, outbox.transaction() as one:
        one.db.execute("INSERT INTO orders VALUES (1)")
        one.send({"n": 1})
    assert orders(database) == [1]


def test_an_event_that_the_stream_refuses_undoes_the_transaction(
    client: canopy.Client, stream: ScriptedStream, database: Path
) -> None:
    outbox = SqliteOutbox(open_database(database), client, "s", "shop")
    stream.refusal = "full"
    refused = pytest.raises(CommandFailed, match="as many as may be")
    with refused, outbox.transaction() as one:
        one.db.execute("INSERT INTO orders VALUES (1)")
        one.send({"n": 1})
    stream.refusal = ""
    with outbox.transaction() as one:
        one.db.execute("INSERT INTO orders VALUES (2)")
    assert orders(database) == [2]
    assert orders(database, "canopy_outbox") == []
    assert stream.halves == stream.outcomes == {}


def test_any_database_of_sqlalchemy_has_an_outbox(
    client: canopy.Client, stream: ScriptedStream, database: Path
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{database}")
    outbox = SqlAlchemyOutbox(engine, client, "s", "shop")
    with outbox.transaction() as one:
        one.db.execute(sqlalchemy.text("INSERT INTO orders VALUES (1)"))
        one.send({"n": 1})
    assert one.decided is not None
    assert one.decided.outcome == "committed"
    failed = pytest.raises(sqlalchemy.exc.OperationalError)
    with failed, outbox.transaction() as one:
        one.send({"n": 2})
        one.db.execute(sqlalchemy.text("INSERT INTO nowhere VALUES (1)"))
    assert stream.shards[0] == orders(database) == [1]
    assert orders(database, "canopy_outbox") == []


def test_a_transaction_without_a_decision_is_rolled_back(
    client: canopy.Client, stream: ScriptedStream
) -> None:
    with client.transaction("s", "shop") as one:
        assert one.prepare([{"n": 1}]).outcome == "prepared"
    assert stream.outcomes == {one.id: "rolled-back"}
    assert one.prepare([{"n": 1}]).outcome == "rolled-back"
    with client.transaction("s", "shop") as other:
        pass
    with pytest.raises(CommandFailed) as failed:
        other.commit()
    assert failed.value.code == "unknown-transaction"
