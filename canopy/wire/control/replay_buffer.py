"""What was sent to a program and may have to be sent again on another connection (M5; no IO).

A client with a session keeps each frame that was not asked for until its program has consumed it:
the frames of deliveries, which its credit bounds, and the notices among them. They are numbered by
what they carry, each delivery, gathered event or notice one number, so that both sides count alike
and a program says what it has by one number.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class SentFrame(NamedTuple):
    """A frame that was sent and is not consumed. `last`: the number of its last item, `items` how
    many it has, `end`: bytes of frames of deliveries sent on this connection, up to its end."""

    last: int
    items: int
    end: int
    frame: bytes
    is_notice: bool


class ReplayBuffer:
    """The frames of one session since they were consumed last."""

    def __init__(self) -> None:
        self.sent = 0
        """Items that were sent since the session began: the number of the last one."""
        self._frames: deque[SentFrame] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def size(self) -> int:
        """Bytes of the frames."""
        return sum(len(one.frame) for one in self._frames)

    def add(self, frame: bytes, items: int, end: int, is_notice: bool = False) -> None:
        """A frame with so many items was sent. A notice takes no credit, so it is consumed with the
        first byte behind it."""
        self.sent += items
        end += is_notice
        self._frames.append(SentFrame(self.sent, items, end, frame, is_notice))

    def consumed(self, end: int) -> None:
        """The program has consumed so many bytes of the frames of deliveries on this connection."""
        while self._frames and self._frames[0].end <= end:
            self._frames.popleft()

    def take_after(self, received: int) -> tuple[int, list[SentFrame]]:
        """The program is back and has `received` items: the frames with the others, which are to be
        sent again (`add`), and the number of the last item before them.

        Raises ValueError for more items than were sent.
        """
        if received > self.sent:
            raise ValueError(f"{received} items are more than the {self.sent} that were sent")
        again = [one for one in self._frames if one.last > received]
        self._frames.clear()
        if again:
            self.sent = again[0].last - again[0].items
        return self.sent, again
