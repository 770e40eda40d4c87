"""A client's credit, the queue that waits for it, and drops (no IO).

The same rule as between two nodes (M3, overlay/links/send_buffer.py), with the same words: credit
is in bytes and granted by the receiver, and the bytes under way never exceed it. Under way are
frames of deliveries that were sent and that the client has not *consumed*: its program has not
taken them (canopy/client/session.py). Replies to commands and notices of drops need no credit.

- **The queue.** Deliveries beyond the credit wait encoded, in order, bounded in bytes.
- **Dropping.** When the queue is full, new deliveries are dropped, so that the waiting ones have no
  gap. Dropping continues until half of the queue is free, so that a client that is always too slow
  gets long runs with few gaps, not a gap after each event. The gap takes its place in the queue:
  the client is notified once, with the exact count, between the deliveries before and after it.
- **Large deliveries.** A client grants when it has consumed half of its credit, so it may have
  consumed everything while almost half seems to be under way. Then a delivery that is larger than
  the rest of the credit is sent alone, since it would otherwise wait for ever; an empty queue takes
  one delivery of any size. So at most the credit is under way, or half of it and one delivery.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from overlay.client import Event

FRAME_OVERHEAD: Final = 32
"""Bytes reserved for the parts of a frame other than deliveries: length, tag, request number and
array header are 21."""


NOTICES: Final = 100
"""The most notices of missing deliveries that wait among them, as many as the client's library
keeps (canopy/client/session.py)."""


class QueuedDelivery(NamedTuple):
    """An encoded delivery in the queue; `kind` (DELIVERED, GATHERED): the type of its frame."""

    kind: int
    encoded: bytes


class DroppedRun:
    """A gap in the queue: successive deliveries that were dropped."""

    __slots__ = ("count", "first", "last", "since", "until")

    def __init__(self, event: Event) -> None:
        self.count = 0
        self.first = event.identity
        self.since = event.time
        self.add(event)

    def add(self, event: Event) -> None:
        """Count one more dropped delivery, of `event`."""
        self.count += 1
        self.last = event.identity
        self.until = event.time


class QueuedNotice(NamedTuple):
    """An encoded notice that keeps its place among the deliveries."""

    frame: bytes


class SendableRun(NamedTuple):
    """Encoded deliveries of one kind that may be sent in one frame."""

    kind: int
    encoded: list[bytes]


class CreditWindow:
    """One client's credit, and the deliveries that wait for it."""

    def __init__(self, credit: int, queue: int, frame: int) -> None:
        """All are bytes. `credit`: the credit until the client grants, and its upper bound;
        `queue`: the most bytes that wait; `frame`: the size at which a run is cut."""
        self.credit = self._most = credit
        self.queue = queue
        self.frame = frame
        self.sent = 0  # bytes of frames since the beginning
        self.consumed = 0  # of those
        self.waiting_bytes = 0
        self.dropped = 0  # deliveries since the beginning
        self.is_held = False
        """Whether there is no connection: nothing may be sent, and everything is queued."""
        self._is_dropping = False
        self._waiting: deque[QueuedDelivery | DroppedRun | QueuedNotice] = deque()
        self._notices = 0  # of those, notices

    def __bool__(self) -> bool:
        """Whether anything is queued, even if only the notice of a drop."""
        return bool(self._waiting)

    @property
    def under_way(self) -> int:
        """The bytes of frames that were sent and are not consumed."""
        return self.sent - self.consumed

    def grant(self, consumed: int, credit: int) -> None:
        """Handle a client's grant: it has consumed `consumed` bytes since the beginning, and
        `credit` more may be under way.

        Raises ValueError for bytes that were never sent or already granted, and for a negative
        credit.
        """
        if not self.consumed <= consumed <= self.sent:
            raise ValueError(f"a grant for {consumed} consumed bytes of {self.sent}")
        if credit < 0:
            raise ValueError(f"a grant of {credit} bytes")
        self.consumed = consumed
        self.credit = min(credit, self._most)

    def hold(self) -> None:
        """Send nothing from now on: the connection is lost, and the queue is kept for another
        one."""
        self.is_held = True

    def restart(self) -> None:
        """Begin on another connection: nothing is under way on it, and it has the initial
        credit."""
        self.is_held = False
        self.sent = self.consumed = 0
        self.credit = self._most

    def fits(self, size: int) -> bool:
        """Return whether deliveries of `size` bytes in total may be sent at once."""
        if self.is_held:
            return False
        heads = FRAME_OVERHEAD * (2 + size // self.frame)
        return not self._waiting and self.sent - self.consumed + size + heads <= self.credit

    def note_sent(self, size: int) -> None:
        """Count a frame of deliveries of `size` bytes that was sent."""
        self.sent += size

    @property
    def is_dropping(self) -> bool:
        """Whether the next delivery is dropped, however small: from the time when the queue was
        full until half of it is free."""
        if self._is_dropping and self.waiting_bytes * 2 <= self.queue:
            self._is_dropping = False
        return self._is_dropping

    def has_room(self, size: int) -> bool:
        """Return whether a delivery of `size` bytes may be queued."""
        return not self.is_dropping and (
            self.waiting_bytes == 0 or self.waiting_bytes + size <= self.queue
        )

    def enqueue(self, kind: int, encoded: bytes) -> None:
        """Queue a delivery for which there is room (`has_room`)."""
        self._waiting.append(QueuedDelivery(kind, encoded))
        self.waiting_bytes += len(encoded)

    def drop(self, event: Event) -> bool:
        """Drop a delivery of `event`. Returns whether a gap begins with it."""
        self._is_dropping = True
        self.dropped += 1
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, DroppedRun):
            last.add(event)
            return False
        self._waiting.append(DroppedRun(event))
        return True

    def enqueue_notice(self, frame: bytes) -> bool:
        """Queue a notice behind the waiting deliveries. Returns False if none wait, or if so many
        notices wait that their places no longer matter: the caller then sends the notice at
        once."""
        if not (self._waiting or self.is_held) or self._notices >= NOTICES:
            return False
        self._waiting.append(QueuedNotice(frame))
        self._notices += 1
        return True

    def next_run(self) -> SendableRun | DroppedRun | QueuedNotice | None:
        """Take the next item to send from the queue: deliveries (`note_sent` must follow), a gap,
        or a notice. None if nothing is queued or the credit does not suffice."""
        if not self._waiting or self.is_held:
            return None
        first = self._waiting[0]
        if isinstance(first, DroppedRun):
            self._waiting.popleft()
            return first
        if isinstance(first, QueuedNotice):
            self._waiting.popleft()
            self._notices -= 1
            return first
        room = self.credit - self.under_way - FRAME_OVERHEAD
        is_half_free = self.credit > 0 and self.under_way * 2 <= self.credit
        size = len(first.encoded)
        if size > room and not is_half_free:
            return None
        run = [first.encoded]
        self._waiting.popleft()
        limit = min(self.frame, room)
        while self._waiting:
            after = self._waiting[0]
            if not isinstance(after, QueuedDelivery) or after.kind != first.kind:
                break
            if size + len(after.encoded) > limit:
                break
            size += len(after.encoded)
            run.append(after.encoded)
            self._waiting.popleft()
        self.waiting_bytes -= size
        return SendableRun(first.kind, run)
