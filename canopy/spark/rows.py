"""The interface of both sources of rows, a node and folders of segments; and their errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from overlay.client import PackedEvents


class SparkSourceError(Exception):
    """Spark cannot read or write a stream as requested. The text says what to do."""


class RowsLostError(SparkSourceError):
    """Rows that a query has not read are no longer kept."""


class ShardEnds(NamedTuple):
    """Offsets of one shard: the oldest that is kept, and the one behind the last committed row."""

    first: int
    next: int


class RowRange(NamedTuple):
    """Rows of one shard from the offset `begin` to before `end`, which were appended before
    `until` (seconds since 1970; None: whenever). `stream`: the id of the stream that is meant; "":
    whichever has the name. `losses`: how many times the shard's log had lost rows at its end when
    `begin` and `end` were told (canopy/client/streams/positions.py), -1: that is not known."""

    shard: int
    begin: int
    end: int
    until: float | None = None
    stream: str = ""
    losses: tuple[int, int] = (-1, -1)


class Rows(Protocol):
    """A source of the rows of a stream. Methods raise SparkSourceError."""

    stream_id: str
    """The stream's founding id: another stream of the same name has another one."""

    def ends(self) -> dict[int, ShardEnds]:
        """Return the present offsets by shard."""

    def at_time(self, time: int) -> dict[int, int]:
        """By shard, the first offset that was appended at this time or later (nanoseconds since
        1970)."""

    def read(self, wanted: RowRange, selector: str) -> Iterator[PackedEvents]:
        """The rows of the range that the selector matches, "": all. The first piece and the last
        may have rows that lie before and behind the range (`canopy.spark.blocks` leaves them out).
        Raises RowsLostError if the first ones are no longer kept."""


def check_same(wanted: str, there: str) -> None:
    """Raise SparkSourceError if a stream is not the one that a checkpoint, or other offsets, are of
    ("": any is)."""
    if wanted not in ("", there):
        raise SparkSourceError(
            f"the checkpoint is of another stream, with the id {wanted}; this one's is {there}: it "
            "was removed and founded again. Begin with another checkpoint or folder"
        )
