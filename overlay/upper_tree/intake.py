"""How events come to a host that may be behind: matched at once, or in the order of urgency (P6).

A host that keeps up matches each visit in the turn in which it comes. A turn takes time, and while
it lasts, more comes in: it waits in the system's buffers of each connection, first in, first out,
where nobody can tell what is urgent. So whoever has matched something asks for a timer that is due
at once. What comes in until it fires came while the host was busy: it is put into the queue
(visit_queue.py), which is cheap, so that all connections are read before the next event is matched.
Then the timer's turn serves the most urgent, for a *slice* of time, and asks for the timer again if
something is left. So the most that an urgent event waits is a slice, and what is read before it.

Nothing is refused, and nothing lost: where the queue is full its most urgent is served in the turn
in which more came in. The host then reads less than it gets, and the links' credit and the
publishers' own bounds (`tree.pending`) hold back the rest. This is counted as `queue_full`.

What leaves a host goes first in, first out, since links are FIFO and receivers rely on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from overlay.client import Event
from overlay.machine import Alarm, Port, Timer
from overlay.settings import TreeSettings
from overlay.upper_tree.hosted import HostedTree
from overlay.upper_tree.messages import Visit
from overlay.upper_tree.pace import Pace, Pacing
from overlay.upper_tree.urgency import MIDDLE, TYPE
from overlay.upper_tree.visit_queue import VisitQueue

SLICE = 0.01
"""Seconds of matching in one turn, and so the time for which something urgent may go unseen: about
ten times a turn's own cost (docs/performance.md), so that slices cost little."""

SLICE_LEAST, SLICE_MOST = 1, 1_024
"""Events in a slice, whatever the service rate is."""

SLICE_FIRST = 256
"""Events in a slice while the service rate is not known: one full visit (batches.py)."""


class MatchDue(Timer, frozen=True):
    """Go on with what waits to be matched."""


class Intake:
    """Decides which visit is served when. `serve` matches one visit; `trees` are the host's."""

    def __init__(
        self,
        port: Port,
        settings: TreeSettings,
        trees: Mapping[str, HostedTree],
        serve: Callable[[Visit], None],
    ) -> None:
        self.port = port
        self.trees = trees
        self.serve = serve
        self.by_level = settings.priority
        self.queue = VisitQueue(settings.ageing if settings.priority else 0.0)
        self.pacing = Pacing(port.now)
        self._alarm = Alarm(port, MatchDue())
        self._began: float | None = None  # when the work began that the alarm follows
        self._served = 0  # events since then

    def take(self, visit: Visit) -> None:
        """A visit comes in: serve it now or later."""
        now = self.port.now
        self.pacing.arrived(len(visit.events), now)
        if self._began is None or (
            self._began == now and not len(self.queue) and self._served < self._slice
        ):
            self._serve(visit)
            return
        self.port.count("visits_queued", len(visit.events))
        for level, events in self._by_level(visit).items():
            self.queue.push(Visit(visit.origin, visit.hop, visit.attributes, events), level, now)
        while self.queue.is_full:
            self.port.count("queue_full")
            self._serve(self.queue.pop(self._slice))

    def on_match_due(self, timer: MatchDue) -> None:
        """All that has come in since the last work is in the queue now: serve a slice of it."""
        self._alarm.rang()
        now = self.port.now
        if self._began is not None:
            self.pacing.worked(self._served, now - self._began)
        self._began, self._served = None, 0
        left = self._slice
        while left > 0 and len(self.queue):
            visit = self.queue.pop(left)
            left -= len(visit.events)
            self._serve(visit)

    @property
    def pace(self) -> Pace | None:
        """What to tell publishers; None: nothing waits here."""
        waiting = self.queue.events
        return self.pacing.report(waiting) if waiting else None

    @property
    def _slice(self) -> int:
        rate = self.pacing.service
        return min(max(round(rate * SLICE), SLICE_LEAST), SLICE_MOST) if rate else SLICE_FIRST

    def _serve(self, visit: Visit) -> None:
        if self._began is None:
            self._began = self.port.now
        self._served += len(visit.events)
        self._alarm.within(0.0)
        self.serve(visit)

    def _by_level(self, visit: Visit) -> dict[float, tuple[Event, ...]]:
        """The visit's events by how urgent they are in the trees that they visit."""
        if not self.by_level:
            return {MIDDLE: visit.events}
        maps = [self.trees[a].latency for a in visit.attributes if a in self.trees]
        levels: dict[object, float] = {}
        found: dict[float, list[Event]] = {}
        for event in visit.events:
            kind = event.attributes.get(TYPE)
            level = levels.get(kind)
            if level is None:
                named = [each for m in maps if (each := m.priority(kind)) is not None]
                level = levels[kind] = min(named, default=MIDDLE)
            found.setdefault(level, []).append(event)
        return {level: tuple(events) for level, events in found.items()}
