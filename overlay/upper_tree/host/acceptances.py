"""What publishers hear that trees here have taken: at once, or together for events that come one by
one.

An event that comes alone costs its publisher's node two turns: one in which it is published, and
one in which it is accepted. Where the next come within a few milliseconds, what was taken of them
is said in one message. Nobody waits for that: a publisher keeps an event until it is accepted, and
takes a host for silent only after a much longer time. The first event after a pause is accepted at
once, and so is whatever comes with news: a location, or that something waits here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from overlay.bounded import BoundedDict
from overlay.machine import Alarm, NodeId, Peer, Port, Timer
from overlay.upper_tree.host.constants import (
    ACCEPTED_FEW,
    ACCEPTED_TOGETHER,
    ACCEPTED_WITHIN,
    ANNOUNCED_MOST,
)
from overlay.upper_tree.host_load import HostLoad
from overlay.upper_tree.messages import Accepted, Location

Taken = tuple[tuple[str, ...], tuple[int, ...]]
"""Trees, and the numbers of events that all of them have taken."""


class AcceptancesDue(Timer, frozen=True):
    """Time to say what was taken."""


class Untold(msgspec.Struct):
    """What one start of a publisher has not been told yet."""

    origin: Peer
    incarnation: int
    taken: dict[tuple[str, ...], list[int]] = {}
    events: int = 0

    def add(self, taken: Sequence[Taken]) -> None:
        """These were taken as well."""
        for trees, numbers in taken:
            self.taken.setdefault(trees, []).extend(numbers)
            self.events += len(numbers)


class Acceptances:
    """Says what was taken. Bounded: it holds no more than `ACCEPTED_TOGETHER` events of a
    publisher, for `ACCEPTED_WITHIN` seconds."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._untold: dict[NodeId, Untold] = {}
        self._told_at: BoundedDict[NodeId, float] = BoundedDict(ANNOUNCED_MOST)
        """When each publisher was told something last."""
        self._alarm = Alarm(port, AcceptancesDue())

    def add(
        self,
        origin: Peer,
        incarnation: int,
        taken: Sequence[Taken],
        locations: Sequence[Location],
        load: HostLoad | None,
    ) -> None:
        """The publisher `origin` is to hear that these events were taken."""
        is_news = bool(locations) or load is not None
        untold = self._untold.get(origin.id)
        if untold is not None and untold.incarnation != incarnation:
            self._tell(self._untold.pop(origin.id))
            untold = None
        events = sum([len(numbers) for _, numbers in taken])
        if untold is not None:
            untold.add(taken)
            if is_news or events > ACCEPTED_FEW or untold.events > ACCEPTED_TOGETHER:
                self._tell(self._untold.pop(origin.id), locations, load)
        elif is_news or events > ACCEPTED_FEW or self._is_apart(origin.id):
            self._send(origin, Accepted(incarnation, tuple(taken), tuple(locations), load))
        else:
            untold = self._untold[origin.id] = Untold(origin, incarnation)
            untold.add(taken)
            self._alarm.within(ACCEPTED_WITHIN)

    def _is_apart(self, publisher: NodeId) -> bool:
        """Whether it is this node, or one that was told nothing just now."""
        told_at = self._told_at.get(publisher)
        return (
            told_at is None
            or self._port.now - told_at > ACCEPTED_WITHIN
            or publisher == self._port.me.id
        )

    def on_due(self, timer: AcceptancesDue) -> None:
        """Say all that was taken."""
        self._alarm.rang()
        untold, self._untold = self._untold, {}
        for one in untold.values():
            self._tell(one)

    def _tell(
        self, untold: Untold, locations: Sequence[Location] = (), load: HostLoad | None = None
    ) -> None:
        taken = tuple([(trees, tuple(numbers)) for trees, numbers in untold.taken.items()])
        self._send(untold.origin, Accepted(untold.incarnation, taken, tuple(locations), load))

    def _send(self, origin: Peer, accepted: Accepted) -> None:
        self._port.send(origin, accepted)
        self._told_at.renew(origin.id, self._port.now)
