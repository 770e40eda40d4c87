"""Items that have arrived for a program and were not yet taken, and their credit (no IO).

The program's side of canopy/wire/control/credit_window.py. Items that were read from the socket and
not handed out use up credit. So a program that takes no deliveries holds its node back, and neither
the node nor this library stores more for it than the credit. When half of the credit was handed
out, the node is granted more: one grant for some thousands of deliveries.

A notice of missing deliveries keeps its place among the deliveries. A call hands out the deliveries
before it, and puts the notice into `notices`; the deliveries after it follow with the next call.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from canopy.client.frames import GatheredOpaque, OpaqueEvent
from overlay.client import CREDIT, Delivered, Delivery, Failed, Grant

NOTICES: Final = 100
"""The most notices that are kept for a program that does not take them; then the oldest are
dropped. Not measured: the node sends one for each run of dropped deliveries, a few per second at
most."""


class ArrivalSegment:
    """The deliveries between two notices of missing deliveries."""

    __slots__ = ("bytes_delivered", "bytes_gathered", "delivered", "end", "gathered")

    def __init__(self) -> None:
        self.delivered: list[Delivery] = []
        self.gathered: list[OpaqueEvent] = []
        self.bytes_delivered = self.bytes_gathered = 0  # of the frames that they came in
        self.end: Failed | None = None


class Arrivals:
    """Deliveries in the order of their arrival, and the credit that they use."""

    def __init__(self, credit: int = CREDIT) -> None:
        """`credit`: bytes of frames that may arrive before the program takes any."""
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
        """The number of deliveries, gathered events and notices that were not taken."""
        held = sum(len(one.delivered) + len(one.gathered) for one in self._segments)
        return held + len(self._segments) - 1 + len(self.notices)

    def add(self, frame: Delivered | GatheredOpaque | Failed, size: int) -> None:
        """Queue a frame of `size` bytes: deliveries, or the notice that some are missing at this
        place."""
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
        """Return all deliveries up to the next notice, and whether the notice was put into
        `notices`."""
        head = self._segments[0]
        found, head.delivered = head.delivered, []
        self._consume(head.bytes_delivered)
        head.bytes_delivered = 0
        return found, self._pass(head)

    def take_gathered(self) -> tuple[list[OpaqueEvent], bool]:
        """Return all gathered events up to the next notice, and whether the notice was put into
        `notices`."""
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
        """Move the notice at the end of a segment to `notices`, if the rest of the segment was
        handed out."""
        if head.end is None or head.delivered or head.gathered:
            return False
        self.notices.append(head.end)
        self._segments.popleft()
        return True

    def grant(self) -> Grant:
        """Return the grant to send now; call `granted` after sending it."""
        return Grant(0, self.consumed, self._credit)

    def granted(self, grant: Grant) -> None:
        """Note that `grant` was sent. No other is due until more has been taken."""
        self._granted = grant.consumed
        self.grant_due = False
