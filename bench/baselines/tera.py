"""*TERA*: topics, each with an overlay of its subscribers (Baldoni, Beraldi, Quéma, DEBS 2007).

An event has a topic. A random walk looks for a node whose access-point table (50 entries) knows
a member of the topic's overlay; there the event is broadcast: every subscriber hands it to all
its neighbours in the topic's overlay but the one it came from. CBDLO's figure 7 gives 100 topics,
a table of 50 and at most 10 hops; the degree of the topic overlays is not given
(docs/lab/figures.md).
"""

from __future__ import annotations

from collections import deque
from random import Random

from bench.baselines.simple import Neighbours

TOPICS = 100
"""CBDLO 5.3."""

TABLE = 50
"""Access points per node; CBDLO 5.3."""

DEGREE = 5
"""Neighbours in a topic's overlay. Half of a view, enough to stay connected; not measured."""

TOPICS_PER_NODE = 1
"""Subscriptions of a node; as many per node as the CBDLO overlay beside it has."""


class Tera:
    """One random graph, and per topic a random graph of its subscribers."""

    def __init__(self, neighbours: Neighbours, nodes: int, rng: Random, seed: str) -> None:
        self.neighbours = neighbours
        self._rng = rng
        self._seed = seed
        self.members: list[list[int]] = [[] for _ in range(TOPICS)]
        for node in range(nodes):
            for topic in rng.sample(range(TOPICS), TOPICS_PER_NODE):
                self.members[topic].append(node)
        self.subscribed = [topic for topic, members in enumerate(self.members) if members]
        self._topics: dict[int, list[int]] = {}
        for topic, members in enumerate(self.members):
            for node in members:
                self._topics.setdefault(node, []).append(topic)

    def publish(self, source: int, topic: int, hops: int) -> tuple[int, int, int]:
        """(messages of the walk, messages of the broadcast, subscribers reached)."""
        walked, entry = self._walk(source, topic, hops)
        if entry is None:
            return walked, 0, 0
        sent, reached = self._broadcast(topic, entry)
        return walked, sent, reached

    def _walk(self, source: int, topic: int, hops: int) -> tuple[int, int | None]:
        at = source
        for hop in range(hops + 1):
            if topic in self._topics.get(at, ()):
                return hop, at
            if topic in self._table(at):
                return hop + 1, self._rng.choice(self.members[topic])
            if hop < hops:
                at = self._rng.choice(self.neighbours(at))
        return hops, None

    def _table(self, node: int) -> list[int]:
        known = min(TABLE, len(self.subscribed))
        return Random(f"{self._seed}/tera/{node}").sample(self.subscribed, known)

    def _broadcast(self, topic: int, entry: int) -> tuple[int, int]:
        members = self.members[topic]
        links = self._overlay(members, topic)
        seen = {entry: None}
        queue: deque[tuple[int, int]] = deque([(entry, -1)])
        messages = 0
        while queue:
            at, came_from = queue.popleft()
            for other in links[at]:
                if other != came_from:
                    messages += 1
                    if other not in seen:
                        seen[other] = None
                        queue.append((other, at))
        return messages, len(seen)

    def _overlay(self, members: list[int], topic: int) -> dict[int, list[int]]:
        """Undirected, each node with at least DEGREE neighbours where there are so many."""
        rng = Random(f"{self._seed}/topic/{topic}")
        links: dict[int, dict[int, None]] = {node: {} for node in members}
        degree = min(DEGREE, len(members) - 1)
        for node in members:
            while len(links[node]) < degree:
                other = rng.choice(members)
                if other != node:
                    links[node][other] = None
                    links[other][node] = None
        return {node: list(found) for node, found in links.items()}
