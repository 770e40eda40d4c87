"""The interested node's side: count, recheck, remove duplicates, hand over (C8, C9).

An event that arrives is *accepted* at once in pivot routing; in counting routing when the set of
attributes that matched is complete for one conjunction. (A set, never a bare counter: a repeated
visit must not count twice. Half-counted events expire.) Only then are duplicates removed, by the
event's identity, and the whole predicate of every local subscription is checked once more before
anything is shown.
"""

from __future__ import annotations

from collections import OrderedDict

from matching import Index, Interval, Predicate
from overlay.client import Delivery, Event
from overlay.machine import Handlers, LocalEvent, Machine, Peer, Port, ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.delegation import Delegated
from overlay.upper_tree.history import History
from overlay.upper_tree.messages import Deliver
from overlay.upper_tree.partition import describe

Identity = tuple[str, int, int]
"""(publisher, incarnation, sequence)."""


class Arrived(LocalEvent, frozen=True):
    """Events for local subscriptions."""

    deliveries: tuple[Delivery, ...]


class Counted:
    """A half-counted event: per conjunction the attributes that have matched."""

    __slots__ = ("matched", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.matched: dict[str, dict[str, None]] = {}

    def add(self, conjunction: str, attribute: str) -> int:
        """One attribute of the conjunction has matched. How many have by now."""
        attributes = self.matched.setdefault(conjunction, {})
        attributes[attribute] = None
        return len(attributes)


class Receiver(Machine):
    """Shows each event once to each local subscription that it matches."""

    def __init__(self, port: Port, settings: Settings, history: History) -> None:
        super().__init__(port)
        self.settings = settings.tree
        self.history = history
        self.index: Index[str] = Index()
        self.required: dict[str, int] = {}  # conjunction -> number of trees it is registered in
        self.seen: OrderedDict[Identity, None] = OrderedDict()
        self.counted: OrderedDict[Identity, Counted] = OrderedDict()

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {Deliver: self.on_deliver}

    # --- asked from above ---

    def add(self, subscription: str, predicate: Predicate, trees: dict[str, int]) -> None:
        """Show matching events from now on. `trees`: per conjunction id in how many trees it is."""
        self.index.add(subscription, predicate)
        self.required.update(trees)

    def remove(self, subscription: str, conjunctions: int) -> None:
        """Show it no more."""
        if subscription in self.index:
            self.index.remove(subscription)
        for number in range(conjunctions):
            self.required.pop(f"{subscription}/{number}", None)

    # --- events ---

    def on_deliver(self, sender: Peer, message: Deliver) -> None:
        """Events from a host."""
        if message.registrations and len(message.registrations) != len(message.events):
            raise ProtocolError("registrations do not fit the events")
        if message.onward:
            if len(message.onward) != len(message.events):
                raise ProtocolError("recipients do not fit the events")
            self.port.emit(Delegated(sender, message))
        deliveries: list[Delivery] = []
        for number, event in enumerate(message.events):
            if sender.id != self.port.me.id:
                self.port.trace(
                    "arrive",
                    event=event.identity,
                    peer=sender.id,
                    attribute=message.attribute,
                    hop=message.hop,
                )
            if self._is_duplicate(event):
                self.port.count("duplicates")
                self.port.trace("duplicate", event=event.identity, peer=sender.id)
            elif not message.registrations or self._is_complete(
                event, message.attribute, message.registrations[number]
            ):
                deliveries += self._accept(event, sender, message)
        if deliveries:
            self.port.count("delivered", len(deliveries))
            self.port.emit(Arrived(tuple(deliveries)))

    def _is_duplicate(self, event: Event) -> bool:
        return (event.publisher, event.incarnation, event.sequence) in self.seen

    def _is_complete(self, event: Event, attribute: str, registrations: tuple[str, ...]) -> bool:
        """Count (C8). True when some conjunction has all its attributes."""
        identity = (event.publisher, event.incarnation, event.sequence)
        now = self.port.now
        counted = self.counted.setdefault(identity, Counted(now))
        complete = False
        for conjunction in registrations:
            matched = counted.add(conjunction, attribute)
            complete = complete or matched == self.required.get(conjunction)
        if complete:
            del self.counted[identity]
        self._expire(now)
        return complete

    def _expire(self, now: float) -> None:
        while self.counted:
            identity, oldest = next(iter(self.counted.items()))
            old = oldest.since < now - self.settings.count_expiry
            if not old and len(self.counted) <= self.settings.dedupe:
                return
            del self.counted[identity]
            self.port.count("half_counted_expired")

    def _accept(self, event: Event, sender: Peer, message: Deliver) -> list[Delivery]:
        self.seen[event.publisher, event.incarnation, event.sequence] = None
        while len(self.seen) > self.settings.dedupe:
            self.seen.popitem(last=False)
        keys = self.index.match(event.attributes)
        self.history.arrived(event, message.attribute, message.interval, message.hop, sender, keys)
        if not keys:
            self.port.count("recheck_failed")
            self.port.trace("recheck_failed", event=event.identity, peer=sender.id)
        return [self._delivery(key, event, message.attribute, message.interval, message.hop)
                for key in keys]  # fmt: skip

    def _delivery(
        self, subscription: str, event: Event, attribute: str, interval: Interval, hops: int
    ) -> Delivery:
        lo, hi = describe(interval.lo), describe(interval.hi)
        self.port.trace(
            "deliver",
            event=event.identity,
            id=str(event.attributes.get("id", "")),
            subscription=subscription,
            attribute=attribute,
            hops=hops,
            lo=lo,
            hi=hi,
            since=event.time,
        )
        return Delivery(subscription, event, attribute, lo, hi, hops)
