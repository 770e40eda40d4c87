"""How much may be under way to one client: credit, what waits for it, what is dropped (no IO).

The same rule as between two nodes (M3, overlay/links/send_buffer.py), with the same words: credit
is in bytes and granted by the receiver, and what is under way never exceeds it. What is under way
are frames of deliveries that were sent and that the client has not *consumed*: its program has not
asked for them (canopy/client/arrivals.py). Replies to commands and notices of drops need no
credit.

- **The queue.** Deliveries beyond the credit wait encoded, in order, bounded in bytes.
- **Dropping.** What comes when the queue is full is dropped: the newest, so that what waits is
  without a gap. Dropping goes on until half of the queue is free, so that a client that is always
  too slow gets long runs with few gaps, not a gap after each event. The gap takes its place in the
  queue: the client is notified once, with the exact count, after what was before it and before
  what comes after it.
- **Large deliveries.** A client grants when it has consumed half of its credit, so it may have
  consumed all while almost half seems to be under way. One delivery that is larger than the rest of
  the credit goes alone then, since it would otherwise wait for ever; an empty queue takes one
  delivery of any size. So at most the credit is under way, or half of it and one delivery.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from overlay.client import Event

QUEUE: Final = 4 << 20
"""Bytes of deliveries that wait for one client's credit: what a link may have under way at once
(`LinkSettings.window`), so that what one link brings in one go need not be dropped."""

FRAME_OVERHEAD: Final = 32
"""Bytes reserved for what a frame has beside its deliveries: length, tag, request number and array
header are 21."""


NOTICES: Final = 100
"""Notices of missing deliveries that wait among them, as many as the client's library keeps
(canopy/client/arrivals.py)."""


class QueuedDelivery(NamedTuple):
    """An encoded delivery in the queue; `kind` (DELIVERED, GATHERED) says in which frames."""

    kind: int
    encoded: bytes


class DroppedRun:
    """A gap in the queue: deliveries that were dropped one after the other."""

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
    """An encoded notice that is to keep its place among the deliveries."""

    frame: bytes


class SendableRun(NamedTuple):
    """Encoded deliveries of one kind that may be sent now, in one frame."""

    kind: int
    encoded: list[bytes]


class CreditWindow:
    """One client's credit, and the deliveries that wait for it."""

    def __init__(self, credit: int, queue: int, frame: int) -> None:
        """All in bytes: `credit` that counts until the client grants, and is the most that counts
        whatever it grants; `queue` that may wait; `frame` at which a run is cut."""
        self.credit = self._most = credit
        self.queue = queue
        self.frame = frame
        self.sent = 0  # bytes of frames since the beginning
        self.consumed = 0  # of those
        self.waiting_bytes = 0
        self.dropped = 0  # deliveries since the beginning
        self.is_held = False
        """Whether nothing may be sent, and all is queued: there is no connection."""
        self._is_dropping = False
        self._waiting: deque[QueuedDelivery | DroppedRun | QueuedNotice] = deque()
        self._notices = 0  # of those, notices

    def __bool__(self) -> bool:
        """Whether anything is queued, be it only the notice of a drop."""
        return bool(self._waiting)

    @property
    def under_way(self) -> int:
        """Bytes of frames that were sent and are not consumed."""
        return self.sent - self.consumed

    def grant(self, consumed: int, credit: int) -> None:
        """Take a client's grant: it has consumed `consumed` bytes since the beginning, and `credit`
        more may be under way.

        Raises ValueError for bytes that were never sent or that it has granted before, and for a
        negative credit.
        """
        if not self.consumed <= consumed <= self.sent:
            raise ValueError(f"a grant for {consumed} consumed bytes of {self.sent}")
        if credit < 0:
            raise ValueError(f"a grant of {credit} bytes")
        self.consumed = consumed
        self.credit = min(credit, self._most)

    def hold(self) -> None:
        """The connection is lost, and the queue is kept for another one."""
        self.is_held = True

    def restart(self) -> None:
        """Another connection begins: nothing is under way on it, and it has the usual credit."""
        self.is_held = False
        self.sent = self.consumed = 0
        self.credit = self._most

    def fits(self, size: int) -> bool:
        """Whether deliveries of `size` bytes in all may be sent at once."""
        if self.is_held:
            return False
        heads = FRAME_OVERHEAD * (2 + size // self.frame)
        return not self._waiting and self.sent - self.consumed + size + heads <= self.credit

    def note_sent(self, size: int) -> None:
        """Count a frame of deliveries that was sent, `size` bytes in all."""
        self.sent += size

    @property
    def is_dropping(self) -> bool:
        """Whether the next delivery is dropped, however small: so since the queue was full, until
        half of it is free."""
        if self._is_dropping and self.waiting_bytes * 2 <= self.queue:
            self._is_dropping = False
        return self._is_dropping

    def has_room(self, size: int) -> bool:
        """Whether a delivery of `size` bytes may be queued."""
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
        """Queue a notice behind the deliveries that wait. Return False if none waits, or if so many
        notices wait that their places no longer matter: the notice is then to be sent at once."""
        if not (self._waiting or self.is_held) or self._notices >= NOTICES:
            return False
        self._waiting.append(QueuedNotice(frame))
        self._notices += 1
        return True

    def next_run(self) -> SendableRun | DroppedRun | QueuedNotice | None:
        """Take what may be sent next from the queue: deliveries, for which `note_sent` has to
        follow, or a gap or notice; None if nothing is queued or the credit does not suffice."""
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
