"""A sink in SQLite.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from canopy.client.reading import Start
from canopy.client.synchronous import Client, Reading
from canopy.sinks.positions import COLUMNS, KEY, TABLE, Answer, Followed, Positions, SinkError


class SqliteSink:
    """A consumer whose effects and positions are in one SQLite database. One thread uses it."""

    def __init__(self, connection: sqlite3.Connection, durable: str) -> None:
        """`durable`: the consumer's name in the table `canopy_positions`, which is made if it is
        not there."""
        self._connection = connection
        self._positions = Positions(durable)
        columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in COLUMNS)
        with self._opened():
            key = f"PRIMARY KEY ({', '.join(KEY)})"
            connection.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} ({columns}, {key})")

    def positions(self, stream: str) -> dict[int, int]:
        """By shard, where the consumer is in a stream: the `positions` of `Client.read`."""
        return self._positions.find(self._run, stream)

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
        """Read where the sink is, and a shard that it does not know from `start` on. Raises as
        `Client.read`, and SinkError."""
        places = self.positions(stream)
        reading = client.read(
            stream, selector, start=start, at=at, positions=places, timeout=timeout
        )
        self.begin(reading)
        return reading

    def begin(self, reading: Followed) -> None:
        """A reading has begun at the sink's `positions`: store those of shards that are new. To be
        called once, by programs that do not use `read`. SinkError if it is another stream or
        selector, or another process has gone on meanwhile."""
        with self._opened():
            self._positions.begin(self._run, reading)

    @contextmanager
    def transaction(self, reading: Followed) -> Iterator[sqlite3.Cursor]:
        """A transaction for the effects of all events that `reading` has handed out. At its end
        effects and position are committed together; an error in it rolls both back, and it may be
        tried again with the same events.

        Raises SinkMovedError where another process reads as this consumer, SinkError after events
        that have had no effect."""
        self._positions.check(reading)
        try:
            with self._opened() as cursor:
                yield cursor
                if not self._connection.in_transaction:
                    raise SinkError("the transaction was ended from inside: leave that to the sink")
                wanted = self._positions.move(self._run, reading)
        except BaseException:
            self._positions.failed(reading)
            raise
        self._positions.moved(wanted)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Cursor]:
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

    def _run(self, statement: str, parameters: Mapping[str, object]) -> Answer:
        cursor = self._connection.execute(statement, dict(parameters))
        return Answer(cursor.rowcount, cursor.fetchall())
