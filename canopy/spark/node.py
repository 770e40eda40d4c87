"""Rows read through a node: the committed rows of all shards, whichever node leads them.

The shards' leaders choose by content, with their index and their zone maps; what comes here
matches. While the node is away it is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from canopy.client.client import Client, connect
from canopy.client.errors import CommandFailed, ControlError
from canopy.client.streams.positions import Positions
from canopy.client.streams.reading import Start
from canopy.spark.blocks import EVERYTHING
from canopy.spark.rows import RowRange, RowsLostError, ShardEnds, SparkSourceError, check_same
from overlay.client import GetStreams, PackedEvents, Streams
from overlay.phrases import no_stream

NANOSECONDS: Final = 1e9

OUT_OF_RANGE: Final = "offset-out-of-range"
LOST: Final = "position-lost"

_clients: Final[dict[tuple[str | None, float], Client]] = {}
"""The clients of this process, in which tasks follow on one another: connecting costs as much as
reading."""


def client_of(node: str | None, timeout: float) -> Client:
    """This process's connection to a node (None: the default data folder's)."""
    known = _clients.get((node, timeout))
    if known is None:
        try:
            known = _clients[node, timeout] = connect(node, reconnect=timeout)
        except ControlError as error:
            raise SparkSourceError(f"{error} (each machine of Spark needs a node)") from None
    return known


class NodeRows:
    """`canopy.spark.rows.Rows` of a node."""

    def __init__(self, node: str | None, stream: str, timeout: float) -> None:
        self._stream = stream
        self._timeout = timeout
        self._client = client_of(node, timeout)
        self.stream_id = ""
        self.losses: dict[int, int] = {}
        """By shard, how many times its log has lost rows at its end."""

    def ends(self) -> dict[int, ShardEnds]:
        """Return the present offsets by shard."""
        firsts = self._begins("first")
        return {shard: ShardEnds(first, end) for shard, (first, end) in firsts.items()}

    def at_time(self, time: int) -> dict[int, int]:
        """By shard, the first offset at this time (nanoseconds since 1970) or later."""
        return {shard: begin for shard, (begin, _) in self._begins("time", time).items()}

    def new(self) -> dict[int, int]:
        """By shard, the offset behind the last committed row."""
        return {shard: end for shard, (_, end) in self._begins("new").items()}

    def _begins(self, start: Start, at: int = 0) -> dict[int, tuple[int, int]]:
        """By shard, where a reading begins, and the end. No rows are wanted: its selector is true
        of none."""
        try:
            with self._client.read(
                self._stream, NOTHING, start=start, at=at, timeout=self._timeout
            ) as reading:
                self.stream_id, self.losses = reading.stream_id, reading.positions.losses
                return {s: (begin, reading.ends[s]) for s, begin in reading.begins.items()}
        except ControlError as error:
            raise SparkSourceError(f"stream {self._stream}: {error}") from None

    def read(self, wanted: RowRange, selector: str) -> Iterator[PackedEvents]:
        """Yield the rows of the range that the selector matches (`Rows.read`)."""
        shard, begin, end, until, stream, (before_begin, before_end) = wanted
        known = {shard: before_begin} if before_begin >= 0 else {}
        before = EVERYTHING if until is None else round(until * NANOSECONDS)
        try:
            with self._client.read(
                self._stream,
                selector,
                positions=Positions({shard: begin}, "", known),
                shard=shard,
                packed=True,
                timeout=self._timeout,
            ) as reading:
                self.stream_id = reading.stream_id
                check_same(stream, self.stream_id)
                if 0 <= before_end < reading.positions.losses.get(shard, 0):
                    raise RowsLostError(
                        f"stream {self._stream}, shard {shard}: rows at its end were lost by "
                        f"damage since offset {end} was told; others may have these offsets"
                    )
                reading.ahead = True
                while reading.positions[shard] < end:
                    found = reading.take_packed(self._timeout)
                    if not found and reading.positions[shard] < end:
                        self._check_end(shard, end)
                    for piece in found:
                        if piece.first < end and piece.time < before:
                            yield piece
        except CommandFailed as error:
            if error.code in (OUT_OF_RANGE, LOST):
                raise RowsLostError(f"stream {self._stream}, shard {shard}: {error}") from None
            raise SparkSourceError(f"stream {self._stream}: {error}") from None
        except ControlError as error:
            raise SparkSourceError(f"stream {self._stream}: {error}") from None

    def _check_end(self, shard: int, end: int) -> None:
        """Nothing came in time: either the stream is slow, or it has fewer rows than it had."""
        there = self.new().get(shard, 0)
        if there < end:
            raise RowsLostError(
                f"stream {self._stream}, shard {shard}: rows up to offset {end} were there, now "
                f"{there}: the stream was lost or is another one"
            )


NOTHING: Final = "canopy_none IS NULL AND canopy_none IS NOT NULL"
"""A selector that is true of no row."""


def find_stream(client: Client, stream: str, timeout: float) -> str:
    """Return the id that a stream was founded with. Raises SparkSourceError if the stream does not
    exist."""
    try:
        found = client.ask(GetStreams(0, stream), Streams, timeout).streams
    except ControlError as error:
        raise SparkSourceError(f"stream {stream}: {error}") from None
    if not found:
        raise SparkSourceError(no_stream(stream))
    return found[0].id
