"""Measures the load of each virtual node at this host, for its owner (C6).

A host measures how much of its time events take (`LoadMeter`), and counts which trees they visit.
What an event costs is divided evenly among the trees that it visits here, since it is matched once
for all of them. Where a tree has several virtual nodes here they share by the places of some of the
events, drawn by chance; the owner also cuts by these places. So counting costs nothing per event;
where a drawn event lies is looked up when its tree is reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import NamedTuple, Protocol

from matching import Attributes, Cut, Interval, place
from overlay.client import Event
from overlay.machine import Port
from overlay.upper_tree.host.constants import (
    LOADS_MOST,
    LOADS_PERIOD,
    PLACES_LEAST,
    PLACES_MOST,
    REPORTED_LEAST,
)
from overlay.upper_tree.host_load import LoadMeter, ServedLoad, VirtualNodeLoad
from overlay.upper_tree.messages import EVENT_TREE


class VisitSample:
    """The events that have visited one tree: how many, and the places of some."""

    def __init__(self, attribute: str, rng: Random) -> None:
        self.attribute = attribute
        self._events_drawn: deque[Attributes] = deque(maxlen=PLACES_MOST)  # the newest last
        self._rng = rng
        self._stride = 1  # one in so many is drawn, on average
        self._until_next = 0  # events until the next that is drawn
        self._events = 0.0  # each divided by how many trees it visited
        self._alone = 0
        self._drawn = 0

    def visited(self, events: Sequence[Event], trees: int) -> None:
        """Count and sample events that have visited `trees` trees here together, this one among
        them."""
        self.count(len(events), trees)
        self._until_next -= len(events)
        while self._until_next < 0:
            self.draw((events[self._until_next].attributes,))
            self._until_next += 1 + self._rng.randrange(2 * self._stride - 1)

    def count(self, events: int, trees: int) -> None:
        """Count events that have visited `trees` trees here together, this one among them."""
        self._events += events / trees
        if trees == 1:
            self._alone += events

    def draw(self, events: Collection[Attributes]) -> None:
        """Remember events, by their attributes, in order."""
        self._events_drawn.extend(events)
        self._drawn += len(events)

    def take(self) -> tuple[float, float, int]:
        """Return and reset the counts since the last call: the events, each divided by the number
        of trees that it visited; the events that visited only this tree; and the number of newest
        drawn events to use, which may include earlier ones."""
        found = (self._events, float(self._alone))
        self._stride = max(1, int(self._events) // PLACES_LEAST)
        newest = min(len(self._events_drawn), max(self._drawn, PLACES_LEAST))
        self._events, self._alone, self._drawn = 0.0, 0, 0
        return (*found, newest)

    def places(self, newest: int) -> list[Cut]:
        """Return the places of the `newest` events drawn last in the tree's value space."""
        drawn = list(self._events_drawn)[len(self._events_drawn) - newest :]
        if self.attribute == EVENT_TREE:
            return [place(True)] * len(drawn)
        values = [attributes.get(self.attribute) for attributes in drawn]
        return [place(value) for value in values if value is not None]


class SampledTree(NamedTuple):
    """A tree's intervals at this host, and its sample."""

    intervals: Sequence[Interval]
    sample: VisitSample


class EventQueue(Protocol):
    """The interface to the queue of events to be matched at this host."""

    @property
    def events(self) -> int:
        """The number of waiting events."""


class ServedLoads:
    """The load of this host's virtual nodes, for reports. It is measured again every `LOADS_PERIOD`
    seconds, when it is asked for."""

    def __init__(self, port: Port, meter: LoadMeter, queue: EventQueue) -> None:
        self._port = port
        self._meter = meter
        self._queue = queue
        self._measured_at = float("-inf")
        self.busy = 0.0
        """The share of this host's time that was asked for when it was measured last."""
        self._nodes: dict[str, list[VirtualNodeLoad]] = {}  # by tree

    def measure(self, trees: Callable[[], Sequence[SampledTree]]) -> None:
        """Measure again if that is due."""
        now = self._port.now
        if now - self._measured_at < LOADS_PERIOD:
            return
        self._measured_at = now
        self.busy = self._meter.demand(self._queue.events, now)
        taken = [(intervals, sample, *sample.take()) for intervals, sample in trees()]
        total = sum([events for _, _, events, _, _ in taken])
        seconds = 1 / self._meter.service if self._meter.service else 0.0
        self._nodes.clear()
        for intervals, sample, events, alone, newest in taken:
            share = self.busy * events / total if total else 0.0
            if share >= REPORTED_LEAST:
                by_itself = share * min(1.0, alone / events)
                self._nodes[sample.attribute] = _divided(
                    sample.attribute, intervals, share, by_itself, seconds, sample.places(newest)
                )

    def report(self, owned: Callable[[str], bool]) -> ServedLoad | None:
        """Return the load to report about these trees; None: no report was asked for."""
        if self.busy < REPORTED_LEAST:
            return None
        nodes = [load for name, loads in self._nodes.items() if owned(name) for load in loads]
        nodes.sort(key=lambda load: -load.busy)
        return ServedLoad(self.busy, tuple(nodes[:LOADS_MOST]))


def _divided(
    attribute: str,
    intervals: Sequence[Interval],
    busy: float,
    alone: float,
    seconds: float,
    places: list[Cut],
) -> list[VirtualNodeLoad]:
    """Divide a tree's load among its virtual nodes, in proportion to the places of events. Events
    outside the intervals were passed on and do not count. An event visits all local shards of its
    value, which share its cost."""
    found: list[VirtualNodeLoad] = []
    values = [interval.around() for interval in intervals]
    for interval, value in zip(intervals, values, strict=True):
        here = tuple([spot for spot in places if value.lo <= spot < value.hi])
        if here:
            shards = values.count(value) if interval.is_shard() else 1
            part = len(here) / len(places) / shards
            found.append(
                VirtualNodeLoad(
                    attribute, interval, part * busy, part * alone, here, seconds / shards
                )
            )
    return found
