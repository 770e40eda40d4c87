"""Which hosts a publisher's events visited lately: what may still be under way on other paths.

Links are FIFO, so what goes from one publisher over one host comes in order. Events that go over
different hosts may overtake each other. An interested node can put them back in order
(subscriber/publication_order.py) if it knows that an earlier one may come another way, which it can
not see from the numbers: most events of a publisher are not for it. So a visit says which other
hosts events of the same publisher visited shortly before, or in the same turn, and in which trees
(`SentBefore`); hosts pass that on with what they deliver. Nothing is said, and nothing costs
anything, where all events visit one host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from overlay.bounded import BoundedDict
from overlay.machine import NodeId
from overlay.upper_tree.messages import SentBefore, Visit

RECENT_HOSTS_MOST = 64
"""Hosts that are remembered, and named: those that were visited first are forgotten."""


class RecentVisit(NamedTuple):
    """Events that left for one host together."""

    at: float
    trees: tuple[str, ...]
    first: int
    last: int


class RecentVisits:
    """Of one publisher. Times are seconds. Bounded by hosts, and by what is sent in `window`."""

    def __init__(self, window: float) -> None:
        """`window`: for how long events count as under way (`tree.order_hold`)."""
        self.window = window
        self._visits: BoundedDict[NodeId, deque[RecentVisit]] = BoundedDict(RECENT_HOSTS_MOST)

    def note(self, host: NodeId, trees: Iterable[str], first: int, last: int, now: float) -> None:
        """Events with these numbers, and perhaps some between, leave for these trees at a host."""
        visits = self._visits.get(host)
        if visits is None:
            visits = self._visits[host] = deque()
        while visits and visits[0].at <= now - self.window:
            visits.popleft()
        visits.append(RecentVisit(now, tuple(trees), first, last))

    def before(self, host: NodeId, now: float) -> tuple[SentBefore, ...]:
        """What to say to this host: what left lately for others."""
        if len(self._visits) <= (host in self._visits):
            return ()
        found: list[SentBefore] = []
        for other, visits in list(self._visits.items()):
            while visits and visits[0].at <= now - self.window:
                visits.popleft()
            if not visits:
                del self._visits[other]
            elif other != host:
                trees = dict.fromkeys(chain.from_iterable({visit.trees for visit in visits}))
                age = int((now - visits[-1].at) * 1000)
                first = min(visit.first for visit in visits)
                last = max(visit.last for visit in visits)
                found.append(SentBefore(other, tuple(sorted(trees)), first, last, age))
        return tuple(found)


def last_of(visit: Visit) -> int:
    """The number of the visit's last event; 0 if it has none."""
    return visit.events[-1].sequence if visit.events else 0
