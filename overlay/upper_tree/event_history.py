"""This node's memory of events, for `canopy why`: bounded, newest kept.

Written for every event and read for hardly any: so what is noted are the facts as they come, once
for all events of a batch, and they become text when `canopy why` asks, which scans all notes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from matching import EVERYTHING, Interval
from overlay.client import Delivery, Event
from overlay.machine import NodeId
from overlay.phrases import counted
from overlay.upper_tree.batches import ITEM_MOST
from overlay.upper_tree.partition import describe

PATH_MOST = 64
"""Steps that `canopy why` shows of one event. Not measured; would be measured by the longest way
that an event goes."""

SAME_ID_MOST = 8
"""Identities of other events with the same id that `canopy why` shows: what fits on a screen."""

NOTES = 4
"""Steps of an event for which there is room on average: published, taken, arrived, and one more."""

BYTES_MOST = 32 * ITEM_MOST
"""Bytes of the events and deliveries that are remembered (16 MiB): of 2,000 events of 8 kB,
or of 32 of the largest. Guess."""

DELIVERY_BYTES = 100
"""Bytes of what is remembered of one delivery."""


class PublishedHere(NamedTuple):
    """Record: the event was published at this node."""

    def lines(self, event: Event) -> list[str]:
        """The lines of `canopy why` for this record."""
        return [f"published here with {counted(len(event.attributes), 'attribute')}"]


class AcceptedAt(NamedTuple):
    """Trees have accepted it at `host`. `found`: how each tree was found, in words."""

    trees: tuple[str, ...]
    found: tuple[str, ...]
    host: NodeId

    def lines(self, event: Event) -> list[str]:
        """The lines of `canopy why` for this record."""
        pairs = zip(self.trees, self.found, strict=True)
        return [f"tree {tree}{how}: matched at {self.host}" for tree, how in pairs]


class Skipped(NamedTuple):
    """Trees were not visited, since their summaries do not admit the event."""

    trees: tuple[str, ...]

    def lines(self, event: Event) -> list[str]:
        """The lines of `canopy why` for this record."""
        why = "skipped, its summary admits no such event"
        return [f"tree {tree}: {why}" for tree in self.trees]


class EventArrival(NamedTuple):
    """The event came to this node."""

    attribute: str = ""  # the tree that it came through
    interval: Interval = EVERYTHING
    hops: int = 0
    sender: NodeId = ""

    def lines(self, event: Event) -> list[str]:
        """The lines of `canopy why` for this record."""
        lo, hi = describe(self.interval.lo), describe(self.interval.hi)
        came = f"arrived after {counted(self.hops, 'message')} from {self.sender}"
        return [f"{came}, virtual node [{lo}, {hi}) of tree {self.attribute}"]


ArrivalOf = Callable[[Sequence[str], Event], EventArrival]
"""Gives how an event came to a subscription that is registered in these trees: through which of
them and which part of it, after how many hops."""


class ShownTo(NamedTuple):
    """Events came to this node, each its own way, and were shown to subscriptions."""

    arrival_of: ArrivalOf
    pivots: Sequence[Sequence[str]]
    """For each event, the trees of a subscription that it was shown to."""
    to: Callable[[Event], Mapping[str | int, Delivery | None]]
    """Subscriptions of this node that an event was shown to, each with its delivery, and clients
    that gather."""
    latest: int
    """The last change of the node's subscriptions before it, for clients that gather."""


class Refused(NamedTuple):
    """A refusal of the content that came under the event's identity. `reason` begins with "it"."""

    sender: NodeId
    reason: str

    def lines(self, event: Event) -> list[str]:
        """The lines of `canopy why` for this record."""
        return [f"refused what {self.sender} sent as this event: {self.reason}"]


HistoryNote = PublishedHere | AcceptedAt | Skipped | ShownTo | Refused
"""A note of several events at once."""


class Remembered(msgspec.Struct):
    """The remembered facts about one event."""

    event: Event
    steps: list[PublishedHere | AcceptedAt | Skipped | EventArrival | Refused] = []
    arrival: EventArrival = EventArrival()  # the last one
    shown: Mapping[str | int, Delivery | None] = {}
    latest: int = 0
    alike: int = 1  # events that are remembered with the id by which this one was found
    others: tuple[str, ...] = ()  # identities of the rest, the newest first, at most OTHERS_MOST

    @property
    def path(self) -> list[str]:
        """The steps as text, at most `PATH_MOST`."""
        return [line for step in self.steps for line in step.lines(self.event)][:PATH_MOST]


class EventHistory:
    """The last events that were published or arrived here."""

    def __init__(self, capacity: int) -> None:
        """`capacity`: events that are remembered at most (`tree.history`), if they are not larger
        than `BYTES_MOST` together."""
        self.capacity = capacity
        self._notes: deque[tuple[Sequence[Event], HistoryNote, int]] = deque()
        self._size = 0
        self._bytes = 0
        self._names: tuple[str, ...] = ()  # of the last event
        self.attributes: OrderedDict[str, None] = OrderedDict()
        """Names of attributes seen, least recent first, for completion."""

    def __len__(self) -> int:
        """Steps of events that are noted: at most `NOTES` times the capacity."""
        return self._size

    def note(self, events: Sequence[Event], fact: HistoryNote, size: int = 0) -> None:
        """Note a fact about events. The objects are kept and must not change. `size`: the bytes of
        those events that no note has yet, and `DELIVERY_BYTES` for each delivery; events of a later
        step are counted with the first one, which is evicted shortly before it."""
        room = NOTES * self.capacity
        if len(events) > room:
            events = events[:room]
        self._notes.append((events, fact, size))
        self._size += len(events)
        self._bytes += size
        while self._size > room or self._bytes > BYTES_MOST:
            former, _, size = self._notes.popleft()
            self._size -= len(former)
            self._bytes -= size

    def saw(self, names: tuple[str, ...]) -> None:
        """Note the names of an event's attributes as the latest seen; the oldest go beyond
        `capacity`."""
        if names == self._names:
            return
        self._names = names
        for name in names:
            self.attributes[name] = None
            self.attributes.move_to_end(name)
        while len(self.attributes) > self.capacity:
            self.attributes.popitem(last=False)

    def find(self, name: str) -> Remembered | None:
        """The event with this identity, or the newest one with this user's id."""
        for event in self._named(_has_identity, name):
            return self._recall(event)
        alike: dict[str, Event] = {}
        for event in self._named(_has_id, name):
            alike.setdefault(event.identity, event)
        if not alike:
            return None
        newest, *others = sorted(alike.values(), key=lambda e: (e.time, e.sequence), reverse=True)
        remembered = self._recall(newest)
        remembered.alike = len(alike)
        remembered.others = tuple(other.identity for other in others[:SAME_ID_MOST])
        return remembered

    def latest(self) -> Iterator[Event]:
        """The events that are remembered, each once, the newest note first."""
        seen: set[tuple[NodeId, int, int]] = set()
        for events, fact, _ in reversed(self._notes):
            if isinstance(fact, Refused):
                continue
            for event in reversed(events):
                name = (event.publisher, event.incarnation, event.sequence)
                if name not in seen:
                    seen.add(name)
                    yield event

    def _named(self, is_named: Callable[[Event, str], bool], name: str) -> Iterator[Event]:
        """Events of that name, the newest note first; an event comes with each of its notes. What
        was refused comes last: it may have other attributes than the event."""
        for are_refused in (False, True):
            for events, fact, _ in reversed(self._notes):
                if isinstance(fact, Refused) is are_refused:
                    yield from (event for event in reversed(events) if is_named(event, name))

    def _recall(self, event: Event) -> Remembered:
        """All that is noted of an event, as steps in order."""
        remembered = Remembered(event)
        for events, fact, _ in self._notes:
            for place in places(events, event):
                if isinstance(fact, ShownTo):
                    remembered.arrival = fact.arrival_of(fact.pivots[place], events[place])
                    remembered.shown, remembered.latest = fact.to(events[place]), fact.latest
                    remembered.steps.append(remembered.arrival)
                else:
                    remembered.steps.append(fact)
        del remembered.steps[PATH_MOST:]
        return remembered


def places(events: Iterable[Event], event: Event) -> list[int]:
    """Return the places of an event among several."""
    return [
        place
        for place, other in enumerate(events)
        if other.sequence == event.sequence
        and (other.publisher, other.incarnation) == (event.publisher, event.incarnation)
    ]


def _has_identity(event: Event, name: str) -> bool:
    return name.endswith(str(event.sequence)) and event.identity == name


def _has_id(event: Event, name: str) -> bool:
    id_ = event.attributes.get("id")
    return id_ is not None and str(id_) == name


ENCODE: Final = msgspec.json.Encoder(order="deterministic").encode


def digest_of(event: Event) -> int:
    """A digest of an event's content, by which the records of its publication and of its deliveries
    are held against each other: the CRC-32 of its attributes as JSON with sorted names (the upper
    32 of 63 bits), and that of its payload without the last bit. It finds what went wrong by
    accident; who writes a false record can write a false digest, too. Costs 1.4 µs with
    eight attributes and 400 bytes."""
    return (crc32(ENCODE(event.attributes)) << 31) | (crc32(event.payload) >> 1)
