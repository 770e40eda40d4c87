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
from collections.abc import Iterable, Mapping, Sequence, Set
from heapq import heappop, heappush
from math import inf
from typing import Final, NamedTuple, Protocol

from matching import EVERYTHING, Cut, Interval, Predicate, place
from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.machine import Alarm, Machine, NodeId, Port, Timer
from overlay.upper_tree.batches import weigh_events
from overlay.upper_tree.delivery.event_counts import EventSource
from overlay.upper_tree.event_history import ArrivalOf, EventArrival
from overlay.upper_tree.messages import EVENT_TREE, SentBefore, value_in
from overlay.upper_tree.subscriber.constants import (
    LOOK_PAUSE,
    LOOKED_AT_ONCE,
    ORDERED_BYTES,
    ORDERED_EVENTS,
    ORDERED_HOSTS,
    ORDERED_SOURCES,
    PARTS_MOST,
    SHOWN_AT_ONCE,
)

# --- which values of a part of a tree concern only subscriptions that lie wholly in that part ---
#
# An event that came through a part of a tree need not wait for what visits the tree elsewhere,
# unless it matches a subscription that reaches beyond the part (publication_order.py). To match
# each event in order to know that took a subscriber as long again as to check the event. Mostly the
# value tells: subscriptions reach beyond a part where it ends, and what is further from its ends
# than they are wide matches none of them.

TreePart = tuple[str, Interval]
"""A tree and a part of its value space."""


class InnerParts:
    """For each part of a tree, the range whose values concern only subscriptions within the part.

    Bounded. A known range shrinks with each subscription that comes, and is forgotten when as many
    subscriptions have gone as there were. So it may be smaller than the true range, but never
    larger.
    """

    def __init__(self) -> None:
        self._inner: BoundedDict[TreePart, tuple[Cut, Cut]] = BoundedDict(PARTS_MOST)
        self._gone = 0

    def find(self, tree: str, part: Interval, hulls: Iterable[Interval]) -> tuple[Cut, Cut]:
        """Return where the inner values of a part begin and end; there are none if the end comes
        first. `hulls`: the ranges that subscriptions registered in this tree alone need of it, read
        if the part is not known."""
        found = self._inner.get((tree, part))
        if found is None:
            found = (part.lo, part.hi)
            for hull in hulls:
                found = _without(found, part, hull)
            self._inner[tree, part] = found
        return found

    def came(self, tree: str, hull: Interval) -> None:
        """Note a subscription that is registered in this tree alone, and needs the part `hull` of
        it."""
        for (name, part), found in self._inner.items():
            if name == tree:
                self._inner[name, part] = _without(found, part, hull)

    def gone(self, left: int) -> None:
        """Note that a subscription has ended; `left` remain."""
        self._gone += 1
        if self._gone > left:
            self._inner.clear()
            self._gone = 0


def _without(inner: tuple[Cut, Cut], part: Interval, hull: Interval) -> tuple[Cut, Cut]:
    """The inner values without those of a subscription that reaches beyond the part."""
    lo, hi = inner
    if hull.lo < part.lo:
        lo = max(lo, hull.hi)
    if hull.hi > part.hi:
        hi = min(hi, hull.lo)
    return lo, hi


class OrderDue(Timer, frozen=True):
    """Some event has waited long enough for earlier ones."""


class ArrivalTable(Protocol):
    """The arrivals of events, whatever trees a subscription is registered in."""

    @property
    def own(self) -> EventArrival:
        """The arrival of all of them …"""

    @property
    def apart(self) -> Mapping[int, EventArrival]:
        """… but for these, by number."""


class Passage(NamedTuple):
    """A group of events of one publisher that came to this node together."""

    host: NodeId
    """The host that matched them."""
    before: Sequence[SentBefore]
    through: int
    """All that visited the host up to this number has been sent here; 0: not known."""
    previous: Sequence[int]
    """Events that the host sent here another way before."""
    arrival: ArrivalOf
    ways: ArrivalTable | None = None
    """The ways of arrival; None: they are not the same for all subscriptions."""


class OpenWay(NamedTuple):
    """Earlier events that visited another host, which has not delivered up to them."""

    before: SentBefore
    trees: Set[str]
    """Those of these trees in which subscriptions of this node are registered."""
    for_any: bool
    """Whether it goes to subscriptions that match events without these attributes as well."""
    through: int
    """Up to this number the host has delivered."""


class Ready(NamedTuple):
    """An event that may be shown, with how it came."""

    event: Event
    arrival: ArrivalOf


class Ways(NamedTuple):
    """The trees and values in which events for a subscription are matched."""

    trees: tuple[str, ...]
    hull: Interval
    """The part of the one tree's value space that it needs; if it is registered in several,
    everything."""


Trees = tuple[str, ...]
"""The trees in which a subscription is registered. Events for subscriptions of the same trees are
kept in order together: that takes one match for a batch, whatever matches in each group."""


NO_GROUPS: Final[Set[Trees]] = frozenset()


class WaitingEvent(NamedTuple):
    """An event that waits for earlier ones."""

    ready: Ready
    groups: Set[Trees]
    """The trees of subscriptions that it matches."""
    needs: Sequence[tuple[NodeId, int]]
    """Hosts, and the number that they must have come to."""
    host: NodeId
    """The host that matched it."""
    until: float
    """When it waits for these no longer …"""
    latest: float
    """… nor for other events that wait."""
    size: int


class PublisherOrder:
    """The state of one publisher's events."""

    __slots__ = ("missing", "source", "through", "waiting")

    def __init__(self, source: EventSource) -> None:
        self.source = source
        self.missing: BoundedDict[NodeId, list[tuple[int, float]]] = BoundedDict(ORDERED_HOSTS)
        """By host, a heap of events that it sent another way and that have not come, and until when
        they are waited for."""
        self.through: BoundedDict[NodeId, int] = BoundedDict(ORDERED_HOSTS)  # by host
        self.waiting: dict[int, WaitingEvent] = {}  # by sequence number


class OrderedReceiver(Protocol):
    """The receiver whose events are put in order."""

    def trees_of_each(self, events: Sequence[Event]) -> Sequence[Set[Trees]]:
        """For each event the trees of subscriptions that it matches."""

    def has_come(self, source: EventSource, number: int) -> bool:
        """Whether the event with this number has come."""

    def show_late(self, ready: Sequence[Ready]) -> None:
        """Show events that wait no longer."""


class PublicationOrder(Machine):
    """Delays events of all publishers until earlier ones have come. Bounded: events no longer wait
    where too many wait, or where their publisher is forgotten."""

    def __init__(
        self,
        port: Port,
        hold: float,
        receiver: OrderedReceiver,
    ) -> None:
        """`hold`: seconds that an event waits at most, 0 for never (`tree.order_hold`)."""
        super().__init__(port)
        self.hold = hold
        self._receiver = receiver
        self.events = 0
        """Number of waiting events."""
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
        """Note in which trees the subscription is registered now."""
        if subscription in self._ways:
            self.end(subscription)
        if self.hold:
            ways = self._ways[subscription] = ways_of(predicate, trees)
            _add(self._trees, ways.trees)
            if len(ways.trees) > 1:
                _add(self._several, ways.trees)
            elif ways.trees:
                self._inner.came(ways.trees[0], ways.hull)

    def end(self, subscription: str) -> None:
        """Forget a subscription that has ended."""
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
        open_: list[OpenWay] = []
        for each in passage.before:
            come = through.get(each.host, 0)
            if each.host != passage.host and come < each.last:
                mine = self._trees.keys() & each.trees
                if mine:
                    for_any = EVENT_TREE in mine or not self._several.keys().isdisjoint(mine)
                    open_.append(OpenWay(each, mine, for_any, come))
        for number in passage.previous:
            if not self._receiver.has_come(source, number):
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
        if not events:
            return
        now, host = self.port.now, passage.host
        doubtful = self._doubtful(events, passage, open_)
        groups = self._groups([event for event, _ in doubtful])
        needs: dict[int, list[tuple[OpenWay, int]]] = {}
        for event, ways in doubtful:
            mine = groups[event.sequence]
            for way in ways:
                if self._may_come(mine, way[0], event, passage):
                    needs.setdefault(event.sequence, []).append(way)
        first = min(self._lowest(state, host), *needs, *state.waiting, inf)
        if not state.waiting and events[-1].sequence <= first not in needs:
            return
        behind = [e for e in events if e.sequence > first and e.sequence not in groups]
        groups.update(self._groups(behind))
        for event, size in zip(events, weigh_events(events), strict=True):
            number, until = event.sequence, now
            awaited: list[tuple[NodeId, int]] = []
            for (before, *_), last in needs.get(number, ()):
                until = max(until, now + self.hold - before.age / 1000)
                awaited.append((before.host, last))
            state.waiting[number] = WaitingEvent(
                Ready(event, passage.arrival),
                groups.get(number, NO_GROUPS),
                awaited,
                host,
                until,
                now + self.hold,
                size,
            )
            self.bytes += size
        self.events += len(events)

    def _groups(self, events: Sequence[Event]) -> dict[int, Set[Trees]]:
        """By number, the trees of subscriptions that the event matches."""
        if not events:
            return {}
        trees = self._receiver.trees_of_each(events)
        return dict(zip([event.sequence for event in events], trees, strict=True))

    def _doubtful(
        self, events: Sequence[Event], passage: Passage, open_: Sequence[OpenWay]
    ) -> list[tuple[Event, list[tuple[OpenWay, int]]]]:
        """The events for which an earlier one may be under way to a subscription that they match,
        as far as their values tell: each with the ways, and the last number that may be."""
        found: list[tuple[Event, list[tuple[OpenWay, int]]]] = []
        if not open_:
            return found
        own, apart = (None, {}) if passage.ways is None else (passage.ways.own, passage.ways.apart)
        for event in events:
            number, attributes = event.sequence, event.attributes
            came = apart.get(number, own)
            ways: list[tuple[OpenWay, int]] = []
            for way in open_:
                last = min(way.before.last, number - 1)
                if number <= way.before.first or last <= way.through:
                    continue
                is_open = way.for_any
                for tree in () if is_open else way.trees:
                    if tree in attributes and (
                        (came is not None and came.attribute != tree)
                        or self._reaches_beyond(tree, event, passage)
                    ):
                        is_open = True
                        break
                if is_open:
                    ways.append((way, last))
            if ways:
                found.append((event, ways))
        return found

    def _lowest(self, state: PublisherOrder, host: NodeId) -> float:
        """The first of the events that the host sent another way and that have not come; infinite
        without one."""
        missing, now = state.missing.get(host), self.port.now
        if missing is None:
            return inf
        has_come = self._receiver.has_come
        while missing and (missing[0][1] <= now or has_come(state.source, missing[0][0])):
            heappop(missing)
        if not missing:
            del state.missing[host]
            return inf
        return missing[0][0]

    def _reaches_beyond(self, tree: str, event: Event, passage: Passage) -> bool:
        """Whether a subscription that is registered in this tree alone, and that the event matches,
        may also match events that do not come by the part of the tree by which this one came."""
        came = passage.arrival((tree,), event)
        if came.attribute != tree:
            return True
        if came.interval is EVERYTHING:
            return False
        value = value_in(event, tree)
        if value is None:
            return True
        hulls = (ways.hull for ways in self._ways.values() if ways.trees == (tree,))
        lo, hi = self._inner.find(tree, came.interval, hulls)
        return not lo <= place(value) < hi

    def _may_come(self, groups: Set[Trees], way: OpenWay, event: Event, passage: Passage) -> bool:
        """Whether an event that went this way may come to a subscription that this event matches:
        one of the `groups`."""
        trees = way.trees
        for mine in groups:
            if not trees.isdisjoint(mine) and (
                len(mine) > 1 or self._reaches_beyond(mine[0], event, passage)
            ):
                return True
        return False

    def _take_ready(self, state: PublisherOrder) -> list[Ready]:
        """Remove and return the events that no longer have to wait, at most `SHOWN_AT_ONCE` unless
        too many wait."""
        now, through = self.port.now, state.through
        waiting = state.waiting
        numbers = sorted(waiting)
        lowest = {host: self._lowest(state, host) for host in list(state.missing)}
        overdue: set[Trees] = set()
        forced: dict[int, None] = {}
        for number in reversed(numbers):  # nothing waits longer than that, nor for what is behind
            each = waiting[number]
            if each.latest <= now or not overdue.isdisjoint(each.groups):
                forced[number] = None
                overdue |= each.groups
        blocked: set[Trees] = set()
        ready: list[Ready] = []
        due: list[float] = []
        for number in numbers:
            if len(ready) == SHOWN_AT_ONCE:
                due.append(now)
                break
            each = waiting[number]
            waits = lowest.get(each.host, inf) < number
            if each.until > now and not waits:
                for host, last in each.needs:
                    waits = waits or through.get(host, 0) < last
            waits = waits and bool(each.groups)
            if number not in forced and (waits or not blocked.isdisjoint(each.groups)):
                blocked |= each.groups
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
            self._receiver.show_late(self._take_all(state))

    def on_order_due(self, timer: OrderDue) -> None:
        """Show events that have waited long enough."""
        self._alarm.rang()
        for state in [state for state in self._sources.values() if state.waiting]:
            ready = self._take_ready(state)
            if ready:
                self._receiver.show_late(ready)


def ways_of(predicate: Predicate, trees: Sequence[str]) -> Ways:
    """Return where events that match the predicate are matched if it is registered in these
    trees."""
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
