"""An event on its way to the trees that it visits, and who keeps it waiting (C5, C6).

A *pair* is an event and one of its trees. It waits for the finder, or is under way to a host since
some time. A host is silent if it has accepted nothing for the patience of replicas.py, while some
pair waits for it that long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from matching import Cut, place
from overlay.client import Event
from overlay.machine import NodeId
from overlay.upper_tree.batches import weigh_event
from overlay.upper_tree.messages import EVENT_TREE
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.replicas import Replicas


class PendingEvent:
    """An event of ours that some tree has not accepted yet."""

    __slots__ = ("_places", "event", "moves", "pairs", "since")

    def __init__(self, event: Event, pairs: dict[str, tuple[NodeId, float]], since: float) -> None:
        self.event = event
        self.since = since  # when it was published
        self.moves = 0
        self.pairs = pairs
        """attribute -> (host that has it under way, since when); host "" waits for the finder."""
        self._places: dict[str, Cut] | None = None

    @property
    def places(self) -> dict[str, Cut]:
        """attribute -> where the value lies, of all trees that the event visits."""
        if self._places is None:
            self._places = {EVENT_TREE: place(True)}
            values = self.event.attributes.items()
            self._places.update((name, place(v)) for name, v in values if v is not None)
        return self._places


class Look(NamedTuple):
    """Pairs (by event and tree) that have waited too long."""

    again: list[tuple[PendingEvent, str]]
    """Another replica may answer."""
    lost: list[tuple[PendingEvent, str]]
    """They need the owner's word."""
    next_look: float


class Waiting(Protocol):
    """One event or several that wait for the same hosts."""

    @property
    def pairs(self) -> dict[str, tuple[NodeId, float]]:
        """As of an `PendingEvent`."""


def is_late(waiting: Waiting, replicas: Replicas, now: float, retry: float) -> bool:
    """Whether it has waited too long for some host, or for one that is doubted."""
    return any(
        host and (since + retry <= now or replicas.doubts(attribute, host))
        for attribute, (host, since) in waiting.pairs.items()
    )


def look(
    outgoing: Collection[PendingEvent], locations: LocationCache, now: float, retry: float
) -> Look:
    """Find what waits for a host that is doubted. `retry`: seconds until pairs are lost."""
    replicas = locations.replicas
    found = Look([], [], now + retry)
    next_look = found.next_look
    for each in outgoing:
        for attribute, (host, since) in each.pairs.items():
            if not host:
                continue
            if replicas.doubts(attribute, host):
                other = locations.host_for(attribute, each.places[attribute])
                if other is not None and not replicas.doubts(attribute, other.id):
                    found.again.append((each, attribute))
                    continue
            if since + retry <= now:
                found.lost.append((each, attribute))
            else:
                next_look = min(next_look, since + retry)
    return found._replace(next_look=next_look)


def doubt_silent(waiting: Iterable[Waiting], replicas: Replicas, now: float) -> list[float]:
    """Doubt every host that is silent now. When each other one will be."""
    oldest: dict[NodeId, float] = {}
    for each in waiting:
        for host, since in each.pairs.values():
            if host:
                oldest[host] = min(since, oldest.get(host, since))
    waited_for: list[float] = []
    for host, since in oldest.items():
        silent_from = replicas.silent_from(host, since)
        if silent_from <= now:
            replicas.silent(host, now)
        else:
            waited_for.append(silent_from)
    return waited_for


def took(
    outgoing: Mapping[int, PendingEvent],
    host: NodeId,
    attributes: Sequence[str],
    sequences: Sequence[int],
) -> float | None:
    """Since when what a host has accepted was under way to it; None: that was another host's."""
    each = outgoing.get(sequences[0]) if sequences else None
    if each is None or not attributes:
        return None
    asked, since = each.pairs.get(attributes[0], ("", 0.0))
    return since if asked == host else None


def weigh(event: Event) -> int:
    """Bytes of an event, about."""
    return weigh_event(event.attributes, event.payload)
