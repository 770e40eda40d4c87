"""Sinks and outboxes for programs of trio and asyncio.

>>> import sqlite3, canopy.trio
>>> from canopy.sinks.sqlite import AsyncSqliteOutbox
>>> async def sell(path: str) -> None:
...     db = sqlite3.connect(path, check_same_thread=False)
...     async with canopy.trio.connect() as client:
...         outbox = AsyncSqliteOutbox(db, client, "orders", "shop")
...         await outbox.relay()
...         async with outbox.transaction() as one:
...             await one.db.run(lambda cursor: cursor.execute("INSERT INTO orders VALUES (17)"))
...             one.send({"order": 17})

A task that is cancelled rolls back its transaction, or has it committed, as an error would find it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic

from canopy.client.client import AsyncClient
from canopy.client.faces import Opening
from canopy.client.streams.positions import Positions as StreamPositions
from canopy.client.streams.reading import AsyncReading, Start
from canopy.sinks import positions, records
from canopy.sinks.database import AsyncDatabase, H, Run, carry_out
from canopy.sinks.outbox import RUNNING, OutboxCore, OutboxTransaction
from canopy.sinks.positions import Followed, PositionTable


class AsyncSink(Generic[H]):
    """`canopy.sinks.sink.Sink`, to be awaited: used by one task, for one reading at a time."""

    def __init__(self, database: AsyncDatabase[H], client: AsyncClient, durable: str) -> None:
        """`durable`: the consumer's name in the table `canopy_positions`, which is made if it is
        not there."""
        self._database = database
        self._client = client
        self._positions = PositionTable(durable)
        self._is_made = False

    async def positions(self, stream: str) -> StreamPositions:
        """By shard, where the consumer is in a stream."""
        if not self._is_made:
            await self._database.make(positions.TABLE, positions.COLUMNS)
            self._is_made = True
        found: StreamPositions = await carry_out(
            self._database, lambda run: self._positions.find(run, stream)
        )
        return found

    def read(
        self,
        stream: str,
        selector: str = "",
        *,
        start: Start | int = "first",
        at: int = 0,
        timeout: float = 30.0,
    ) -> Opening[AsyncReading]:
        """Read where the sink is, as `canopy.sinks.sink.Sink.read`: ``await`` it, or enter it with
        ``async with``, which ends the reading."""

        async def opened() -> AsyncReading:
            places = await self.positions(stream)
            with self._positions.reading():
                reading = await self._client.read(
                    stream,
                    selector,
                    start=start,
                    at=at,
                    positions=places,
                    durable=self._positions.durable,
                    timeout=timeout,
                )
            await carry_out(self._database, lambda run: self._positions.begin(run, reading))
            return reading

        return Opening(opened)

    @asynccontextmanager
    async def transaction(self, reading: Followed) -> AsyncIterator[H]:
        """Open a transaction for the effects of all events that `reading` has handed out, as
        `canopy.sinks.sink.Sink.transaction` does. Yields the object through which statements go."""
        self._positions.check(reading)
        try:
            async with self._database.opened() as (made, inside):
                yield made
                self._database.check_open()
                wanted = await inside(lambda run: self._positions.move(run, reading))
        except BaseException:
            self._positions.failed(reading)
            raise
        self._positions.moved(wanted)
        reading.confirm()


class AsyncOutbox(OutboxCore, Generic[H]):
    """`canopy.sinks.outbox.Outbox`, to be awaited: one task uses it."""

    def __init__(
        self, database: AsyncDatabase[H], client: AsyncClient, stream: str, producer: str
    ) -> None:
        """`producer`: its name in the table `canopy_outbox`, which is made if it is not there."""
        super().__init__(self._carried_out, client, stream, producer)
        self._database = database
        self._is_made = False

    @asynccontextmanager
    async def transaction(self, timeout: float = 30.0) -> AsyncIterator[OutboxTransaction[H]]:
        """A transaction of the database, and the events that belong to it, as
        `canopy.sinks.outbox.Outbox.transaction`; statements go through `db`. What a task that was
        cancelled has begun is rolled back in the stream by the next `relay` or `answer`."""
        half = self._client.transaction(self._stream, self._producer)
        try:
            await self._beginning(half)
            async with self._database.opened() as (db, inside):
                made = OutboxTransaction(db, half.id)
                yield made
                self._database.check_open()
                await self._preparing(made, half, inside, timeout)
        except BaseException as error:
            RUNNING.discard(half.id)
            if isinstance(error, Exception):  # a task that is cancelled is not to wait
                await self._undoing(half, error)
            raise
        RUNNING.discard(half.id)
        await self._following(made)

    async def relay(self) -> int:
        """Tell the stream what became of transactions, as `canopy.sinks.outbox.Outbox.relay`."""
        return await self._relaying()

    async def answer(self, timeout: float = 60.0) -> int:
        """Say what became of transactions when the stream asks, as
        `canopy.sinks.outbox.Outbox.answer`. While `transaction` is open in another task this needs
        an outbox of its own, with another connection."""
        return await self._answering(timeout)

    async def _carried_out(self, job: Callable[[Run], Any]) -> Any:
        if not self._is_made:
            await self._database.make(records.TABLE, records.COLUMNS)
            self._is_made = True
        return await carry_out(self._database, job)
