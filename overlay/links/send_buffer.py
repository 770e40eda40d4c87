"""The sending direction of a session: what waits, what is under way, what may be sent (M3).

Messages wait encoded. `cut` joins them to numbered batches as far as the credit goes; a batch is
kept, encoded, until the peer has acknowledged everything up to it; what the peer says it lacks is
sent again, and after a silence the first that it may lack. The messages themselves are kept beside
the bytes so that a link that dies can name what may be lost.

Credit is in bytes and granted by the receiver: what is under way never exceeds it, except that a
single message larger than the whole credit goes alone, since it would otherwise wait for ever.
What waits is bounded in bytes, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from overlay.links.events import Codec
from overlay.links.messages import BATCH_OVERHEAD
from overlay.machine import Message, ProtocolError
from overlay.settings import LinkSettings

LIST_HEAD = 5
"""Bytes that joining adds to the messages' own: MessagePack's longest array header."""

COMPRESS_FROM = 1_024
"""Smaller bodies are not worth zlib's 10 to 20 µs (overlay/settings.py, compress)."""


class InFlightBatch(NamedTuple):
    """A batch that is not acknowledged."""

    number: int
    digest: int
    compressed: bool
    body: bytes
    messages: tuple[Message, ...]

    @property
    def size(self) -> int:
        """Bytes that it takes of the credit."""
        return len(self.body) + BATCH_OVERHEAD


class SendBuffer:
    """One direction of one session.

    Lists and not deques: an empty deque takes 700 bytes, and a node has a hundred sessions, most of
    them at rest. What leaves at the front leaves together.
    """

    __slots__ = (
        *("_burst", "_codec", "_gap", "_recover_to", "_settings", "credit", "number"),
        *("in_flight", "in_flight_bytes", "queued", "queued_bytes"),
    )

    def __init__(self, settings: LinkSettings, codec: Codec) -> None:
        self._settings = settings
        self._codec = codec
        self.queued: list[tuple[bytes, Message]] = []
        self.queued_bytes = 0
        self.in_flight: list[InFlightBatch] = []
        self.in_flight_bytes = 0
        self.number = 0  # of the next batch
        self.credit = 0  # granted by the peer; nothing before the handshake
        self._recover_to = 0  # batches before this one may have been lost with the first
        self._burst = 0
        self._gap = (-1, 0)  # the last one that was mended: its first number, and that behind it

    @property
    def acknowledged(self) -> int:
        """Everything before this number has arrived."""
        return self.number - len(self.in_flight)

    @property
    def is_empty(self) -> bool:
        """Nothing waits and nothing is unacknowledged."""
        return not self.queued and not self.in_flight

    def enqueue(self, encoded: bytes, message: Message) -> bool:
        """Queue one message; False (and nothing is queued) if the queue is full."""
        size = self.queued_bytes + len(encoded)
        if size > self._settings.queue:
            return False
        self.queued_bytes = size
        self.queued.append((encoded, message))
        return True

    def next_batch(self) -> InFlightBatch | None:
        """The next batch, now under way; None if nothing waits or the credit forbids it."""
        queued = self.queued
        if not queued:
            return None
        room = self.credit - self.in_flight_bytes - BATCH_OVERHEAD - LIST_HEAD
        frame = self._settings.frame
        # Small rests of credit are not used up in tiny batches (the silly window of RFC 1122,
        # section 4.2.3.4): wait until the room is worth a batch.
        worth = min(self.queued_bytes, frame, self.credit // 2)
        alone = not self.in_flight and self.credit > 0
        if room < worth and not alone:
            return None
        limit = min(frame, room)
        size = len(queued[0][0])
        if size > room and not alone:
            return None
        count = 1
        while count < len(queued) and size + len(queued[count][0]) <= limit:
            size += len(queued[count][0])
            count += 1
        taken = queued[:count]
        del queued[:count]
        self.queued_bytes -= size
        return self._launch([one for one, _ in taken], tuple(m for _, m in taken))

    def _launch(self, encoded: list[bytes], messages: tuple[Message, ...]) -> InFlightBatch:
        body = self._codec.join(encoded)
        compressed = False
        if self._settings.compress and len(body) > COMPRESS_FROM:
            small = zlib.compress(body, 1)
            if len(small) < len(body):
                body, compressed = small, True
        sent = InFlightBatch(self.number, zlib.crc32(body), compressed, body, messages)
        self.number += 1
        self.in_flight.append(sent)
        self.in_flight_bytes += sent.size
        return sent

    def acknowledge(self, acknowledged: int, credit: int) -> bool:
        """The peer has everything before `acknowledged`. True if that is news.

        Raises ProtocolError for a number that was never sent or a negative credit.
        """
        if acknowledged > self.number or credit < 0:
            raise ProtocolError("acknowledges what was never sent")
        if acknowledged < self.acknowledged:
            return False  # overtaken by a later one
        self.credit = credit
        if acknowledged == self.acknowledged:
            return False
        arrived = acknowledged - self.acknowledged
        for sent in self.in_flight[:arrived]:
            self.in_flight_bytes -= sent.size
        del self.in_flight[:arrived]
        return True

    def resume(self, expected: int, credit: int) -> list[InFlightBatch]:
        """A new connection: the peer wants `expected` next. What to send again.

        Raises ProtocolError if the peer wants what it has already acknowledged.
        """
        if expected < self.acknowledged:
            raise ProtocolError("wants batches that it has acknowledged")
        self.acknowledge(expected, credit)
        self._recover_to = 0
        self._gap = (-1, 0)
        return list(self.in_flight)

    def fill_gap(self, acknowledged: int, until: int) -> list[InFlightBatch]:
        """The peer misses `acknowledged` and what follows up to `until`, which it has: these again,
        but not what is left of a gap that was mended, nor a larger one from the same number.

        (That would send the rest of a gap again with each batch that fills some of it; and a peer
        that kept asking could turn 12 bytes into megabytes for ever. If what is sent now is lost
        again, a smaller gap will be told, or the retransmission timer mends it.)
        """
        first, end = self._gap
        if acknowledged != self.acknowledged or until == end:
            return []
        if acknowledged == first and until > end:
            return []
        self._gap = (acknowledged, until)
        self._recover_to = 0
        return self.in_flight[: max(0, until - acknowledged)]

    def probe(self) -> Iterator[InFlightBatch]:
        """The retransmission timer fired: the first batch again, and see what the peer lacks.

        All of them would be a flood if the peer is merely slow. While acknowledgements then show
        that more was lost, `recover` doubles the number (as TCP's slow start).
        """
        self._recover_to = self.number
        self._burst = 1
        yield from self._first(1)

    def recover(self) -> Iterator[InFlightBatch]:
        """After news that follows `probe`: the next batches that were probably lost with it."""
        if self._recover_to > self.acknowledged:
            self._burst *= 2
            yield from self._first(self._burst)

    def _first(self, count: int) -> Iterator[InFlightBatch]:
        for sent in self.in_flight:
            if count == 0 or sent.number >= self._recover_to:
                break
            count -= 1
            yield sent

    def take_queued(self) -> list[tuple[bytes, Message]]:
        """What never went out, and so cannot have arrived: another session may send it."""
        unsent = list(self.queued)
        self.queued.clear()
        self.queued_bytes = 0
        return unsent

    def has_data(self) -> bool:
        """Whether a data-plane message is among what waits or is under way."""
        return any(message.data_units() for message in self.undelivered())

    def undelivered(self) -> tuple[Message, ...]:
        """Every message that may not have arrived, in the order of sending."""
        sent = [message for batch in self.in_flight for message in batch.messages]
        return (*sent, *(message for _, message in self.queued))
