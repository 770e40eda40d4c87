"""Positions of a consumer in a table of its sink, and when they may move on.

A position is moved by an UPDATE that names the one before. If another process has moved it
meanwhile, no row is found, and the transaction is rolled back with all its effects: of two programs
that read as the same consumer, one gets on, and no event takes effect twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from canopy.client.errors import CommandFailed
from canopy.client.streams.positions import Positions as StreamPositions
from canopy.sinks.database import Column, Run, SinkError

TABLE: Final = "canopy_positions"

COLUMNS: Final = (
    Column("stream", "VARCHAR(128)", is_key=True),
    Column("shard", "INTEGER", is_key=True),
    Column("durable", "VARCHAR(128)", is_key=True),
    Column("stream_id", "VARCHAR(128)"),
    Column("selector", "TEXT"),
    Column("next_offset", "BIGINT"),
)

SYNCS: Final = "canopy_syncs"
"""The table in which `canopy sync` keeps what it needs beside positions."""
FORMER_COLUMN: Final = "progress"
"""By which a table `canopy_positions` is known that an earlier `canopy sync` has made for itself,
with other columns. It is what `canopy_syncs` is now."""
TAKE_OVER: Final = f"ALTER TABLE {TABLE} RENAME TO {SYNCS}"

FIND: Final = (
    f"SELECT shard, next_offset, stream_id, selector FROM {TABLE}"
    " WHERE stream = :stream AND durable = :durable"
)
ADD: Final = (
    f"INSERT INTO {TABLE} (stream, shard, durable, stream_id, selector, next_offset)"
    " VALUES (:stream, :shard, :durable, :stream_id, :selector, :position)"
)
MOVE: Final = (
    f"UPDATE {TABLE} SET next_offset = :position, stream_id = :stream_id"
    " WHERE stream = :stream AND shard = :shard"
    " AND durable = :durable AND next_offset = :former"
)


LOST: Final = "position-lost"
"""Code of a `CommandFailed`: the rows at a position are lost, or were another stream's."""


class SinkMovedError(SinkError):
    """Another process has moved the consumer's position: nothing was changed. Read it again."""


class Followed(Protocol):
    """What is read: a `canopy.Reading` or `AsyncReading`."""

    stream: str
    stream_id: str
    selector: str
    begins: dict[int, int]

    @property
    def positions(self) -> StreamPositions:
        """Behind what was handed out."""

    def confirm(self) -> None:
        """What was handed out has taken effect."""


class Positions:
    """Those of one consumer, named `durable`."""

    def __init__(self, durable: str) -> None:
        if not 0 < len(durable) <= 128:
            raise ValueError("a consumer's name has 1 to 128 characters")
        self.durable = durable
        self._followed: Followed | None = None
        self._at: dict[int, int] = {}  # by shard, as the sink has them
        self._failed: dict[int, int] | None = None  # behind events that have had no effect

    def find(self, run: Run, stream: str) -> StreamPositions:
        """By shard, where the consumer is in `stream`, and with which id that was."""
        rows = run(FIND, {"stream": stream, "durable": self.durable}).rows
        found = StreamPositions()
        for shard, position, identity, _ in rows:
            found[int(shard)] = int(position)
            found.stream, found.losses[int(shard)] = _parsed(identity)
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
        rows = run(FIND, {"stream": followed.stream, "durable": self.durable}).rows
        known = {int(row[0]): int(row[1]) for row in rows}
        for _, _, identity, selector in rows:
            stream_id, _ = _parsed(identity)
            if stream_id != followed.stream_id:
                raise SinkError(
                    f"{self.durable} has followed another stream {followed.stream}, with the id "
                    f"{stream_id}; this one is {followed.stream_id}. Delete its rows in {TABLE} to "
                    "begin anew"
                )
            if selector != followed.selector:
                raise SinkError(
                    f"{self.durable} has another selector: {selector or 'all events'}. Take another"
                    f" name, or change it in {TABLE} if what it has passed over is not wanted"
                )
        for shard, position in followed.begins.items():
            if shard not in known:
                place = self._place(followed, shard, position)
                run(ADD, {**place, "selector": followed.selector})
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
                "failed: read anew from the positions of the sink"
            )

    def move(self, run: Run, followed: Followed) -> dict[int, int]:
        """At the end of a transaction, before its commit: move on to where the reading is, which is
        returned for `moved`. SinkMovedError if another process has moved a position."""
        wanted = dict(followed.positions)
        for shard, position in sorted(wanted.items()):
            former = self._at[shard]
            if position == former:
                continue
            place = self._place(followed, shard, position)
            if run(MOVE, {**place, "former": former}).changed != 1:
                raise SinkMovedError(
                    f"another process reads as {self.durable}: shard {shard} of {followed.stream} "
                    f"is not at {former} any more"
                )
        return wanted

    def moved(self, positions: dict[int, int]) -> None:
        """The transaction is committed."""
        self._at, self._failed = positions, None

    def failed(self, followed: Followed) -> None:
        """The transaction was rolled back, or nobody knows: it may be tried once more with the same
        events, but none without them."""
        self._failed = dict(followed.positions)

    def _place(self, followed: Followed, shard: int, position: int) -> dict[str, object]:
        return {
            "stream": followed.stream,
            "shard": shard,
            "durable": self.durable,
            "position": position,
            "stream_id": _identity(followed.stream_id, followed.positions.losses.get(shard, 0)),
        }


def _identity(stream_id: str, losses: int) -> str:
    """What the table has in `stream_id`: also how many times the shard's log has lost rows, where
    it has."""
    return f"{stream_id}#{losses}" if losses else stream_id


def _parsed(identity: str) -> tuple[str, int]:
    stream_id, _, losses = identity.partition("#")
    return stream_id, int(losses or 0)
