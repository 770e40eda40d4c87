"""The publisher's side: an event is cut into its attributes, and each visits its tree (C3, C7).

An event is kept until every tree that it visits has accepted it. A (event, tree) *pair* waits for
the finder, or is under way to a host; it ends by `Accepted`, or because nobody subscribes. *Moved*,
a lost link or silence send it on its way again at once, to the next replica (replicas.py), and when
none helps to whom the owner names: two hosts may then match one event, and the receiving node
removes the duplicate.

In pivot routing an event goes to a host once, for all trees that it visits there. In counting
routing every attribute's message carries the event by itself, as in the paper (C8).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from overlay.client import Draft, Event
from overlay.links.events import LinkDown
from overlay.lower_random.access_points import AccessPoints
from overlay.machine import Alarm, Handlers, Machine, NodeId, Peer, Port, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import cut_evenly, in_batches
from overlay.upper_tree.delivery.copies import Copies
from overlay.upper_tree.event_history import History, Skipped, Taken
from overlay.upper_tree.events import (
    EventsAccepted,
    FoundTogether,
    RoomAgain,
    TreeAbsent,
    TreeFound,
)
from overlay.upper_tree.messages import EVENT_TREE, Accepted, TreeMoved, Visit
from overlay.upper_tree.publisher.admission import Alike
from overlay.upper_tree.publisher.batched_pending import BatchedPending, Ended
from overlay.upper_tree.publisher.coalescer import ByNames, Coalescer, by_attributes
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.pending import PendingEvent, doubt_silent, is_late, look, weigh
from overlay.upper_tree.publisher.routing_plan import Together, plan
from overlay.upper_tree.publisher.tree_finder import Finder

MOVES = 3
"""*Moved* answers for one event and tree after which the ring is asked instead of a walk."""

LOOK_LEAST = 0.05
"""Seconds between two looks for silent hosts at least. Wild guess."""


class RetryDue(Timer, frozen=True):
    """Look for pairs without an answer."""


class Publisher(Machine):
    """Sends this node's events to all trees that they visit."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        incarnation: int,
        finder: Finder,
        locations: LocationCache,
        access_points: AccessPoints,
        history: History,
        copies: Copies,
    ) -> None:
        """`history` and `copies` are the node's: of all that it does with an event."""
        super().__init__(port)
        self.settings = settings
        self.counting = settings.tree.routing == "counting"
        self.incarnation = incarnation
        self.finder = finder
        self.locations = locations
        self.replicas = locations.replicas
        self.access_points = access_points
        self.history = history
        self.copies = copies
        self.outgoing: dict[int, PendingEvent] = {}
        self.bundles = BatchedPending(
            self.outgoing
        )  # the others that some tree has not accepted yet
        self.waiting: dict[str, dict[int, None]] = {}  # attribute -> sequences
        self.pairs = 0
        self._found: dict[str, None] = {}  # trees found in this turn
        self._sequence = 0
        self._retry = Alarm(port, RetryDue())
        self.company = Coalescer(port, self._under_way, self._set_out_all)

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            Accepted: self.on_accepted,
            TreeMoved: self.on_tree_moved,
            TreeFound: self.on_tree_found,
            FoundTogether: self.on_found_together,
            TreeAbsent: self.on_tree_absent,
            LinkDown: self.on_link_down,
            RetryDue: self.on_retry_due,
            **self.company.handlers(),
        }

    @property
    def has_room(self) -> bool:
        """Whether more events may be admitted."""
        return self.pairs < self.settings.tree.pending

    @property
    def waited_for(self) -> int:
        """Events that some tree has not accepted yet."""
        return self._under_way() + len(self.company)

    def _under_way(self) -> int:
        """… and that do not wait for company."""
        return len(self.outgoing) + len(self.bundles)

    def under_way(self, events: Iterable[Event]) -> dict[int, None]:
        """The numbers of those of our events that some tree has not accepted yet."""
        self.bundles.loosen()
        held, outgoing = self.company.sequences, self.outgoing
        return {e.sequence: None for e in events if e.sequence in outgoing or e.sequence in held}

    # --- publishing ---

    def publish(self, drafts: Sequence[Draft], alike: Alike | None = None) -> list[Event]:
        """Give the events their identities and send them off. They have been checked; `alike`:
        what all have in common, if they have the same attributes, and values for them."""
        publisher, incarnation = self.port.me.id, self.incarnation
        events = [
            Event(publisher, incarnation, number, d.time, d.attributes, d.payload, d.payload_type)
            for number, d in enumerate(drafts, self._sequence + 1)
        ]
        self._sequence += len(events)
        by_names = by_attributes(events) if alike is None else {alike.names: events}
        largest = max(map(weigh, events), default=0) if alike is None else alike.largest
        if events:
            self.history.published(events)
        for names in by_names:
            self.history.saw(names)
        for event in self.port.sampled(events):
            self.port.trace(
                "publish",
                event=event.identity,
                id=str(event.attributes.get("id", "")),
                attributes=event.attributes,
                size=len(event.payload),
            )
        self.port.count("published", len(events))
        for names, some in by_names.items():
            self.company.take(names, some, largest)
        self.company.look()
        return events

    def _set_out_all(self, by_names: ByNames, largest: int) -> None:
        """Send off events by the names of their attributes, none over so many bytes."""
        self.replicas.expire(self.port.now)
        routes: list[tuple[PendingEvent, str]] = []
        for names, alike in by_names.items():
            routes += self._set_out([EVENT_TREE, *names], alike, largest)
        self._route(routes)
        self._retry.within(self.replicas.patience)

    def _set_out(
        self, names: list[str], events: list[Event], largest: int
    ) -> list[tuple[PendingEvent, str]]:
        """Send off events with the same attributes: together, if what is known of the trees says
        the same of all. The pairs to be routed one by one, if not."""
        now = self.port.now
        found = None if self.counting else plan(names, self.locations, self.port.me.id, now)
        if found is None:
            fresh = [PendingEvent(event, dict.fromkeys(names, ("", 0.0)), now) for event in events]
            self.pairs += len(names) * len(fresh)
            self.outgoing.update((each.event.sequence, each) for each in fresh)
            return [(each, name) for each in fresh for name in names]
        if found.fading:
            self.finder.seek(found.fading)
        if found.unknown:
            self._ask_summaries([name for name in found.unknown if self._is_due(name)])
        ways = found.ways(events) if not found.is_fixed else [Together(found.fixed, (), events)]
        visits: dict[NodeId, tuple[Peer, ByNames]] = {}
        for way, skipped, alike in ways:
            if skipped:
                self.port.count("visits_skipped", len(skipped) * len(alike))
                self.history.accepted(alike, Skipped(skipped))
            if not way:  # nobody subscribes to any of it
                self.port.emit(EventsAccepted(tuple([event.sequence for event in alike])))
                continue
            pairs = {name: (id_, now) for id_, (_, trees) in way.items() for name in trees}
            self.pairs += len(pairs) * len(alike)
            self.bundles.add(alike, pairs, now)
            for host, trees in way.values():
                groups = visits.setdefault(host.id, (host, {}))[1]
                groups.setdefault(trees, []).extend(alike)
        for host, groups in visits.values():
            self._send(host, groups, largest)
        return []

    def _route(self, routes: Iterable[tuple[PendingEvent, str]], stale: bool = False) -> None:
        """Send each pair to where its tree is known to be, unless it is known that nobody there can
        want the event; seek the others."""
        now = self.port.now
        sought: dict[str, None] = {}
        ended = Ended()
        unknown: dict[str, None] = {}
        visits: dict[NodeId, tuple[Peer, dict[int, list[str]]]] = {}
        for outgoing, attribute in routes:
            event = outgoing.event
            if self.locations.is_absent(attribute, now):
                ended.pairs.append((outgoing, attribute))
                continue
            host = self.locations.host_for(attribute, outgoing.places[attribute])
            if host is None:
                outgoing.pairs[attribute] = ("", now)
                self.waiting.setdefault(attribute, {})[event.sequence] = None
                sought[attribute] = None
            elif host.id != self.port.me.id and self._may_skip(outgoing, attribute, unknown):
                ended.pairs.append((outgoing, attribute))
            else:
                outgoing.pairs[attribute] = (host.id, now)
                per_host = visits.setdefault(host.id, (host, {}))[1]
                per_host.setdefault(event.sequence, []).append(attribute)
        for host, attributes_of in visits.values():
            groups: ByNames = {}
            for sequence, names in attributes_of.items():
                event = self.outgoing[sequence].event
                for key in [(name,) for name in names] if self.counting else [tuple(names)]:
                    groups.setdefault(key, []).append(event)
            self._send(host, groups)
        self._end(ended)
        if sought:
            self.finder.seek(sought, stale)
        self._ask_summaries(list(unknown))

    def _is_due(self, attribute: str) -> bool:
        """Whether a tree's summary is to be asked for now. Says so once."""
        return self.locations.summaries.is_due(attribute, self.port.now)

    def _ask_summaries(self, attributes: list[str]) -> None:
        """Ask for these, and for others that are due soon."""
        if attributes:
            soon = self.locations.summaries.soon(self.port.now)
            self.finder.ask_summaries(dict.fromkeys([*attributes, *soon]))

    def _may_skip(self, outgoing: PendingEvent, attribute: str, unknown: dict[str, None]) -> bool:
        """Whether the tree's summary says that nobody there wants the event (C9). Notes trees whose
        summary is to be asked for."""
        if self.counting or attribute == EVENT_TREE:
            return False
        if self._is_due(attribute):
            unknown[attribute] = None
        if self.locations.summaries.admits(attribute, outgoing.places, self.port.now):
            return False
        self.port.count("visits_skipped")
        self.history.accepted((outgoing.event,), Skipped((attribute,)))
        return True

    def _send(self, host: Peer, groups: ByNames, largest: int = 0) -> None:
        """One message per set of trees (pivot) or per tree (counting). `largest`: 0 if unknown."""
        remote = host.id != self.port.me.id
        self._retry.within(self.replicas.sent(host.id, groups.values(), self.port.now))
        for names, events in groups.items():
            if not remote:
                self.port.send(host, Visit(self.port.me, 0, names, tuple(events)))
                continue
            self.copies.note(events)
            for event in self.port.sampled(events):
                self.port.trace(
                    "visit", event=event.identity, attribute=names[0], hop=1, peer=host.id
                )
            for batch in cut_evenly(events, largest) if largest else in_batches(events, weigh):
                self.port.send(host, Visit(self.port.me, 1, names, batch))

    # --- answers ---

    def on_accepted(self, sender: Peer, message: Accepted) -> None:
        """Trees have taken events; their hosts are remembered."""
        if message.incarnation != self.incarnation:
            return
        for location in message.locations:
            self.locations.learn(location)
        ended, now = Ended(), self.port.now
        for attributes, sequences in message.taken:
            found = tuple([self.locations.how_found(attribute) for attribute in attributes])
            events = ended.take(self.outgoing, self.bundles, sender.id, attributes, sequences)
            self.history.accepted(events, Taken(attributes, found, sender.id))
        took = None if ended.since is None else now - ended.since
        self.replicas.heard(sender.id, took, now, message.pace)
        self._end(ended)

    def _end(self, ended: Ended) -> None:
        """These need nothing more."""
        full = not self.has_room
        self.pairs -= ended.bundled
        done = ended.done
        for outgoing in ended.whole:
            self.pairs -= len(outgoing.pairs)
            outgoing.pairs.clear()
            done.append(outgoing.event.sequence)
            self.outgoing.pop(outgoing.event.sequence, None)
        for outgoing, attribute in ended.pairs:
            if outgoing.pairs.pop(attribute, None) is not None:
                self.pairs -= 1
                if not outgoing.pairs:
                    done.append(outgoing.event.sequence)
                    del self.outgoing[outgoing.event.sequence]
        if done:
            self.port.emit(EventsAccepted(tuple(done)))
        if full and self.has_room:
            self.port.emit(RoomAgain())

    def on_tree_moved(self, sender: Peer, message: TreeMoved) -> None:
        """The sender does not serve the tree (any more): it, or one to whom our host passed it."""
        if message.incarnation == self.incarnation:
            attribute = message.attribute
            self.bundles.loosen()
            self.locations.forget(attribute, sender.id)
            self.replicas.moved(attribute, sender.id, self.port.now)
            self.access_points.invalidate(attribute, sender.id)
            again = []
            for sequence in message.sequences:
                outgoing = self.outgoing.get(sequence)
                if outgoing is not None and outgoing.pairs.get(attribute, ("",))[0]:
                    outgoing.moves += 1
                    again.append((outgoing, attribute))
            if any(outgoing.moves > MOVES for outgoing, _ in again):
                self._await_ring(again)
            else:
                self._route(again, stale=True)

    def _await_ring(self, pairs: list[tuple[PendingEvent, str]]) -> None:
        """Hints did not help: only the owner's own word will do. If that did not help either, the
        host that it names is still being given the tree: in a moment."""
        for outgoing, attribute in pairs:
            outgoing.pairs[attribute] = ("", self.port.now)
            self.waiting.setdefault(attribute, {})[outgoing.event.sequence] = None
            self.locations.forget_tree(attribute)
        attributes = dict.fromkeys(attribute for _, attribute in pairs)
        if all(outgoing.moves <= MOVES + 1 for outgoing, _ in pairs):
            self.finder.ask_ring(attributes)
        else:
            self.finder.ask_soon(attributes, min(outgoing.since for outgoing, _ in pairs))

    def on_tree_found(self, event: TreeFound) -> None:
        """Events that waited for it go, with those that waited for other trees of this turn."""
        if not self._found:
            self.port.emit(FoundTogether())
        self._found[event.attribute] = None

    def on_found_together(self, event: FoundTogether) -> None:
        """One visit per host, not per tree."""
        found, self._found = self._found, {}
        self._route([pair for attribute in found for pair in self._waiting_for(attribute)])

    def on_tree_absent(self, event: TreeAbsent) -> None:
        """Nobody wants it: these pairs are done, but for those of events that are younger than a
        slow answer is good for."""
        waiting = self._waiting_for(event.attribute)
        self._end(Ended([pair for pair in waiting if pair[0].since <= event.until]))
        self._route([pair for pair in waiting if pair[0].since > event.until])

    def _waiting_for(self, attribute: str) -> list[tuple[PendingEvent, str]]:
        sequences = self.waiting.pop(attribute, {})
        return [
            (outgoing, attribute)
            for sequence in sequences
            if (outgoing := self.outgoing.get(sequence)) is not None and attribute in outgoing.pairs
        ]

    # --- trouble ---

    def on_link_down(self, event: LinkDown) -> None:
        """What was under way to it goes another way."""
        lost = event.peer.id
        self.bundles.loosen()
        self.locations.forget_node(lost)
        self.replicas.silent(lost, self.port.now)
        again = [
            (outgoing, attribute)
            for outgoing in self.outgoing.values()
            for attribute, (host, _) in outgoing.pairs.items()
            if host == lost
        ]
        self._route(again, stale=True)

    def on_retry_due(self, timer: RetryDue) -> None:
        """Silent hosts: what was sent to them goes to other replicas. What has waited for longer
        than `tree.retry` (a host in between may have died) needs the owner's word."""
        self._retry.rang()
        now, retry = self.port.now, self.settings.tree.retry
        self.replicas.expire(now)
        next_looks = doubt_silent([*self.outgoing.values(), *self.bundles.all], self.replicas, now)
        self.bundles.loosen(lambda bundle: is_late(bundle, self.replicas, now, retry))
        found = look(self.outgoing.values(), self.locations, now, retry)
        if found.again:
            self.port.count("visits_elsewhere", len(found.again))
            self._route(found.again)
        if found.lost:
            self.port.count("visits_retried", len(found.lost))
            self._await_ring(found.lost)
        if self._under_way():
            next_look = min([found.next_look, *next_looks])
            self._retry.within(max(next_look - now, LOOK_LEAST))
