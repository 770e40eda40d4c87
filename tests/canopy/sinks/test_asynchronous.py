"""Sinks and outboxes of trio and asyncio: as the others, wherever the program is killed, and where
a task is cancelled."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import trio

import canopy
import canopy.aio
import canopy.trio
from canopy.client.errors import CommandFailed
from canopy.sinks import outbox as outbox_module
from canopy.sinks.alchemy import AsyncSqlAlchemyOutbox, AsyncSqlAlchemySink
from canopy.sinks.database import SinkError
from canopy.sinks.positions import SinkMovedError
from canopy.sinks.sqlite import AsyncSqliteOutbox, AsyncSqliteSink
from tests.canopy.sinks.doomed import Doom, KilledError, open_database
from tests.canopy.sinks.shop import killed_everywhere, orders, shop
from tests.support.real.scripted_stream import ScriptedStream

ROWS = [[3, 1, 4, 1, 5], [9, 2, 6]]

Job = Callable[[canopy.trio.AsyncClient], Awaitable[Any]]
Run = Callable[[Path, Job], Any]


def with_trio(data: Path, job: Job) -> Any:
    async def main() -> Any:
        async with canopy.trio.connect(data) as client:
            return await job(client)

    return trio.run(main)


def with_asyncio(data: Path, job: Job) -> Any:
    async def main() -> Any:
        async with canopy.aio.connect(data) as client:
            return await job(client)

    return asyncio.run(main())


@pytest.fixture(params=[with_trio, with_asyncio])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[ScriptedStream]:
    with ScriptedStream(tmp_path / "node", *(list(shard) for shard in ROWS)) as made:
        yield made


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return shop(tmp_path / "shop.db")


def insert(n: int) -> Callable[[sqlite3.Cursor], Any]:
    return lambda cursor: cursor.execute("INSERT INTO orders VALUES (?)", (n,)).rowcount


async def sell(db: sqlite3.Connection, client: canopy.trio.AsyncClient) -> None:
    """Three transactions, of which the second one fails."""
    outbox = AsyncSqliteOutbox(db, client, "s", "shop")
    await outbox.relay()
    for n in (10, 20, 30):
        try:
            async with outbox.transaction() as one:
                assert await one.db.run(insert(n)) == 1
                one.send({"n": n})
                one.send({"n": n + 1})
                assert n != 20 or 1 // 0
        except ZeroDivisionError:
            assert n == 20
    await outbox.relay()


def test_a_stream_has_what_the_database_has_wherever_the_program_is_killed(
    run: Run, stream: ScriptedStream, tmp_path: Path
) -> None:
    def work(db: sqlite3.Connection) -> None:
        run(stream.data, partial(sell, db))

    with canopy.connect(stream.data) as client:
        assert list(killed_everywhere(client, stream, tmp_path, work)) == []


def test_a_decision_that_the_stream_hears_too_early_is_found(
    stream: ScriptedStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = AsyncSqliteOutbox.transaction

    @asynccontextmanager
    async def early(self: Any) -> Any:
        """The planted fault: the stream hears of the commit before the database has it."""
        async with original(self) as one:
            yield one
            half = self._client.transaction("s", "shop", one.id)
            await half.prepare(one.events)
            await half.commit()

    monkeypatch.setattr(AsyncSqliteOutbox, "transaction", early)

    def work(db: sqlite3.Connection) -> None:
        with_trio(stream.data, partial(sell, db))

    with canopy.connect(stream.data) as client:
        try:
            wrong = next(killed_everywhere(client, stream, tmp_path, work), None)
        except SinkError as error:  # the outbox itself sees that the two differ
            wrong = (0, str(error))
    assert wrong is not None


async def follow(db: sqlite3.Connection, client: canopy.trio.AsyncClient) -> None:
    """Add all rows that are there to the database."""
    sink = AsyncSqliteSink(db, client, "sum")
    async with sink.read("s") as reading:
        while events := await reading.take(30):
            async with sink.transaction(reading) as one:
                rows = [(event.attributes["n"],) for event in events]

                def effects(cursor: sqlite3.Cursor, rows: list[Any] = rows) -> None:
                    for row in rows:
                        cursor.execute("INSERT INTO orders VALUES (?)", row)

                await one.run(effects)


def test_each_event_takes_effect_once_wherever_the_program_is_killed(
    run: Run, stream: ScriptedStream, tmp_path: Path
) -> None:
    expected = sorted(n for shard in ROWS for n in shard)
    at, is_killed = 0, True
    while is_killed:
        at += 1
        path = shop(tmp_path / f"{at}.db")
        db = open_database(path, Doom(at))
        try:
            run(stream.data, partial(follow, db))
            is_killed = False
        except KilledError:
            db.close()
            db = open_database(path)
            run(stream.data, partial(follow, db))
        db.close()
        assert orders(path) == expected, at
    assert at > 20


def test_a_task_that_is_cancelled_rolls_back_and_leaves_the_rest_to_the_next_relay(
    run: Run, stream: ScriptedStream, database: Path
) -> None:
    """Cancelled while a statement runs in its thread: that one ends before the rollback."""
    db = open_database(database)
    begun, goes_on = threading.Event(), threading.Event()

    def slow(cursor: sqlite3.Cursor) -> None:
        insert(1)(cursor)
        begun.set()
        goes_on.wait(30)
        insert(2)(cursor)

    async def job(client: canopy.trio.AsyncClient) -> None:
        outbox = AsyncSqliteOutbox(db, client, "s", "shop")

        async def sold() -> None:
            async with outbox.transaction() as one:
                one.send({"n": 1})
                await one.db.run(slow)

        async def cancel() -> None:
            threading.Timer(0.05, goes_on.set).start()

        if run is with_trio:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sold)
                await trio.to_thread.run_sync(begun.wait)
                await cancel()
                nursery.cancel_scope.cancel()
        else:
            task = asyncio.create_task(sold())
            await asyncio.to_thread(begun.wait)
            await cancel()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not outbox_module.RUNNING
        assert await outbox.relay() == 0

    run(stream.data, job)
    assert goes_on.is_set()
    assert not db.in_transaction, "nothing was done behind the rollback"
    assert orders(database) == []
    assert stream.halves == stream.outcomes == {}


def test_what_a_stream_asks_and_refuses_is_answered_as_by_the_other_face(
    run: Run, stream: ScriptedStream, database: Path
) -> None:
    db = open_database(database)
    stream.shards[0].clear()

    async def job(client: canopy.trio.AsyncClient) -> None:
        outbox = AsyncSqliteOutbox(db, client, "s", "shop")
        await client.transaction("s", "shop", "e").prepare([{"n": 0}])
        stream.reviews = ["e"]
        assert await outbox.answer(30) == 1
        assert stream.unknown == ["e"]
        stream.refusal = "full"

        async def sold() -> None:
            async with outbox.transaction() as one:
                await one.db.run(insert(1))
                one.send({"n": 1})

        with pytest.raises(CommandFailed, match="as many as may be"):
            await sold()
        stream.refusal = ""
        with pytest.raises(SinkError, match="ended from inside"):
            async with outbox.transaction() as one:
                await one.db.run(lambda cursor: cursor.connection.commit())

    run(stream.data, job)
    assert orders(database) == []
    assert stream.shards[0] == []


def test_any_database_of_sqlalchemy_is_a_sink_and_has_an_outbox(
    run: Run, stream: ScriptedStream, database: Path
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{database}")

    def insert_all(connection: sqlalchemy.Connection, rows: list[dict[str, Any]]) -> int:
        return connection.execute(sqlalchemy.text("INSERT INTO orders VALUES (:n)"), rows).rowcount

    async def job(client: canopy.trio.AsyncClient) -> None:
        sink = AsyncSqlAlchemySink(engine, client, "sum")
        async with sink.read("s") as reading:
            while events := await reading.take(30):
                rows = [{"n": event.attributes["n"]} for event in events]
                async with sink.transaction(reading) as one:
                    assert await one.run(partial(insert_all, rows=rows)) == len(rows)
        assert await sink.positions("s") == {0: 5, 1: 3}
        stale = AsyncSqlAlchemySink(engine, client, "sum")
        stream.shards[1].append(7)
        async with stale.read("s") as one, sink.read("s") as other:
            for each, begun in ((stale, one), (sink, other)):
                assert len(await begun.take(30)) == 1
                refused = pytest.raises(SinkMovedError) if each is sink else nullcontext()
                with refused:
                    async with each.transaction(begun):
                        pass
        outbox = AsyncSqlAlchemyOutbox(engine, client, "s", "shop")
        async with outbox.transaction() as one:
            await one.db.run(partial(insert_all, rows=[{"n": 100}]))
            one.send({"n": 100})
        assert one.decided is not None
        assert one.decided.outcome == "committed"

    stream_rows = sorted(n for shard in ROWS for n in shard)
    run(stream.data, job)
    assert orders(database) == [*stream_rows, 100]
    assert stream.shards[0][-1] == 100
    engine.dispose()
