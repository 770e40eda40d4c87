"""*Simple*: content flooding with a hop limit (CBDLO 5.3).

Every node that gets an event for the first time matches it against its own subscriptions and hands
it to all nodes of its view, until the event has made as many hops as it may. So a node gets most
events several times: once over each link that leads to it.

The paper's numbers for it are not those of a flood (docs/lab/figures.md). `Forwarding` is the
other reading of its words, which also speak of "random forwarding" and of "the simple random
algorithm": one copy, handed to one random neighbour at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from random import Random

Neighbours = Callable[[int], Sequence[int]]


class Simple:
    """The baseline *Simple*: a flood over a given graph."""

    def __init__(self, neighbours: Neighbours) -> None:
        self.neighbours = neighbours
        self._views: dict[int, Sequence[int]] = {}

    def publish(self, source: int, hops: int) -> tuple[Set[int], int]:
        """(nodes that saw the event, messages). The source matches locally, for no message."""
        seen, newest, messages = {source}, {source}, 0
        for _ in range(hops):
            if not newest:
                break
            views = [self._view(node) for node in newest]
            messages += sum(map(len, views))
            newest = set().union(*views) - seen
            seen |= newest
        return seen, messages

    def _view(self, node: int) -> Sequence[int]:
        view = self._views.get(node)
        if view is None:
            view = self._views[node] = self.neighbours(node)
        return view


class Forwarding(Simple):
    """One copy of an event that goes from random neighbour to random neighbour."""

    def __init__(self, neighbours: Neighbours, rng: Random) -> None:
        super().__init__(neighbours)
        self._rng = rng

    def publish(self, source: int, hops: int) -> tuple[Set[int], int]:
        """(nodes that saw the event, messages)."""
        seen, at, messages = {source}, source, 0
        for _ in range(hops):
            view = self._view(at)
            if not view:
                break
            at = self._rng.choice(view)
            seen.add(at)
            messages += 1
        return seen, messages
