"""Events that visit trees in which only this node has registered: its receiver matches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from matching import Cut, Interval
from overlay.client import Event
from overlay.machine import LocalEvent, Peer
from overlay.upper_tree.messages import EVENT_TREE


class Served(Protocol):
    """What a receiver has to know of a tree to tell where an event came through."""

    @property
    def is_whole(self) -> bool:
        """Whether every value is served here."""

    def span(self, spot: Cut) -> Interval | None:
        """The part of the value space that is served here, around this place."""


class Visited(LocalEvent, frozen=True):
    """Events that visit trees in which only this node has registered: not matched yet."""

    origin: Peer
    hop: int
    events: Sequence[Event]
    trees: Mapping[str, Served]


def value_in(event: Event, attribute: str) -> bool | int | float | str | None:
    """The event's value in an attribute's tree; in the `$event` tree every event has one."""
    return True if attribute == EVENT_TREE else event.attributes.get(attribute)
