"""What has come for a program and was not yet asked for, and the credit that it takes (no IO).

The program's side of canopy/wire/control/credit_window.py. What was read from the socket and not
handed out counts against the credit, so a program that asks for no deliveries holds its node back,
and neither the node nor this library keeps more for it than the credit. The node is granted more
when half of the credit was handed out: one grant for some thousands of deliveries.

A notice of missing deliveries keeps its place among the deliveries. What came before it is handed
out by itself, and with it (or alone, where nothing was before it) the notice goes into `notices`;
what came after it follows with the next call.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from canopy.client.frames import GatheredOpaque, OpaqueEvent
from overlay.client import CREDIT, Delivered, Delivery, Failed, Grant

NOTICES: Final = 100
"""Notices that are kept for a program that does not look at them; beyond it the oldest go. Not
measured: the node sends one for each run of dropped deliveries, some per second at most."""


class ArrivalSegment:
    """The deliveries between two notices of missing deliveries."""

    __slots__ = ("bytes_delivered", "bytes_gathered", "delivered", "end", "gathered")

    def __init__(self) -> None:
        self.delivered: list[Delivery] = []
        self.gathered: list[OpaqueEvent] = []
        self.bytes_delivered = self.bytes_gathered = 0  # of the frames that they came in
        self.end: Failed | None = None


class Arrivals:
    """Deliveries in the order in which they came, and the credit that they take."""

    def __init__(self, credit: int = CREDIT) -> None:
        """`credit`: bytes of frames that may come before something is consumed."""
        self.notices: deque[Failed] = deque(maxlen=NOTICES)
        self.consumed = 0  # bytes of frames since the beginning
        self.grant_due = credit != CREDIT
        """Whether the node should be granted more credit now."""
        self._credit = credit
        self._granted = 0  # `consumed` of the last grant
        self._segments: deque[ArrivalSegment] = deque([ArrivalSegment()])

    def __bool__(self) -> bool:
        """Whether a call would hand out deliveries or a notice."""
        head = self._segments[0]
        return bool(head.delivered or head.gathered or head.end)

    def __len__(self) -> int:
        """Deliveries, gathered events and notices that were not taken."""
        held = sum(len(one.delivered) + len(one.gathered) for one in self._segments)
        return held + len(self._segments) - 1 + len(self.notices)

    def add(self, frame: Delivered | GatheredOpaque | Failed, size: int) -> None:
        """Queue a frame of `size` bytes: deliveries, or the notice that some are missing here."""
        last = self._segments[-1]
        if isinstance(frame, Delivered):
            last.delivered += frame.deliveries
            last.bytes_delivered += size
        elif isinstance(frame, GatheredOpaque):
            last.gathered += frame.events
            last.bytes_gathered += size
        elif len(self._segments) > NOTICES:  # the program takes nothing: its place does not matter
            self.notices.append(frame)
        else:
            last.end = frame
            self._segments.append(ArrivalSegment())

    def take_delivered(self) -> tuple[list[Delivery], bool]:
        """All deliveries up to the next notice, and whether that went to `notices` with them."""
        head = self._segments[0]
        found, head.delivered = head.delivered, []
        self._consume(head.bytes_delivered)
        head.bytes_delivered = 0
        return found, self._pass(head)

    def take_gathered(self) -> tuple[list[OpaqueEvent], bool]:
        """As `take_delivered`, for a connection that gathers."""
        head = self._segments[0]
        found, head.gathered = head.gathered, []
        self._consume(head.bytes_gathered)
        head.bytes_gathered = 0
        return found, self._pass(head)

    def _consume(self, size: int) -> None:
        self.consumed += size
        if self.consumed - self._granted >= self._credit // 2:
            self.grant_due = True

    def _pass(self, head: ArrivalSegment) -> bool:
        """Pass on the notice at the end of a segment that was handed out whole."""
        if head.end is None or head.delivered or head.gathered:
            return False
        self.notices.append(head.end)
        self._segments.popleft()
        return True

    def grant(self) -> Grant:
        """The grant to send now; `granted` follows when it was sent."""
        return Grant(0, self.consumed, self._credit)

    def granted(self, grant: Grant) -> None:
        """Note that `grant` was sent: no other is due until more has been taken."""
        self._granted = grant.consumed
        self.grant_due = False
