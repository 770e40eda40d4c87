"""Sinks and outboxes in any database that SQLAlchemy reaches; used as `canopy.sinks.sqlite` is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import sqlalchemy
from sqlalchemy import BigInteger, Connection, Engine, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from canopy.client.client import AsyncClient, Client
from canopy.sinks.asynchronous import AsyncOutbox, AsyncSink
from canopy.sinks.database import Answer, ColumnDefinition, Run
from canopy.sinks.outbox import Outbox
from canopy.sinks.sink import Sink
from canopy.sinks.threads import InThread, ThreadDatabase

KINDS: Final[dict[str, TypeEngine[Any]]] = {
    "VARCHAR(60)": String(60),
    "VARCHAR(128)": String(128),
    "INTEGER": Integer(),
    "BIGINT": BigInteger(),
    "TEXT": Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"),
}


def table_of(name: str, columns: Sequence[ColumnDefinition]) -> Table:
    """A table that is to be made."""
    made: list[sqlalchemy.Column[Any]] = [
        sqlalchemy.Column(
            column.name,
            KINDS[column.kind],
            primary_key=column.is_key,
            nullable=False,
            autoincrement=False,
        )
        for column in columns
    ]
    return Table(name, MetaData(), *made)


def make_table(connection: Connection, name: str, columns: Sequence[ColumnDefinition]) -> None:
    """Make a table, unless it is there."""
    table_of(name, columns).create(connection, checkfirst=True)


def runner(connection: Connection) -> Run:
    """Return a function that carries out statements in an open transaction."""

    def run(statement: str, parameters: Mapping[str, object]) -> Answer:
        found = connection.execute(sqlalchemy.text(statement), dict(parameters))
        rows = [tuple(row) for row in found] if found.returns_rows else []
        return Answer(found.rowcount, rows)

    return run


class SqlAlchemyDatabase:
    """Implements `canopy.sinks.database.Database` on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def make(self, table: str, columns: Sequence[ColumnDefinition]) -> None:
        """Make a table, unless it is there."""
        with self._engine.begin() as connection:
            make_table(connection, table, columns)

    def opened(self) -> AbstractContextManager[Connection]:
        """A transaction of the engine: its connection, committed at the end or rolled back."""
        return self._engine.begin()

    def runner(self, handle: Connection) -> Run:
        """Return a function that carries out statements in an open transaction."""
        return runner(handle)

    def check_open(self) -> None:
        """A connection whose transaction was ended takes no further statement."""


class SqlAlchemySink(Sink[Connection]):
    """A consumer whose effects and positions are in one database. One thread uses it."""

    def __init__(self, engine: Engine, durable: str) -> None:
        """`durable`: the consumer's name in the table `canopy_positions`."""
        super().__init__(SqlAlchemyDatabase(engine), durable)


class SqlAlchemyOutbox(Outbox[Connection]):
    """A producer whose events belong to transactions of a database."""

    def __init__(self, engine: Engine, client: Client, stream: str, producer: str) -> None:
        """The parameters are those of `Outbox`."""
        super().__init__(SqlAlchemyDatabase(engine), client, stream, producer)


class AsyncSqlAlchemySink(AsyncSink[InThread[Connection]]):
    """A consumer of trio or asyncio whose effects and positions are in one database."""

    def __init__(self, engine: Engine, client: AsyncClient, durable: str) -> None:
        """`engine`: its connections may go from thread to thread, as all do but those of SQLite in
        memory; `durable`: the consumer's name in the table `canopy_positions`."""
        super().__init__(ThreadDatabase(SqlAlchemyDatabase(engine), client), client, durable)


class AsyncSqlAlchemyOutbox(AsyncOutbox[InThread[Connection]]):
    """A producer of trio or asyncio whose events belong to transactions of a database."""

    def __init__(self, engine: Engine, client: AsyncClient, stream: str, producer: str) -> None:
        """The parameters are those of `AsyncOutbox`; `engine` as for `AsyncSqlAlchemySink`."""
        super().__init__(
            ThreadDatabase(SqlAlchemyDatabase(engine), client), client, stream, producer
        )
