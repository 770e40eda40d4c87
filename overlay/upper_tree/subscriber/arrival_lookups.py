"""Looks up how an event came to a subscription, for its delivery and for `canopy why`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from matching import EVERYTHING, Interval, place
from overlay.client import Event
from overlay.machine import NodeId
from overlay.upper_tree.event_history import EventArrival
from overlay.upper_tree.events import Visited
from overlay.upper_tree.messages import EVENT_TREE, Deliver, value_in
from overlay.upper_tree.subscriber.publication_order import Ready


class ArrivalLookup(Protocol):
    """Looks up how events came to a subscription."""

    def of(self, pivots: Sequence[str], event: Event) -> EventArrival:
        """The tree through which an event came, its part, and the hops. `pivots`: the trees that
        the subscription is registered in."""

    def resolve_later(
        self, pivots: Iterable[Sequence[str]], events: Sequence[Event]
    ) -> Callable[[int], EventArrival]:
        """A function from an event's place to what `of` returns for it."""


class DeliveredLookup:
    """The arrivals of the events of one `Deliver`. All came through one virtual node, except those
    that the message lists with other trees."""

    def __init__(self, message: Deliver, sender: NodeId) -> None:
        self.own = EventArrival(message.attribute, message.interval, message.hop, sender)
        """The arrival of all events but those in `apart`."""
        self._message = message
        self._apart: dict[int, EventArrival] | None = None

    @property
    def apart(self) -> Mapping[int, EventArrival]:
        """By number how the others came: mostly nobody asks."""
        if self._apart is None:
            self._apart = {}
            for attribute, interval, places in self._message.apart:
                arrival = self.own._replace(attribute=attribute, interval=interval)
                for at in places:
                    self._apart[self._message.events[at].sequence] = arrival
        return self._apart

    def of(self, pivots: Sequence[str], event: Event) -> EventArrival:
        """Return how the event came, whatever trees the subscription is registered in."""
        apart = self.apart if self._apart is None else self._apart
        return apart.get(event.sequence, self.own)

    def resolve_later(
        self, pivots: Iterable[Sequence[str]], events: Sequence[Event]
    ) -> Callable[[int], EventArrival]:
        """Nothing is looked up before the function is called."""
        return lambda place: self.of((), events[place])


class VisitedLookup:
    """The arrivals of the events of a visit to trees on this node. The events came through one of
    the trees in which the subscription is registered."""

    def __init__(self, visited: Visited, me: NodeId) -> None:
        self._visited = visited
        self._me = me
        self._known: dict[tuple[str, Interval | None], EventArrival] = {}
        self._only: dict[Sequence[str], EventArrival] = {}  # by pivots, of which there is only one

    def of(self, pivots: Sequence[str], event: Event) -> EventArrival:
        """The first of the trees it is registered in that the event can have come through."""
        only = self._only.get(pivots)
        if only is not None:
            return only
        hop, trees = self._visited.hop, self._visited.trees
        for attribute in pivots:
            value = value_in(event, attribute)
            if value is None or attribute not in trees:
                continue
            tree = trees[attribute]
            span = EVERYTHING if tree.is_whole else tree.span(place(value))
            known = self._known.get((attribute, span))
            if known is None:
                known = EventArrival(attribute, span or EVERYTHING, hop, self._me)
                self._known[attribute, span] = known
            if tree.is_whole and len(pivots) == 1:
                self._only[pivots] = known
            return known
        return EventArrival(EVENT_TREE, EVERYTHING, hop, self._me)

    def resolve_later(
        self, pivots: Iterable[Sequence[str]], events: Sequence[Event]
    ) -> Callable[[int], EventArrival]:
        """Nothing is looked up before the function is called."""
        mine = list(pivots)
        return lambda at: self.of(mine[at], events[at])


class ReadyLookup:
    """The arrivals of events that came in different ways, and some of them earlier."""

    def __init__(self, ready: Sequence[Ready]) -> None:
        self._arrivals = {id(each.event): each.arrival for each in ready}

    def of(self, pivots: Sequence[str], event: Event) -> EventArrival:
        """Return how this event came to subscriptions that are registered in the trees `pivots`."""
        return self._arrivals[id(event)](pivots, event)

    def resolve_later(
        self, pivots: Iterable[Sequence[str]], events: Sequence[Event]
    ) -> Callable[[int], EventArrival]:
        """Looked up at once, since trees change."""
        pairs = zip(pivots, events, strict=True)
        return [self.of(mine, event) for mine, event in pairs].__getitem__
