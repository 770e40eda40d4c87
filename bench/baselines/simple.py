"""*Simple*: an event wanders the random graph and is matched wherever it comes (CBDLO 5.3).

The paper calls it content flooding to a hop limit. A true flood with view 10 and 10 hops reaches
all 3,000 nodes at some 30,000 messages per event, but the paper has 68,605 messages for 408
expected deliveries, of which 68 came: one in six. 68,605 / 125 events are 549 messages, and 549
random nodes of 3,000 are 1 - e^(-549/3000) = 16.7 % of them, one in six. So what was measured is a
number of walkers, 55 of 10 hops, that go to random neighbours and visit many nodes only once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

WALKERS = 55
"""Of 10 hops each: 549 messages per event, as the paper's first point of figure 5."""

Neighbours = Callable[[int], Sequence[int]]


class Simple:
    """The baseline *Simple*: random walkers on a given graph."""

    def __init__(self, neighbours: Neighbours, rng: Random, walkers: int = WALKERS) -> None:
        self.neighbours = neighbours
        self.walkers = walkers
        self._rng = rng
        self._views: dict[int, Sequence[int]] = {}

    def publish(self, source: int, hops: int) -> tuple[dict[int, None], int]:
        """(nodes that saw the event, messages). The source matches locally, for no message."""
        seen = {source: None}
        messages = 0
        for _ in range(self.walkers):
            at = source
            for _ in range(hops):
                view = self._view(at)
                if not view:
                    break
                at = self._rng.choice(view)
                messages += 1
                seen[at] = None
        return seen, messages

    def _view(self, node: int) -> Sequence[int]:
        view = self._views.get(node)
        if view is None:
            view = self._views[node] = self.neighbours(node)
        return view
