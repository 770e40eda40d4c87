"""Sinks and outboxes for SQLAlchemy's own asyncio: an `AsyncEngine`, or sessions of its ORM.

>>> from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
>>> import canopy.aio
>>> from canopy.sinks.alchemy_asyncio import AsyncSessionSink
>>> async def follow(url: str) -> None:
...     engine = create_async_engine(url)
...     async with canopy.aio.connect() as client:
...         sink = AsyncSessionSink(async_sessionmaker(engine), client, "invoices")
...         async with sink.read("orders") as reading:
...             while events := await reading.take(10):
...                 async with sink.transaction(reading) as session:
...                     session.add_all(Bill(total=event.attributes["total"]) for event in events)
...     await engine.dispose()

For `canopy.aio` only: SQLAlchemy's drivers need asyncio. (Programs of trio use
`canopy.sinks.alchemy`, whose statements are carried out in threads.)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker

from canopy.client.client import AsyncClient
from canopy.sinks.alchemy import make_table, runner
from canopy.sinks.asynchronous import AsyncOutbox, AsyncSink
from canopy.sinks.database import ColumnDefinition, Run, Runner, SinkError

Sessions = async_sessionmaker[AsyncSession]


class EngineDatabase:
    """Implements `canopy.sinks.database.AsyncDatabase` on an engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._connection: AsyncConnection | None = None  # of the transaction that is open

    async def make(self, table: str, columns: Sequence[ColumnDefinition]) -> None:
        """Make a table, unless it is there."""
        async with self._engine.begin() as connection:
            await connection.run_sync(make_table, table, columns)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[AsyncConnection, Runner]]:
        """A transaction, and how jobs are carried out in it."""
        async with self._engine.begin() as connection:
            self._connection = connection

            async def inside(job: Callable[[Run], Any]) -> Any:
                return await connection.run_sync(lambda sync: job(runner(sync)))

            yield connection, inside

    def check_open(self) -> None:
        """SinkError if a program has ended the transaction."""
        _check(self._connection)


class SessionDatabase:
    """Implements `canopy.sinks.database.AsyncDatabase` on sessions, which are bound to one
    engine."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._session: AsyncSession | None = None  # of the transaction that is open

    async def make(self, table: str, columns: Sequence[ColumnDefinition]) -> None:
        """Make a table, unless it is there."""
        async with self._sessions.begin() as session:
            await session.run_sync(lambda sync: make_table(sync.connection(), table, columns))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[AsyncSession, Runner]]:
        """A session with its transaction, and how jobs are carried out in it."""
        async with self._sessions.begin() as session:
            self._session = session

            async def inside(job: Callable[[Run], Any]) -> Any:
                await (
                    session.flush()
                )  # what the program has left to it; else it comes at the commit
                return await session.run_sync(lambda sync: job(runner(sync.connection())))

            yield session, inside

    def check_open(self) -> None:
        """SinkError if a program has ended the transaction."""
        _check(self._session)


def _check(handle: AsyncConnection | AsyncSession | None) -> None:
    if handle is None or not handle.in_transaction():
        raise SinkError("the transaction was ended from inside: leave that to the library")


class AsyncEngineSink(AsyncSink[AsyncConnection]):
    """A consumer of asyncio whose effects and positions are in one database. `transaction` yields
    an `AsyncConnection`."""

    def __init__(self, engine: AsyncEngine, client: AsyncClient, durable: str) -> None:
        """`client`: of `canopy.aio`; `durable`: the consumer's name in the table
        `canopy_positions`."""
        super().__init__(EngineDatabase(engine), client, durable)


class AsyncSessionSink(AsyncSink[AsyncSession]):
    """A consumer of asyncio whose effects and positions are in one database. `transaction` yields
    an `AsyncSession`, new for each, which is committed with the position."""

    def __init__(self, sessions: Sessions, client: AsyncClient, durable: str) -> None:
        """`sessions`: bound to one engine; the others as for `AsyncEngineSink`."""
        super().__init__(SessionDatabase(sessions), client, durable)


class AsyncEngineOutbox(AsyncOutbox[AsyncConnection]):
    """A producer of asyncio whose events belong to transactions of a database; `db` is an
    `AsyncConnection`."""

    def __init__(
        self, engine: AsyncEngine, client: AsyncClient, stream: str, producer: str
    ) -> None:
        """`client`: of `canopy.aio`; the others are those of `AsyncOutbox`."""
        super().__init__(EngineDatabase(engine), client, stream, producer)


class AsyncSessionOutbox(AsyncOutbox[AsyncSession]):
    """A producer of asyncio whose events belong to transactions of a database; `db` is an
    `AsyncSession`, new for each transaction."""

    def __init__(self, sessions: Sessions, client: AsyncClient, stream: str, producer: str) -> None:
        """`sessions`: bound to one engine; the others as for `AsyncEngineOutbox`."""
        super().__init__(SessionDatabase(sessions), client, stream, producer)
