"""Positions of consumers in a table of their sink, and when they may move on.

There is one such table in a database, `canopy_positions`, and one writer of it: `PositionTable`,
for sinks and for destinations of `canopy sync` alike. A position is moved by an UPDATE that names
the one before. If another process has moved it meanwhile, no row is found, and the transaction is
rolled back with all its effects: of two programs that read as the same consumer, one gets on, and
no event takes effect twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from canopy.client.errors import CommandFailed
from canopy.client.streams.positions import Positions as StreamPositions
from canopy.sinks.database import ColumnDefinition, Run, SinkError

TABLE: Final = "canopy_positions"

COLUMNS: Final = (
    ColumnDefinition("stream", "VARCHAR(128)", is_key=True),
    ColumnDefinition("shard", "INTEGER", is_key=True),
    ColumnDefinition("durable", "VARCHAR(128)", is_key=True),
    ColumnDefinition("stream_id", "VARCHAR(128)"),
    ColumnDefinition("selector", "TEXT"),
    ColumnDefinition("next_offset", "BIGINT"),
)

SYNCS: Final = "canopy_syncs"
"""The table in which `canopy sync` keeps what it needs beside positions."""

FIND: Final = (
    f"SELECT stream, shard, next_offset, stream_id, selector FROM {TABLE} WHERE durable = :durable"
)
ADD: Final = (
    f"INSERT INTO {TABLE} (stream, shard, durable, stream_id, selector, next_offset)"
    " VALUES (:stream, :shard, :durable, :stream_id, :selector, :next_offset)"
)
MOVE: Final = (
    f"UPDATE {TABLE} SET next_offset = :next_offset, stream_id = :stream_id"
    " WHERE stream = :stream AND shard = :shard"
    " AND durable = :durable AND next_offset = :former"
)
REMOVE: Final = f"DELETE FROM {TABLE} WHERE durable = :durable"

LOST: Final = "position-lost"
"""Code of a `CommandFailed`: the rows at a position are lost, or were another stream's."""


class SinkMovedError(SinkError):
    """Another process has moved the consumer's position: nothing was changed. Read it again."""


class Followed(Protocol):
    """The interface of a reading: a `canopy.Reading` or `AsyncReading`."""

    stream: str
    stream_id: str
    selector: str
    begins: dict[int, int]

    @property
    def positions(self) -> StreamPositions:
        """By shard the offset behind the events that were handed out."""

    def confirm(self) -> None:
        """Confirm that the events handed out have taken effect."""


class Position(NamedTuple):
    """The position of a consumer in one shard of a stream, as stored in the table."""

    stream: str
    shard: int
    next_offset: int
    stream_id: str
    losses: int = 0
    """Number of times that the shard's log had lost rows by then."""
    selector: str = ""


class PositionTable:
    """The rows of the consumer `durable` in `canopy_positions`."""

    def __init__(self, durable: str) -> None:
        if not 0 < len(durable) <= 128:
            raise ValueError("a consumer's name has 1 to 128 characters")
        self.durable = durable
        self._followed: Followed | None = None
        self._at: dict[int, int] = {}  # by shard, as the sink has them
        self._failed: dict[int, int] | None = None  # behind events that have had no effect

    def stored(self, run: Run, stream: str = "") -> list[Position]:
        """Return the stored positions of the consumer, in one stream or in all."""
        found = []
        for name, shard, offset, identity, selector in run(FIND, {"durable": self.durable}).rows:
            stream_id, _, losses = identity.partition("#")
            if stream in ("", name):
                place = Position(name, int(shard), int(offset), stream_id, int(losses or 0))
                found.append(place._replace(selector=selector))
        return found

    def store(self, run: Run, place: Position, former: int | None) -> None:
        """Write a position, `former` being the offset that the table has; None: it has none yet.
        SinkMovedError if that is not so: what the transaction has done is to be rolled back."""
        losses = f"#{place.losses}" if place.losses else ""
        values = {**place._asdict(), "durable": self.durable, "former": former}
        values["stream_id"] = place.stream_id + losses
        try:
            done = run(ADD if former is None else MOVE, values).changed
        except Exception as error:
            if not any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__):
                raise
            done = 0
        if done != 1:
            now = "has a position now" if former is None else f"is not at {former} any more"
            raise SinkMovedError(
                f"another process reads as {self.durable}: shard {place.shard} of {place.stream} "
                f"{now}"
            )

    def remove(self, run: Run) -> None:
        """Delete the positions of the consumer in all streams."""
        run(REMOVE, {"durable": self.durable})

    def find(self, run: Run, stream: str) -> StreamPositions:
        """By shard, where the consumer is in `stream`, and with which id that was."""
        found = StreamPositions()
        for place in self.stored(run, stream):
            found[place.shard] = place.next_offset
            found.stream, found.losses[place.shard] = place.stream_id, place.losses
        return found

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around the beginning of a reading: SinkError if the stream's rows there are lost."""
        try:
            yield
        except CommandFailed as error:
            if error.code != LOST:
                raise
            hint = f"Delete the rows of {self.durable} in {TABLE}, or set them back, to go on"
            raise SinkError(f"{error.reason}. {hint}") from error

    def begin(self, run: Run, followed: Followed) -> None:
        """Take the positions at which a reading has begun; those of new shards are stored.
        SinkError if it is not the reading that the sink has followed before."""
        known: dict[int, int] = {}
        for place in self.stored(run, followed.stream):
            known[place.shard] = place.next_offset
            if place.stream_id != followed.stream_id:
                raise SinkError(
                    f"{self.durable} has followed another stream {followed.stream}, with the id "
                    f"{place.stream_id}; this one is {followed.stream_id}. Delete its rows in "
                    f"{TABLE} to begin again"
                )
            if place.selector != followed.selector:
                raise SinkError(
                    f"{self.durable} has another selector: {place.selector or 'all events'}. Take "
                    f"another name, or change it in {TABLE} if what it has passed over is not "
                    f"wanted"
                )
        for shard, position in followed.begins.items():
            if shard not in known:
                self.store(run, _place(followed, shard, position), None)
            elif known[shard] != position:
                raise SinkMovedError(
                    f"the reading of shard {shard} begins at {position}, and {self.durable} is at "
                    f"{known[shard]}: begin at the positions of the sink"
                )
        self._followed, self._at, self._failed = followed, dict(followed.begins), None

    def check(self, followed: Followed) -> None:
        """Before a transaction. SinkError if events before those at hand have had no effect."""
        if followed is not self._followed:
            raise SinkError("this reading was not begun with the sink")
        if self._failed is not None and self._failed != followed.positions:
            raise SinkError(
                f"events before {followed.positions} have had no effect, since their transaction "
                "failed: read again from the positions of the sink"
            )

    def move(self, run: Run, followed: Followed) -> dict[int, int]:
        """Move the stored positions on to those of the reading, at the end of a transaction, before
        its commit; return them for `moved`. SinkMovedError if another process has moved a
        position."""
        wanted = dict(followed.positions)
        for shard, position in sorted(wanted.items()):
            if position != self._at[shard]:
                self.store(run, _place(followed, shard, position), self._at[shard])
        return wanted

    def moved(self, positions: dict[int, int]) -> None:
        """The transaction with these positions is committed."""
        self._at, self._failed = positions, None

    def failed(self, followed: Followed) -> None:
        """Note that the transaction was rolled back, or that its outcome is not known. It may be
        tried again with the same events, but the reading may not go on without them."""
        self._failed = dict(followed.positions)


def _place(followed: Followed, shard: int, offset: int) -> Position:
    losses = followed.positions.losses.get(shard, 0)
    return Position(followed.stream, shard, offset, followed.stream_id, losses, followed.selector)
