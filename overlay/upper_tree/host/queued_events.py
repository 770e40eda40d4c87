"""Which events wait at a host, by publisher: so that none waits twice, and their publishers know.

A publisher that hears nothing sends its events again. A host that is behind would match each of
them as often as it came, fall behind further, and get still more of them: it would do ever less
that anyone waits for, the more it is asked for (congestion collapse; RFC 896, RFC 2914). So

* an event that waits already, for the same trees, is not queued again: what waits is answered when
  it is served, to the same publisher. It has to be the same event in all that it has, not only by
  its number;
* a publisher of which something waits here, and which heard nothing for a while, is told that it
  waits (`unanswered`), so that it does not take the host for silent. Only a host that works can say
  so: one that died or was stopped says nothing, and its events go elsewhere as before.

Nothing depends on it that an event is known here: one that is not is matched once more, and the
interested nodes remove the duplicate. Shards of a value (`Visit.part`) are left out: gathering.py
awaits them itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from overlay.client import Event
from overlay.machine import NodeId, Peer
from overlay.upper_tree.messages import Visit
from overlay.upper_tree.visits import Trees, select_events, trees_by_place


class WaitingEvents(msgspec.Struct):
    """What waits of one process of a publisher."""

    origin: Peer
    incarnation: int
    told_at: float
    """When the publisher last heard from this host, or the first of these came."""
    events: dict[int, tuple[Event, Trees]] = {}
    """By sequence number."""


class QueuedEvents:
    """The events in a host's queue, by publisher. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[NodeId, int], WaitingEvents] = {}

    def __len__(self) -> int:
        """How many events are known to wait."""
        return sum(len(each.events) for each in self._waiting.values())

    def add(self, visit: Visit, now: float) -> None:
        """These events, at least one, begin to wait."""
        if visit.part is not None:
            return
        key = self._key(visit)
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = WaitingEvents(visit.origin, key[1], now)
        events = waiting.events
        for event, trees in zip(visit.events, trees_by_place(visit), strict=True):
            held = events.get(event.sequence)
            if held is not None and held[0] == event:
                trees += held[1]
            events[event.sequence] = (event, trees)

    def remove(self, visit: Visit) -> None:
        """These events wait no longer."""
        key = self._key(visit)
        waiting = self._waiting.get(key)
        if waiting is None or visit.part is not None:
            return
        for event in visit.events:
            waiting.events.pop(event.sequence, None)
        if not waiting.events:
            del self._waiting[key]

    def without_repeated(self, visit: Visit) -> Visit:
        """The visit with those of its events that do not wait already for all of its trees."""
        waiting = self._waiting.get(self._key(visit))
        if waiting is None or visit.part is not None:
            return visit
        new: list[int] = []
        for at, (event, trees) in enumerate(zip(visit.events, trees_by_place(visit), strict=True)):
            held = waiting.events.get(event.sequence)
            if held is None or held[0] != event or not set(trees) <= set(held[1]):
                new.append(at)
        return visit if len(new) == len(visit.events) else select_events(visit, new)

    def answered(self, visit: Visit, now: float) -> None:
        """The publisher of this visit hears of events of it that were matched."""
        waiting = self._waiting.get(self._key(visit))
        if waiting is not None:
            waiting.told_at = now

    def unanswered(self, since: float, now: float) -> Iterator[tuple[Peer, int]]:
        """The publishers, with their incarnations, that heard nothing since then. They hear of it
        now."""
        for waiting in self._waiting.values():
            if waiting.told_at <= since:
                waiting.told_at = now
                yield waiting.origin, waiting.incarnation

    def _key(self, visit: Visit) -> tuple[NodeId, int]:
        return visit.origin.id, visit.events[0].incarnation if visit.events else 0
