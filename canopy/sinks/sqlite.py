"""Sinks and outboxes in SQLite.

>>> import sqlite3, canopy
>>> from canopy.sinks.sqlite import SqliteSink
>>> def follow(db: sqlite3.Connection) -> None:
...     sink = SqliteSink(db, "invoices")
...     with canopy.connect() as client, sink.read(client, "orders") as reading:
...         while events := reading.take(10):
...             with sink.transaction(reading) as cursor:
...                 for event in events:
...                     cursor.execute("INSERT INTO bills VALUES (?)", (event.attributes["total"],))
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from canopy.client.client import AsyncClient, Client
from canopy.sinks.asynchronous import AsyncOutbox, AsyncSink
from canopy.sinks.database import Answer, ColumnDefinition, Run, SinkError, create_table
from canopy.sinks.outbox import Outbox
from canopy.sinks.sink import Sink
from canopy.sinks.threads import InThread, ThreadDatabase


class SqliteDatabase:
    """Implements `canopy.sinks.database.Database` on one connection, of one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def make(self, table: str, columns: Sequence[ColumnDefinition]) -> None:
        """Make a table, unless it is there."""
        with self.opened() as cursor:
            cursor.execute(create_table(table, columns, {}))

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Cursor]:
        """A transaction that locks the database for other writers."""
        connection = self._connection
        if connection.in_transaction:
            raise SinkError("the connection has a transaction that is not committed")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection.cursor()
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:  # some errors have ended it already
            self._connection.execute("ROLLBACK")

    def runner(self, handle: sqlite3.Cursor) -> Run:
        """Return a function that carries out statements in an open transaction."""

        def run(statement: str, parameters: Mapping[str, object]) -> Answer:
            cursor = handle.connection.execute(statement, dict(parameters))
            return Answer(cursor.rowcount, cursor.fetchall())

        return run

    def check_open(self) -> None:
        """SinkError if a program has ended the transaction."""
        if not self._connection.in_transaction:
            raise SinkError("the transaction was ended from inside: leave that to the library")


class SqliteSink(Sink[sqlite3.Cursor]):
    """A consumer whose effects and positions are in one SQLite database. One thread uses it."""

    def __init__(self, connection: sqlite3.Connection, durable: str) -> None:
        """`durable`: the consumer's name in the table `canopy_positions`."""
        super().__init__(SqliteDatabase(connection), durable)


class SqliteOutbox(Outbox[sqlite3.Cursor]):
    """A producer whose events belong to transactions of a SQLite database. One thread uses it;
    another one, which answers reviews, has an outbox with a connection of its own."""

    def __init__(
        self, connection: sqlite3.Connection, client: Client, stream: str, producer: str
    ) -> None:
        """The parameters are those of `Outbox`."""
        super().__init__(SqliteDatabase(connection), client, stream, producer)


class AsyncSqliteSink(AsyncSink[InThread[sqlite3.Cursor]]):
    """A consumer of trio or asyncio whose effects and positions are in one SQLite database."""

    def __init__(self, connection: sqlite3.Connection, client: AsyncClient, durable: str) -> None:
        """`connection`: made with `check_same_thread=False`, and used by nothing else; `durable`:
        the consumer's name in the table `canopy_positions`."""
        super().__init__(ThreadDatabase(SqliteDatabase(connection), client), client, durable)


class AsyncSqliteOutbox(AsyncOutbox[InThread[sqlite3.Cursor]]):
    """A producer of trio or asyncio whose events belong to transactions of a SQLite database."""

    def __init__(
        self, connection: sqlite3.Connection, client: AsyncClient, stream: str, producer: str
    ) -> None:
        """`connection`: made with `check_same_thread=False`, and used by nothing else; the others
        are those of `AsyncOutbox`."""
        super().__init__(
            ThreadDatabase(SqliteDatabase(connection), client), client, stream, producer
        )
