"""One heap for everything in links that falls due: sessions, connections, seeds.

Each owner has at most one valid alarm, its `alarm` attribute. An owner whose time moves *later*
(every frame heard moves the hour of death) does nothing at all: it wakes at the old time, sees
that nothing is due and asks for the next. Only a time that moves *earlier* costs a push. So a busy
session costs about one wake per heartbeat, however many frames pass.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TypeVar

NEVER = float("inf")


class Alarmed:
    """Something with one alarm."""

    alarm: float = NEVER


T = TypeVar("T", bound=Alarmed)


class Alarms:
    """A heap of (time, sequence, owner) with lazy removal; equal times wake in order of setting."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarmed]] = []
        self._sequence = itertools.count()

    def set(self, owner: Alarmed, when: float) -> None:
        """Wake `owner` no later than `when`; an earlier alarm that is pending stays."""
        if when < owner.alarm:
            owner.alarm = when
            heapq.heappush(self._heap, (when, next(self._sequence), owner))

    def cancel(self, owner: Alarmed) -> None:
        """Never wake `owner` (until it is set again)."""
        owner.alarm = NEVER

    def deadline(self) -> float | None:
        """When the next alarm is due, None if there is none."""
        heap = self._heap
        while heap and heap[0][0] != heap[0][2].alarm:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take(self, now: float) -> Alarmed | None:
        """One owner whose alarm is due (it has none from now on), or None."""
        due = self.deadline()
        if due is None or due > now:
            return None
        owner = heapq.heappop(self._heap)[2]
        owner.alarm = NEVER
        return owner
