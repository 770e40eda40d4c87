"""How much may be on its way to one client: credits, what waits for them, what is lost (no IO).

The same rule as between two nodes (M3, overlay/links/send_buffer.py), with the same words: credit
is in bytes and granted by the receiver, and what is under way never exceeds it. What is under way
are frames of deliveries that were sent and that the client has not *consumed*: its program has not
asked for them (canopy/client/arrivals.py). Answers to commands and news of losses need no
credit.

- **What waits.** Deliveries beyond the credit wait encoded, in order, bounded in bytes.
- **What is lost.** What comes when that is full is dropped: the newest, so that what waits is
  without a gap. It goes on being dropped until half of the queue is free, so that a client that is
  always too slow gets long stretches with few gaps, not a gap after each event. The gap takes its
  place in the queue: the client hears of it once, with the exact count, after what was before it
  and before what comes after it.
- **Large ones.** A client says what it has consumed when that is half of its credit, so it may have
  consumed all while almost half seems to be under way. One delivery that is larger than the rest
  goes alone then, since it would otherwise wait for ever; a queue that is empty takes one delivery
  of any size. So at most the credit is under way, or half of it and one delivery.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from overlay.client import Event

QUEUE: Final = 4 << 20
"""Bytes of deliveries that wait for one client's credit: what a link may have under way at once
(`LinkSettings.window`), so that what one link brings in one go need not be dropped."""

HEADS: Final = 32
"""More bytes than a frame has beside its deliveries: length, tag, request, array header (21)."""


class Waiting(NamedTuple):
    """A delivery that waits, encoded; `kind` says in which frames it goes."""

    kind: int
    encoded: bytes


class Lost:
    """A gap: deliveries that were dropped one after the other."""

    __slots__ = ("count", "first", "last", "since", "until")

    def __init__(self, event: Event) -> None:
        self.count = 0
        self.first = event.identity
        self.since = event.time
        self.add(event)

    def add(self, event: Event) -> None:
        """One more."""
        self.count += 1
        self.last = event.identity
        self.until = event.time


class Run(NamedTuple):
    """Deliveries of one kind that may be sent now, in one frame."""

    kind: int
    encoded: list[bytes]


class CreditWindow:
    """One client's credit, and what waits for it."""

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
        self._is_dropping = False
        self._waiting: deque[Waiting | Lost] = deque()

    def __bool__(self) -> bool:
        """Whether anything waits, be it news of a loss."""
        return bool(self._waiting)

    @property
    def under_way(self) -> int:
        """Bytes that were sent and are not consumed."""
        return self.sent - self.consumed

    def grant(self, consumed: int, credit: int) -> None:
        """The client has consumed so many bytes since the beginning, and takes `credit` beyond.

        Raises ValueError for bytes that were never sent or that it has said before, and for a
        negative credit.
        """
        if not self.consumed <= consumed <= self.sent:
            raise ValueError(f"a grant for {consumed} consumed bytes of {self.sent}")
        if credit < 0:
            raise ValueError(f"a grant of {credit} bytes")
        self.consumed = consumed
        self.credit = min(credit, self._most)

    def fits(self, size: int) -> bool:
        """Whether deliveries of `size` bytes in all may be sent at once."""
        heads = HEADS * (2 + size // self.frame)
        return not self._waiting and self.sent - self.consumed + size + heads <= self.credit

    def spend(self, size: int) -> None:
        """A frame of deliveries was sent, `size` bytes with its head."""
        self.sent += size

    @property
    def refuses(self) -> bool:
        """Whether the next delivery will be dropped, however small it is."""
        if self._is_dropping and self.waiting_bytes * 2 <= self.queue:
            self._is_dropping = False
        return self._is_dropping

    def takes(self, size: int) -> bool:
        """Whether a delivery of so many bytes may wait."""
        return not self.refuses and (
            self.waiting_bytes == 0 or self.waiting_bytes + size <= self.queue
        )

    def wait(self, kind: int, encoded: bytes) -> None:
        """Queue a delivery, which `takes` has allowed."""
        self._waiting.append(Waiting(kind, encoded))
        self.waiting_bytes += len(encoded)

    def drop(self, event: Event) -> bool:
        """A delivery of `event` that there is no room for. True if a gap begins with it."""
        self._is_dropping = True
        self.dropped += 1
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, Lost):
            last.add(event)
            return False
        self._waiting.append(Lost(event))
        return True

    def cut(self) -> Run | Lost | None:
        """What may be sent next; None if nothing waits or the credit forbids it. `spend` has to
        follow a run."""
        if not self._waiting:
            return None
        first = self._waiting[0]
        if isinstance(first, Lost):
            self._waiting.popleft()
            return first
        room = self.credit - self.under_way - HEADS
        is_half_free = self.credit > 0 and self.under_way * 2 <= self.credit
        size = len(first.encoded)
        if size > room and not is_half_free:
            return None
        run = [first.encoded]
        self._waiting.popleft()
        limit = min(self.frame, room)
        while self._waiting:
            after = self._waiting[0]
            if isinstance(after, Lost) or after.kind != first.kind:
                break
            if size + len(after.encoded) > limit:
                break
            size += len(after.encoded)
            run.append(after.encoded)
            self._waiting.popleft()
        self.waiting_bytes -= size
        return Run(first.kind, run)
