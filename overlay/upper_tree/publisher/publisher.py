"""The publisher's side: an event is cut into its attributes, and each visits its tree (C3, C7).

An event is kept until every tree that it visits has accepted it; where it is until then is in
pending_store.py, and where it goes is decided here. A pair of event and tree ends by `Accepted`, or
because the tree has no subscriber for the event. After `TreeMoved`,
a lost link or silence it is sent again at once, to the next replica (replicas.py), and when none
helps to the host that the owner names. Two hosts may then match one event, and the receiving node
removes the duplicate.

In pivot routing an event is sent to a host once for all trees that it visits there. In counting
routing it is sent for every attribute by itself, as in the paper (C8). What is sent to a host in
one turn is in the order of publication, whatever trees it visits there (visits.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat

from overlay.client import Draft, Event
from overlay.links.events import LinkDown
from overlay.lower_random.access_points import AccessPoints
from overlay.machine import Alarm, Machine, NodeId, Peer, Port, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import BATCH_BYTES, cut_evenly, in_batches, weigh_whole
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.event_history import (
    AcceptedAt,
    EventHistory,
    PublishedHere,
    Skipped,
    digest_of,
)
from overlay.upper_tree.event_proofs import PROOF_MOST, EventProofs
from overlay.upper_tree.events import TreeAbsent, TreeFound, TreesFound
from overlay.upper_tree.messages import EVENT_TREE, Accepted, EventsRefused, SentBefore, TreeMoved
from overlay.upper_tree.publisher.admission import UniformBatch
from overlay.upper_tree.publisher.constants import (
    ASK_ANEW,
    CHECK_LEAST,
    MOVES,
    PAIRS_AT_ONCE,
)
from overlay.upper_tree.publisher.doubts import Doubts, Taken
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.pending_event import PairMove, PendingPair
from overlay.upper_tree.publisher.pending_store import HoldOver, PendingStore, RouteDue, SearchOver
from overlay.upper_tree.publisher.routing_plan import (
    ByNames,
    RoutedEvents,
    RoutingPlans,
    by_attributes,
    in_parts,
)
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from overlay.upper_tree.visits import Group, RecentVisits, visits_of


class RetryDue(Timer, frozen=True):
    """Check for pairs without an answer."""


VisitsByHost = dict[NodeId, tuple[Peer, list[Group]]]
"""The groups to send to each host."""


class SilentTrees:
    """The trees of which every known host is silent.

    Their owners assign the virtual nodes of silent hosts to another host. The publisher asks the
    owners for it from time to time. The silent hosts may still accept events that were sent to
    them.
    """

    def __init__(self) -> None:
        self._asked: dict[str, None] = {}
        self.ask_at = float("-inf")
        """When to ask again."""

    def ask(self, attributes: Iterable[str], now: float) -> Iterable[str]:
        """These trees are silent. Returns those whose owners are to be asked now."""
        if now < self.ask_at:
            return ()
        self.ask_at = now + ASK_ANEW
        self._asked = dict.fromkeys(attributes)
        return self._asked

    def found(self, attribute: str) -> bool:
        """The owner has answered. Whether that was asked for."""
        return self._asked.pop(attribute, ...) is None


class Publisher(Machine):
    """Sends this node's events to all trees that they visit."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        incarnation: int,
        finder: TreeFinder,
        locations: LocationCache,
        access_points: AccessPoints,
        history: EventHistory,
        copies: CopyBudget,
        proofs: EventProofs | None = None,
    ) -> None:
        """`history` and `copies` are the node's: of all that it does with an event; `proofs` signs
        events, None: they are not signed."""
        super().__init__(port)
        self.counting = settings.tree.routing == "counting"
        self.incarnation = incarnation
        self.finder = finder
        self.locations = locations
        self.replicas = locations.replicas
        self.access_points = access_points
        self.history = history
        self.copies = copies
        self._proofs = proofs
        self.pending = PendingStore(
            port, settings.tree.pending, settings.tree.pending_bytes, locations
        )
        self._plans = RoutingPlans(locations, port.me.id)
        self._silent = SilentTrees()
        self._doubts: Doubts | None = None
        if settings.walk.confirm == "always":
            self._doubts = Doubts(port.me.id, locations, self.pending.is_sent)
        self._recent = RecentVisits(settings.tree.order_hold)
        self.numbered = 0
        """The number of events that this node's process has published."""
        self._retry = Alarm(port, RetryDue())

    @property
    def unaccepted(self) -> int:
        """The number of events that at least one tree has not accepted yet."""
        return len(self.pending)

    # --- publishing ---

    def publish(self, drafts: Sequence[Draft], alike: UniformBatch | None = None) -> list[Event]:
        """Give the events their identities and send them off. They have been checked; `alike`:
        what all have in common, if they have the same attributes, and values for them."""
        publisher, life = self.port.me.id, self.incarnation
        first = self.numbered + 1
        traced = self.port.trace_marks(life, first, len(drafts))
        numbers = range(first, first + len(drafts))
        marks = repeat(True, len(drafts)) if traced is None else traced
        events = [
            Event(publisher, life, n, d.time, d.attributes, d.payload, d.payload_type, None, marked)
            for n, d, marked in zip(numbers, drafts, marks, strict=True)
        ]
        self.numbered += len(events)
        if self._proofs is not None and events:
            events = self._proofs.sign(events)
        by_names = by_attributes(events) if alike is None else {alike.names: events}
        largest = max(map(weigh_whole, events), default=0) if alike is None else alike.largest
        if alike is not None and self._proofs is not None:
            largest += PROOF_MOST
        if events:
            self.history.note(events, PublishedHere(), largest * len(events))
        for names in by_names:
            self.history.saw(names)
        for event in self.port.sampled(events):
            self.port.trace(
                "publish",
                event=event.identity,
                id=str(event.attributes.get("id", "")),
                attributes=event.attributes,
                size=len(event.payload),
                digest=digest_of(event),
            )
        self.port.count("published", len(events))
        pending = self.pending
        self._dispatch_all(pending.coalescer.submit(by_names, largest, pending.in_flight))
        return events

    def on_hold_over(self, timer: HoldOver) -> None:
        """Send the events that have waited for a fuller message."""
        self._dispatch_all(self.pending.coalescer.hold_over())

    def _dispatch_all(self, due: tuple[ByNames, int] | None) -> None:
        """Send the events of `due`, grouped by the names of their attributes, to the hosts of their
        trees. `due` also has the size in bytes of the largest event; None: there are no events to
        send."""
        if due is None:
            return
        by_names, largest = due
        self.replicas.expire(self.port.now)
        count = sum(map(len, by_names.values()))
        at_once = self.replicas.at_once(count)
        for part in (by_names,) if at_once >= count else in_parts(by_names, at_once):
            visits: VisitsByHost = {}
            pairs: list[PendingPair] = []
            for names, alike in part.items():
                pairs += self._dispatch(names, alike, largest, visits)
            if pairs:
                self._dispatch_pairs(pairs, visits)
            self._send_all(visits, largest)
            if at_once < count:
                self.replicas.expire(self.port.now)

    def _dispatch_pairs(self, pairs: Sequence[PendingPair], visits: VisitsByHost) -> None:
        """Add pairs that are routed one by one to `visits`, as far as they need not wait."""
        held = self.pending.searches.early
        for pair in [pair for pair in pairs if pair[1] in held]:
            self.pending.seek(pair)  # behind those that wait for it already
        ready = [pair for pair in pairs if pair[1] not in held]
        if not self.pending.queue.waiting and len(ready) <= PAIRS_AT_ONCE:
            self._route(ready, visits)
        else:
            self._route_later(ready, PairMove.POSTPONED)

    def _dispatch(
        self, names: tuple[str, ...], events: list[Event], largest: int, visits: VisitsByHost
    ) -> list[PendingPair]:
        """Add events with the same attributes to `visits`: together, if all that is known of their
        trees holds for all of them. If not, returns the pairs, which have to be routed one by
        one."""
        held = self.pending.searches.early
        is_held = bool(held) and (EVENT_TREE in held or not held.keys().isdisjoint(names))
        found = None
        if not (self.counting or is_held or self.pending.queue.waiting):
            found = self._plans.get(names, self.port.now)
        if found is None:  # one by one, behind others that wait
            return self.pending.add_single(events, [EVENT_TREE, *names], largest)
        if found.expiring:
            self.finder.seek(found.expiring)
        if found.unknown:
            now, claim = self.port.now, self.locations.summaries.claim_refresh
            self._ask_summaries([name for name in found.unknown if claim(name, now, len(events))])
        routed = [RoutedEvents(found.fixed, (), events)]
        if found.spread or found.skippable:
            routed = found.route_events(events)
        for route, skipped, alike in routed:
            if skipped:
                self.port.count("visits_skipped", len(skipped) * len(alike))
                self.history.note(alike, Skipped(skipped))
            self.pending.add_batch(alike, route, largest)
            for host, trees in route.values():
                visits.setdefault(host.id, (host, []))[1].append((trees, alike))
        return []

    def _route_later(
        self, pairs: Sequence[PendingPair], why: PairMove, stale: bool = False
    ) -> None:
        """Route pairs that have waited, or have to be sent again, in the order of publication and
        behind the pairs already queued. Pairs that exceed the limit of this turn follow in the
        next. `stale`: as in `_route`."""
        if pairs:
            self.pending.enqueue(pairs, why, stale)
            self._route_queued()
        self.locations.trim()

    def _route_queued(self) -> None:
        """Route queued pairs, up to the limit of this turn."""
        while (part := self.pending.queue.take()) is not None:
            self._send_part(*part)

    def on_route_due(self, timer: RouteDue) -> None:
        """Route the next ones."""
        self.pending.queue.route_due()
        self._route_queued()
        self.locations.trim()

    def _send_part(self, pairs: list[PendingPair], stale: bool) -> None:
        at_once = self.replicas.at_once(len(pairs))
        for start in range(0, len(pairs), at_once):
            visits: VisitsByHost = {}
            self._route(pairs[start : start + at_once], visits, stale)
            self._send_all(visits)
            if at_once < len(pairs):
                self.replicas.expire(self.port.now)

    def _route(
        self, pairs: Iterable[PendingPair], visits: VisitsByHost, stale: bool = False
    ) -> None:
        """Add each pair to what visits the host that its tree is known to have there, unless it is
        known that its tree has no subscriber for the event; seek the trees of the others. `stale`:
        hosts that were known proved wrong."""
        now = self.port.now
        to_find: dict[str, None] = {}
        skipped: list[PendingPair] = []
        unknown: dict[str, None] = {}
        routed: dict[NodeId, tuple[Peer, dict[int, tuple[Event, list[str]]]]] = {}
        for pair in pairs:
            pending, attribute = pair
            if self.locations.is_absent(attribute, now):
                skipped.append(pair)
                continue
            host = self.locations.host_for(attribute, pending.places[attribute])
            if host is None:
                self.pending.seek(pair)
                to_find[attribute] = None
                if not stale:
                    self.pending.searches.began(attribute)
            elif host.id != self.port.me.id and self._may_skip(pair, unknown):
                skipped.append(pair)
            else:
                self.pending.sent(pair, host.id)
                (event,) = pending.events
                per_host = routed.setdefault(host.id, (host, {}))[1]
                per_host.setdefault(event.sequence, (event, []))[1].append(attribute)
        for host, attributes_of in routed.values():
            by_trees: ByNames = {}
            for event, names in attributes_of.values():
                for key in [(name,) for name in names] if self.counting else [tuple(names)]:
                    by_trees.setdefault(key, []).append(event)
            visits.setdefault(host.id, (host, []))[1].extend(by_trees.items())
        self.pending.drop(skipped)
        if to_find:
            self.finder.seek(to_find, stale)
        self._ask_summaries(list(unknown))

    def _awaited(self) -> tuple[SentBefore, ...]:
        """Return the events that wait for trees that were recently searched for."""
        found: list[SentBefore] = []
        for name, since in self.pending.searches.unfinished.items():
            numbers = self.pending.awaiting(name)
            age = self.port.now - since
            if numbers and age < self._recent.window:
                first, last = next(iter(numbers)), next(reversed(numbers))
                found.append(SentBefore("", (name,), first, last, int(age * 1000)))
        return tuple(found)

    def _ask_summaries(self, attributes: list[str]) -> None:
        """Ask for these, and for others that are due soon."""
        if attributes:
            early = self.locations.summaries.claim_early(self.port.now)
            self.finder.ask_summaries(dict.fromkeys([*attributes, *early]))

    def _may_skip(self, pair: PendingPair, unknown: dict[str, None]) -> bool:
        """Whether the tree's summary does not admit the event (C9). Adds trees whose
        summary is to be asked for to `unknown`."""
        pending, attribute = pair
        if self.counting or attribute == EVENT_TREE:
            return False
        now, summaries = self.port.now, self.locations.summaries
        if summaries.claim_refresh(attribute, now, 1):
            unknown[attribute] = None
        if not summaries.may_skip(attribute, pending.places, now):
            return False
        self.port.count("visits_skipped")
        self.history.note(pending.events, Skipped((attribute,)))
        return True

    def _send_all(self, visits: VisitsByHost, largest: int = 0) -> None:
        """Send each host all that visits it, in the order of publication. `largest`: bytes that no
        event exceeds; 0 if unknown."""
        if not visits:
            return
        now = self.port.now
        for host, groups in visits.values():
            trees: Iterable[str]
            trees, events = groups[0]
            first, last = events[0].sequence, events[-1].sequence
            if len(groups) > 1:
                trees = dict.fromkeys([name for names, _ in groups for name in names])
                first = min([events[0].sequence for _, events in groups])
                last = max([events[-1].sequence for _, events in groups])
            self._recent.note(host.id, trees, first, last, now)
            self.replicas.sent(host.id, sum([len(events) for _, events in groups]), now)
        self._retry.within(self.replicas.timeout)
        awaited = self._awaited()
        for host, groups in visits.values():
            remote = host.id != self.port.me.id
            if remote:
                for names, events in groups:
                    self.copies.add(events)
                    if traced := self.port.sampled(events):
                        self.port.trace_each(
                            "visit", "event", [event.identity for event in traced],
                            attribute=names[0], hop=1, peer=host.id,
                        )  # fmt: skip
            before = self._recent.before(host.id, now) + awaited
            cut = partial(_cut, remote, largest)
            for visit in visits_of(self.port.me, int(remote), groups, cut, before):
                self.port.send(host, visit)

    # --- answers ---

    def on_accepted(self, sender: Peer, message: Accepted) -> None:
        """Trees have taken events; their hosts are remembered."""
        if message.incarnation != self.incarnation:
            return
        taken: Sequence[Taken] = message.taken
        if self._doubts is not None:
            taken = self._doubts.believed(sender.id, message.taken)
            self.finder.ask_again(self._doubts.trees())
        for location in message.locations:
            if self._doubts is None or self.locations.is_confirmed(location.attribute, sender.id):
                self.locations.learn(location)
        if message.taken and not taken:
            return
        now = self.port.now
        events, sent_at = self.pending.accept(sender.id, taken)
        for (attributes, _), some in zip(taken, events, strict=True):
            if some:
                found = self.locations.how_found(attributes)
                self.history.note(some, AcceptedAt(attributes, found, sender.id))
        if taken:
            took = None if sent_at is None else now - sent_at
            self.replicas.accepted(sender.id, took, now, message.pace)
        else:
            self.replicas.waits(sender.id, now, message.pace)

    def _settle(self, attribute: str) -> None:
        """End the doubt about a tree, which the owner has located: events that its hosts have
        accepted are done, and events that other nodes accepted go to its hosts."""
        if self._doubts is None:
            return
        again: dict[int, PendingPair] = {}  # each once, though several hosts have accepted it
        for host, sequences, is_host in self._doubts.settle(attribute):
            if is_host:
                self.pending.accept(host, [((attribute,), sequences)])
                continue
            self.port.count("hosts_not_confirmed")
            self.locations.forget(attribute, host)
            self.access_points.invalidate(attribute, host)
            moved = self.pending.moved(attribute, sequences)
            again.update({pair[0].sequences[0]: pair for pair in moved})
        self._route_later(list(again.values()), PairMove.FAILED)

    def on_events_refused(self, sender: Peer, message: EventsRefused) -> None:
        """By the policy that the host knows, this node's tenant may not publish these events. As an
        acceptance it counts of a host that the tree's owner has named; the owner is asked about
        another one."""
        if message.incarnation != self.incarnation:
            return
        reason = message.reason or (
            f"policy {message.policy} does not permit this tenant to publish some of these"
        )
        pairs = self.pending.sent_to(sender.id, message.sequences)
        doubts = self._doubts
        certain = {
            pending.sequences[0]: None
            for pending, attribute in pairs
            if doubts is None or doubts.is_certain(attribute, sender.id)
        }
        doubtful = [pair for pair in pairs if pair[0].sequences[0] not in certain]
        if doubtful:
            self._ask_owners(doubtful)
        refused = self.pending.refuse(list(certain), reason)
        if refused:
            self.port.count("events_refused", len(refused))
        for sequence in refused:
            identity = f"{self.port.me.id}.{self.incarnation}.{sequence}"
            self.port.trace("refused", event=identity, reason=f"{reason}, by {sender.id}")

    def on_tree_moved(self, sender: Peer, message: TreeMoved) -> None:
        """The sender does not serve the tree (any more): it is the host that the events were sent
        to, or one to which that host passed them on."""
        if message.incarnation == self.incarnation:
            attribute = message.attribute
            self.locations.forget(attribute, sender.id)
            self.replicas.suspect_moved(attribute, sender.id, self.port.now)
            self.access_points.invalidate(attribute, sender.id)
            again = self.pending.moved(attribute, message.sequences)
            if any(pending.moves > MOVES for pending, _ in again):
                self._ask_owners(again)
            else:
                self._route_later(again, PairMove.FAILED, stale=True)

    def _ask_owners(self, pairs: list[PendingPair]) -> None:
        """Nothing that is known here helped: the owner has to say where these trees are. If that
        did not help before, the host that it names is still being given the tree: ask in a
        moment."""
        for pair in pairs:
            self.pending.seek(pair)
            self.locations.forget_tree(pair[1])
        attributes = dict.fromkeys(attribute for _, attribute in pairs)
        if all(pending.moves <= MOVES + 1 for pending, _ in pairs):
            self.finder.ask_ring(attributes)
        else:
            self.finder.ask_soon(attributes, min(pending.since for pending, _ in pairs))

    def on_tree_found(self, event: TreeFound) -> None:
        """Events that waited for it are sent at the end of this turn, or with those that wait for
        other trees."""
        self.pending.searches.found(event.attribute)
        if self.locations.is_answered(event.attribute):
            self._settle(event.attribute)
        if self._silent.found(event.attribute):
            self._retry.within(0.0)
        self.port.emit(TreesFound())

    def on_tree_absent(self, event: TreeAbsent) -> None:
        """Handle the owner's answer that a tree has no subscribers. Drop the waiting pairs of this
        tree, except those of events that were published after the answer's term ended (a slow
        answer)."""
        self.pending.searches.ended(event.attribute)
        self._settle_absent(event.attribute)
        waiting = self.pending.located(event.attribute)
        self.pending.drop([pair for pair in waiting if pair[0].since <= event.until])
        younger = [pair for pair in waiting if pair[0].since > event.until]
        self._route_later(younger, PairMove.LOCATED)
        self.port.emit(TreesFound())

    def _settle_absent(self, attribute: str) -> None:
        """Accept all doubted acceptances of a tree that has no subscribers."""
        for host, sequences, _ in () if self._doubts is None else self._doubts.settle(attribute):
            self.pending.accept(host, [((attribute,), sequences)])

    def on_trees_found(self, event: TreesFound) -> None:
        """Send one visit per host, not one per tree, in the order of publication. An event also
        waits for the trees of earlier events that are still searched for."""
        self._route_later(self.pending.take_found(), PairMove.LOCATED)

    def on_search_over(self, timer: SearchOver) -> None:
        """The last of the trees takes too long to be found."""
        self.pending.searches.search_over()
        self.port.emit(TreesFound())

    # --- silent hosts and lost links ---

    def on_link_down(self, event: LinkDown) -> None:
        """Send events that the lost host has not accepted to another host."""
        lost = event.peer.id
        self.locations.forget_node(lost)
        self.replicas.suspect_silent(lost, self.port.now)
        self._route_later(self.pending.host_lost(lost), PairMove.FAILED, stale=True)

    def on_retry_due(self, timer: RetryDue) -> None:
        """Send events that wait for silent hosts to other replicas. Ask the owner about events that
        have waited for longer than `tree.retry`, since a host on the way may have died."""
        self._retry.rang()
        now = self.port.now
        self.replicas.expire(now)
        overdue = self.pending.retry()
        if overdue.elsewhere:
            self.port.count("visits_elsewhere", len(overdue.elsewhere))
            self._route_later(overdue.elsewhere, PairMove.FAILED)
        if overdue.lost:
            self.port.count("visits_retried", len(overdue.lost))
            self._ask_owners(overdue.lost)
        next_check = overdue.next_check
        if overdue.silent:
            self.finder.ask_again(self._silent.ask(overdue.silent, now))
            next_check = min(next_check, self._silent.ask_at)
        if self.pending.in_flight:
            self._retry.within(max(next_check - now, CHECK_LEAST))


def _cut(remote: bool, largest: int, events: Sequence[Event]) -> Iterable[tuple[Event, ...]]:
    """Divide events, in order, so that each part fits into one visit."""
    if largest and remote:
        return cut_evenly(events, largest)
    if largest and largest * len(events) <= BATCH_BYTES:
        return (tuple(events),)  # a larger visit would become a delivery that no link takes
    return in_batches(events, weigh_whole)
