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
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from canopy.client.client import AsyncClient
from canopy.sinks.alchemy import make_table, runner
from canopy.sinks.asynchronous import AsyncOutbox, AsyncSink
from canopy.sinks.database import ColumnDefinition, Run, Runner, SinkError

Sessions = async_sessionmaker[AsyncSession]
Handle = TypeVar("Handle", AsyncConnection, AsyncSession)


class AsyncAlchemyDatabase(Generic[Handle]):
    """Implements `canopy.sinks.database.AsyncDatabase` on an engine, or on sessions of one
    engine."""

    def __init__(self, begin: Callable[[], AbstractAsyncContextManager[Handle]]) -> None:
        """`begin` makes a transaction: of a connection, or of a session."""
        self._begin: Callable[[], AbstractAsyncContextManager[Handle]] = begin
        self._handle: Handle | None = None  # of the transaction that is open

    async def make(self, table: str, columns: Sequence[ColumnDefinition]) -> None:
        """Make a table, unless it is there."""
        async with self._begin() as handle:
            await handle.run_sync(lambda sync: make_table(_connection(sync), table, columns))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Handle, Runner]]:
        """A transaction, and how jobs are carried out in it."""
        async with self._begin() as handle:
            self._handle = handle

            async def inside(job: Callable[[Run], Any]) -> Any:
                return await handle.run_sync(lambda sync: job(runner(_connection(sync))))

            yield handle, inside

    def check_open(self) -> None:
        """SinkError if a program has ended the transaction."""
        if self._handle is None or not self._handle.in_transaction():
            raise SinkError("the transaction was ended from inside: leave that to the library")


def _connection(sync: Connection | Session) -> Connection:
    """The connection of a transaction. A session first writes what the program has left to it,
    which would otherwise come at the commit."""
    if isinstance(sync, Connection):
        return sync
    sync.flush()
    return sync.connection()


class AsyncEngineSink(AsyncSink[AsyncConnection]):
    """A consumer of asyncio whose effects and positions are in one database. `transaction` yields
    an `AsyncConnection`."""

    def __init__(self, engine: AsyncEngine, client: AsyncClient, durable: str) -> None:
        """`client`: of `canopy.aio`; `durable`: the consumer's name in the table
        `canopy_positions`."""
        super().__init__(AsyncAlchemyDatabase(engine.begin), client, durable)


class AsyncSessionSink(AsyncSink[AsyncSession]):
    """A consumer of asyncio whose effects and positions are in one database. `transaction` yields
    an `AsyncSession`, new for each, which is committed with the position."""

    def __init__(self, sessions: Sessions, client: AsyncClient, durable: str) -> None:
        """`sessions`: bound to one engine; the others as for `AsyncEngineSink`."""
        super().__init__(AsyncAlchemyDatabase(sessions.begin), client, durable)


class AsyncEngineOutbox(AsyncOutbox[AsyncConnection]):
    """A producer of asyncio whose events belong to transactions of a database; `db` is an
    `AsyncConnection`."""

    def __init__(
        self, engine: AsyncEngine, client: AsyncClient, stream: str, producer: str
    ) -> None:
        """`client`: of `canopy.aio`; the others are those of `AsyncOutbox`."""
        super().__init__(AsyncAlchemyDatabase(engine.begin), client, stream, producer)


class AsyncSessionOutbox(AsyncOutbox[AsyncSession]):
    """A producer of asyncio whose events belong to transactions of a database; `db` is an
    `AsyncSession`, new for each transaction."""

    def __init__(self, sessions: Sessions, client: AsyncClient, stream: str, producer: str) -> None:
        """`sessions`: bound to one engine; the others as for `AsyncEngineOutbox`."""
        super().__init__(AsyncAlchemyDatabase(sessions.begin), client, stream, producer)
