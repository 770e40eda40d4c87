"""The receiving direction of a session: order, digests, acknowledgement (M3, V3).

The batch that is expected next is taken. A duplicate is dropped and acknowledged again. A later one
is buffered, up to the window, and each gap is reported to the peer once, with its end, so that it
sends again what is missing and no more (selective acknowledgement, as RFC 2018). When later batches
were dropped instead, each loss cost everything in flight: with a loss of 5 % and 0.5 s of latency
that was ten times the load, and the messages that elections wait for came minutes late. TCP loses
nothing and leaves no gap.
"""

from __future__ import annotations

import zlib
from enum import Enum, auto

from overlay.links.messages import BATCH_OVERHEAD, MAX_BODY, Batch
from overlay.machine import ProtocolError


class DigestMismatchError(Exception):
    """A batch was corrupted on its way: the connection is bad, not the peer (V3)."""


class Arrival(Enum):
    """The kinds of incoming batches."""

    IN_ORDER = auto()  # taken
    FILLS_GAP = auto()  # taken, and later ones are buffered: `next_buffered` may have the next one
    DUPLICATE = auto()  # dropped
    OUT_OF_ORDER = auto()  # buffered, since it comes after a gap
    DROPPED = auto()  # it comes after a gap, and the window is used up


class ReceiveBuffer:
    """One direction of one session. `expected` is the number of the next batch."""

    __slots__ = ("_buffered", "_reported_gaps", "_room", "expected")

    def __init__(self, window: int) -> None:
        """`window`: bytes that the peer may have in flight."""
        self.expected = 0
        self._room = window
        self._buffered: dict[int, Batch] = {}
        self._reported_gaps: tuple[int, ...] = ()  # ends of gaps, the lowest last

    def receive(self, batch: Batch) -> Arrival:
        """Take `batch` if it is the next one.

        Raises DigestMismatchError if the body is corrupted; the batch is then still expected.
        """
        if batch.number < self.expected or batch.number in self._buffered:
            return Arrival.DUPLICATE
        if zlib.crc32(batch.body) != batch.digest:
            raise DigestMismatchError(f"batch {batch.number} does not match its digest")
        if batch.number == self.expected:
            self.expected += 1
            return Arrival.FILLS_GAP if self._buffered else Arrival.IN_ORDER
        if len(batch.body) + BATCH_OVERHEAD > self._room:
            return Arrival.DROPPED
        self._room -= len(batch.body) + BATCH_OVERHEAD
        self._buffered[batch.number] = batch
        return Arrival.OUT_OF_ORDER

    def next_buffered(self) -> Batch | None:
        """Take the expected batch if it was buffered, else None."""
        batch = self._buffered.pop(self.expected, None)
        if batch is not None:
            self._room += len(batch.body) + BATCH_OVERHEAD
            self.expected += 1
        return batch

    def new_gap(self) -> int:
        """The number of the first batch after an unreported gap; 0: there is none.

        A gap is identified by its end: it stays the same gap while it is filled from its beginning,
        and the rest of it is in flight. If some of that is lost again, the following batches make a
        smaller gap.
        """
        if not self._buffered:
            return 0
        while self._reported_gaps and self._reported_gaps[-1] < self.expected:
            self._reported_gaps = self._reported_gaps[:-1]
        end = min(self._buffered)
        if self._reported_gaps and self._reported_gaps[-1] == end:
            return 0
        self._reported_gaps = (*self._reported_gaps, end)
        return end

    def gap_end(self) -> int:
        """The number of the first batch that came after one that is missing; 0: none did."""
        return min(self._buffered, default=0)

    def resume(self) -> None:
        """Drop all batches that were not acknowledged: they are sent again on a new connection."""
        self._reported_gaps = ()
        self._room += sum(len(batch.body) + BATCH_OVERHEAD for batch in self._buffered.values())
        self._buffered.clear()


def unpack(compressed: bytes) -> bytes:
    """The body of a compressed batch as the codec made it, at most MAX_BODY bytes.

    Raises ProtocolError for a body that is no zlib stream, or too large when unpacked.
    """
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(compressed, MAX_BODY)
    except zlib.error as error:
        raise ProtocolError(f"a compressed body is broken: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise ProtocolError(f"a compressed body is truncated or over {MAX_BODY} bytes")
    return body
