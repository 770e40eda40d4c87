"""An event on its way to the trees that it visits, and which hosts are overdue (C5, C6).

A *pair* is an event and one of its trees. It waits until the tree is located, or has been sent to a
host. A host is silent if it has accepted nothing for the time-out of replicas.py while some pair
has waited for it that long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

import msgspec

from matching import Cut, place
from overlay.client import Event
from overlay.machine import NodeId
from overlay.upper_tree.messages import EVENT_TREE
from overlay.upper_tree.publisher.constants import LATE_AT_ONCE, LATE_CHECK, MOVES
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.replicas import ReplicaSelector

PairStates = dict[str, tuple[NodeId, float]]
"""Attribute of each tree that has not accepted -> (host that it was sent to, when). Host "": the
tree is not located yet, and the time is when that search began."""


class PendingEvent(msgspec.Struct):
    """An event of this publisher that some tree has not accepted yet, with its own record."""

    event: Event
    pairs: PairStates
    since: float  # when it was published
    bytes: int  # that it counts for
    moves: int = 0  # `TreeMoved` answers so far, and hosts that were too late
    _places: dict[str, Cut] | None = None

    @property
    def places(self) -> dict[str, Cut]:
        """Where the event's value lies in the value space of each tree that it visits."""
        if self._places is None:
            self._places = {EVENT_TREE: place(True)}
            values = self.event.attributes.items()
            self._places.update((name, place(v)) for name, v in values if v is not None)
        return self._places


PendingPair = tuple[PendingEvent, str]
"""An event and the attribute of one of its trees."""


class Overdue(NamedTuple):
    """Pairs that have waited too long, and when to look again."""

    elsewhere: list[PendingPair]
    """Another replica is known that is not suspected, and not behind if this one only is late."""
    lost: list[PendingPair]
    """Nothing that is known locally helps: the owner has to be asked."""
    next_check: float
    silent: dict[str, None] = {}
    """Trees of which no host is known that is not suspected."""


class Unaccepted(Protocol):
    """One event, or several that were sent to the same hosts."""

    @property
    def pairs(self) -> PairStates:
        """The trees that have not accepted."""


def is_overdue(entry: Unaccepted, replicas: ReplicaSelector, now: float) -> bool:
    """Whether it has waited so long that another host may do, or for one that is suspected."""
    return any(
        host and (since + replicas.timeout_most <= now or replicas.suspects(attribute, host))
        for attribute, (host, since) in entry.pairs.items()
    )


def find_overdue(
    pending: Collection[PendingEvent], locations: LocationCache, now: float
) -> Overdue:
    """The pairs that wait for suspected hosts, or for longer than events take there. A host at
    which nothing waits may have those that have waited elsewhere for `tree.retry`, as many as it
    matches in a moment."""
    replicas = locations.replicas
    found = Overdue([], [], now + replicas.timeout_most, {})
    next_check = found.next_check
    late_after: dict[NodeId, float] = {}
    free: dict[NodeId, int] = {}
    for each in pending:
        for attribute, (host, since) in each.pairs.items():
            if not host:
                continue
            is_suspected = replicas.suspects(attribute, host)
            if host not in late_after:
                late_after[host] = replicas.late_after(host)
            late_at = since + late_after[host]
            is_late = late_at <= now
            waits_long = since + replicas.timeout_most <= now
            if is_suspected or (waits_long and each.moves <= MOVES):
                other = locations.host_for(attribute, each.places[attribute])
                if (
                    other is not None
                    and not replicas.suspects(attribute, other.id)
                    and (is_suspected or other.id != host)
                    and (is_suspected or is_late or _takes_one(replicas, other.id, free, now))
                ):
                    each.moves += waits_long
                    found.elsewhere.append((each, attribute))
                    continue
            if is_suspected:
                found.silent[attribute] = None
            if is_late:
                found.lost.append((each, attribute))
            else:
                again = now + LATE_CHECK if waits_long else since + replicas.timeout_most
                next_check = min(next_check, late_at, again)
    return found._replace(next_check=next_check)


def _takes_one(
    replicas: ReplicaSelector, node: NodeId, free: dict[NodeId, int], now: float
) -> bool:
    """Whether nothing waits at a host, but for as many as this check has sent it (`free`: how many
    more it may be sent)."""
    if node not in free:
        free[node] = replicas.at_once(LATE_AT_ONCE) if replicas.is_free(node, now) else 0
    free[node] -= 1
    return free[node] >= 0


def suspect_silent(
    pending: Iterable[Unaccepted], replicas: ReplicaSelector, now: float
) -> list[float]:
    """Suspect every host that is silent now. Returns when each of the others would be."""
    oldest: dict[NodeId, float] = {}
    for each in pending:
        for host, since in each.pairs.values():
            if host:
                oldest[host] = min(since, oldest.get(host, since))
    waited_for: list[float] = []
    for host, since in oldest.items():
        silent_from = replicas.silent_from(host, since)
        if silent_from <= now:
            replicas.suspect_silent(host, now)
        else:
            waited_for.append(silent_from)
    return waited_for
