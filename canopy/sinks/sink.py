"""A consumer whose effects and positions are in one database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic

from canopy.client.client import Client
from canopy.client.streams.positions import Positions as StreamPositions
from canopy.client.streams.reading import Reading, Start
from canopy.sinks.database import Database, H
from canopy.sinks.positions import COLUMNS, TABLE, Followed, PositionTable


class Sink(Generic[H]):
    """Keeps a consumer's positions in the database of its effects. Used by one thread, for one
    reading at a time."""

    def __init__(self, database: Database[H], durable: str) -> None:
        """`durable`: the consumer's name in the table `canopy_positions`, which is made if it is
        not there."""
        self._database = database
        self._positions = PositionTable(durable)
        database.make(TABLE, COLUMNS)

    def positions(self, stream: str) -> StreamPositions:
        """By shard, where the consumer is in a stream: the `positions` of `Client.read`."""
        with self._database.opened() as handle:
            return self._positions.find(self._database.runner(handle), stream)

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
        """Read the stream as a durable consumer, from the sink's positions on; a shard without a
        position is read from `start` on. The stream keeps what the sink has not got. Raises as
        `Client.read`, and SinkError."""
        places = self.positions(stream)
        with self._positions.reading():
            reading = client.read(
                stream,
                selector,
                start=start,
                at=at,
                positions=places,
                durable=self._positions.durable,
                timeout=timeout,
            )
        self.begin(reading)
        return reading

    def begin(self, reading: Followed) -> None:
        """Store the positions at which a reading begins, of shards that the sink does not know. To
        be called once by programs that do not use `read`. Raises SinkError if it is another stream
        or selector, or if another process has gone on meanwhile."""
        with self._database.opened() as handle:
            self._positions.begin(self._database.runner(handle), reading)

    @contextmanager
    def transaction(self, reading: Followed) -> Iterator[H]:
        """A transaction for the effects of all events that `reading` has handed out. At its end
        effects and position are committed together; an error in it rolls both back, and it may be
        tried again with the same events.

        Raises SinkMovedError where another process reads as this consumer, SinkError after events
        that have had no effect."""
        self._positions.check(reading)
        try:
            with self._database.opened() as handle:
                yield handle
                self._database.check_open()
                wanted = self._positions.move(self._database.runner(handle), reading)
        except BaseException:
            self._positions.failed(reading)
            raise
        self._positions.moved(wanted)
        reading.confirm()
