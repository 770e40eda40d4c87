"""Sinks and outboxes on SQLAlchemy's asyncio, wherever the program is killed or cancelled."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import canopy.aio
from canopy.sinks import outbox as outbox_module
from canopy.sinks.alchemy_asyncio import (
    AsyncEngineOutbox,
    AsyncEngineSink,
    AsyncSessionOutbox,
    AsyncSessionSink,
)
from canopy.sinks.database import SinkError
from canopy.sinks.positions import SinkMovedError
from tests.canopy.sinks.doomed import KilledError
from tests.canopy.sinks.shop import shop
from tests.support.real.scripted_stream import ScriptedStream

ROWS = [[3, 1, 4, 1, 5], [9, 2, 6]]
EVERY = sorted(n for shard in ROWS for n in shard)


class Base(DeclarativeBase):
    pass


class Order(Base):
    """A row of the shop's table, which has no key of its own."""

    __tablename__ = "sold"

    id: Mapped[int] = mapped_column(primary_key=True)
    n: Mapped[int]


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[ScriptedStream]:
    with ScriptedStream(tmp_path / "node", *(list(shard) for shard in ROWS)) as made:
        yield made


class Doom:
    """Ends a program at a statement or commit of its database, before it or after it."""

    def __init__(self, engine: AsyncEngine, at: int) -> None:
        self.at, self.count = at, 0
        for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
            event.listen(engine.sync_engine, name, self.strike)

    def strike(self, *_: Any) -> None:
        self.count += 1
        if self.count >= self.at:
            raise KilledError


@asynccontextmanager
async def opened(path: Path, at: int = 1 << 30) -> AsyncIterator[tuple[AsyncEngine, Doom]]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    connections: list[Any] = []
    event.listen(
        engine.sync_engine, "connect", lambda made, _: connections.append(made.driver_connection)
    )
    try:
        async with engine.connect() as connection:
            await connection.execute(sqlalchemy.text("PRAGMA synchronous = OFF"))
            await connection.run_sync(Base.metadata.create_all)
            await connection.commit()
        yield engine, Doom(engine, at)
    finally:
        for connection in connections:  # also those that a killed program has not given back
            await connection.close()
        await engine.dispose()
        gc.collect()  # a statement that has not ended keeps its lock for as long as it is there


async def follow(data: Path, engine: AsyncEngine, with_sessions: bool) -> None:
    """Add all rows that are there to the database."""
    async with canopy.aio.connect(data) as client:
        sessions = async_sessionmaker(engine)
        if with_sessions:
            sink = AsyncSessionSink(sessions, client, "sum")
            async with sink.read("s") as reading:
                while events := await reading.take(30):
                    async with sink.transaction(reading) as session:
                        session.add_all(Order(n=each.attributes["n"]) for each in events)
            return
        other = AsyncEngineSink(engine, client, "sum")
        async with other.read("s") as reading:
            while events := await reading.take(30):
                rows = [{"n": each.attributes["n"]} for each in events]
                async with other.transaction(reading) as connection:
                    await connection.execute(sqlalchemy.insert(Order), rows)


@pytest.mark.parametrize("with_sessions", [False, True])
def test_each_event_takes_effect_once_wherever_the_program_is_killed(
    stream: ScriptedStream, tmp_path: Path, with_sessions: bool
) -> None:
    async def life(path: Path, at: int) -> bool:
        async with opened(path, at) as (engine, doom):
            try:
                await follow(stream.data, engine, with_sessions)
            except KilledError:
                return True
            assert doom.count > 12
            return False

    at, is_killed = 0, True
    while is_killed:
        at += 1
        path = shop(tmp_path / f"{at}.db")
        is_killed = asyncio.run(life(path, at))
        if is_killed:
            assert not asyncio.run(life(path, 1 << 30))
        assert sorted(n for _, n in rows_of(path)) == EVERY, at


def rows_of(path: Path) -> list[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        found = list(connection.execute(sqlalchemy.text("SELECT id, n FROM sold ORDER BY id")))
    engine.dispose()
    return found


def test_a_position_that_is_moved_outside_of_the_transaction_is_found(
    stream: ScriptedStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the position is committed before the effects."""
    original = AsyncEngineSink.transaction

    @asynccontextmanager
    async def early(self: Any, reading: Any) -> Any:
        async with original(self, reading):
            pass
        async with self._database.opened() as (connection, _):
            yield connection

    monkeypatch.setattr(AsyncEngineSink, "transaction", early)

    async def life(at: int) -> None:
        async with opened(tmp_path / f"{at}.db", at) as (engine, _):
            with suppress(KilledError):
                await follow(stream.data, engine, with_sessions=False)
        async with opened(tmp_path / f"{at}.db") as (engine, _):
            await follow(stream.data, engine, with_sessions=False)

    wrong = []
    for at in range(10, 40):
        asyncio.run(life(at))
        wrong += [at] if sorted(n for _, n in rows_of(tmp_path / f"{at}.db")) != EVERY else []
    assert wrong


async def sell(data: Path, engine: AsyncEngine, with_sessions: bool) -> None:
    """Three transactions, of which the second one fails."""
    async with canopy.aio.connect(data) as client:
        outbox: Any = AsyncEngineOutbox(engine, client, "s", "shop")
        if with_sessions:
            outbox = AsyncSessionOutbox(async_sessionmaker(engine), client, "s", "shop")
        await outbox.relay()
        for n in (10, 20, 30):
            try:
                async with outbox.transaction() as one:
                    if with_sessions:
                        one.db.add(Order(n=n))
                    else:
                        await one.db.execute(sqlalchemy.insert(Order), [{"n": n}])
                    one.send({"n": n})
                    one.send({"n": n + 1})
                    assert n != 20 or 1 // 0
            except ZeroDivisionError:
                assert n == 20
        await outbox.relay()


@pytest.mark.parametrize("with_sessions", [False, True])
def test_a_stream_has_what_the_database_has_wherever_the_program_is_killed(
    stream: ScriptedStream, tmp_path: Path, with_sessions: bool
) -> None:
    async def life(path: Path, at: int) -> bool:
        async with opened(path, at) as (engine, doom):
            try:
                await sell(stream.data, engine, with_sessions)
            except KilledError:
                return True
            assert doom.count > 30
            return False

    async def relay(path: Path) -> None:
        async with opened(path) as (engine, _), canopy.aio.connect(stream.data) as client:
            await AsyncEngineOutbox(engine, client, "s", "shop").relay()

    at, is_killed = 0, True
    while is_killed:
        at += 1
        path = tmp_path / f"{at}.db"
        stream.shards[0].clear()
        is_killed = asyncio.run(life(path, at))
        if is_killed:
            outbox_module.RUNNING.clear()  # the process is gone
            asyncio.run(relay(path))
        expected = [n for _, order in rows_of(path) for n in (order, order + 1)]
        assert stream.shards[0] == expected, at
        assert not stream.halves, at


def test_two_processes_that_read_as_one_consumer_and_transactions_that_are_ended_inside(
    stream: ScriptedStream, tmp_path: Path
) -> None:
    async def job() -> None:
        async with (
            opened(tmp_path / "a.db") as (engine, _),
            canopy.aio.connect(stream.data) as client,
        ):
            await follow(stream.data, engine, with_sessions=True)
            sessions = async_sessionmaker(engine)
            sinks: list[Any] = [
                AsyncEngineSink(engine, client, "sum"),
                AsyncSessionSink(sessions, client, "sum"),
            ]
            assert await sinks[0].positions("s") == {0: 5, 1: 3}
            stream.shards[1].append(7)
            async with sinks[0].read("s") as one, sinks[1].read("s") as other:
                for sink, reading in zip(sinks, (one, other), strict=True):
                    assert len(await reading.take(30)) == 1
                    refused = pytest.raises(SinkMovedError) if sink is sinks[1] else nullcontext()
                    with refused:
                        async with sink.transaction(reading):
                            pass
            stream.shards[1].append(8)
            for sink in sinks:
                async with sink.read("s") as reading:
                    assert len(await reading.take(30)) == 1
                    with pytest.raises(SinkError, match="ended from inside"):
                        async with sink.transaction(reading) as handle:
                            await handle.rollback()
                    async with sink.transaction(reading) as handle:
                        await handle.execute(sqlalchemy.select(1))
                stream.shards[1].append(9)

    asyncio.run(job())


def test_a_task_that_is_cancelled_rolls_back_and_may_go_on(
    stream: ScriptedStream, tmp_path: Path
) -> None:
    async def job() -> list[Any]:
        async with (
            opened(tmp_path / "a.db") as (engine, _),
            canopy.aio.connect(stream.data) as client,
        ):
            sink = AsyncSessionSink(async_sessionmaker(engine), client, "sum")
            async with sink.read("s") as reading:
                events = await reading.take(30)
                begun = asyncio.Event()

                async def effects() -> None:
                    async with sink.transaction(reading) as session:
                        session.add(Order(n=1_000))
                        await session.flush()
                        begun.set()
                        await asyncio.sleep(60)

                task = asyncio.create_task(effects())
                await begun.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                async with sink.transaction(reading) as session:  # the same events
                    session.add_all(Order(n=each.attributes["n"]) for each in events)
            assert sum((await sink.positions("s")).values()) == len(events)
            return sorted(each.attributes["n"] for each in events)

    events = asyncio.run(job())
    assert sorted(n for _, n in rows_of(tmp_path / "a.db")) == events
