"""One heap for everything in links that falls due: sessions, connections, seeds.

Each owner has at most one valid deadline, its `wake_at`. A deadline that moves *later* (each frame
received moves the time at which a peer counts as dead) costs nothing: the owner is woken at the old
time, finds nothing due and schedules the next. Only a deadline that moves *earlier* costs a push.
So a busy session costs about one wake-up per heartbeat, however many frames pass.
"""

from __future__ import annotations

import heapq
import itertools

NEVER = float("inf")


class HasDeadline:
    """The base of what `DeadlineQueue` wakes. `wake_at` is written by the queue only."""

    __slots__ = ("wake_at",)

    def __init__(self) -> None:
        self.wake_at = NEVER


class DeadlineQueue:
    """A heap of (time, sequence, owner) with lazy removal; equal times are popped in the order of
    scheduling. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, HasDeadline]] = []
        self._sequence = itertools.count()

    def __len__(self) -> int:
        """Entries of the heap, those that are no longer valid included."""
        return len(self._heap)

    def schedule(self, owner: HasDeadline, when: float) -> None:
        """Wake `owner` no later than `when`; an earlier deadline that is pending stays."""
        if when < owner.wake_at:
            owner.wake_at = when
            heapq.heappush(self._heap, (when, next(self._sequence), owner))

    def cancel(self, owner: HasDeadline) -> None:
        """Do not wake `owner` until it is scheduled again."""
        owner.wake_at = NEVER

    def next_due(self) -> float | None:
        """The time of the next deadline, None if there is none."""
        heap = self._heap
        while heap and heap[0][0] != heap[0][2].wake_at:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> HasDeadline | None:
        """Take the deadline of one owner that is due and return the owner, or None."""
        due = self.next_due()
        if due is None or due > now:
            return None
        owner = heapq.heappop(self._heap)[2]
        owner.wake_at = NEVER
        return owner
