"""The interested node's side: count, recheck, remove duplicates, hand over (C8, C9).

An event that arrives is *accepted* at once in pivot routing; in counting routing when the set of
attributes that matched is complete for one conjunction. (A set, never a bare counter: a repeated
visit must not count twice. Partial matches expire.) Only then are duplicates removed, by the
event's identity, and the whole predicate of every local subscription is checked once more before
anything is shown. Of an event for which the host names a registration that it has found, that one's
predicate is enough, if one client gathers everything: the event is for it or for none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Final, NamedTuple

import msgspec

from matching import Attributes, GroupedIndex, Grouping, Index, Predicate, Shares
from matching.selector.truth import Truth, is_true
from overlay.bounded import BoundedDict
from overlay.client import Delivery, Event
from overlay.incidents import contain
from overlay.machine import Handlers, LocalEvent, Machine, NodeId, Peer, Port, ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.batches import weigh_events
from overlay.upper_tree.delivery.delegation import Delegated
from overlay.upper_tree.delivery.delivery_tokens import OwnToken
from overlay.upper_tree.delivery.event_counts import EventCounts, EventSource, by_source
from overlay.upper_tree.delivery.gap_notices import PendingNotice
from overlay.upper_tree.event_history import (
    DELIVERY_BYTES,
    ArrivalOf,
    EventHistory,
    Refused,
    ShownTo,
    digest_of,
)
from overlay.upper_tree.events import DeliveriesMissed, Visited
from overlay.upper_tree.messages import Deliver, DeliveriesGivenUp
from overlay.upper_tree.partition import describe
from overlay.upper_tree.subscriber.arrival_lookups import (
    DeliveredLookup,
    VisitedLookup,
    arrivals_of,
)
from overlay.upper_tree.subscriber.constants import (
    HELD_SHARE,
    SAMPLED_EVENTS,
    YOUNGER_MOST,
)
from overlay.upper_tree.subscriber.publication_order import (
    Passage,
    PublicationOrder,
    Ready,
    Trees,
)
from overlay.upper_tree.visits import check_places, tree_of_each

Sources = Mapping[EventSource, list[int]]
"""The numbers of events, by their source (`by_source`)."""

Identity = tuple[str, int, int]
"""(publisher, incarnation, sequence)."""

NO_TOKEN: Final = "its sender does not serve what this node has registered"
"""Why a delivery is refused."""

NOTHING_NAMED: Final[Sequence[str]] = ()
"""No host has named a registration for any event."""


class Arrived(LocalEvent, frozen=True, gc=False):
    """Events for local subscriptions, and for clients that gather."""

    deliveries: tuple[Delivery, ...]
    events: Sequence[Event]
    gathered: Mapping[int, Sequence[int]]
    """By client: the places of its events in `events`."""


class PartialMatch(msgspec.Struct):
    """An event that no conjunction matches completely yet."""

    since: float
    matched: dict[str, dict[str, None]] = {}  # by conjunction, the attributes that have matched

    def add(self, conjunction: str, attribute: str) -> int:
        """Note that one attribute of the conjunction has matched. Return the number of matched
        attributes."""
        attributes = self.matched.setdefault(conjunction, {})
        attributes[attribute] = None
        return len(attributes)


class GatheredSubscription(msgspec.Struct):
    """A subscription of a client that gathers."""

    id: str
    truth: Truth
    named: int = 0
    """Number of events it was shown because a host named it for them."""


class GatheredSubscriptions(GroupedIndex[str, int]):
    """The subscriptions of clients that gather, in a group for each client; also by the trees in
    which they are, and by what hosts call their registrations (`Deliver.found`)."""

    def __init__(self, me: NodeId) -> None:
        super().__init__()
        self.by_trees: Grouping[str, Trees] = Grouping(self.index)
        self._me = me
        self._predicates: dict[str, Predicate] = {}
        self._by_name: dict[str, GatheredSubscription] = {}  # of which a host has named one

    def begin(
        self, predicates: Sequence[tuple[str, Predicate]], client: int, trees: Sequence[Trees]
    ) -> None:
        """Add subscriptions of a client, each with the trees in which it is registered."""
        self.add_many(predicates, client)
        self._predicates.update(predicates)
        by_trees: dict[Trees, list[str]] = {}
        for (subscription, _), mine in zip(predicates, trees, strict=True):
            by_trees.setdefault(mine, []).append(subscription)
        for mine, some in by_trees.items():
            self.by_trees.put_many(some, mine)

    def end(self, subscription: str, conjunctions: int) -> None:
        """Remove a subscription, which has `conjunctions` conjunctions."""
        self.by_trees.take_out(subscription)
        self.remove(subscription)
        del self._predicates[subscription]
        for name in self._names(subscription, conjunctions):
            self._by_name.pop(name, None)

    def shown(self, subscription: str) -> int:
        """Return how many events are counted for this subscription. Each event is counted for one
        subscription that it matches."""
        conjunctions = len(self._predicates[subscription].conjunctions)
        known = map(self._by_name.get, self._names(subscription, conjunctions))
        return self.hits(subscription) + sum([each.named for each in known if each is not None])

    def share_named(self, batch: Sequence[Attributes], named: Sequence[str]) -> Shares[str, int]:
        """`share`. Of events for which a host has `named` a registration only its subscription is
        evaluated; all others are matched if it is false, or unknown."""
        known, found = self._by_name, dict[int, str]()
        for place_, (name, attributes) in enumerate(zip(named, batch, strict=True)):
            if name:
                mine = known.get(name) or self._find(name)
                if mine is not None and is_true(mine.truth, attributes):
                    found[place_] = mine.id
                    mine.named += 1
        return self.share_found(batch, found)

    def _find(self, name: str) -> GatheredSubscription | None:
        """The subscription whose registration a host calls so; None: there is none."""
        id_ = self._me + name.rpartition("/")[0]
        predicate = self._predicates.get(id_)
        if predicate is None:
            return None
        found = self._by_name[name] = GatheredSubscription(id_, predicate.truth)
        return found

    def _names(self, subscription: str, conjunctions: int) -> list[str]:
        mine = subscription.removeprefix(self._me)
        return [f"{mine}/{number}" for number in range(conjunctions)]


def recipients_in(arrived: Arrived, event: Event) -> dict[str | int, Delivery | None]:
    """The subscriptions to which an event of a batch was shown, with their deliveries, and the
    clients that gather."""
    found: dict[str | int, Delivery | None] = {
        client: None
        for client, places in arrived.gathered.items()
        if any(arrived.events[place] is event for place in places)
    }
    found.update((one.subscription, one) for one in arrived.deliveries if one.event is event)
    return found


class Added(NamedTuple):
    """A subscription to be matched from now on; as `Receiver.add` has it."""

    subscription: str
    predicate: Predicate
    trees: Mapping[str, int]
    pivots: Sequence[str]


class Receiver(Machine):
    """Shows each event once to each local subscription that it matches."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        history: EventHistory,
        incarnation: int = 0,
        own: OwnToken | None = None,
    ) -> None:
        """`incarnation`: the incarnation of this node; 0: it accepts messages for any. `own`: the
        token that deliveries have to show; None: no token is required."""
        super().__init__(port)
        self._own = own or OwnToken()
        self._incarnation = incarnation
        self._ages: dict[str, float] = {}
        """When each subscription was added (Port's seconds), the latest last."""
        self._younger: BoundedDict[Identity, Mapping[str, None]] = BoundedDict(YOUNGER_MOST)
        """The subscriptions that are younger than the match of an event that a host has held."""
        self.settings = settings.tree
        self.history = history
        self.index: Index[str] = Index()
        self.gathering = GatheredSubscriptions(port.me.id)
        self.pivots: dict[str, tuple[str, ...]] = {}  # subscription -> trees it is registered in
        self.latest = 0  # how often a subscription came or went
        self.required: dict[str, int] = {}  # conjunction -> number of trees it is registered in
        self.seen = EventCounts(settings.tree.dedupe)
        self.partial_matches: OrderedDict[Identity, PartialMatch] = OrderedDict()
        self._matches: dict[Identity, list[str]] = {}  # found just now
        self.order = PublicationOrder(port, self.settings.order_hold, self)

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {**super().handlers(), **self.order.handlers()}

    # --- asked from above ---

    def add(
        self,
        subscription: str,
        predicate: Predicate,
        trees: Mapping[str, int],
        pivots: Sequence[str] = (),
        gathered: int | None = None,
    ) -> int:
        """Show matching events from now on. `trees`: per conjunction id in how many trees it is,
        `pivots`: which; `gathered`: the client that gets events once for all such subscriptions.
        Returns the number of this change."""
        (number,) = self.add_many((Added(subscription, predicate, trees, pivots),), gathered)
        return number

    def add_many(self, added: Sequence[Added], gathered: int | None = None) -> Sequence[int]:
        """`add` each of these, together: they go into the index in one call. Returns the numbers of
        the changes."""
        predicates = [(one.subscription, one.predicate) for one in added]
        if gathered is None:
            self.index.add_many(predicates)
        else:
            trees_of_each = [tuple(dict.fromkeys(one.pivots)) for one in added]
            self.gathering.begin(predicates, gathered, trees_of_each)
        now = self.port.now
        for subscription, predicate, trees, pivots in added:
            self._ages[subscription] = now
            self.required.update(trees)
            self.pivots[subscription] = tuple(dict.fromkeys(pivots))
            self.order.register(subscription, predicate, pivots)
        before = self.latest
        self.latest += len(added)
        return range(before + 1, self.latest + 1)

    def move(self, subscription: str, predicate: Predicate, pivots: Sequence[str]) -> None:
        """Note that the subscription with this predicate is registered in these trees now."""
        mine = self.pivots[subscription] = tuple(dict.fromkeys(pivots))
        if subscription in self.gathering:
            self.gathering.by_trees.put(subscription, mine)
        self.order.register(subscription, predicate, pivots)

    def remove(self, subscription: str, conjunctions: int) -> int:
        """Stop showing events for this subscription, which has `conjunctions` conjunctions. Return
        the number of this change."""
        self.pivots.pop(subscription, None)
        self._ages.pop(subscription, None)
        self.order.end(subscription)
        if subscription in self.index:
            self.index.remove(subscription)
        elif subscription in self.gathering:
            self.gathering.end(subscription, conjunctions)
        for number in range(conjunctions):
            self.required.pop(f"{subscription}/{number}", None)
        self.latest += 1
        return self.latest

    def delivered_to(self, subscription: str) -> int:
        """Return how many of the events gathered by its client are counted for this subscription.
        Each event is counted for one subscription that it matches."""
        return self.gathering.shown(subscription)

    # --- events ---

    def on_deliver(self, sender: Peer, message: Deliver) -> None:
        """Events from a host, its delegate, or a relay. A message for a relay to pass on does not
        show this node's token, and a liar's neither: nothing of it is taken here.

        Raises ProtocolError if the message's lists do not fit its events."""
        if message.registrations and len(message.registrations) != len(message.events):
            raise ProtocolError("registrations do not fit the events")
        if message.previous and len(message.previous) != len(message.events):
            raise ProtocolError("previous events do not fit the events")
        if message.found and len(message.found) != len(message.events):
            raise ProtocolError("what was found does not fit the events")
        if message.onward:
            if len(message.onward) != len(message.events):
                raise ProtocolError("recipients do not fit the events")
            if any(
                len(each) not in (0, len(share.peers))
                for shares in message.onward
                for share in shares
                for each in (share.previous, share.lives, share.tokens)
            ):
                raise ProtocolError("what is said of each recipient does not fit the recipients")
        if message.apart:
            check_places(len(message.events), [places for _, _, places in message.apart])
        if message.onward:
            self.port.emit(Delegated(sender, message))
        is_far = sender.id != self.port.me.id and not message.passing
        if is_far and not self._own.is_shown(message.token, self.port.now):
            self._refuse(sender, message)
            return
        if 0 < message.life < self._incarnation:
            self._refuse_earlier(message)
            return
        try:
            self._take(sender, message)
        except ProtocolError:
            raise
        except Exception as error:
            text = contain(self.port, f"deliveries from {sender.id}", error)
            self._missed(message.events, text)

    def _take(self, sender: Peer, message: Deliver) -> None:
        lookup = DeliveredLookup(message, sender.id)
        if sender.id != self.port.me.id:
            came: dict[str, list[str]] = {}  # by tree
            for event in self.port.sampled(message.events):
                came.setdefault(lookup.of((), event).attribute, []).append(event.identity)
            for attribute, identities in came.items():
                self.port.trace_each(
                    "arrive", "event", identities, peer=sender.id, attribute=attribute,
                    hop=message.hop,
                )  # fmt: skip
        if message.passing:
            return
        fresh: Sequence[Event] = message.events
        sources = by_source(fresh)
        if message.registrations:
            fresh = self._complete(sender, message)
        elif not self.seen.add_new(sources, 1):
            fresh = self._unseen(message.events, sources)
            if len(fresh) < len(message.events):
                self._count_duplicates(sender, message.events, fresh)
            self.seen.add(fresh, 1)
        if message.held:
            fresh = self._without_younger(message, fresh)
        for event in fresh[:: len(fresh) // SAMPLED_EVENTS or 1]:
            if event.publisher != self.port.me.id:  # of our own they were seen when they set out
                self.history.saw(tuple(event.attributes))
        host = sender if message.host is None else message.host
        previous = [number for number in message.previous if number]
        passage = Passage(host.id, message.before, message.through, previous, lookup.of, lookup)
        fresh, arrival_of = self._in_order(sources, fresh, passage)
        named = self._named(message, fresh)
        for event in self.port.sampled(self._show_checked(fresh, arrival_of, named)):
            self.port.trace("recheck_failed", event=event.identity, peer=sender.id)

    def _refuse_earlier(self, message: Deliver) -> None:
        """Refuse late events that a host has matched for subscriptions of an earlier process of
        this node. Whether that process had them is not known: its programs may miss them."""
        events = message.events
        self.port.count("deliveries_of_earlier_life", len(events))
        self._missed(events, "they came late, for an earlier process of this node")

    def _missed(self, events: Sequence[Event], reason: str) -> None:
        """Programs may miss these."""
        if events:
            missed = PendingNotice(self.port.me, self.port.now)
            missed.add(events, reason)
            self.port.emit(DeliveriesMissed(missed.take(self.port.now)))

    def _without_younger(self, message: Deliver, fresh: Sequence[Event]) -> Sequence[Event]:
        """The events without those that only subscriptions match which are younger than the host's
        match: these are owed nothing that is older than they are, and are not shown the others."""
        since = self.port.now - HELD_SHARE * message.held / 1000
        younger: dict[str, None] = {}
        for subscription, added in reversed(self._ages.items()):
            if added <= since:
                break
            younger[subscription] = None
        if not younger:
            return fresh
        kept: list[Event] = []
        for event in fresh:
            matching = self._matching(event)
            if any(key not in younger for key in matching):
                kept.append(event)
                if any(key in younger for key in matching):
                    self._younger[event.publisher, event.incarnation, event.sequence] = younger
        self.port.count("deliveries_of_earlier_life", len(fresh) - len(kept))
        return kept

    def _without_barred(
        self, events: Sequence[Event], places: Mapping[int, Sequence[int]]
    ) -> dict[int, list[int]]:
        """Remove from the places of events, by gathering client, those of events that only younger
        subscriptions of the client match."""
        found: dict[int, list[int]] = {}
        for client, mine in places.items():
            for place_ in mine:
                event = events[place_]
                barred = self._barred(event)
                keys = self.gathering.match(event.attributes) if barred else ()
                if not barred or any(
                    key not in barred and self.gathering.group_of(key) == client for key in keys
                ):
                    found.setdefault(client, []).append(place_)
        return found

    def _barred(self, event: Event) -> Mapping[str, None]:
        """The subscriptions that are younger than the event."""
        return self._younger.get((event.publisher, event.incarnation, event.sequence), {})

    def _matching(self, event: Event) -> list[str]:
        return [*self.index.match(event.attributes), *self.gathering.match(event.attributes)]

    def _refuse(self, sender: Peer, message: Deliver) -> None:
        """Refuse a message as a whole, since its sender does not know this node's token."""
        self.port.count("deliveries_refused", len(message.events))
        self.history.note(
            message.events, Refused(sender.id, NO_TOKEN), sum(weigh_events(message.events))
        )
        for event in self.port.sampled(message.events):
            reason = f"Deliver: {NO_TOKEN}"
            self.port.trace("drop", event=event.identity, peer=sender.id, reason=reason, size=0)

    def on_deliveries_given_up(self, sender: Peer, message: DeliveriesGivenUp) -> None:
        """A host could not bring events to this node, or an owner took it for dead.

        Raises ProtocolError for a negative count or time."""
        if message.count < 0 or not message.lapsed_for >= 0.0:
            raise ProtocolError("less than nothing was given up")
        self.port.count("deliveries_missed", message.count)
        self.port.emit(DeliveriesMissed(message))

    def _unseen(self, events: Sequence[Event], sources: Sources) -> Sequence[Event]:
        """The events that have not come before, each once."""
        if all(
            len(dict.fromkeys(numbers)) == len(numbers) and self.seen.has_none(source, numbers)
            for source, numbers in sources.items()
        ):
            return events
        fresh = {(e.publisher, e.incarnation, e.sequence): e for e in events if e not in self.seen}
        return list(fresh.values())

    def _count_duplicates(
        self, sender: Peer, events: Sequence[Event], fresh: Sequence[Event]
    ) -> None:
        """Count the events that came before: all but the fresh ones."""
        self.port.count("duplicates", len(events) - len(fresh))
        kept = {id(event) for event in fresh}
        for event in self.port.sampled([event for event in events if id(event) not in kept]):
            self.port.trace("duplicate", event=event.identity, peer=sender.id)

    def on_visited(self, event: Visited) -> None:
        """Show events that came to trees here in which only this node has registered. This check is
        the match, so an event that no subscription wants is not a failed recheck."""
        sources = by_source(event.events)
        fresh = self._unseen(event.events, sources)
        me = self.port.me.id
        passage = Passage(me, event.before, event.through, (), VisitedLookup(event, me).of)
        found, arrival_of = self._in_order(sources, fresh, passage)
        if found is not fresh:
            self.seen.add(fresh, 1)  # some of them wait
        self.seen.add(self._show(found, arrival_of), 1)

    def _in_order(
        self, sources: Sources, fresh: Sequence[Event], passage: Passage
    ) -> tuple[Sequence[Event], ArrivalOf]:
        """Return the events that may be shown after events of these sources came, some of them
        fresh, and how they came."""
        if len(sources) != 1:
            return fresh, passage.arrival
        (source,) = sources
        ready = self.order.arrived(source, fresh, passage)
        if ready is None:
            return fresh, passage.arrival
        return [each.event for each in ready], arrivals_of(ready)

    def has_come(self, source: EventSource, number: int) -> bool:
        """Whether the event with this number has come."""
        return not self.seen.has_none(source, (number,))

    def trees_of_each(self, events: Sequence[Event]) -> list[Set[Trees]]:
        """For each event the trees of subscriptions that match. Which subscriptions of clients that
        do not gather match is remembered until the event is shown."""
        found: list[dict[Trees, None]] = [{} for _ in events]
        for event, trees in zip(events, found, strict=True) if len(self.index) else ():
            keys = self.index.match(event.attributes)
            if keys:
                self._matches[event.publisher, event.incarnation, event.sequence] = keys
                trees.update((self.pivots[key], None) for key in keys)
        if len(self.gathering):
            batch = [event.attributes for event in events]
            for position, trees_of_some, _ in self.gathering.by_trees.find_many(batch):
                found[position][trees_of_some] = None
        return [trees.keys() for trees in found]

    def show_late(self, ready: Sequence[Ready]) -> None:
        """Show events that have waited for earlier ones."""
        self._show_checked([each.event for each in ready], arrivals_of(ready))

    def _named(self, message: Deliver, events: Sequence[Event]) -> Sequence[str]:
        """For each of these events the registration that the host has found for it, where that
        decides who gets it: one client gathers all that this node has subscribed to."""
        if not message.found or len(self.index) or self.gathering.count_groups() != 1:
            return NOTHING_NAMED
        if events is message.events:
            return message.found
        names = {e.sequence: n for e, n in zip(message.events, message.found, strict=True)}
        return [names.get(event.sequence, "") for event in events]

    def _show_checked(
        self,
        events: Sequence[Event],
        arrival_of: ArrivalOf,
        named: Sequence[str] = NOTHING_NAMED,
    ) -> list[Event]:
        """Show events that a host has sent. Returns those that no subscription wants: they do not
        count as seen, so that a forged event cannot keep out the one whose identity it has."""
        wanted = self._show(events, arrival_of, named)
        if len(wanted) == len(events):
            return []
        shown = {id(event) for event in wanted}
        failed = [event for event in events if id(event) not in shown]
        self.seen.discard(failed)
        self.port.count("recheck_failed", len(failed))
        return failed

    def _show(
        self,
        events: Sequence[Event],
        arrival_of: ArrivalOf,
        named: Sequence[str] = NOTHING_NAMED,
    ) -> Sequence[Event]:
        """Check the whole predicates of this node's subscriptions, and hand over matching events.
        Return the events that match some subscription."""
        batch, gathering = [event.attributes for event in events], self.gathering
        shares = gathering.share_named(batch, named) if named else gathering.share(batch)
        witnesses = dict(zip(shares.wanted, shares.witnesses, strict=True))
        deliveries = self._deliver(events, witnesses, arrival_of) if len(self.index) else []
        if not witnesses:
            return ()
        gathered = wanted = [events[place] for place in shares.wanted]
        if len(witnesses) > len(gathered):
            witnesses = dict(sorted(witnesses.items()))
            wanted = [events[place] for place in witnesses]
        self.port.count("delivered", len(deliveries) + sum(map(len, shares.places.values())))
        places = shares.places
        if self._younger:
            places = self._without_barred(gathered, places)
        arrived = Arrived(tuple(deliveries), gathered, places)
        pivots = list(map(self.pivots.__getitem__, witnesses.values()))
        shown = ShownTo(arrival_of, pivots, partial(recipients_in, arrived), self.latest)
        size = sum(weigh_events(wanted)) + DELIVERY_BYTES * len(deliveries)
        self.history.note(wanted, shown, size)
        if traced := self.port.sampled(wanted):
            self._trace(traced, deliveries, arrival_of)
        self.port.emit(arrived)
        return wanted

    def _deliver(
        self, events: Sequence[Event], witnesses: dict[int, str], arrival_of: ArrivalOf
    ) -> list[Delivery]:
        """Each event for each of the other subscriptions that it matches. Notes a witness for
        events that have none yet."""
        deliveries: list[Delivery] = []
        known, self._matches = self._matches, {}
        for position, event in enumerate(events):
            keys = (
                known.get((event.publisher, event.incarnation, event.sequence)) if known else None
            )
            if keys is None:
                keys = self.index.match(event.attributes)
            if self._younger:
                keys = [key for key in keys if key not in self._barred(event)]
            if keys:
                witnesses.setdefault(position, keys[0])
            for key in keys:
                arrival = arrival_of(self.pivots[key], event)
                lo, hi = describe(arrival.interval.lo), describe(arrival.interval.hi)
                deliveries.append(Delivery(key, event, arrival.attribute, lo, hi, arrival.hops))
        return deliveries

    def _trace(
        self, events: Sequence[Event], deliveries: Sequence[Delivery], arrival_of: ArrivalOf
    ) -> None:
        """Record an entry for each subscription that an event is shown to. The subscriptions of
        gathering clients are matched here again, because each event was found by only one of
        them."""
        found: dict[int, list[str]] = {id(event): [] for event in events}  # by the object's id
        for one in deliveries:
            if (keys := found.get(id(one.event))) is not None:
                keys.append(one.subscription)
        for event in events:
            keys = found[id(event)]
            if len(self.gathering):
                keys += self.gathering.match(event.attributes)
                if self._younger:
                    barred = self._barred(event)
                    keys = [key for key in keys if key not in barred]
            by_pivots: dict[tuple[str, ...], list[str]] = {}
            for key in keys:
                by_pivots.setdefault(self.pivots[key], []).append(key)
            digest = digest_of(event)
            for pivots, some in by_pivots.items():
                arrival = arrival_of(pivots, event)
                self.port.trace_each(
                    "deliver",
                    "subscription",
                    some,
                    event=event.identity,
                    id=str(event.attributes.get("id", "")),
                    attribute=arrival.attribute,
                    hops=arrival.hops,
                    lo=describe(arrival.interval.lo),
                    hi=describe(arrival.interval.hi),
                    since=event.time,
                    digest=digest,
                )

    def _complete(self, sender: Peer, message: Deliver) -> list[Event]:
        """Return the events of a message for which some conjunction has now matched completely
        (C8). An event may come twice in a message if it matches very many registrations."""
        complete = []
        trees = tree_of_each(message)
        for event, tree, registrations in zip(
            message.events, trees, message.registrations, strict=True
        ):
            if event in self.seen:
                self._count_duplicates(sender, (event,), ())
            elif self._is_complete(event, tree, registrations):
                self.seen.add((event,), 1)
                complete.append(event)
        return complete

    def _is_complete(self, event: Event, attribute: str, registrations: tuple[str, ...]) -> bool:
        """Count (C8). True when some conjunction has all its attributes."""
        identity = (event.publisher, event.incarnation, event.sequence)
        now = self.port.now
        partial = self.partial_matches.setdefault(identity, PartialMatch(now))
        complete = False
        for conjunction in registrations:
            matched = partial.add(conjunction, attribute)
            complete = complete or matched == self.required.get(conjunction)
        if complete:
            del self.partial_matches[identity]
        self._expire(now)
        return complete

    def _expire(self, now: float) -> None:
        while self.partial_matches:
            identity, oldest = next(iter(self.partial_matches.items()))
            old = oldest.since < now - self.settings.count_expiry
            if not old and len(self.partial_matches) <= self.settings.dedupe:
                return
            del self.partial_matches[identity]
            self.port.count("half_counted_expired")
