"""Latency levels: how urgent a type of event is, by what its subscribers ask for (P6).

A subscriber names a *latencyLevel* from 1 to `LEVELS`; smaller is more urgent. Per event type the
sum of the levels and their number are kept (the paper's latencyMap), and the mean is the type's
priority. The paper keeps the map at the primary, whose queue it orders. Here the queue is at the
host that matches, so the map is there as well: per tree, over the registrations that this host has.
It so needs no message of its own, is as new as the registrations are, and every replica of a
virtual node has the same one.

The type that a registration is about is read out of its selector (`type = 'cpu'`, `type IN (…)`).
One that does not name its types counts for all of them. A registration without a level
does not count: a type whose subscribers name none has the middle level.
"""

from __future__ import annotations

from matching import Predicate
from overlay.client import LEVELS
from overlay.upper_tree.host.constants import TYPES_MOST

TYPE = "type"
"""The attribute that has an event's type (docs/reference/formats.md)."""

DEFAULT_LEVEL = (1 + LEVELS) / 2
"""The level of a type for which no subscriber names one: the middle."""


class LatencyMap:
    """event type -> (sum of levels, how many), of one tree's registrations at one host."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[int, int]] = {}
        self._any = (0, 0)  # of registrations that do not name their types

    def __len__(self) -> int:
        """Number of types that some registration names."""
        return len(self._named)

    @property
    def grades(self) -> bool:
        """Whether any registration has a level."""
        return bool(self._named) or self._any[1] > 0

    def add(self, level: int, types: tuple[str, ...]) -> None:
        """Count a registration with this level (0: none) for these types (none: for all)."""
        self._change(level, types, 1)

    def remove(self, level: int, types: tuple[str, ...]) -> None:
        """Take out a registration that ended; the arguments are those with which it was added."""
        self._change(level, types, -1)

    def _change(self, level: int, types: tuple[str, ...], one: int) -> None:
        if not level:
            return
        if not types:
            self._any = (self._any[0] + one * level, self._any[1] + one)
        for name in types:
            total, count = self._named.get(name, (0, 0))
            if count + one:
                self._named[name] = (total + one * level, count + one)
            else:
                del self._named[name]

    def priority(self, event_type: object) -> float | None:
        """The mean level of the registrations that may want events of this type; None: none has a
        level."""
        total, count = self._any
        if isinstance(event_type, str) and event_type in self._named:
            named = self._named[event_type]
            total, count = total + named[0], count + named[1]
        return total / count if count else None


def types_of(predicate: Predicate) -> tuple[str, ...]:
    """The event types that a registration's selector names; none: it may want any."""
    names: dict[str, None] = {}
    for conjunction in predicate.conjunctions:
        constraint = conjunction.constraints.get(TYPE)
        if constraint is None or not constraint.is_points:
            return ()
        for interval in constraint.intervals:
            _, value, _ = interval.lo
            if isinstance(value, str):  # no other value is a type
                names[value] = None
    return tuple(names) if len(names) <= TYPES_MOST else ()
