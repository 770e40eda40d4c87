"""The interested node's side: count, recheck, remove duplicates, hand over (C8, C9).

An event that arrives is *accepted* at once in pivot routing; in counting routing when the set of
attributes that matched is complete for one conjunction. (A set, never a bare counter: a repeated
visit must not count twice. Half-counted events expire.) Only then are duplicates removed, by the
event's identity, and the whole predicate of every local subscription is checked once more before
anything is shown.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from matching import Groups, Index, Predicate
from overlay.client import Delivery, Event
from overlay.machine import Handlers, LocalEvent, Machine, Peer, Port, ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.delegation import Delegated
from overlay.upper_tree.history import Arrival, History
from overlay.upper_tree.messages import Deliver
from overlay.upper_tree.partition import describe

Identity = tuple[str, int, int]
"""(publisher, incarnation, sequence)."""


class Arrived(LocalEvent, frozen=True):
    """Events for local subscriptions; for clients that gather, the events, each with one of the
    subscriptions that it matches."""

    deliveries: tuple[Delivery, ...]
    gathered: Mapping[int, tuple[Sequence[Event], Sequence[str]]]


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
        self.gathering: Groups[str, int] = Groups()  # subscriptions of clients that gather
        self.latest = 0  # subscriptions there have been
        self.required: dict[str, int] = {}  # conjunction -> number of trees it is registered in
        self.seen: OrderedDict[Identity, None] = OrderedDict()
        self.counted: OrderedDict[Identity, Counted] = OrderedDict()

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {Deliver: self.on_deliver}

    # --- asked from above ---

    def add(
        self,
        subscription: str,
        predicate: Predicate,
        trees: dict[str, int],
        gathered: int | None = None,
    ) -> int:
        """Show matching events from now on. `trees`: per conjunction id in how many trees it is;
        `gathered`: the client that gets events once for all such subscriptions. Its number."""
        if gathered is None:
            self.index.add(subscription, predicate)
        else:
            self.gathering.add(subscription, predicate, gathered)
        self.required.update(trees)
        self.latest += 1
        return self.latest

    def remove(self, subscription: str, conjunctions: int) -> None:
        """Show it no more."""
        if subscription in self.index:
            self.index.remove(subscription)
        elif subscription in self.gathering:
            self.gathering.remove(subscription)
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
        if sender.id != self.port.me.id:
            for event in self.port.sampled(message.events):
                self.port.trace(
                    "arrive",
                    event=event.identity,
                    peer=sender.id,
                    attribute=message.attribute,
                    hop=message.hop,
                )
        fresh: list[Event] = []
        for number, event in enumerate(message.events):
            if (event.publisher, event.incarnation, event.sequence) in self.seen:
                self.port.count("duplicates")
                if self.port.sampled((event,)):
                    self.port.trace("duplicate", event=event.identity, peer=sender.id)
            elif not message.registrations or self._is_complete(
                event, message.attribute, message.registrations[number]
            ):
                self.seen[event.publisher, event.incarnation, event.sequence] = None
                fresh.append(event)
        while len(self.seen) > self.settings.dedupe:
            self.seen.popitem(last=False)
        arrival = Arrival(message.attribute, message.interval, message.hop, sender.id)
        if unwanted := self._show(fresh, arrival):
            self.port.count("recheck_failed", len(unwanted))
            for event in self.port.sampled(unwanted):
                self.port.trace("recheck_failed", event=event.identity, peer=sender.id)

    def _show(self, events: Sequence[Event], arrival: Arrival) -> list[Event]:
        """Check the whole predicates of our subscriptions, and hand over; those that none wants."""
        deliveries: list[Delivery] = []
        gathered: dict[int, tuple[list[Event], list[str]]] = {}
        unwanted: list[Event] = []
        shown = 0
        for event in events:
            attributes = event.attributes
            keys = self.index.match(attributes) if len(self.index) else []
            clients = self.gathering.find(attributes) if len(self.gathering) else {}
            if keys:
                lo, hi = describe(arrival.interval.lo), describe(arrival.interval.hi)
                deliveries += [
                    Delivery(key, event, arrival.attribute, lo, hi, arrival.hops) for key in keys
                ]
            for client, witness in clients.items():
                mine = gathered.get(client)
                if mine is None:
                    mine = gathered[client] = ([], [])
                mine[0].append(event)
                mine[1].append(witness)
            if keys or clients:
                shown += len(keys) + len(clients)
                self.history.arrived(event, arrival, (*clients, *keys), self.latest)
            else:
                unwanted.append(event)
        if shown:
            self.port.count("delivered", shown)
            self._trace(events, arrival)
            self.port.emit(Arrived(tuple(deliveries), gathered))
        return unwanted

    def _trace(self, events: Sequence[Event], arrival: Arrival) -> None:
        """One record for each event and subscription that it is shown to."""
        for event in self.port.sampled(events):
            lo, hi = describe(arrival.interval.lo), describe(arrival.interval.hi)
            keys = self.index.match(event.attributes) + self.gathering.match(event.attributes)
            for key in keys:
                self.port.trace(
                    "deliver",
                    event=event.identity,
                    id=str(event.attributes.get("id", "")),
                    subscription=key,
                    attribute=arrival.attribute,
                    hops=arrival.hops,
                    lo=lo,
                    hi=hi,
                    since=event.time,
                )

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
