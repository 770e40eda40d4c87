"""Much that a publisher has to send at once is sent a part in each turn (C5, C6).

Where a tree is found, or a host lost, everything that waited for it has to go somewhere: up to
`tree.pending` pairs, each of which is looked up by itself. In one turn that took 0.15 s, in which
the node did nothing else. So a turn routes some, and a timer that is due at once goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from overlay.machine import Alarm, Machine, Port, Timer
from overlay.upper_tree.publisher.constants import PAIRS_AT_ONCE
from overlay.upper_tree.publisher.pending_event import PendingPair


class RouteDue(Timer, frozen=True):
    """Route the next pairs that wait."""


class Unrouted(NamedTuple):
    """Pairs that were to be routed together."""

    pairs: deque[PendingPair]
    stale: bool
    since: float


class RouteQueue(Machine):
    """Hands pairs to `route`, in order, at most `PAIRS_AT_ONCE` in a turn. It is bounded by what is
    pending, unless pairs wait twice: a host was lost before they were routed."""

    def __init__(self, port: Port, route: Callable[[list[PendingPair], bool], None]) -> None:
        """`route` gets pairs, and whether hosts that were known for them proved wrong."""
        super().__init__(port)
        self._route = route
        self._waiting: deque[Unrouted] = deque()
        self._routed: tuple[float, int] = (0.0, 0)  # in the turn of that time so many
        self._alarm = Alarm(port, RouteDue())

    @property
    def is_empty(self) -> bool:
        """Whether no pair of event and tree waits to be routed."""
        return not self._waiting

    def add(self, pairs: Iterable[PendingPair], stale: bool = False) -> None:
        """Route these pairs, now as far as the turn may, behind those that wait."""
        self._waiting.append(Unrouted(deque(pairs), stale, self.port.now))
        self._go_on()

    def on_route_due(self, timer: RouteDue) -> None:
        """Route the next ones."""
        self._alarm.rang()
        self._routed = (self.port.now, 0)
        self._go_on()

    def _go_on(self) -> None:
        now = self.port.now
        while self._waiting:
            done = self._routed[1] if self._routed[0] == now else 0
            if done >= PAIRS_AT_ONCE:
                self._alarm.within(0.0)
                return
            pairs, stale, since = self._waiting[0]
            some = [pairs.popleft() for _ in range(min(len(pairs), PAIRS_AT_ONCE - done))]
            if not pairs:
                self._waiting.popleft()
            self._routed = (now, done + len(some))
            if since < now:
                some = [pair for pair in some if _is_unsent(pair, since)]
            self._route(some, stale)


def _is_unsent(pair: PendingPair, since: float) -> bool:
    """Whether a pair is pending, and since this time was neither sent nor searched for."""
    pending, attribute = pair
    _, when = pending.pairs.get(attribute, ("", inf))
    return when <= since
