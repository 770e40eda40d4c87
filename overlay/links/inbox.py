"""The receiving direction of a session: order, digests, acknowledgement (M3, V3).

Only the batch that is expected next is taken. A repeated one is dropped and acknowledged again; a
later one is dropped, and the peer is told of the gap once. So nothing is kept out of order and the
only memory is a number.
"""

from __future__ import annotations

import zlib
from enum import Enum, auto

from overlay.links.messages import BODY_MOST, Batch
from overlay.machine import ProtocolError


class DigestMismatchError(Exception):
    """A batch was damaged on its way: the connection is bad, not the peer (V3)."""


class Arrival(Enum):
    """What became of a batch."""

    TAKEN = auto()
    REPEATED = auto()
    GAP = auto()  # a gap that the peer must be told of
    DROPPED = auto()  # after a gap that it was told of


class Inbox:
    """One direction of one session. `expected` is the number of the next batch."""

    __slots__ = ("_gap_told", "expected")

    def __init__(self) -> None:
        self.expected = 0
        self._gap_told = False

    def judge(self, batch: Batch) -> Arrival:
        """Take `batch` if it is the next.

        Raises DigestMismatchError, and then the batch is still expected.
        """
        if batch.number < self.expected:
            return Arrival.REPEATED
        if batch.number > self.expected:
            if self._gap_told:
                return Arrival.DROPPED
            self._gap_told = True
            return Arrival.GAP
        if zlib.crc32(batch.body) != batch.digest:
            raise DigestMismatchError(f"batch {batch.number} does not match its digest")
        self.expected += 1
        self._gap_told = False
        return Arrival.TAKEN

    def resume(self) -> None:
        """A new connection: gaps on the old one are no matter."""
        self._gap_told = False


def unpack(batch: Batch) -> bytes:
    """The body as the codec made it, at most BODY_MOST bytes.

    Raises ProtocolError for a body that is no zlib stream or too large when unpacked.
    """
    if not batch.compressed:
        return batch.body
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(batch.body, BODY_MOST)
    except zlib.error as error:
        raise ProtocolError(f"a compressed body is broken: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise ProtocolError(f"a compressed body is truncated or over {BODY_MOST} bytes")
    return body
