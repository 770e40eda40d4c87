"""The interested node's side: each publisher's events in the order of publication (V7).

What one host matches comes in order. Of what comes over several hosts a later event may come first.
Then it waits here for the earlier one, as far as it can be known that one may come: a delivery says
which other hosts events of its publisher visited shortly before, in which trees (`SentBefore`), and
up to which number its own host has matched (`through`). An event waits if it matches a subscription

* that is registered in a tree which an earlier event visits at another host,
* and that host has delivered nothing yet of what it got later than that.

It waits until that host has, or for `tree.order_hold` since the other event left its publisher. So
a subscription that is registered in one tree, in one place, never waits; nor does any other while
all of a publisher's events come over one host. Behind an event that waits wait later ones of its
publisher that match a subscription which it matches. Nothing waits longer than `tree.order_hold`,
nothing is lost or shown twice by it (duplicates were removed before), and no other publisher's
events wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from matching import EVERYTHING, Interval, Predicate, place
from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.machine import Alarm, Machine, NodeId, Port, Timer
from overlay.upper_tree.batches import weigh_event
from overlay.upper_tree.delivery.event_counts import EventSource
from overlay.upper_tree.event_history import EventArrival
from overlay.upper_tree.messages import EVENT_TREE, SentBefore, value_in
from overlay.upper_tree.subscriber.constants import (
    LOOK_PAUSE,
    LOOKED_AT_ONCE,
    ORDERED_BYTES,
    ORDERED_EVENTS,
    ORDERED_HOSTS,
    ORDERED_SOURCES,
    SHOWN_AT_ONCE,
)
from overlay.upper_tree.subscriber.inner_parts import InnerParts


class OrderDue(Timer, frozen=True):
    """Some event has waited long enough for earlier ones."""


class Passage(NamedTuple):
    """How events of one publisher came here together."""

    host: NodeId
    """That matched them."""
    before: Sequence[SentBefore]
    through: int
    """All that visited the host up to this number has been sent here; 0: not known."""
    previous: Sequence[int]
    """Events that the host sent here another way before."""
    arrival: Callable[[Sequence[str], Event], EventArrival]
    """Of a subscription registered in these trees."""


class OpenWay(NamedTuple):
    """Earlier events that visited another host, which has not delivered up to them."""

    before: SentBefore
    trees: Sequence[str]
    """Of these, the ones in which subscriptions of this node are registered."""
    for_any: bool
    """Also to subscriptions that match events without these attributes."""

    def last_before(self, event: Event) -> int:
        """The last of them that was published before this event, or the last number that it can
        have; 0 if none was, or none can come to a subscription that the event matches."""
        sequence = event.sequence
        if sequence <= self.before.first:
            return 0
        if not self.for_any and event.attributes.keys().isdisjoint(self.trees):
            return 0
        return min(self.before.last, sequence - 1)


class Ready(NamedTuple):
    """An event that may be shown, with how it came."""

    event: Event
    arrival: Callable[[Sequence[str], Event], EventArrival]


class Ways(NamedTuple):
    """Where events for a subscription are matched."""

    trees: tuple[str, ...]
    hull: Interval
    """What it needs of the one tree's value space; if it is registered in several, everything."""


class WaitingEvent(NamedTuple):
    """An event that waits for earlier ones."""

    ready: Ready
    keys: frozenset[str]
    """The subscriptions that it matches."""
    needs: tuple[tuple[NodeId, int], ...]
    """Hosts, and the number that they must have come to."""
    host: NodeId
    """That matched it."""
    until: float
    """When it waits for these no longer …"""
    latest: float
    """… nor for other events that wait."""
    size: int


class PublisherOrder:
    """What is known of one publisher's events."""

    __slots__ = ("missing", "source", "through", "waiting")

    def __init__(self, source: EventSource) -> None:
        self.source = source
        self.missing: BoundedDict[NodeId, list[tuple[int, float]]] = BoundedDict(ORDERED_HOSTS)
        """By host, a heap of events that it sent another way and that have not come, and until when
        they are waited for."""
        self.through: BoundedDict[NodeId, int] = BoundedDict(ORDERED_HOSTS)  # by host
        self.waiting: dict[int, WaitingEvent] = {}  # by sequence number


class PublicationOrder(Machine):
    """Lets events of all publishers wait for earlier ones. Bounded: where too many wait, or their
    publisher is forgotten, they wait no more."""

    def __init__(
        self,
        port: Port,
        hold: float,
        match: Callable[[Event], Iterable[str]],
        has_come: Callable[[EventSource, int], bool],
        show: Callable[[Sequence[Ready]], None],
    ) -> None:
        """`hold`: seconds that an event waits at most, 0 for never (`tree.order_hold`); `match`:
        the subscriptions that an event matches; `has_come`: whether the event with a number has;
        `show` gets events when they wait no more."""
        super().__init__(port)
        self.hold = hold
        self.match = match
        self.has_come = has_come
        self.show = show
        self.events = 0
        """How many wait."""
        self.bytes = 0
        self._ways: dict[str, Ways] = {}  # by subscription
        self._inner = InnerParts()
        self._trees: Counter[str] = Counter()  # that they are registered in …
        self._several: Counter[str] = Counter()  # … those that are in more than one
        self._sources: BoundedDict[EventSource, PublisherOrder] = BoundedDict(
            ORDERED_SOURCES, self._forget
        )
        self._alarm = Alarm(port, OrderDue())

    # --- subscriptions ---

    def register(self, subscription: str, predicate: Predicate, trees: Sequence[str]) -> None:
        """The subscription is registered in these trees (now)."""
        self.end(subscription)
        if self.hold:
            ways = self._ways[subscription] = ways_of(predicate, trees)
            _add(self._trees, ways.trees)
            if len(ways.trees) > 1:
                _add(self._several, ways.trees)
            elif ways.trees:
                self._inner.came(ways.trees[0], ways.hull)

    def end(self, subscription: str) -> None:
        """The subscription has ended."""
        ways = self._ways.pop(subscription, None)
        if ways is not None:
            self._inner.gone(len(self._ways))
            _subtract(self._trees, ways.trees)
            if len(ways.trees) > 1:
                _subtract(self._several, ways.trees)

    # --- events ---

    def arrived(
        self, source: EventSource, events: Sequence[Event], passage: Passage
    ) -> list[Ready] | None:
        """Events came that did not come before. Returns those that may be shown now, with others
        that waited for them, in the order of publication; None: just these events."""
        if not self._ways:
            return None
        state = self._sources.get(source)
        if state is None:
            state = self._sources[source] = PublisherOrder(source)
        through, waiting = state.through, state.waiting
        waited = self.events
        open_ = [
            OpenWay(each, mine, not self._several.keys().isdisjoint(mine) or EVENT_TREE in mine)
            for each in passage.before
            if each.host != passage.host
            and through.get(each.host, 0) < each.last
            and (mine := [tree for tree in each.trees if tree in self._trees])
        ]
        for number in passage.previous:
            if not self.has_come(source, number):
                missing = state.missing.setdefault(passage.host, [])
                heappush(missing, (number, self.port.now + self.hold))
                if len(missing) > ORDERED_EVENTS:
                    heappop(missing)
        if open_ or waiting or passage.host in state.missing:
            self._let_wait(state, events, passage, open_)
        if through.get(passage.host, 0) < passage.through <= self._lowest(state, passage.host):
            through.renew(passage.host, passage.through)
        if not waiting:
            return None
        ready: list[Ready] = []
        if self._is_over_bounds() or len(waiting) <= LOOKED_AT_ONCE:
            ready = self._take_ready(state)
        else:  # not for every delivery of a burst: a look costs as much as there waits
            self._alarm.within(len(waiting) * LOOK_PAUSE)
        if self.events > waited:
            self.port.count("order_held", self.events - waited)
        return ready

    def _let_wait(
        self,
        state: PublisherOrder,
        events: Sequence[Event],
        passage: Passage,
        open_: Sequence[OpenWay],
    ) -> None:
        """Add these events to what waits, if some of them, or others, have to wait."""
        now, host = self.port.now, passage.host
        found: list[WaitingEvent] = []
        some_wait = bool(state.waiting)
        lowest = self._lowest(state, host)
        for event in events:
            ready = Ready(event, passage.arrival)
            keys = None
            needs: list[tuple[NodeId, int]] = []
            until = now
            for way in open_:
                last = way.last_before(event)
                if not last or state.through.get(way.before.host, 0) >= last:
                    continue
                if keys is None:
                    if not self._may_concern(way, ready):
                        continue
                    keys = frozenset(self.match(event))
                if any(self._may_come(key, way.trees, ready) for key in keys):
                    needs.append((way.before.host, last))
                    until = max(until, now + self.hold - way.before.age / 1000)
            some_wait = some_wait or bool(needs) or lowest < event.sequence
            if some_wait and keys is None:
                keys = frozenset(self.match(event))
            size = weigh_event(event.attributes, event.payload) if some_wait else 0
            latest = now + self.hold
            found.append(
                WaitingEvent(ready, keys or frozenset(), tuple(needs), host, until, latest, size)
            )
        if some_wait:
            state.waiting.update((each.ready.event.sequence, each) for each in found)
            self.events += len(found)
            self.bytes += sum([each.size for each in found])

    def _lowest(self, state: PublisherOrder, host: NodeId) -> float:
        """The first of the events that the host sent another way and that have not come; infinite
        without one."""
        missing, now = state.missing.get(host), self.port.now
        if missing is None:
            return inf
        while missing and (missing[0][1] <= now or self.has_come(state.source, missing[0][0])):
            heappop(missing)
        if not missing:
            del state.missing[host]
            return inf
        return missing[0][0]

    def _may_concern(self, way: OpenWay, ready: Ready) -> bool:
        """Whether, as far as the event's values tell, it matches a subscription for which
        `_may_come` is true."""
        if way.for_any:
            return True
        for tree in way.trees:
            if tree not in ready.event.attributes:
                continue
            value, came = value_in(ready.event, tree), ready.arrival((tree,), ready.event)
            if value is None or came.attribute != tree:
                return True
            hulls = (ways.hull for ways in self._ways.values() if ways.trees == (tree,))
            lo, hi = self._inner.find(tree, came.interval, hulls)
            if not lo <= place(value) < hi:
                return True
        return False

    def _may_come(self, subscription: str, trees: Sequence[str], ready: Ready) -> bool:
        """Whether an event that visits these trees elsewhere may come to a subscription that this
        event matches."""
        ways = self._ways.get(subscription)
        if ways is None or not any(tree in trees for tree in ways.trees):
            return False
        if len(ways.trees) > 1:
            return True
        came = ready.arrival(ways.trees, ready.event)
        is_here = came.interval.lo <= ways.hull.lo and ways.hull.hi <= came.interval.hi
        return not (is_here and came.attribute == ways.trees[0])

    def _take_ready(self, state: PublisherOrder) -> list[Ready]:
        """Take out what waits no more, `SHOWN_AT_ONCE` events at most, unless too many wait."""
        now = self.port.now
        waiting = state.waiting
        numbers = sorted(waiting)
        lowest = {host: self._lowest(state, host) for host in list(state.missing)}
        overdue: set[str] = set()
        forced: dict[int, None] = {}
        for number in reversed(numbers):  # nothing waits longer than that, nor for what is behind
            each = waiting[number]
            if each.latest <= now or not overdue.isdisjoint(each.keys):
                forced[number] = None
                overdue |= each.keys
        blocked: set[str] = set()
        ready: list[Ready] = []
        due: list[float] = []
        for number in numbers:
            if len(ready) == SHOWN_AT_ONCE:
                due.append(now)
                break
            each = waiting[number]
            waits = each.until > now and any(
                state.through.get(host, 0) < last for host, last in each.needs
            )
            waits = (waits or lowest.get(each.host, inf) < number) and bool(each.keys)
            if number not in forced and (waits or not blocked.isdisjoint(each.keys)):
                blocked |= each.keys
                due.append(each.until if each.until > now else each.latest)
                continue
            ready.append(each.ready)
            self._take(state, number)
        if self._is_over_bounds():
            return sorted([*ready, *self._take_all(state)], key=lambda one: one.event.sequence)
        if due:
            self._alarm.within(max(min(due) - now, 0.0))
        return ready

    def _is_over_bounds(self) -> bool:
        return self.events > ORDERED_EVENTS or self.bytes > ORDERED_BYTES

    def _take(self, state: PublisherOrder, number: int) -> Ready:
        each = state.waiting.pop(number)
        self.events -= 1
        self.bytes -= each.size
        return each.ready

    def _take_all(self, state: PublisherOrder) -> list[Ready]:
        return [self._take(state, number) for number in sorted(state.waiting)]

    def _forget(self, source: EventSource, state: PublisherOrder) -> None:
        if state.waiting:
            self.show(self._take_all(state))

    def on_order_due(self, timer: OrderDue) -> None:
        """Show what has waited long enough."""
        self._alarm.rang()
        for state in [state for state in self._sources.values() if state.waiting]:
            ready = self._take_ready(state)
            if ready:
                self.show(ready)


def ways_of(predicate: Predicate, trees: Sequence[str]) -> Ways:
    """Where events that match the predicate are matched, registered in these trees."""
    names = tuple(dict.fromkeys(trees)) if len(trees) != 1 else tuple(trees)
    if len(names) != 1 or names[0] == EVENT_TREE:
        return Ways(names, EVERYTHING)
    found = [conjunction.constraints.get(names[0]) for conjunction in predicate.conjunctions]
    hulls = [EVERYTHING if constraint is None else constraint.hull for constraint in found]
    if len(hulls) <= 1:
        return Ways(names, hulls[0] if hulls else EVERYTHING)
    return Ways(names, Interval(min(h.lo for h in hulls), max(h.hi for h in hulls)))


def _add(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:  # a few: `Counter.update` takes thrice the time
        counts[name] += 1


def _subtract(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
