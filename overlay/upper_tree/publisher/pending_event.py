"""An event on its way to the trees that it visits: the states of each *pair* of event and tree.

    NEW ──────ROUTED───────────> SENT      ROUTED: it leaves for a host
     │──────UNLOCATED──> SEEKING           UNLOCATED: no host is known, or the owner is asked
     └──────POSTPONED──> QUEUED            POSTPONED: this turn has routed enough
    QUEUED ───ROUTED───> SENT
     └──────UNLOCATED──> SEEKING
    SEEKING ──LOCATED──> QUEUED            LOCATED: its tree is, or the owner has answered
    SENT ─────FAILED───> QUEUED            FAILED: the host moved the tree, is lost or too late
     └──────UNLOCATED──> SEEKING

A pair ends from any state, as a host that was asked before may accept late. A move that the table
does not have is a fault in the program, and raises. Only `PendingStore` moves pairs.

A host is silent if it has accepted nothing for the time-out of replicas.py while some pair has
waited for it that long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from matching import Cut, place
from overlay.client import Event
from overlay.machine import NodeId
from overlay.upper_tree.messages import EVENT_TREE
from overlay.upper_tree.publisher.constants import LATE_AT_ONCE, LATE_CHECK, MOVES
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.replicas import ReplicaSelector


class PairState(StrEnum):
    """The states of an event and one of its trees."""

    NEW = "new"
    """It is routed in this turn, or queued."""
    QUEUED = "queued"
    """It waits for a turn that has room to route it."""
    SEEKING = "seeking"
    """It waits until its tree is located."""
    SENT = "sent"
    """It has left for a host, which has not accepted it."""


NEW: Final = PairState.NEW
QUEUED: Final = PairState.QUEUED
SEEKING: Final = PairState.SEEKING
SENT: Final = PairState.SENT


class PairMove(StrEnum):
    """The kinds of transition of a pair."""

    ROUTED = "it leaves for a host"
    UNLOCATED = "no host of its tree is known, or its owner is asked for another one"
    POSTPONED = "this turn has routed enough, or others wait before it"
    LOCATED = "its tree is located, or its owner has answered"
    FAILED = "its host does not serve the tree, is lost, or takes too long"


class PairMoveError(Exception):
    """The table has no such move."""


class PairMoves(dict[tuple[PairState, PairMove], PairState]):
    """By state and what happens the next state; PairMoveError if there is none."""

    def __missing__(self, key: tuple[PairState, PairMove]) -> PairState:
        raise PairMoveError(f"a pair that is {key[0]}: {key[1]}")


PAIR_MOVES: Final = PairMoves(
    {
        (NEW, PairMove.ROUTED): SENT,
        (NEW, PairMove.UNLOCATED): SEEKING,
        (NEW, PairMove.POSTPONED): QUEUED,
        (QUEUED, PairMove.ROUTED): SENT,
        (QUEUED, PairMove.UNLOCATED): SEEKING,
        (SEEKING, PairMove.LOCATED): QUEUED,
        (SENT, PairMove.FAILED): QUEUED,
        (SENT, PairMove.UNLOCATED): SEEKING,
    }
)
"""The whole table."""


class PairStatus(msgspec.Struct, frozen=True, gc=False):
    """The state of a pair, and the time since which it has been in this state."""

    state: PairState
    since: float
    host: NodeId = ""
    """The host that it was sent to, if it is SENT."""


PairStates = dict[str, PairStatus]
"""By attribute of each tree that has not accepted."""


class PendingEvents(msgspec.Struct, eq=False):
    """Events of one publisher that some tree has not accepted yet: one, or several that were sent
    to the same hosts together and go on together."""

    events: Sequence[Event]
    sequences: tuple[int, ...]
    pairs: PairStates  # the same of each of the events
    since: float  # when they were published
    bytes: int  # that each counts for
    moves: int = 0  # of a single event: `TreeMoved` answers, and hosts that were too late
    _places: dict[str, Cut] | None = None

    @property
    def places(self) -> dict[str, Cut]:
        """Return the place of each value in the value space of its tree. Used where there is a
        single event."""
        if self._places is None:
            self._places = {EVENT_TREE: place(True)}
            values = self.events[0].attributes.items()
            self._places.update((name, place(v)) for name, v in values if v is not None)
        return self._places


PendingPair = tuple[PendingEvents, str]
"""A single event and the attribute of one of its trees."""


def in_state(state: PairState, pairs: Iterable[PendingPair]) -> list[PendingPair]:
    """Return the pairs that are in this state."""
    return [
        pair
        for pair in pairs
        if (status := pair[0].pairs.get(pair[1])) is not None and status.state is state
    ]


def at_host(host: NodeId, records: Iterable[PendingEvents]) -> list[PendingPair]:
    """The pairs of these records that were sent to this host."""
    return [
        (record, attribute)
        for record in records
        for attribute, status in record.pairs.items()
        if status.host == host
    ]


class Overdue(NamedTuple):
    """Pairs that have waited too long, and when to look again."""

    elsewhere: list[PendingPair]
    """Another replica is known that is not suspected, and not behind if this one only is late."""
    lost: list[PendingPair]
    """Nothing that is known locally helps: the owner has to be asked."""
    next_check: float
    silent: dict[str, None] = {}
    """Trees of which no host is known that is not suspected."""


def is_overdue(record: PendingEvents, replicas: ReplicaSelector, now: float) -> bool:
    """Whether it has waited so long that another host may do, or for one that is suspected."""
    return any(
        status.state is SENT
        and (
            status.since + replicas.timeout_most <= now or replicas.suspects(attribute, status.host)
        )
        for attribute, status in record.pairs.items()
    )


def find_overdue(
    singles: Collection[PendingEvents], locations: LocationCache, now: float
) -> Overdue:
    """The pairs that wait for suspected hosts, or for longer than events take there. A host at
    which nothing waits may have those that have waited elsewhere for `tree.retry`, as many as it
    matches in a moment."""
    replicas = locations.replicas
    found = Overdue([], [], now + replicas.timeout_most, {})
    next_check = found.next_check
    late_after: dict[NodeId, float] = {}
    free: dict[NodeId, int] = {}
    for each in singles:
        for attribute, status in each.pairs.items():
            if status.state is not SENT:
                continue
            host, since = status.host, status.since
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
    records: Iterable[PendingEvents], replicas: ReplicaSelector, now: float
) -> list[float]:
    """Suspect every host that is silent now. Returns when each of the others would be."""
    oldest: dict[NodeId, float] = {}
    for each in records:
        for status in each.pairs.values():
            if status.state is SENT:
                host = status.host
                oldest[host] = min(status.since, oldest.get(host, status.since))
    waited_for: list[float] = []
    for host, since in oldest.items():
        silent_from = replicas.silent_from(host, since)
        if silent_from <= now:
            replicas.suspect_silent(host, now)
        else:
            waited_for.append(silent_from)
    return waited_for
