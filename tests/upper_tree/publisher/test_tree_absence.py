"""The absence of subscribers is never trusted longer than the owner waits for (C5)."""

from __future__ import annotations

from typing import Any

from overlay.chord.messages import Cluster
from overlay.machine import Peer
from overlay.settings import Settings
from overlay.upper_tree.messages import TreeAnswer
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from tests.support.world import one_node

OWNER = Peer("owner", "owner:1")


class OneOwner:
    def find(self, key: str) -> None:
        pass

    def owner(self, key: str) -> Cluster:
        return Cluster("ring", "5", "5", (1, 0), OWNER)

    def learn(self, cluster: Cluster) -> None:
        pass


def trusted_for(delay: float) -> float:
    """Seconds of trust that remain when an answer with a term of 10 s comes after `delay`."""
    port, locations = one_node(), LocationCache(10, ReplicaSelector("me", 3.0))
    no_walks: Any = None
    finder = TreeFinder(port, Settings(), no_walks, OneOwner(), locations)  # type: ignore[arg-type]
    finder.ask_ring(["x"])
    port.world.jump(delay)
    finder.on_tree_answer(OWNER, TreeAnswer((), ("x",), 10.0, 1))
    assert "x" not in finder.searches
    seconds = 0
    while locations.is_absent("x", port.now + seconds):
        seconds += 1
    return seconds


def test_the_term_counts_from_the_question() -> None:
    assert trusted_for(0) == 10
    assert trusted_for(4) == 6
    assert trusted_for(12) == 0
