"""What this node remembers of events, for `canopy why`: bounded, newest kept."""

from __future__ import annotations

from collections import OrderedDict

from matching import Interval
from overlay.client import Event
from overlay.machine import Peer
from overlay.upper_tree.partition import describe

PATH_MOST = 64
"""Steps that are remembered of one event; wild guess."""


class Remembered:
    """One event as this node saw it."""

    __slots__ = ("attribute", "event", "hi", "hops", "lo", "path", "subscriptions")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.path: list[str] = []  # steps as text
        self.subscriptions: list[str] = []  # of this node that it was shown to
        self.attribute = ""  # the tree that it came through
        self.lo = ""
        self.hi = ""
        self.hops = 0


class History:
    """The last events that were published or arrived here."""

    def __init__(self, capacity: int) -> None:
        """`capacity` in events."""
        self.capacity = capacity
        self._events: OrderedDict[str, Remembered] = OrderedDict()
        self.attributes: OrderedDict[str, None] = OrderedDict()
        """Names of attributes seen, least recent first, for completion."""

    def _remember(self, event: Event) -> Remembered:
        remembered = self._events.get(event.identity)
        if remembered is None:
            remembered = self._events[event.identity] = Remembered(event)
            while len(self._events) > self.capacity:
                self._events.popitem(last=False)
            for name in event.attributes:
                self.attributes[name] = None
                self.attributes.move_to_end(name)
            while len(self.attributes) > self.capacity:
                self.attributes.popitem(last=False)
        return remembered

    def published(self, event: Event) -> None:
        """An event of ours."""
        self._remember(event).path.append(f"published here with {len(event.attributes)} attributes")

    def accepted(self, event: Event, attribute: str, host: Peer, found: str) -> None:
        """One of the trees has it. `found`: how the tree was found, in words."""
        remembered = self._events.get(event.identity)
        if remembered is not None and len(remembered.path) < PATH_MOST:
            remembered.path.append(f"tree {attribute}{found}: matched at {host.id}")

    def arrived(
        self,
        event: Event,
        attribute: str,
        interval: Interval,
        hops: int,
        sender: Peer,
        subscriptions: list[str],
    ) -> None:
        """It came to this node and was shown to these subscriptions."""
        remembered = self._remember(event)
        remembered.attribute = attribute
        remembered.lo, remembered.hi = describe(interval.lo), describe(interval.hi)
        remembered.hops = hops
        remembered.subscriptions = subscriptions
        remembered.path.append(
            f"arrived after {counted(hops)} from {sender.id}, virtual node "
            f"[{remembered.lo}, {remembered.hi}) of tree {attribute}"
        )

    def find(self, name: str) -> Remembered | None:
        """By identity, or by the user's id (the newest one that has it)."""
        known = self._events.get(name)
        if known is not None:
            return known
        for remembered in reversed(self._events.values()):
            id_ = remembered.event.attributes.get("id")
            if id_ is not None and str(id_) == name:
                return remembered
        return None


def counted(messages: int) -> str:
    """A number of messages in words."""
    return "1 message" if messages == 1 else f"{messages} messages"
