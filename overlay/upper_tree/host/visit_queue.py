"""What a host has still to match: the most urgent first, without starvation (P6).

A priority queue whose order is fixed when something comes in: at time t with level l it is due at
t + l * `ageing`, and what is due first is served first. So the more urgent of two that came
together goes first, and an event that has waited `ageing` seconds is as good as one of the next
lower level that comes now. Nothing that comes more than (LEVELS - 1) * `ageing` later can
overtake it: that is what keeps the less urgent from starving, however much of the urgent there is.
With `ageing` 0 it is first in, first out.

What has the same level stays in order. The queue is bounded in events and in bytes; its user
sees to `is_full` (visit_scheduler.py).
"""

from __future__ import annotations

import heapq

from overlay.upper_tree.batches import weigh_events
from overlay.upper_tree.host.constants import BYTES_MOST, EVENTS_MOST
from overlay.upper_tree.messages import Visit
from overlay.upper_tree.visits import select_events


class VisitQueue:
    """Visits by when they are due. Times are the Port's; levels are 1 (most urgent) and up."""

    def __init__(self, ageing: float) -> None:
        """`ageing`: seconds by which a level may be overtaken by the next more urgent one."""
        self.ageing = ageing
        self.events = 0
        """Number of events that wait."""
        self.bytes = 0
        self._heap: list[tuple[float, int, float, int, Visit]] = []
        """When it is due, its order, when it came, its bytes, and what it is."""
        self._order = 0

    def __len__(self) -> int:
        """Number of visits that wait (each of one event or more)."""
        return len(self._heap)

    @property
    def is_full(self) -> bool:
        """Whether something has to be served before anything else may come in."""
        return self.events > EVENTS_MOST or self.bytes > BYTES_MOST

    def push(self, visit: Visit, level: float, now: float) -> None:
        """Queue a visit whose events all have this level."""
        self._order += 1
        self._put(now + level * self.ageing, self._order, now, visit)

    def pop(self, most: int) -> tuple[Visit, float]:
        """The visit that is due first, or its first `most` events (at least one): the rest keeps
        its place; and when it came. IndexError if nothing waits."""
        due, order, came, size, visit = heapq.heappop(self._heap)
        self.events -= len(visit.events)
        self.bytes -= size
        most = max(1, most)
        if len(visit.events) > most:
            self._put(due, order, came, select_events(visit, range(most, len(visit.events))))
            visit = select_events(visit, range(most))
        return visit, came

    def _put(self, due: float, order: int, came: float, visit: Visit) -> None:
        size = 0
        if visit.hop:  # from elsewhere
            size = sum(weigh_events(visit.events))
        self.events += len(visit.events)
        self.bytes += size
        heapq.heappush(self._heap, (due, order, came, size, visit))
