"""Looks up how an event came to a subscription, for its delivery and for `canopy why`."""

from __future__ import annotations

from collections.abc import Sequence

from matching import EVERYTHING, Interval, place
from overlay.client import Event
from overlay.machine import NodeId
from overlay.upper_tree.event_history import ArrivalOf, EventArrival
from overlay.upper_tree.events import Visited
from overlay.upper_tree.messages import EVENT_TREE, Deliver, value_in
from overlay.upper_tree.subscriber.publication_order import Ready


class DeliveredLookup:
    """The arrivals of the events of one `Deliver`. All came through one virtual node, except those
    that the message lists with other trees."""

    __slots__ = ("apart", "own")

    def __init__(self, message: Deliver, sender: NodeId) -> None:
        self.own = EventArrival(message.attribute, message.interval, message.hop, sender)
        """The arrival of all events but those in `apart`."""
        self.apart: dict[int, EventArrival] = {}
        """By number how the others came."""
        for attribute, interval, places in message.apart:
            arrival = EventArrival(attribute, interval, message.hop, sender)
            for at in places:
                self.apart[message.events[at].sequence] = arrival

    def of(self, pivots: Sequence[str], event: Event) -> EventArrival:
        """Return how the event came, whatever trees the subscription is registered in."""
        return self.apart.get(event.sequence, self.own)


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


def arrivals_of(ready: Sequence[Ready]) -> ArrivalOf:
    """The arrivals of events that came in different ways, and some of them earlier."""
    arrivals = {id(each.event): each.arrival for each in ready}
    return lambda pivots, event: arrivals[id(event)](pivots, event)
