"""The events of one publisher that visit a host together, in the order of their publication.

Events with different attributes visit different trees, and one host may serve several of these.
They still leave in one message, in the order in which they were published: a message for each set
of trees would bring the host all events of the one set before those of the other, and so the nodes
that want both. The message says which events visit which trees (`Visit.apart`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import msgspec

from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.machine import NodeId, Peer, ProtocolError
from overlay.upper_tree.messages import Deliver, SentBefore, Visit

Trees = tuple[str, ...]
"""Attributes of the trees that an event visits."""

Group = tuple[Trees, Sequence[Event]]
"""Events that visit the same trees, in the order of publication."""

RECENT_HOSTS_MOST = 64
"""Hosts whose last visits are remembered, and named: those visited first are forgotten."""

by_publication = attrgetter("sequence")
"""Sorts events of one publisher."""


def visits_of(
    origin: Peer,
    hop: int,
    groups: Sequence[Group],
    cut: Callable[[Sequence[Event]], Iterable[tuple[Event, ...]]],
    before: tuple[SentBefore, ...] = (),
) -> Iterator[Visit]:
    """The messages that bring these groups (at least one) to a host. `cut` divides events, in
    order, so that each part fits into one message; `before`: what left for other hosts."""
    if len(groups) == 1:
        ((trees, events),) = groups
        for batch in cut(events):
            yield Visit(origin, hop, trees, batch, (), before)
        return
    merged = [(event, number) for number, (_, events) in enumerate(groups) for event in events]
    merged.sort(key=lambda pair: by_publication(pair[0]))
    at = 0
    for batch in cut([event for event, _ in merged]):
        places: dict[int, list[int]] = {}
        for place, (_, number) in enumerate(merged[at : at + len(batch)]):
            places.setdefault(number, []).append(place)
        first, *others = places
        apart = tuple([(groups[number][0], tuple(places[number])) for number in others])
        yield Visit(origin, hop, groups[first][0], batch, apart, before)
        at += len(batch)


def groups_of(visit: Visit) -> list[Group]:
    """The visit's events by the trees that they visit, in the order of publication."""
    if not visit.apart:
        return [(visit.attributes, visit.events)]
    elsewhere = {place for _, places in visit.apart for place in places}
    own = [event for place, event in enumerate(visit.events) if place not in elsewhere]
    found: list[Group] = [(visit.attributes, own)] if own else []
    found += [(trees, [visit.events[place] for place in places]) for trees, places in visit.apart]
    return found


def trees_of(visit: Visit) -> Iterable[str]:
    """The trees that some event of the visit visits, each once."""
    if not visit.apart:
        return visit.attributes
    return dict.fromkeys([*visit.attributes, *(name for trees, _ in visit.apart for name in trees)])


def trees_by_place(visit: Visit) -> list[Trees]:
    """The trees that each of the visit's events visits, in their order."""
    found = [visit.attributes] * len(visit.events)
    for trees, places in visit.apart:
        for place in places:
            found[place] = trees
    return found


def tree_of_each(message: Deliver) -> list[str]:
    """The tree through which each event of a delivery came."""
    trees = [message.attribute] * len(message.events)
    for attribute, _, places in message.apart:
        for place in places:
            trees[place] = attribute
    return trees


def select_events(visit: Visit, places: Sequence[int]) -> Visit:
    """The visit with the events at these places (ascending) alone."""
    events = tuple([visit.events[place] for place in places])
    apart: list[tuple[Trees, tuple[int, ...]]] = []
    if visit.apart:
        new = {old: place for place, old in enumerate(places)}
        for trees, some in visit.apart:
            kept = tuple([new[place] for place in some if place in new])
            if kept:
                apart.append((trees, kept))
    return msgspec.structs.replace(visit, events=events, apart=tuple(apart))


def check_places(count: int, lists: Iterable[Sequence[int]]) -> None:
    """ProtocolError if these lists name a place that a message with `count` events has not, or one
    twice."""
    named = sorted(chain.from_iterable(lists))
    is_once = len(dict.fromkeys(named)) == len(named)
    if named and not (is_once and named[0] >= 0 and named[-1] < count):
        raise ProtocolError("a message names events that it has not, or one twice")


class RecentVisit(NamedTuple):
    """Events that left for one host together."""

    at: float
    trees: tuple[str, ...]
    first: int
    last: int


class RecentVisits:
    """The hosts that the events of one publisher visited recently, and the events that may still be
    under way on other paths.

    Links are FIFO, so events that go from one publisher over one host come in order. Events that go
    over different hosts may overtake each other. An interested node can restore the order
    (subscriber/publication_order.py) if it knows that an earlier event may come another way. The
    numbers do not show this, since most events of a publisher are not for this node. So a visit
    names the other hosts that events of the same publisher visited shortly before, or in the same
    turn, and in which trees (`SentBefore`); hosts pass that on with their deliveries. Where all
    events visit one host, nothing is named, at no cost.

    Times are seconds. Bounded by the number of hosts, and by the events sent in `window`.
    """

    def __init__(self, window: float) -> None:
        """`window`: for how long events count as under way (`tree.order_hold`)."""
        self.window = window
        self._visits: BoundedDict[NodeId, deque[RecentVisit]] = BoundedDict(RECENT_HOSTS_MOST)

    def note(self, host: NodeId, trees: Iterable[str], first: int, last: int, now: float) -> None:
        """Note that events with numbers from `first` to `last`, perhaps with gaps, leave for these
        trees at a host."""
        visits = self._visits.get(host)
        if visits is None:
            visits = self._visits[host] = deque()
        while visits and visits[0].at <= now - self.window:
            visits.popleft()
        visits.append(RecentVisit(now, tuple(trees), first, last))

    def before(self, host: NodeId, now: float) -> tuple[SentBefore, ...]:
        """Return the recent visits of other hosts, to be told to this host."""
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
