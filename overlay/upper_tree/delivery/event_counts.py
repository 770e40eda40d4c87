"""A count for each of the last events, for many events at a time (V7, V8, C11).

A node remembers of very many events that it has seen them, or how many copies of them it has sent.
Events come in batches of one publisher's, so they are looked up and counted a batch at a time, by
their sequence numbers: looking one event up by itself costs more than all the rest of its way.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from overlay.client import Event
from overlay.machine import NodeId

EventSource = tuple[NodeId, int]
"""Publisher and incarnation of events: what their sequence numbers are unique within."""


def by_source(events: Sequence[Event]) -> dict[EventSource, list[int]]:
    """The sequence numbers of events, by their source: nearly always there is one source."""
    if not events:
        return {}
    publisher, incarnation = events[0].publisher, events[0].incarnation
    if len(events) == 1:
        return {(publisher, incarnation): [events[0].sequence]}
    numbers = [
        e.sequence for e in events if e.incarnation == incarnation and e.publisher == publisher
    ]
    if len(numbers) == len(events):
        return {(publisher, incarnation): numbers}
    found: dict[EventSource, list[int]] = {}
    for event in events:
        found.setdefault((event.publisher, event.incarnation), []).append(event.sequence)
    return found


class EventCounts:
    """Counts by event. Bounded: the event that was counted first is forgotten first."""

    def __init__(self, kept: int) -> None:
        """`kept`: events for which counts are kept at most."""
        self._kept = kept
        self._counts: dict[EventSource, dict[int, int]] = {}
        self._order: deque[tuple[EventSource, list[int]]] = deque()  # as they were noted first
        self._size = 0

    def __len__(self) -> int:
        """Events that are remembered."""
        return self._size

    def __contains__(self, event: Event) -> bool:
        return event.sequence in self._counts.get((event.publisher, event.incarnation), ())

    def of(self, event: Event) -> int:
        """The event's count; 0 if it is not remembered."""
        return self._counts.get((event.publisher, event.incarnation), {}).get(event.sequence, 0)

    def has_none(self, source: EventSource, numbers: Sequence[int]) -> bool:
        """Whether none of these is remembered."""
        counts = self._counts.get(source)
        return counts is None or counts.keys().isdisjoint(numbers)

    def add_new(self, sources: Mapping[EventSource, list[int]], amount: int) -> bool:
        """`add` for events by their source (`by_source`), if none of these is remembered, none is
        there twice, and all have the same source, as is usual; else nothing. Whether it was
        done."""
        if len(sources) != 1:
            return False
        ((source, numbers),) = sources.items()
        amounts = dict.fromkeys(numbers, amount)
        counts = self._counts.get(source)
        if len(amounts) < len(numbers) or not (counts is None or counts.keys().isdisjoint(numbers)):
            return False
        self.add_each(source, amounts)
        return True

    def add(self, events: Sequence[Event], amount: int = 1) -> None:
        """Add `amount` to the count of each of these."""
        for source, numbers in by_source(events).items():
            added = dict.fromkeys(numbers, amount)
            if len(added) < len(numbers):  # some are there twice
                added = {number: amount * times for number, times in Counter(numbers).items()}
            self.add_each(source, added)

    def add_each(self, source: EventSource, amounts: Mapping[int, int]) -> None:
        """Add to the counts of these: amounts by sequence number."""
        counts = self._counts.setdefault(source, {})
        if counts.keys().isdisjoint(amounts):
            new = list(amounts)
            counts.update(amounts)
        else:
            new = [number for number in amounts if number not in counts]
            for number, amount in amounts.items():
                counts[number] = counts.get(number, 0) + amount
        if new:
            self._order.append((source, new))
            self._size += len(new)
            if self._size > self._kept:
                self._forget()

    def discard(self, events: Iterable[Event]) -> None:
        """Forget these. Their places are kept until they would have been forgotten: one that is
        counted again meanwhile is forgotten with the first of its places."""
        for event in events:
            counts = self._counts.get((event.publisher, event.incarnation))
            if counts is not None:
                counts.pop(event.sequence, None)

    def _forget(self) -> None:
        while self._size > self._kept:
            source, numbers = self._order.popleft()
            gone = numbers[: self._size - self._kept]
            counts = self._counts.get(source, {})
            for number in gone:
                counts.pop(number, None)  # some may have been discarded
            if not counts:
                self._counts.pop(source, None)
            self._size -= len(gone)
            if len(gone) < len(numbers):
                self._order.appendleft((source, numbers[len(gone) :]))
