"""A database whose calls block, used by tasks: each step of a transaction is carried out in a
thread, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from canopy.client.client import AsyncClient
from canopy.sinks.database import ColumnDefinition, Database, H, Run, Runner

T = TypeVar("T")


class InThread(Generic[H]):
    """A transaction that is open. One task uses it."""

    def __init__(self, handle: H, client: AsyncClient) -> None:
        self._handle = handle
        self._client = client

    async def run(self, job: Callable[[H], T]) -> T:
        """Call `job` in a thread with the cursor or connection of the transaction, and return its
        result, which should not be a cursor."""
        return await self._client.in_thread(partial(job, self._handle))


class ThreadDatabase(Generic[H]):
    """Implements `canopy.sinks.database.AsyncDatabase` on a database whose calls block."""

    def __init__(self, database: Database[H], client: AsyncClient) -> None:
        self._database = database
        self._client = client

    async def make(self, table: str, columns: Sequence[ColumnDefinition]) -> None:
        """Make a table, unless it is there."""
        await self._client.in_thread(partial(self._database.make, table, columns))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[InThread[H], Runner]]:
        """A transaction, and how jobs are carried out in it: committed at the end, rolled back by
        an error. SinkError at the end if a program has ended it."""
        transaction = self._database.opened()
        handle = await self._client.in_thread(transaction.__enter__)
        made = InThread(handle, self._client)
        run = self._database.runner(handle)

        async def inside(job: Callable[[Run], Any]) -> Any:
            return await made.run(lambda _: job(run))

        try:
            yield made, inside
        except BaseException as error:
            ended = partial(transaction.__exit__, type(error), error, error.__traceback__)
            await self._client.in_thread(ended)
            raise
        await self._client.in_thread(partial(transaction.__exit__, None, None, None))

    def check_open(self) -> None:
        """SinkError if a program has ended the transaction."""
        self._database.check_open()
