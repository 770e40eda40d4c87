"""A sink in any database that SQLAlchemy reaches; used as `canopy.sinks.sqlite` is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    text,
)
from sqlalchemy import Text as LongText
from sqlalchemy.types import TypeEngine

from canopy.client.reading import Start
from canopy.client.synchronous import Client, Reading
from canopy.sinks.positions import COLUMNS, KEY, TABLE, Answer, Followed, Positions, Run

KINDS: Final[dict[str, TypeEngine[Any]]] = {
    "VARCHAR(128)": String(128),
    "INTEGER": Integer(),
    "BIGINT": BigInteger(),
    "TEXT": LongText(),
}


class SqlAlchemySink:
    """A consumer whose effects and positions are in one database. One thread uses it."""

    def __init__(self, engine: Engine, durable: str) -> None:
        """`durable`: the consumer's name in the table `canopy_positions`, which is made if it is
        not there."""
        self._engine = engine
        self._positions = Positions(durable)
        columns: list[Column[Any]] = [
            Column(name, KINDS[kind], primary_key=name in KEY, nullable=False, autoincrement=False)
            for name, kind in COLUMNS
        ]
        Table(TABLE, MetaData(), *columns).create(engine, checkfirst=True)

    def positions(self, stream: str) -> dict[int, int]:
        """By shard, where the consumer is in a stream: the `positions` of `Client.read`."""
        with self._engine.connect() as connection:
            return self._positions.find(_runner(connection), stream)

    def read(
        self,
        client: Client,
        stream: str,
        selector: str = "",
        *,
        start: Start | int = "first",
        at: int = 0,
        timeout: float = 30.0,
    ) -> Reading:
        """As `canopy.sinks.sqlite.SqliteSink.read`."""
        places = self.positions(stream)
        reading = client.read(
            stream, selector, start=start, at=at, positions=places, timeout=timeout
        )
        self.begin(reading)
        return reading

    def begin(self, reading: Followed) -> None:
        """As `canopy.sinks.sqlite.SqliteSink.begin`."""
        with self._engine.begin() as connection:
            self._positions.begin(_runner(connection), reading)

    @contextmanager
    def transaction(self, reading: Followed) -> Iterator[Connection]:
        """As `canopy.sinks.sqlite.SqliteSink.transaction`."""
        self._positions.check(reading)
        try:
            with self._engine.begin() as connection:
                yield connection
                wanted = self._positions.move(_runner(connection), reading)
        except BaseException:
            self._positions.failed(reading)
            raise
        self._positions.moved(wanted)


def _runner(connection: Connection) -> Run:
    def run(statement: str, parameters: Mapping[str, object]) -> Answer:
        found = connection.execute(text(statement), dict(parameters))
        rows = [tuple(row) for row in found] if found.returns_rows else []
        return Answer(found.rowcount, rows)

    return run
