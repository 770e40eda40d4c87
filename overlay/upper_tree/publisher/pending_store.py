"""All events of a publisher that some tree has not accepted yet, and how many it may have (C3, C5).

An event is in one of three places, all of them here:

* It *waits for a fuller message*, `HOLD_MOST` at most, while many others are in flight
  (`Coalescer`). Nothing is kept of its trees.
* It is *in flight*: it has a record (`PendingEvents`), alone or with others that were sent to the
  same hosts together. There each of its trees that has not accepted has a state: new, queued,
  seeking or sent (pending_event.py has the table).
* It is *done*, and forgotten: no tree has to accept it. `EventsAccepted` reports that.

Invariants:

* An event waits for a fuller message, or has exactly one record. A pair is in the queue once while
  it is queued, and named in `_seeking` while it is seeking; what these name besides has ended.
* `pairs` and `bytes` are those of all records. They bound what is admitted (`room`). An event
  counts for as many bytes as the largest of those that were submitted with it: weighing each would
  cost more than the rest of its record.
* The events of a record go the same way: a record for each event is most of what publishing costs.
  A host that is behind may accept the first of them before the rest; then the record is cut in two.
  Whatever else concerns a part of them (another host, silence, a lost link, a receipt) first gives
  each event a record of its own.
* A lost link, silence or `TreeMoved` ends nothing: what was sent to that host is sent again, and an
  event whose program has gone stays, since it was acknowledged. An event ends without a host only
  if its tree has no subscriber for it, or a host refuses it by a policy (`PublicationsRefused`).

The store decides nothing about where events go, and sends no message: publisher.py does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.machine import Alarm, NodeId, Port, Timer
from overlay.upper_tree.batches import BATCH_ITEMS
from overlay.upper_tree.events import EventsAccepted, PublicationsRefused, RoomAgain
from overlay.upper_tree.publisher.constants import (
    HOLD_MOST,
    IN_FLIGHT_LEAST,
    PAIRS_AT_ONCE,
    RATE_HALF_LIFE,
    RATE_PERIOD,
    SEARCH_TOGETHER,
    SEARCHES_MOST,
    SHORTEST_FOR,
    WINDOW_LEAST,
    WINDOW_SEARCHING,
    WINDOW_SECONDS,
)
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.pending_event import (
    NEW,
    PAIR_MOVES,
    QUEUED,
    SEEKING,
    SENT,
    Overdue,
    PairMove,
    PairState,
    PairStates,
    PairStatus,
    PendingEvents,
    PendingPair,
    at_host,
    find_overdue,
    in_state,
    is_overdue,
    suspect_silent,
)
from overlay.upper_tree.publisher.routing_plan import ByNames, Route

ROUTED: Final = PairMove.ROUTED
UNLOCATED: Final = PairMove.UNLOCATED


def _published(pair: PendingPair) -> int:
    return pair[0].sequences[0]


class HoldOver(Timer, frozen=True):
    """Events have waited for a fuller message for `HOLD_MOST`."""


class SearchOver(Timer, frozen=True):
    """Events wait no longer for the last of the trees that are looked for."""


class RouteDue(Timer, frozen=True):
    """Route the next pairs that are queued."""


class Coalescer:
    """Events of a publisher that is far ahead of its hosts, for fuller messages (M3).

    Each message costs its sender, its receiver and each node that it is passed on to a turn: waking
    up, reading, writing. A turn costs about as much as thirty events do. So while many events are
    in flight the next ones wait until they fill a message, or for a short time. With few in flight
    none waits: a publisher whose hosts keep up has no delay. (This is Nagle's algorithm, RFC 896,
    with acceptance in the place of acknowledgement. Nagle also ends the waiting when the
    acknowledgement comes; that made messages half as large, since hosts accept within
    milliseconds.)"""

    def __init__(self, port: Port) -> None:
        self._by_names: ByNames = {}  # by the names of their attributes
        self._largest = 0  # bytes that none of them exceeds
        self.count = 0
        """Number of waiting events."""
        self._over = Alarm(port, HoldOver())

    @property
    def sequences(self) -> set[int]:
        """The sequence numbers of the events that wait."""
        return {event.sequence for events in self._by_names.values() for event in events}

    def submit(self, by_names: ByNames, largest: int, in_flight: int) -> tuple[ByNames, int] | None:
        """New events, none over `largest` bytes, while `in_flight` are in flight. Returns all that
        wait if they are to be sent now, and a size that none exceeds."""
        for names, events in by_names.items():
            self._by_names.setdefault(names, []).extend(events)
            self.count += len(events)
        self._largest = max(self._largest, largest)
        if self.count >= BATCH_ITEMS or in_flight <= IN_FLIGHT_LEAST:
            return self._take()
        if self.count:
            self._over.within(HOLD_MOST)
        return None

    def hold_over(self) -> tuple[ByNames, int] | None:
        """`HoldOver` has come. Returns all that wait, as `submit`."""
        self._over.rang()
        return self._take()

    def _take(self) -> tuple[ByNames, int] | None:
        found = (self._by_names, self._largest) if self.count else None
        self._by_names, self._largest, self.count = {}, 0, 0
        return found


class RouteQueue:
    """An ordered queue of pairs that exceed what one turn may route (C5, C6).

    When a tree is found, or a host lost, all pairs that waited for it must be routed again: up to
    `tree.pending` pairs, each with its own lookup. Routing all of them in one turn took 0.15 s,
    during which the node did nothing else. So a turn routes at most `PAIRS_AT_ONCE` pairs.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self.waiting: deque[tuple[deque[PendingPair], bool]] = deque()
        """The pairs that were queued together, and whether hosts that were known for them proved
        wrong."""
        self._turn = float("-inf")  # in the turn of this time …
        self._routed = 0  # … so many were routed
        self._more = Alarm(port, RouteDue())

    def route_due(self) -> None:
        """Begin another turn of routing: `RouteDue` has fired, perhaps at the same time."""
        self._more.rang()
        self._routed = 0

    def take(self) -> tuple[list[PendingPair], bool] | None:
        """Return the next pairs that this turn may route, in the form of `waiting`. None: the turn
        may route no further pairs; if some still wait, a `RouteDue` timer is set."""
        if self._turn != self._port.now:
            self._turn, self._routed = self._port.now, 0
        if not self.waiting:
            return None
        most = PAIRS_AT_ONCE - self._routed
        if most <= 0:
            self._more.within(0.0)
            return None
        pairs, stale = self.waiting[0]
        found = [pairs.popleft() for _ in range(min(len(pairs), most))]
        if not pairs:
            self.waiting.popleft()
        self._routed += len(found)
        return in_state(QUEUED, found), stale


class FirstSearches:
    """Decides when waiting events may visit trees that are new to a publisher.

    The trees are searched for at the same time, and found one by one. If each were visited as soon
    as it is found, the events for the first tree found would overtake all earlier events. So an
    event that waits for a tree also waits for the trees of earlier events, unless a search takes
    longer than `SEARCH_TOGETHER`. This concerns only trees about which nothing is known: events for
    known trees, and events that are sent again, leave at once. Times are the Port's seconds.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self.unfinished: BoundedDict[str, float] = BoundedDict(SEARCHES_MOST)
        """Trees that are looked for, or `early`, and since when."""
        self.early: dict[str, float] = {}
        """Trees that were found, and not all that waits for them may leave; and when."""
        self._over = Alarm(port, SearchOver())

    def began(self, attribute: str) -> None:
        """Nothing is known of this tree, and an event waits for it."""
        if attribute not in self.unfinished:
            self.unfinished[attribute] = self._port.now

    def found(self, attribute: str) -> None:
        """Note that the tree is found; `take` returns when it may be visited."""
        self.early.setdefault(attribute, self._port.now)

    def ended(self, attribute: str) -> None:
        """Forget the search: the tree has no subscribers."""
        self.unfinished.pop(attribute, None)
        self.early.pop(attribute, None)

    def search_over(self) -> None:
        """Note that `SearchOver` has fired. `take` has to follow."""
        self._over.rang()

    def take(self) -> tuple[list[str], list[str]]:
        """The trees that may be visited now by all that waits for them, and the searches that the
        others wait for: `SearchOver` comes if there are some."""
        found, now = self.early, self._port.now
        for attribute in [
            name for name, at in self.unfinished.items() if at + SEARCH_TOGETHER <= now
        ]:
            if attribute not in found:
                del self.unfinished[attribute]
        waited_for = {name: at for name, at in self.unfinished.items() if name not in found}
        first = min([at for name, at in found.items() if name in self.unfinished], default=now)
        if not waited_for or first + SEARCH_TOGETHER <= now:
            ready = list(found)
        else:
            ready = [name for name in found if name not in self.unfinished]
        for attribute in ready:
            self.ended(attribute)
        if not found:
            return ready, []
        self._over.within(min(first, max(waited_for.values())) + SEARCH_TOGETHER - now)
        return ready, list(waited_for)


class PendingWindow:
    """Bounds the number of pending pairs by the number that hosts accept within a fraction of a
    second.

    A higher bound does not make hosts faster. The events would only wait longer in queues that the
    heartbeats of clusters and hosts also pass through. On a machine whose processes are all late,
    some seconds of events in all queues make all hosts look dead: visits are sent again elsewhere,
    leases end and primaries are replaced, which is further work. So the bound follows the rate at
    which events are accepted, like delay-based congestion control (TCP Vegas), between a minimum
    and the maximum that `tree.pending` allows.

    On slow networks the bound also includes the events on the way: twice the shortest recent time
    of an acceptance. While a tree is searched for, its events wait here and should not delay
    others, so the bound is then somewhat higher. Times are the Port's seconds.
    """

    def __init__(self, most: int, now: float) -> None:
        self._most = most
        self._rate = 0.0  # pairs per second
        self._accepted = 0
        self._since = now
        self._shortest = self._shortest_before = 0.0  # seconds of an acceptance; 0: not measured
        self._shortest_since = now
        self.pairs = min(WINDOW_LEAST, most)
        """The pairs that may be pending when all trees are known."""

    def most(self, is_searching: bool) -> int:
        """Return how many pairs may be pending. `is_searching`: some of them wait for a tree to be
        found."""
        return min(max(self.pairs, WINDOW_SEARCHING), self._most) if is_searching else self.pairs

    def accepted(self, pairs: int, took: float | None, now: float) -> None:
        """Hosts have accepted `pairs` more pairs, the first `took` seconds after it was sent (None:
        not known)."""
        self._accepted += pairs
        if took is not None and (took < self._shortest or not self._shortest):
            self._shortest = took
        passed = now - self._since
        if passed >= RATE_PERIOD:
            kept = self._rate * 0.5 ** (passed / RATE_HALF_LIFE)
            self._rate = max(kept, self._accepted / passed)
            self._accepted, self._since = 0, now
            shortest = min(self._shortest, self._shortest_before or self._shortest)
            wanted = int(self._rate * (WINDOW_SECONDS + 2.0 * shortest))
            self.pairs = min(max(wanted, WINDOW_LEAST), self._most)
            if now - self._shortest_since >= SHORTEST_FOR:
                self._shortest_before, self._shortest = self._shortest, 0.0
                self._shortest_since = now


class Acceptance(NamedTuple):
    """The pairs that a host has accepted."""

    events: list[Sequence[Event]]
    """Per entry of the message's `taken`."""
    sent_at: float | None
    """When the first of it was sent to that host; None: it was sent to another one."""


class PendingStore:
    """The events of a publisher that are not accepted by all of their trees, each in one state.
    Bounded by `capacity` pairs, `most` bytes, and one turn's submissions beyond that."""

    def __init__(self, port: Port, capacity: int, most: int, locations: LocationCache) -> None:
        """`capacity` in (event, tree) pairs (`tree.pending`), `most` in bytes
        (`tree.pending_bytes`)."""
        self.port = port
        self._window = PendingWindow(capacity, port.now)
        self.most = most
        self.bytes = 0
        """Bytes of the events in flight, at most."""
        self.pairs = 0
        """(event, tree) pairs of the events in flight that are not accepted yet."""
        self.in_flight = 0
        """Events that have a record."""
        self._largest = 1  # bytes of the events that came last
        self._is_room_awaited = False
        self._locations = locations
        self.coalescer = Coalescer(port)
        """Events that wait for a fuller message: those it returns are to be added, by `add_batch`
        or `add_single`."""
        self._single: dict[int, PendingEvents] = {}  # records of one event, by its number …
        self._batches: dict[int, PendingEvents] = {}  # … and of several, by that of the first
        self.queue = RouteQueue(port)
        """Pairs that wait to be routed."""
        self._seeking: dict[str, dict[int, None]] = {}  # attribute -> sequence numbers
        self.searches = FirstSearches(port)
        """When what waits for trees that were new may visit them."""
        self._receipts: dict[int, dict[str, NodeId]] = {}
        """By sequence number of an event whose hosts are asked for: those that have accepted it, by
        their trees' attributes."""

    def __len__(self) -> int:
        """Return the number of events that at least one tree has not accepted yet."""
        return self.in_flight + self.coalescer.count

    # --- how many there may be ---

    @property
    def room(self) -> int:
        """Return how many events, of the size of the largest seen, may be admitted now: at least
        one, or 0."""
        if self.pairs < self._window.most(bool(self._seeking)) and self.bytes < self.most:
            return max(1, (self.most - self.bytes) // self._largest)
        return 0

    def await_room(self) -> None:
        """Ask for a `RoomAgain` event once there is room. (Comparing before and after each
        acceptance would not suffice: the window also changes between acceptances.)"""
        self._is_room_awaited = True

    def await_receipts(self, events: Sequence[Event]) -> dict[int, None]:
        """The sequence numbers of those of these events that are pending. Which hosts accept them
        will be in their `EventsAccepted`."""
        numbers = [event.sequence for event in events]
        self._part(numbers)
        waiting, single = self.coalescer.sequences, self._single
        found = {number: None for number in numbers if number in single or number in waiting}
        self._receipts.update((number, {}) for number in found)
        return found

    # --- new events ---

    def add_batch(self, events: Sequence[Event], route: Route, largest: int) -> None:
        """Add events, none over `largest` bytes, that leave now for the hosts of `route`. If
        `route` is empty they are done: none of their trees has a subscriber."""
        sequences = tuple([event.sequence for event in events])
        if not route:
            self._emit_done(sequences)
            return
        now = self.port.now
        pairs: PairStates = {}
        for host, trees in route.values():
            pairs.update(dict.fromkeys(trees, PairStatus(SENT, now, host.id)))
        self._add(PendingEvents(events, sequences, pairs, now, largest))

    def add_single(
        self, events: Sequence[Event], trees: Sequence[str], largest: int
    ) -> list[PendingPair]:
        """Each of these events is to visit these trees by itself. Returns the pairs, by event: each
        of them is to be moved, or to be dropped."""
        now = self.port.now
        new = PairStatus(NEW, now)
        added: list[PendingEvents] = []
        for event in events:
            pairs = dict.fromkeys(trees, new)
            record = PendingEvents((event,), (event.sequence,), pairs, now, largest)
            self._add(record)
            added.append(record)
        return [(record, tree) for record in added for tree in trees]

    def _add(self, record: PendingEvents) -> None:
        count = len(record.sequences)
        (self._batches if count > 1 else self._single)[record.sequences[0]] = record
        self._largest = max(1, record.bytes)
        self.in_flight += count
        self.pairs += len(record.pairs) * count
        self.bytes += record.bytes * count

    # --- from state to state ---

    def sent(self, pair: PendingPair, host: NodeId) -> None:
        """Note that the pair leaves now for this host."""
        record, attribute = pair
        state = PAIR_MOVES[record.pairs[attribute].state, ROUTED]
        record.pairs[attribute] = PairStatus(state, self.port.now, host)

    def seek(self, pair: PendingPair) -> None:
        """Let the pair wait until its tree is located."""
        record, attribute = pair
        state = PAIR_MOVES[record.pairs[attribute].state, UNLOCATED]
        record.pairs[attribute] = PairStatus(state, self.port.now)
        self._seeking.setdefault(attribute, {})[record.sequences[0]] = None
        self._locations.hold(attribute)

    def enqueue(self, pairs: Sequence[PendingPair], why: PairMove, stale: bool) -> None:
        """Queue pairs to be routed, in the order of publication, behind those that wait. `stale`:
        hosts that were known for them proved wrong."""
        now = self.port.now
        for record, attribute in pairs:
            state = PAIR_MOVES[record.pairs[attribute].state, why]
            record.pairs[attribute] = PairStatus(state, now)
        in_order = sorted(pairs, key=_published)
        self.queue.waiting.append((deque(in_order), stale))

    def awaiting(self, attribute: str) -> dict[int, None]:
        """The events that wait for this tree, as they were published."""
        return self._seeking.get(attribute, {})

    def located(self, attribute: str, last: int | None = None) -> list[PendingPair]:
        """The pairs that waited for this tree, up to those of the event `last` (None: all): each is
        to be queued or dropped now."""
        sequences = self._seeking.pop(attribute, {})
        if last is not None:
            later = {sequence: None for sequence in sequences if sequence > last}
            if later:
                self._seeking[attribute] = later
            sequences = {sequence: None for sequence in sequences if sequence <= last}
        if attribute not in self._seeking:
            self._locations.release(attribute)
        return self._pairs_in(SEEKING, attribute, sequences)

    def take_found(self) -> list[PendingPair]:
        """The pairs that may visit the trees that were found, each to be queued now. An event waits
        for the trees of earlier ones that are looked for, too, until `SearchOver`."""
        ready, waited_for = self.searches.take()
        pairs = [pair for name in ready for pair in self.located(name)]
        waits = [numbers for name in waited_for if (numbers := self.awaiting(name))]
        first = min([next(iter(numbers)) for numbers in waits], default=None)
        for name in self.searches.early:
            pairs += self.located(name, first)
        return pairs

    def _pairs_in(
        self, state: PairState, attribute: str, sequences: Iterable[int]
    ) -> list[PendingPair]:
        """The pairs of these single events and this tree that are in this state, each once."""
        records = map(self._single.get, dict.fromkeys(sequences))
        return in_state(state, [(each, attribute) for each in records if each is not None])

    # --- the end of pairs ---

    def accept(
        self, host: NodeId, taken: Iterable[tuple[tuple[str, ...], tuple[int, ...]]]
    ) -> Acceptance:
        """Handle a host's acceptance of events. Each entry of `taken` has attributes of trees and
        sequence numbers. Pairs that are not, or no longer, pending are ignored."""
        before = self.pairs
        events: list[Sequence[Event]] = []
        done: list[int] = []
        sent_at: float | None = None
        for attributes, sequences in taken:
            if self._receipts:
                self._note_host(host, attributes, sequences)
            records = self._records_of(sequences)
            for record in records:
                since = self._end(record, attributes, done, host)
                sent_at = since if sent_at is None else sent_at
            if len(records) == 1:
                events.append(records[0].events)
            else:
                events.append(list(chain.from_iterable([record.events for record in records])))
        now = self.port.now
        self._window.accepted(before - self.pairs, None if sent_at is None else now - sent_at, now)
        self._emit_done(done)
        return Acceptance(events, sent_at)

    def _records_of(self, sequences: tuple[int, ...]) -> list[PendingEvents]:
        """The records of those of these events that are pending, in this order. Batches that have
        others as well are cut or broken up first."""
        found: list[PendingEvents] = []
        at = 0
        while at < len(sequences):
            record = self._single.get(sequences[at]) or self._batch_at(sequences, at)
            if record is None:
                at += 1
            else:
                found.append(record)
                at += len(record.sequences)
        return found

    def _batch_at(self, sequences: tuple[int, ...], at: int) -> PendingEvents | None:
        """The batch whose events stand in `sequences` from index `at` on. It is cut first if only
        its first events stand there, at the end, and broken up if others of them do."""
        batch = self._batches.get(sequences[at])
        if batch is not None:
            own = batch.sequences
            if sequences[at : at + len(own)] == own:
                return batch
            count = len(sequences) - at
            if sequences[at:] == own[:count]:
                return self._cut(batch, count)
        self._part(sequences[at : at + 1])
        return self._single.get(sequences[at])

    def _cut(self, batch: PendingEvents, count: int) -> PendingEvents:
        """Divide the batch after its first `count` events; returns these."""
        events, sequences = batch.events, batch.sequences
        first = replace(batch, events=events[:count], sequences=sequences[:count])
        rest = replace(
            batch, events=events[count:], sequences=sequences[count:], pairs=dict(batch.pairs)
        )
        del self._batches[sequences[0]]
        for part in (first, rest):
            (self._batches if len(part.sequences) > 1 else self._single)[part.sequences[0]] = part
        return first

    def _part(self, sequences: Sequence[int]) -> None:
        """Give each event of the batches that reach into these numbers a record of its own."""
        if sequences and self._batches:
            first, last = min(sequences), max(sequences)
            self._break_up(
                [
                    batch
                    for batch in self._batches.values()
                    if batch.sequences[0] <= last and first <= batch.sequences[-1]
                ]
            )

    def _break_up(self, batches: Sequence[PendingEvents]) -> None:
        """Give each event of these batches a record of its own."""
        for batch in batches:
            del self._batches[batch.sequences[0]]
            for event in batch.events:
                sequence = event.sequence
                self._single[sequence] = replace(
                    batch, events=(event,), sequences=(sequence,), pairs=dict(batch.pairs)
                )

    def _note_host(
        self, host: NodeId, attributes: tuple[str, ...], sequences: Sequence[int]
    ) -> None:
        """Note for receipts that a host has accepted these events (the first host, if two did)."""
        for sequence in sequences:
            hosts = self._receipts.get(sequence)
            if hosts is not None:
                for attribute in attributes:
                    hosts.setdefault(attribute, host)

    def drop(self, pairs: Iterable[PendingPair]) -> None:
        """End pairs that need no host: their trees have no subscriber for the event."""
        done: list[int] = []
        for record, attribute in pairs:
            self._end(record, (attribute,), done)
        self._emit_done(done)

    def refuse(self, sequences: Sequence[int], reason: str) -> list[int]:
        """End events that a host has refused for this reason, in all of their trees. Returns those
        that were pending, for which `PublicationsRefused` and then `EventsAccepted` are emitted."""
        self._part(sequences)
        done: list[int] = []
        for sequence in sequences:
            record = self._single.get(sequence)
            if record is not None:
                self._end(record, list(record.pairs), done)
        if done:
            self.port.emit(PublicationsRefused(tuple(done), reason))
        self._emit_done(done)
        return done

    def _end(
        self, record: PendingEvents, attributes: Iterable[str], done: list[int], host: NodeId = ""
    ) -> float | None:
        """These trees need the events no longer; if those were the last, the events are added to
        `done`. Returns since when the first of these pairs was at `host`; None: none was."""
        pairs, sequences = record.pairs, record.sequences
        since: float | None = None
        for attribute in attributes:
            status = pairs.pop(attribute, None)
            if status is not None:
                self.pairs -= len(sequences)
                if since is None and host and status.host == host:
                    since = status.since
        if not pairs:
            records = self._single if len(sequences) == 1 else self._batches
            if records.pop(sequences[0], None) is not None:
                self.in_flight -= len(sequences)
                self.bytes -= record.bytes * len(sequences)
                done += sequences
        return since

    def _emit_done(self, done: Sequence[int]) -> None:
        if done:
            receipts = self._receipts
            hosts = {s: receipts.pop(s) for s in done if s in receipts} if receipts else {}
            self.port.emit(EventsAccepted(tuple(done), hosts))
        if self._is_room_awaited and self.room:
            self._is_room_awaited = False
            self.port.emit(RoomAgain())

    # --- what has to be sent again ---

    def sent_to(self, host: NodeId, sequences: Sequence[int]) -> list[PendingPair]:
        """Return the pairs of event and tree, among the events with these numbers, that were sent
        to this host and are not accepted yet."""
        self._part(sequences)
        records = map(self._single.get, dict.fromkeys(sequences))
        return at_host(host, [record for record in records if record is not None])

    def is_sent(self, attribute: str, sequences: Sequence[int]) -> bool:
        """Whether some of these events were sent to a host of this tree, and not accepted."""
        self._part(sequences)
        return bool(self._pairs_in(SENT, attribute, sequences))

    def moved(self, attribute: str, sequences: Sequence[int]) -> list[PendingPair]:
        """A host does not serve this tree (any more). Returns the pairs that were sent to some host
        and not accepted."""
        self._part(sequences)
        again = self._pairs_in(SENT, attribute, sequences)
        for record, _ in again:
            record.moves += 1
        return again

    def host_lost(self, host: NodeId) -> list[PendingPair]:
        """The link to a host is lost. Returns the pairs that had been sent there."""
        batches = self._batches.values()
        self._break_up([each for each in batches if at_host(host, [each])])
        return at_host(host, self._single.values())

    def retry(self) -> Overdue:
        """Suspect the hosts that are silent, and name the pairs that have to be sent again: those
        sent to suspected hosts, and those that have waited for longer than events take there."""
        now, replicas = self.port.now, self._locations.replicas
        batches, single = self._batches.values(), self._single.values()
        silent_from = suspect_silent([*single, *batches], replicas, now)
        self._break_up([batch for batch in batches if is_overdue(batch, replicas, now)])
        found = find_overdue(single, self._locations, now)
        return found._replace(next_check=min([found.next_check, *silent_from]))
