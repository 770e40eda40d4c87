"""Nodes with views and nothing else, in virtual time, on links that lose nothing."""

from __future__ import annotations

import heapq
from itertools import count
from random import Random
from typing import Any, Literal

from overlay.links.events import LinkUp
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.view import View
from overlay.machine import Peer
from overlay.settings import ViewSettings

LATENCY = 0.05
"""Virtual seconds of each message."""


class _Port:
    """What a view asks for; all nodes share one heap of what will happen."""

    def __init__(self, me: Peer, seed: int, clock: _Clock) -> None:
        self.me = me
        self.rng = Random(f"{seed} {me.id}")
        self._clock = clock

    @property
    def now(self) -> float:
        return self._clock.now

    def send(self, peer: Peer, message: Any) -> None:
        self._clock.after(LATENCY, peer.id, message, self.me)

    def set_timer(self, delay: float, timer: Any) -> None:
        self._clock.after(delay, self.me.id, timer, None)

    def __getattr__(self, name: str) -> Any:
        """Counting, tracing, watching and the rest change nothing here."""
        return lambda *arguments, **named: None


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._heap: list[tuple[float, int, str, Any, Peer | None]] = []

    def after(self, delay: float, node: str, what: Any, sender: Peer | None) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._order), node, what, sender))

    def run(self, until: float, views: dict[str, View]) -> None:
        """Hand out what is due, in order."""
        handlers = {name: view.handlers() for name, view in views.items()}
        while self._heap and self._heap[0][0] <= until:
            self.now, _, node, what, sender = heapq.heappop(self._heap)
            handler = handlers[node][type(what)]
            if sender is None:
                handler(what)
            else:
                handler(sender, what)


def grown(
    nodes: int, size: int, sampling: Literal["shuffle", "ranked"], seed: int, periods: int
) -> dict[str, tuple[str, ...]]:
    """Ids in each node's view after so many periods; all begin with the first node alone."""
    settings = ViewSettings(size=size, shuffle=max(3, size // 2), sampling=sampling)
    clock, views = _Clock(), dict[str, View]()
    peers = [Peer(f"n{number:03}", f"host:{number}") for number in range(nodes)]
    for peer in peers:
        port: Any = _Port(peer, seed, clock)
        views[peer.id] = View(port, settings, AccessPoints(port, settings))
    for peer in peers[1:]:
        views[peer.id].on_link_up(LinkUp(peers[0], True))
        views[peers[0].id].on_link_up(LinkUp(peer, True))
    for view in views.values():
        view.start()
    clock.run(periods * settings.period, views)
    return {name: tuple(peer.id for peer in view.peers()) for name, view in views.items()}
