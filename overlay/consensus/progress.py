"""What a leader knows of one follower (as `tracker.Progress` in etcd/raft).

::

    PROBE ──── where its log ends is known ───► CATCH_UP ──── it was sent the last entry ───┐
      ▲                                                                                     ▼
      └────────────── what it was sent does not follow on its log ───────────────────── REPLICATE
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from overlay.machine import Peer


class ProgressState(Enum):
    """How a leader sends entries to a follower."""

    PROBE = "probe"
    """It was asked where its log ends, and is sent nothing else."""
    CATCH_UP = "catch up"
    """It is brought older entries, or the whole state, by pieces."""
    REPLICATE = "replicate"
    """It was sent everything, and gets entries as they are appended."""


class Progress:
    """One follower, from one leader's point of view."""

    __slots__ = ("heard_at", "inflight", "match", "peer", "reading", "state")

    def __init__(self, peer: Peer, heard_at: float = 0.0) -> None:
        self.peer = peer
        self.state = ProgressState.PROBE
        self.match = 0
        """It has the entries up to this number on disk, as the leader has them."""
        self.inflight: deque[int] = deque()
        """The last entries of pieces that were sent to it and are not acknowledged, in order."""
        self.reading = False
        """Older entries are being read for it, from the leader's disk."""
        self.heard_at = heard_at
        """When it was heard last, by the leader's clock."""

    def change(self, state: ProgressState) -> None:
        """Go on in this state. What is being read for it or in flight does not count any more: it
        may be lost."""
        self.state = state
        self.inflight.clear()
        self.reading = False

    def read(self) -> None:
        """Older entries are being read for it."""
        self.state, self.reading = ProgressState.CATCH_UP, True

    def sent(self, number: int, end: int) -> None:
        """What was read is on its way, up to entry `number` of a log that ends with entry `end`."""
        self.reading = False
        self.inflight.append(number)
        if number == end:
            self.state = ProgressState.REPLICATE

    def restart(self, state: ProgressState, match: int = 0) -> None:
        """It has said where its log ends: what it has acknowledged before does not count, but for
        the entries up to `match`."""
        self.match = match
        self.change(state)

    def acknowledge(self, number: int, now: float) -> None:
        """It has said at `now` that it has the entries up to `number` on disk."""
        self.heard_at = now
        if number > self.match:
            self.match = number
        while self.inflight and self.inflight[0] <= number:
            self.inflight.popleft()

    def following(self, number: int) -> int:
        """The number of the entry to send next to a follower that has acknowledged `number`: what
        is in flight is not sent twice."""
        return max(number, self.inflight[-1] if self.inflight else 0) + 1
