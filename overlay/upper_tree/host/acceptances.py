"""Tells publishers which events trees here have taken: at once, or together for events that come
one by one.

An event that comes alone costs its publisher's node two turns: one in which it is published, and
one in which it is accepted. Where the next come within a few milliseconds, what was taken of them
is said in one message. Nobody waits for that: a publisher keeps an event until it is accepted, and
takes a host for silent only after a much longer time. The first event after a pause is accepted at
once, and so is whatever comes with news: a location, or that something waits here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from matching import Interval
from overlay.bounded import BoundedDict
from overlay.machine import Alarm, NodeId, Peer, Port, Timer, Version
from overlay.upper_tree.host.constants import (
    ACCEPTED_FEW,
    ACCEPTED_TOGETHER,
    ACCEPTED_WITHIN,
    ANNOUNCE_AGAIN,
    ANNOUNCED_MOST,
)
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.visit_scheduler import VisitScheduler
from overlay.upper_tree.host_load import HostLoad
from overlay.upper_tree.messages import Accepted, Location

Taken = tuple[tuple[str, ...], tuple[int, ...]]
"""Trees, and the numbers of events that all of them have taken."""


class Announced(msgspec.Struct):
    """The versions announced to a publisher since a given time."""

    since: float
    versions: dict[tuple[str, Interval], Version] = {}
    """By tree and part of it, of the map."""
    together: dict[str, HostedTree] | None = None
    """Trees of which all was announced last, as one found them (assigned_trees.py)."""


class AcceptancesDue(Timer, frozen=True):
    """Fires when acceptances are to be sent."""


class Unsent(msgspec.Struct):
    """The acceptances not yet sent to one process of a publisher."""

    origin: Peer
    incarnation: int
    taken: dict[tuple[str, ...], list[int]] = {}
    events: int = 0

    def add(self, taken: Sequence[Taken]) -> None:
        """Add further events that were taken."""
        for trees, numbers in taken:
            self.taken.setdefault(trees, []).extend(numbers)
            self.events += len(numbers)


class Acceptances:
    """Sends acceptances to publishers. Bounded: it holds at most `ACCEPTED_TOGETHER` events of a
    publisher, for at most `ACCEPTED_WITHIN` seconds. It also forgets what it has announced to
    publishers, first for the publisher to which a full announcement was made longest ago."""

    def __init__(self, port: Port, scheduler: VisitScheduler) -> None:
        """`scheduler`: of this host, for its load."""
        self._port = port
        self._scheduler = scheduler
        self._announced: BoundedDict[NodeId, Announced] = BoundedDict(ANNOUNCED_MOST)
        self._unsent: dict[NodeId, Unsent] = {}
        self._sent_at: BoundedDict[NodeId, float] = BoundedDict(ANNOUNCED_MOST)
        """When each publisher heard something last."""
        self._alarm = Alarm(port, AcceptancesDue())

    def known_to(self, publisher: NodeId) -> Announced:
        """Return the versions recently announced to the publisher. Callers that announce others add
        them to the result."""
        known = self._announced.get(publisher)
        if known is None or self._port.now - known.since > ANNOUNCE_AGAIN:
            known = Announced(self._port.now)
            self._announced.renew(publisher, known)
        return known

    def add(
        self,
        origin: Peer,
        incarnation: int,
        taken: Sequence[Taken],
        locations: Sequence[Location],
    ) -> None:
        """Tell the publisher `origin`, now or with later acceptances, that these events were
        taken."""
        load = self._scheduler.load
        is_news = bool(locations) or load is not None
        unsent = self._unsent.get(origin.id)
        if unsent is not None and unsent.incarnation != incarnation:
            self._send_all(self._unsent.pop(origin.id))
            unsent = None
        events = sum([len(numbers) for _, numbers in taken])
        if unsent is not None:
            unsent.add(taken)
            if is_news or events > ACCEPTED_FEW or unsent.events > ACCEPTED_TOGETHER:
                self._send_all(self._unsent.pop(origin.id), locations, load)
        elif is_news or events > ACCEPTED_FEW or self._is_apart(origin.id):
            self._send(origin, Accepted(incarnation, tuple(taken), tuple(locations), load))
        else:
            unsent = self._unsent[origin.id] = Unsent(origin, incarnation)
            unsent.add(taken)
            self._alarm.within(ACCEPTED_WITHIN)

    def _is_apart(self, publisher: NodeId) -> bool:
        """Whether it is this node, or one that heard nothing just now."""
        sent_at = self._sent_at.get(publisher)
        return (
            sent_at is None
            or self._port.now - sent_at > ACCEPTED_WITHIN
            or publisher == self._port.me.id
        )

    def on_due(self, timer: AcceptancesDue) -> None:
        """Say all that was taken."""
        self._alarm.rang()
        unsent, self._unsent = self._unsent, {}
        for one in unsent.values():
            self._send_all(one)

    def _send_all(
        self, unsent: Unsent, locations: Sequence[Location] = (), load: HostLoad | None = None
    ) -> None:
        """Say all that waits for one publisher."""
        taken = tuple([(trees, tuple(numbers)) for trees, numbers in unsent.taken.items()])
        self._send(unsent.origin, Accepted(unsent.incarnation, taken, tuple(locations), load))

    def _send(self, origin: Peer, accepted: Accepted) -> None:
        self._port.send(origin, accepted)
        self._sent_at.renew(origin.id, self._port.now)
