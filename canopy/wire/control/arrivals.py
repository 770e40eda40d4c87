"""What has come for a program, until it asks for it, and what it owes its node for that (no IO).

The program's side of canopy/wire/control/credit_window.py. What the library has read from the
socket and the program
has not asked for counts against the credit: so a program that asks for no deliveries holds its node
back, and neither the node nor this library keeps more for it than the credit. Deliveries are
consumed when they are handed out. The node is told when that is half of the credit: a grant for
some thousands of deliveries.

News of a loss has its place among the deliveries. What came before it is handed out by itself, and
with it (or alone, where nothing was) the news goes into `notices`; what came after it follows with
the next call.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from canopy.wire.control.opaque import GatheredOpaque, OpaqueEvent
from overlay.client import CREDIT, Delivered, Delivery, Dropped, Failed, Grant

NOTICES: Final = 100
"""News that a program has not looked at; beyond it the oldest go. Wild guess."""


class Segment:
    """What came between two losses."""

    __slots__ = ("bytes_delivered", "bytes_gathered", "delivered", "end", "gathered")

    def __init__(self) -> None:
        self.delivered: list[Delivery] = []
        self.gathered: list[OpaqueEvent] = []
        self.bytes_delivered = self.bytes_gathered = 0  # of the frames that they came in
        self.end: Dropped | None = None


class Arrivals:
    """Deliveries in the order in which they came, and the credit that they take."""

    def __init__(self, credit: int = CREDIT) -> None:
        """`credit`: bytes of frames that may come before something is consumed."""
        self.notices: deque[Failed] = deque(maxlen=NOTICES)
        self.consumed = 0  # bytes of frames since the beginning
        self.owes = credit != CREDIT
        """Whether the node should be told now."""
        self._credit = credit
        self._told = 0  # of what was consumed
        self._stretches: deque[Segment] = deque([Segment()])

    def __bool__(self) -> bool:
        """Whether a call would hand out something, or news."""
        head = self._stretches[0]
        return bool(head.delivered or head.gathered or head.end)

    def add(self, frame: Delivered | GatheredOpaque | Dropped, size: int) -> None:
        """A frame of `size` bytes came."""
        last = self._stretches[-1]
        if isinstance(frame, Delivered):
            last.delivered += frame.deliveries
            last.bytes_delivered += size
        elif isinstance(frame, GatheredOpaque):
            last.gathered += frame.events
            last.bytes_gathered += size
        else:
            last.end = frame
            self._stretches.append(Segment())

    def take_delivered(self) -> tuple[list[Delivery], bool]:
        """All deliveries up to the next loss; and whether there is news of one now."""
        head = self._stretches[0]
        found, head.delivered = head.delivered, []
        self._consume(head.bytes_delivered)
        head.bytes_delivered = 0
        return found, self._pass(head)

    def take_gathered(self) -> tuple[list[OpaqueEvent], bool]:
        """As `take_delivered`, of what was gathered."""
        head = self._stretches[0]
        found, head.gathered = head.gathered, []
        self._consume(head.bytes_gathered)
        head.bytes_gathered = 0
        return found, self._pass(head)

    def _consume(self, size: int) -> None:
        self.consumed += size
        if self.consumed - self._told >= self._credit // 2:
            self.owes = True

    def _pass(self, head: Segment) -> bool:
        """The end of a stretch that was handed out whole becomes news."""
        if head.end is None or head.delivered or head.gathered:
            return False
        self.notices.append(head.end)
        self._stretches.popleft()
        return True

    def grant(self) -> Grant:
        """What to tell the node."""
        return Grant(0, self.consumed, self._credit)

    def told(self, grant: Grant) -> None:
        """The node has been told."""
        self._told = grant.consumed
        self.owes = False
