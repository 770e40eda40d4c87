"""When a host matches a visit: at once, or where it is behind in the order of urgency (P6).

A host that keeps up matches each visit in the turn in which it comes, unless that would take long:
then a slice of it, as what follows. A turn takes time, and while
it lasts, more comes in: it waits in the system's buffers of each connection, first in, first out,
where it is not known what is urgent. So a host that has matched something sets a timer that is due
at once. What comes in until it fires came while the host was busy: it is put into the queue
(`VisitQueue`), which is cheap, so that all connections are read before the next event is matched.
Then the timer's turn serves a *slice* of it, the most urgent first, and sets the timer again.
So the most that an urgent event waits is a slice, and what is read before it.

Nothing is refused, and nothing lost: where the queue is full its most urgent is served in the turn
in which more came in. The host then reads less than it gets, and the links' credit and the
publishers' own bounds (`tree.pending`) hold back the rest. This is counted as `queue_full`.

A host whose deliveries have to wait, since an interested node takes them slowly, is *held back*
(delivery/hold.py): it puts visits into the queue as well, and serves none until it is no more,
or the queue is full. Their publishers get no answer and slow down, each by its own bounds.

What waits already is not queued again, and who waits for long is told so (`QueuedEvents`).

What leaves a host goes first in, first out, since links are FIFO and receivers rely on it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Protocol

import msgspec

from overlay.client import Event
from overlay.machine import Alarm, NodeId, Peer, Port, Timer
from overlay.settings import TreeSettings
from overlay.upper_tree.batches import weigh_events
from overlay.upper_tree.delivery.hold import Holding
from overlay.upper_tree.host.constants import (
    BYTES_MOST,
    EVENTS_MOST,
    GRADED_FOR,
    HELD_BACK_CHECK,
    LITTLE_TIMED,
    LITTLE_WORK,
    MATCH_AT_ONCE,
    SLICE_BYTES,
    SLICE_CALM,
    SLICE_FIRST,
    SLICE_LEAST,
    SLICE_MOST,
    SLICE_SECONDS,
    SLICE_SHARE,
    WAITING_WORD,
)
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.served_loads import ServedLoads
from overlay.upper_tree.host.urgency import DEFAULT_LEVEL, TYPE
from overlay.upper_tree.host_load import HostLoad, LoadMeter
from overlay.upper_tree.messages import Accepted, Visit
from overlay.upper_tree.visits import Trees, select_events, trees_by_place, trees_of

# Which events wait at a host, by publisher: so that none waits twice, and their publishers know.
#
# A publisher that hears nothing sends its events again. A host that is behind would match each of
# them as often as it came, fall behind further, and get still more of them: it would do ever less
# that anyone waits for, the more it is asked for (congestion collapse; RFC 896, RFC 2914). So
#
# * an event that waits already, for the same trees, is not queued again: what waits is answered
#   when it is served, to the same publisher. It has to be the same event in all that it has, not
#   only by its number;
# * a publisher of which something waits here, and which heard nothing for a while, is told that it
#   waits (`unanswered`), so that it does not take the host for silent. Only a host that works can
#   say so: one that died or was stopped says nothing, and its events go elsewhere as before.
#
# Nothing depends on it that an event is known here: one that is not is matched once more, and the
# interested nodes remove the duplicate. Shards of a value (`Visit.part`) are left out:
# shard_gatherings.py awaits them itself.


class WaitingEvents(msgspec.Struct):
    """The waiting events of one process of a publisher."""

    origin: Peer
    incarnation: int
    told_at: float
    """When the publisher last heard from this host, or the first of these came."""
    events: dict[int, tuple[Event, Trees]] = {}
    """By sequence number."""


class QueuedEvents:
    """The events in a host's queue, by publisher. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[NodeId, int], WaitingEvents] = {}

    def __len__(self) -> int:
        """Return the number of events known to wait."""
        return sum(len(each.events) for each in self._waiting.values())

    def add(self, visit: Visit, now: float) -> None:
        """Note that the events of a visit begin to wait."""
        if visit.part is not None:
            return
        key = self._key(visit)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = WaitingEvents(visit.origin, key[1], now)
        events = waiting.events
        for event, trees in zip(visit.events, trees_by_place(visit), strict=True):
            held = events.get(event.sequence)
            if held is not None and held[0] == event:
                trees += held[1]
            events[event.sequence] = (event, trees)

    def remove(self, visit: Visit) -> None:
        """Note that the events of a visit no longer wait."""
        key = self._key(visit)
        waiting = self._waiting.get(key)
        if waiting is None or visit.part is not None:
            return
        for event in visit.events:
            waiting.events.pop(event.sequence, None)
        if not waiting.events:
            del self._waiting[key]

    def without_repeated(self, visit: Visit) -> Visit:
        """The visit with those of its events that do not wait already for all of its trees."""
        waiting = self._waiting.get(self._key(visit))
        if waiting is None or visit.part is not None:
            return visit
        new: list[int] = []
        for at, (event, trees) in enumerate(zip(visit.events, trees_by_place(visit), strict=True)):
            held = waiting.events.get(event.sequence)
            if held is None or held[0] != event or not set(trees) <= set(held[1]):
                new.append(at)
        return visit if len(new) == len(visit.events) else select_events(visit, new)

    def answered(self, visit: Visit, now: float) -> None:
        """Note that the publisher of this visit is told of matched events."""
        waiting = self._waiting.get(self._key(visit))
        if waiting is not None:
            waiting.told_at = now

    def unanswered(self, since: float, now: float) -> Iterator[tuple[Peer, int]]:
        """The publishers, with their incarnations, that heard nothing since then. They hear of it
        now."""
        for waiting in self._waiting.values():
            if waiting.told_at <= since:
                waiting.told_at = now
                yield waiting.origin, waiting.incarnation

    def _key(self, visit: Visit) -> tuple[NodeId, int]:
        return visit.origin.id, visit.events[0].incarnation


class VisitQueue:
    """The queue of visits that a host still has to match: the most urgent first, without starvation
    (P6). Times are the Port's; levels are 1 (most urgent) and up.

    A visit that arrives at time t with level l is due at t + l * `ageing`, and the visit that is
    due first is served first. So of two visits that arrive together the more urgent is served
    first, and a visit that has waited `ageing` seconds ranks equal to one of the next more urgent
    level that arrives now. A visit that arrives more than (LEVELS - 1) * `ageing` later cannot
    overtake it, which keeps less urgent visits from starving under any load of urgent ones. With
    `ageing` 0 the order is first in, first out.

    Visits of the same level keep their order. The queue is bounded in events and in bytes; its user
    checks `is_full`.
    """

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

    def pop(self, most: int, bytes_most: int = SLICE_BYTES) -> tuple[Visit, float]:
        """The visit that is due first, or its first events, at least one: at most `most`, of some
        `bytes_most`. The rest keeps its place. And when it came. IndexError if nothing waits."""
        due, order, came, size, visit = heapq.heappop(self._heap)
        self.events -= len(visit.events)
        self.bytes -= size
        if size > bytes_most:
            most = min(most, len(visit.events) * bytes_most // size)
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


class MatchDue(Timer, frozen=True):
    """Go on with what waits to be matched."""


class VisitServer(Protocol):
    """The host whose visits are scheduled."""

    def serve(self, visit: Visit, came: float) -> int:
        """Match a visit that came at this time, or pass it on or give it back. Returns how many of
        its events were matched here."""

    @property
    def holding(self) -> Holding:
        """What it keeps for nodes out of reach, and whether their links carry too little."""


class VisitScheduler:
    """Decides which visit is served when; `trees` are those of the `host`."""

    def __init__(
        self,
        port: Port,
        settings: TreeSettings,
        trees: Mapping[str, HostedTree],
        host: VisitServer,
    ) -> None:
        self.port = port
        self.trees = trees
        self._host = host
        self.by_level = settings.priority
        self.queue = VisitQueue(settings.ageing if settings.priority else 0.0)
        self._queued = QueuedEvents()
        self._word_due = 0.0  # when to look again who waits for long
        self._meter = LoadMeter(port.now)
        self._alarm = Alarm(port, MatchDue())
        self._began: float | None = None  # when the work began that the alarm follows
        self._served = 0  # events since then, or in this turn
        self._timed_at = float("-inf")  # when an alarm last said how long work took
        self._turn = port.now  # when the turn began in which a visit came last
        self._graded_at = (
            -GRADED_FOR
        )  # when an event last came that a subscription names a level for

    def take(self, visit: Visit) -> None:
        """Serve a visit now, or queue it."""
        now = self.port.now
        waiting = self.queue.events
        if waiting:
            came = len(visit.events)
            visit = self._queued.without_repeated(visit)
            if repeated := came - len(visit.events):
                self.port.count("visits_repeated", repeated)
                if not visit.events:
                    return
        self._meter.arrived(len(visit.events), now)
        if self._began is None and now != self._turn:
            self._turn, self._served = now, 0
        is_idle = not waiting and (self._began is None or self._began == now)
        is_held_back = self._host.holding.holds_back
        if is_idle and not is_held_back and self._fits_turn(len(visit.events)):
            if self._is_timed(len(visit.events), now):
                self._begin(now)
            self._serve(visit, now)
            return
        if self._began is None:
            self._alarm.within(HELD_BACK_CHECK if is_held_back else 0.0)
        self.port.count("visits_queued", len(visit.events))
        for level, part in self._by_level(visit).items():
            self.queue.push(part, level, now)
            self._queued.add(part, now)
        while self.queue.is_full:
            self.port.count("queue_full")
            self._begin(now)
            self._serve_first(self._slice)

    def on_match_due(self, timer: MatchDue) -> None:
        """All that came in since the last work is in the queue now: serve a slice of it."""
        self._alarm.rang()
        now = self.port.now
        if self._began is not None:
            self._meter.worked(self._served, now - self._began)
            self._timed_at = now
        self._began, self._served = None, 0
        if not self.queue.events:
            return
        if self._host.holding.holds_back:
            self._tell_waiting()
            self._alarm.within(HELD_BACK_CHECK)
            return
        left, least = self._slice, self.queue.bytes - SLICE_BYTES
        self._begin(now)
        while left > 0 and self.queue.events and self.queue.bytes > least:
            left -= self._serve_first(left, self.queue.bytes - least)
        self._tell_waiting()

    def served_loads(self) -> ServedLoads:
        """Return the load measurement of the host's virtual nodes, based on this scheduler's
        meter."""
        return ServedLoads(self.port, self._meter, self.queue)

    @property
    def load(self) -> HostLoad | None:
        """Return the load to report to publishers; None: no events wait."""
        waiting = self.queue.events
        return self._meter.report(waiting) if waiting else None

    @property
    def _slice(self) -> int:
        """Events to be served in a turn."""
        if self.port.now - self._graded_at > GRADED_FOR:
            return min(self._in_time, SLICE_MOST)
        return min(max(self.queue.events // SLICE_SHARE, SLICE_LEAST), SLICE_MOST)

    @property
    def _in_time(self) -> int:
        """Events that are matched within `SLICE_SECONDS`, as far as is known."""
        found = int(SLICE_SECONDS * self._meter.service)
        return max(found, SLICE_CALM) if found else SLICE_FIRST

    def _fits_turn(self, events: int) -> bool:
        """Return whether an otherwise idle host may match `events` further events in this turn."""
        return self._served + events <= min(self._in_time, MATCH_AT_ONCE)

    def _tell_waiting(self) -> None:
        """Tell publishers that heard nothing for a while that their events wait here."""
        now = self.port.now
        if self.queue.events and now >= self._word_due:
            self._word_due = now + WAITING_WORD / 2
            for origin, incarnation in self._queued.unanswered(now - WAITING_WORD / 2, now):
                self.port.send(origin, Accepted(incarnation, (), (), self.load))

    def _serve_first(self, most: int, bytes_most: int = SLICE_BYTES) -> int:
        """Serve the visit that is due first, at most `most` events and about `bytes_most` bytes.
        Return the number of events served."""
        visit, came = self.queue.pop(most, bytes_most)
        self._queued.remove(visit)
        self._serve(visit, came)
        return len(visit.events)

    def _is_timed(self, events: int, now: float) -> bool:
        """Whether a visit that is served at once is worth a timer, so that what comes meanwhile
        waits for its turn and the time that it takes is known. Of little work one in a while is,
        unless some of it is more urgent."""
        if self._began is not None or now - self._graded_at <= GRADED_FOR:
            return True
        little = LITTLE_WORK * self._meter.service
        return self._served + events > little or now - self._timed_at > LITTLE_TIMED

    def _begin(self, now: float) -> None:
        """Work begins whose end the alarm says."""
        if self._began is None:
            self._began = now
        self._alarm.within(0.0)

    def _serve(self, visit: Visit, came: float) -> None:
        served = self._host.serve(visit, came)
        self._served += served
        if served and self.queue.events:
            self._queued.answered(visit, self.port.now)
        self._meter.taken_up(served, len(visit.events) - served)

    def _by_level(self, visit: Visit) -> dict[float, Visit]:
        """The visit, divided by how urgent its events are in the trees that it visits."""
        trees = [tree for a in trees_of(visit) if (tree := self.trees.get(a)) is not None]
        maps = [tree.latency for tree in trees if tree.latency.grades]
        if not maps:
            return {DEFAULT_LEVEL: visit}
        levels: dict[object, float] = {}
        found: dict[float, list[int]] = {}
        for place, event in enumerate(visit.events):
            kind = event.attributes.get(TYPE)
            level = levels.get(kind)
            if level is None:
                named = [each for m in maps if (each := m.priority(kind)) is not None]
                level = levels[kind] = min(named, default=DEFAULT_LEVEL)
                if named:
                    self._graded_at = self.port.now
            found.setdefault(level, []).append(place)
        if not self.by_level or len(found) == 1:
            return {next(iter(found), DEFAULT_LEVEL): visit}
        return {level: select_events(visit, places) for level, places in found.items()}
