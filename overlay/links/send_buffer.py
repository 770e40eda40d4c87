"""The sending direction of a session: what is queued, what is in flight, what may be sent (M3).

Messages are queued encoded. `next_batch` joins them to numbered batches as far as the credit
allows; a batch is kept, encoded, until the peer has acknowledged it; what the peer reports as
missing is sent again. The messages stay beside the bytes, so that a link that ends can name what
may be lost.

Credit is in bytes and granted by the receiver: what is in flight never exceeds it, except that a
single message larger than the whole credit goes when nothing else is in flight but what has
overtaken it, since it would otherwise wait for ever. Nor does it exceed what the peer handles
within `constants.QUEUE_DELAY` beyond the link's own round trip (`SendWindow`): what waits longer
waits here, where an urgent message overtakes it. The queue is bounded in bytes, too.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from overlay.links.backlog import PERIOD as BACKLOG_PERIOD
from overlay.links.backlog import Backlog
from overlay.links.constants import (
    COMPRESS_FROM,
    CONGESTED_SHARE,
    FIRST_WINDOW,
    LEAST_WINDOW,
    LIST_HEAD,
    QUEUE_DELAY,
    RELIEVED_SHARE,
    WINDOW_GROWTH,
)
from overlay.links.deadlines import NEVER
from overlay.links.events import Codec
from overlay.links.messages import BATCH_OVERHEAD
from overlay.machine import Message, ProtocolError
from overlay.settings import LinkSettings


class InFlightBatch(NamedTuple):
    """A batch that was sent and is not acknowledged."""

    number: int
    digest: int  # CRC-32 of `body`
    compressed: bool
    body: bytes
    messages: tuple[Message, ...]


class SendWindow:
    """The bytes that a peer handles in the shortest round trip and `QUEUE_DELAY`: no more are to be
    in flight. (The window of TCP Vegas: Brakmo and Peterson 1995, section 3.2.)"""

    __slots__ = ("_growth", "_most", "_shortest", "bytes")

    def __init__(self, most: int) -> None:
        """`most`: in bytes (`links.window`)."""
        self._most = most
        self.bytes = min(FIRST_WINDOW, most)
        self._growth = 2.0  # as in TCP's slow start, until it was once too large
        self._shortest = float("inf")  # round trip, in seconds

    def measured(self, round_trip: float, size: int) -> None:
        """Adapt the window after a batch was acknowledged after `round_trip` seconds, in which the
        peer acknowledged `size` bytes."""
        self._shortest = min(self._shortest, round_trip)
        target = self._shortest + QUEUE_DELAY
        if round_trip > target:
            self.bytes = max(LEAST_WINDOW, int(size * target / round_trip))
            self._growth = WINDOW_GROWTH
        elif 2 * size >= self.bytes:  # it was made use of
            self.bytes = min(int(self.bytes * self._growth), self._most)


class SendBuffer:
    """One direction of one session.

    Lists and not deques: an empty deque takes 700 bytes, and a node has a hundred sessions, most of
    them dormant. What leaves at the front leaves in bulk.
    """

    __slots__ = (
        *("_codec", "_gap", "_settings", "_urgent", "credit", "number"),
        *("in_flight", "in_flight_bytes", "queued", "queued_bytes", "queue_limit", "written"),
        *("window", "is_blocked", "arrived_bytes"),
    )

    def __init__(self, settings: LinkSettings, codec: Codec) -> None:
        self._settings = settings
        self._codec = codec
        self.queued: list[tuple[bytes, Message]] = []
        self.queued_bytes = 0
        self.queue_limit = min(settings.queue_floor, settings.queue)
        self.written = 0  # bytes of messages, since they were last counted
        self.in_flight: list[InFlightBatch] = []
        self.in_flight_bytes = 0
        self.arrived_bytes = 0  # which the peer has acknowledged so far
        self.number = 0  # of the next batch
        self.credit = 0  # granted by the peer; nothing before the handshake
        self.window = SendWindow(settings.window)
        self.is_blocked = False  # what is queued waits for an acknowledgement
        self._urgent = 0  # how many messages at the front of the queue have overtaken others
        self._gap = (-1, 0)  # the last one that was filled: its first number, and that behind it

    def limit(self, most: int) -> None:
        """Let at most `most` bytes wait from now on."""
        self.queue_limit = most

    def take_written(self) -> int:
        """The bytes of the messages that were queued since this was last called."""
        written, self.written = self.written, 0
        return written

    @property
    def acknowledged(self) -> int:
        """The number of the first batch that is not acknowledged: all before it have arrived."""
        return self.number - len(self.in_flight)

    def enqueue(self, encoded: bytes, message: Message) -> bool:
        """Queue one message; False (and nothing is queued) if the queue is full. An urgent one
        comes before all that waits for an acknowledgement and is not."""
        size = self.queued_bytes + len(encoded)
        if size > self.queue_limit:
            return False
        self.queued_bytes = size
        self.written += len(encoded)
        if self.is_blocked and message.overtakes:
            self.queued.insert(self._urgent, (encoded, message))
            self._urgent += 1
        else:
            self.queued.append((encoded, message))
        return True

    def next_batch(self) -> InFlightBatch | None:
        """The next batch, in flight from now on; None without credit or a message."""
        queued = self.queued
        if not queued:
            return None
        used = self.in_flight_bytes + BATCH_OVERHEAD + LIST_HEAD
        window = min(self.credit, self.window.bytes)
        room, most = window - used, len(queued)
        frame = self._settings.frame
        # Small rests of credit are not used up in tiny batches (silly window avoidance, RFC 1122,
        # section 4.2.3.4): wait until the room is worth a batch.
        worth = min(self.queued_bytes, frame, window // 2)
        if self._urgent and room < worth:  # these need not wait until the peer has caught up
            room, worth, most = self.credit - used, 0, self._urgent
        size = len(queued[0][0])
        if (room < worth or size > room) and not self._goes_beyond():
            self.is_blocked = True
            return None
        limit = min(frame, room)
        count = 1
        while count < most and size + len(queued[count][0]) <= limit:
            size += len(queued[count][0])
            count += 1
        taken = queued[:count]
        del queued[:count]
        self._urgent = max(0, self._urgent - count)
        self.is_blocked = self.is_blocked and bool(queued)
        self.queued_bytes -= size
        encoded, messages = zip(*taken, strict=True)
        body, compressed = self._codec.join(encoded), False
        if self._settings.compress and len(body) > COMPRESS_FROM:
            small = zlib.compress(body, 1)
            if len(small) < len(body):
                body, compressed = small, True
        batch = InFlightBatch(self.number, zlib.crc32(body), compressed, body, messages)
        self.number += 1
        self.in_flight.append(batch)
        self.in_flight_bytes += len(body) + BATCH_OVERHEAD
        return batch

    def _goes_beyond(self) -> bool:
        """Whether the first message may go although it does not fit: nothing is in flight, or only
        urgent ones that overtook it. These may be there all the time, and leave too little of the
        window for a message that is not much smaller."""
        if not self.in_flight or self.credit <= 0:
            return self.credit > 0
        return not self._urgent and all(
            each.overtakes for batch in self.in_flight for each in batch.messages
        )

    def acknowledge(self, number: int, credit: int) -> bool:
        """The peer has every batch before `number` and grants `credit`. Returns whether something
        was acknowledged that was not before.

        Raises ProtocolError for a number that was never sent or a negative credit.
        """
        if number > self.number or credit < 0:
            raise ProtocolError("acknowledges what was never sent")
        arrived = number - self.number + len(self.in_flight)
        if arrived < 0:
            return False  # overtaken by a later one
        self.credit = credit
        if not arrived:
            return False
        before = self.in_flight_bytes
        for batch in self.in_flight[:arrived]:
            self.in_flight_bytes -= len(batch.body) + BATCH_OVERHEAD
        self.arrived_bytes += before - self.in_flight_bytes
        del self.in_flight[:arrived]
        return True

    def resume(self, expected: int, credit: int) -> list[InFlightBatch]:
        """Resume on a new connection, on which the peer expects the batch `expected` next. Return
        the batches to send again.

        Acknowledgements that came on the former connection count: on a busy node the greeting may
        be older. Raises ProtocolError if the batch was never sent.
        """
        self.acknowledge(max(expected, self.acknowledged), credit)
        self._gap = (-1, 0)
        return list(self.in_flight)

    def fill_gap(self, first: int, end: int) -> list[InFlightBatch]:
        """The peer lacks the batches from `first` up to `end`, which it has: these again, but not
        what is left of a gap that was filled, nor a larger one from the same number.

        (That would send the rest of a gap again with each batch that fills some of it; and a peer
        that kept asking could turn 12 bytes into megabytes for ever. If what is sent now is lost
        again, the peer reports a smaller gap, or the retransmission timer fires.)
        """
        filled_first, filled_end = self._gap
        if first != self.acknowledged or end == filled_end:
            return []
        if first == filled_first and end > filled_end:
            return []
        self._gap = (first, end)
        return self.in_flight[: max(0, end - first)]

    def unacknowledged_before(self, end: int) -> list[InFlightBatch]:
        """The batches in flight before number `end`: lost, where the peer said that it lacks them
        after `end` was the next."""
        return self.in_flight[: max(0, end - self.acknowledged)]

    def take_queued(self) -> list[tuple[bytes, Message]]:
        """Remove and return the messages that were never sent, and so cannot have arrived, each
        encoded and as a message."""
        queued = list(self.queued)
        self.queued.clear()
        self.queued_bytes = 0
        return queued

    def has_data(self) -> bool:
        """Whether a data-plane message is queued or in flight."""
        return any(message.data_units() for message in self.undelivered())

    def undelivered(self) -> tuple[Message, ...]:
        """Every message that may not have arrived, in the order of sending."""
        sent = [message for batch in self.in_flight for message in batch.messages]
        return (*sent, *(message for _, message in self.queued))


class QueueLimit:
    """The bytes that may wait for a peer, which is as much as is written while it is out of reach
    (T3), and whether so much waits that the link is congested. Times are monotonic seconds."""

    __slots__ = (
        *("is_congested", "out_since", "resize_at", "_buffer", "_most", "_replay", "_waited"),
    )

    def __init__(self, settings: LinkSettings, buffer: SendBuffer, now: float) -> None:
        self._most = settings.queue // CONGESTED_SHARE
        self._replay = Backlog(
            settings.queue_floor, settings.queue, settings.queue_decay, settings.dead_after, now
        )
        self.resize_at = now + BACKLOG_PERIOD
        self.out_since = NEVER  # when the peer fell silent or its connection was lost
        self.reset(buffer)

    def reset(self, buffer: SendBuffer) -> None:
        """Limit another queue from now on, in which nothing waits."""
        self._buffer = buffer
        self.is_congested = False  # LinkCongested was emitted, when …
        self._waited = 0  # … so many bytes waited, or since then more

    def out_of_reach(self, now: float) -> None:
        """Note that the peer fell silent, or its connection was lost."""
        self.out_since = min(self.out_since, now)

    def in_reach(self, now: float) -> None:
        """Note that the peer, which was out of reach, has answered."""
        self._replay.reconnected(now - self.out_since, now)
        self.out_since = NEVER

    def extend(self, size: int, now: float) -> bool:
        """The queue has no room for `size` bytes: whether more may wait by now, since much is
        written."""
        before = self._buffer.queue_limit
        self._replay.wrote(size)
        self.resize(now)
        return self._buffer.queue_limit > before

    def resize(self, now: float) -> None:
        """Set the limit by what was written until now, and again from `resize_at` on."""
        self._replay.wrote(self._buffer.take_written())
        self._buffer.limit(self._replay.size(now))
        self.resize_at = now + BACKLOG_PERIOD

    def congestion_changed(self) -> bool:
        """Whether the link is congested now and was not, or the other way round, or has drained by
        one step more."""
        queued = self._buffer.queued_bytes
        step = self._most // RELIEVED_SHARE
        if not self.is_congested:
            self.is_congested = queued > self._most
            self._waited = queued
            return self.is_congested
        if queued > self._waited - step and queued > self._most - step:
            self._waited = max(self._waited, queued)
            return False
        self.is_congested = queued > self._most - step
        self._waited = queued
        return True
