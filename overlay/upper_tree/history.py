"""What this node remembers of events, for `canopy why`: bounded, newest kept.

Written for every event and read for hardly any: so what is noted are the facts as they come, shared
by all events of a batch, and they become text when somebody asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from matching import EVERYTHING, Interval
from overlay.client import Event
from overlay.machine import NodeId
from overlay.upper_tree.partition import describe

PATH_MOST = 64
"""Steps that are remembered of one event; wild guess."""


class Published(NamedTuple):
    """An event of ours set out."""

    attributes: int

    def lines(self) -> list[str]:
        """As text."""
        return [f"published here with {self.attributes} attributes"]


class Taken(NamedTuple):
    """Trees have it. `found`: how each was found, in words."""

    trees: tuple[str, ...]
    found: tuple[str, ...]
    host: NodeId

    def lines(self) -> list[str]:
        """As text."""
        pairs = zip(self.trees, self.found, strict=True)
        return [f"tree {tree}{how}: matched at {self.host}" for tree, how in pairs]


class Skipped(NamedTuple):
    """A tree was not visited."""

    tree: str

    def lines(self) -> list[str]:
        """As text."""
        return [f"tree {self.tree}: skipped, by its summary nobody there wants such an event"]


class Arrival(NamedTuple):
    """It came to this node."""

    attribute: str = ""  # the tree that it came through
    interval: Interval = EVERYTHING
    hops: int = 0
    sender: NodeId = ""

    def lines(self) -> list[str]:
        """As text."""
        lo, hi = describe(self.interval.lo), describe(self.interval.hi)
        return [
            f"arrived after {counted(self.hops)} from {self.sender}, virtual node "
            f"[{lo}, {hi}) of tree {self.attribute}"
        ]


class Remembered:
    """One event as this node saw it."""

    __slots__ = ("arrival", "event", "latest", "shown", "steps")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.steps: list[Published | Taken | Skipped | Arrival] = []
        self.arrival = Arrival()  # the last one
        self.shown: tuple[str | int, ...] = ()
        """Subscriptions of this node that it was shown to, and clients that gather."""
        self.latest = 0  # the last subscription that there was then, for clients that gather

    @property
    def path(self) -> list[str]:
        """Steps as text."""
        return [line for step in self.steps for line in step.lines()][:PATH_MOST]

    @property
    def attribute(self) -> str:
        """The tree that it came through; "" if it did not arrive."""
        return self.arrival.attribute

    @property
    def lo(self) -> str:
        """Lower end of the virtual node that it came from, as text."""
        return describe(self.arrival.interval.lo) if self.attribute else ""

    @property
    def hi(self) -> str:
        """Its upper end."""
        return describe(self.arrival.interval.hi) if self.attribute else ""

    @property
    def hops(self) -> int:
        """Messages from the publisher to here."""
        return self.arrival.hops


class History:
    """The last events that were published or arrived here."""

    def __init__(self, capacity: int) -> None:
        """`capacity` in events."""
        self.capacity = capacity
        self._events: OrderedDict[tuple[NodeId, int, int], Remembered] = OrderedDict()
        self._names: tuple[str, ...] = ()  # of the last event
        self.attributes: OrderedDict[str, None] = OrderedDict()
        """Names of attributes seen, least recent first, for completion."""

    def _remember(self, event: Event) -> Remembered:
        identity = (event.publisher, event.incarnation, event.sequence)
        remembered = self._events.get(identity)
        if remembered is None:
            remembered = self._events[identity] = Remembered(event)
            if len(self._events) > self.capacity:
                self._events.popitem(last=False)
            names = tuple(event.attributes)
            if names != self._names:
                self._note(names)
        return remembered

    def _note(self, names: tuple[str, ...]) -> None:
        self._names = names
        for name in names:
            self.attributes[name] = None
            self.attributes.move_to_end(name)
        while len(self.attributes) > self.capacity:
            self.attributes.popitem(last=False)

    def published(self, event: Event) -> None:
        """An event of ours."""
        self._remember(event).steps.append(Published(len(event.attributes)))

    def accepted(self, events: Iterable[Event], taken: Taken | Skipped) -> None:
        """Trees have these, or need not have them."""
        for event in events:
            remembered = self._events.get((event.publisher, event.incarnation, event.sequence))
            if remembered is not None and len(remembered.steps) < PATH_MOST:
                remembered.steps.append(taken)

    def arrived(
        self, event: Event, arrival: Arrival, shown: tuple[str | int, ...], latest: int
    ) -> None:
        """It came to this node and was shown to these subscriptions, and to the clients that
        gather; of their subscriptions, to those that match up to number `latest`."""
        remembered = self._remember(event)
        remembered.arrival = arrival
        remembered.shown = shown
        remembered.latest = latest
        remembered.steps.append(arrival)

    def find(self, name: str) -> Remembered | None:
        """By identity, or by the user's id (the newest one that has it)."""
        for remembered in reversed(self._events.values()):
            event = remembered.event
            if name.endswith(str(event.sequence)) and event.identity == name:
                return remembered
        for remembered in reversed(self._events.values()):
            id_ = remembered.event.attributes.get("id")
            if id_ is not None and str(id_) == name:
                return remembered
        return None


def counted(messages: int) -> str:
    """A number of messages in words."""
    return "1 message" if messages == 1 else f"{messages} messages"
