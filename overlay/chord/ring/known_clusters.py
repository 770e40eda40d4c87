"""A bounded cache of the clusters that this node has heard of (P2).

A description says whom to ask, never who owns a key: a node that is asked wrongly knows better (a
former owner knows to whom it gave the arc). So a description may be as old as it likes; of two of
the same cluster the newer one wins.

Beside descriptions, which carry an arc, there are *hints* from gossip, which carry only a primary:
enough to enter the ring, not enough to choose a way in it.

Nodes that did not answer are *unreachable* for a while: their clusters stay known (the arc is still
theirs), but ways through them are taken last.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from overlay.bounded import BoundedDict
from overlay.chord.constants import HINTS_MOST, UNREACHABLE_FOR, UNREACHABLE_MOST
from overlay.chord.keys import in_arc
from overlay.chord.messages import Cluster
from overlay.lower_random.messages import RingHint
from overlay.machine import Key, NodeId, Peer, Version


class KnownClusters:
    """A bounded map from a cluster's key to its newest description, in ring order."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._clusters: dict[Key, Cluster] = {}  # in the order of last mention, for eviction
        self._keys: list[Key] = []  # the same keys, sorted
        self._hints = BoundedDict[Key, RingHint](HINTS_MOST)
        self._unreachable = BoundedDict[NodeId, float](UNREACHABLE_MOST)  # until when

    def __len__(self) -> int:
        return len(self._clusters)

    def __iter__(self) -> Iterator[Cluster]:
        """All descriptions in ring order."""
        return iter([self._clusters[key] for key in self._keys])

    def get(self, key: Key) -> Cluster | None:
        """The newest description of the cluster whose identity is `key`."""
        return self._clusters.get(key)

    def learn(self, cluster: Cluster) -> bool:
        """Keep `cluster` unless a description at least as new is known. Return True if it was news.

        A cluster always owns its own key, so a cluster whose key another owns under a higher epoch
        has ended.
        """
        old = self._clusters.get(cluster.key)
        if old is not None and not cluster.is_newer_than(old):
            return False
        if any(replaces(other, cluster) for other in self._clusters.values()):
            return False
        for other in [c for c in self._clusters.values() if replaces(cluster, c)]:
            self._drop(other.key)
        if old is None:
            insort(self._keys, cluster.key)
        else:
            del self._clusters[cluster.key]
        self._clusters[cluster.key] = cluster
        if len(self._clusters) > self.limit:
            self._drop(next(iter(self._clusters)))
        return True

    def forget(self, key: Key, version: Version) -> None:
        """Drop the description of the cluster `key` unless it is newer than `version`."""
        cluster = self._clusters.get(key)
        if cluster is not None and cluster.version <= version:
            self._drop(key)
        hint = self._hints.get(key)
        if hint is not None and hint.version <= version:
            del self._hints[key]

    def forget_primary(self, node: NodeId) -> None:
        """Forget the clusters and hints that name `node` as primary: it has said that it leads
        none."""
        for cluster in [c for c in self._clusters.values() if c.primary.id == node]:
            self._drop(cluster.key)
        for hint in [h for h in self._hints.values() if h.primary.id == node]:
            del self._hints[hint.key]

    def clear(self) -> None:
        """Forget everything about the ring (but not who is unreachable)."""
        self._clusters.clear()
        self._keys.clear()
        self._hints.clear()

    def learn_hint(self, hint: RingHint, displaces: bool = True) -> None:
        """Keep a way into the ring. Where a hint's epoch is newer than a description, the
        description is wrong about the primary and is dropped, if the hint `displaces` any."""
        if any(c.key != hint.key and c.epoch > hint.version[0] and c.owns(hint.key) for c in self):
            return  # a cluster that has ended, see `learn`
        old = self._hints.pop(hint.key, None)
        if old is not None and old.version > hint.version:
            hint = old
        self._hints[hint.key] = hint
        cluster = self._clusters.get(hint.key)
        if displaces and cluster is not None and cluster.epoch < hint.version[0]:
            self._drop(hint.key)

    def hints(self) -> tuple[RingHint, ...]:
        """The hints, the longest known first."""
        return tuple(self._hints.values())

    def owner(self, key: Key) -> Cluster | None:
        """Return the owner of `key` by the newest descriptions: the first cluster at or after it,
        if its arc reaches back that far. (A split-off part lies before the cluster from which it
        was split, so the first one is also the newest.)"""
        if not self._keys:
            return None
        at = bisect_left(self._keys, key) % len(self._keys)
        cluster = self._clusters[self._keys[at]]
        return cluster if cluster.owns(key) else None

    def before(self, key: Key) -> Iterator[Cluster]:
        """All clusters in backward ring order, the closest before `key` first."""
        at = bisect_left(self._keys, key)
        for offset in range(1, len(self._keys) + 1):
            yield self._clusters[self._keys[(at - offset) % len(self._keys)]]

    def after(self, key: Key) -> Iterator[Cluster]:
        """All clusters but the one at `key` in ring order, the next after it first."""
        at = bisect_left(self._keys, key)
        for offset in range(len(self._keys)):
            cluster = self._clusters[self._keys[(at + offset) % len(self._keys)]]
            if cluster.key != key:
                yield cluster

    def mark_unreachable(self, node: NodeId, now: float) -> None:
        """Avoid `node`, which does not answer, for `UNREACHABLE_FOR` seconds."""
        self._unreachable.renew(node, now + UNREACHABLE_FOR)

    def mark_reachable(self, node: NodeId) -> None:
        """Let routes use `node` again, since it answers."""
        self._unreachable.pop(node, None)

    def reachable(self, peer: Peer, now: float) -> bool:
        """Whether `peer` is not marked as unreachable."""
        until = self._unreachable.get(peer.id)
        return until is None or until <= now

    def _drop(self, key: Key) -> None:
        del self._clusters[key]
        del self._keys[bisect_left(self._keys, key)]


def replaces(one: Cluster, other: Cluster) -> bool:
    """Whether `one` has taken the place of `other`."""
    return (
        one.epoch > other.epoch
        and one.key != other.key
        and one.ring == other.ring
        and one.owns(other.key)
    )


def overlaps(one: Cluster, other: Cluster) -> bool:
    """Whether the arcs of two clusters have a key in common."""
    if one.merged or other.merged:
        return False
    return in_arc(one.key, other.start, other.key) or in_arc(other.key, one.start, one.key)
