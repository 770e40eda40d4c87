"""A primary's pointers: predecessor and successor list (P2, Zave's corrected Chord).

The original protocol (SIGCOMM 2001) adopts a new successor on another node's word and keeps the
rest of its list; Zave ("Reasoning about identifier spaces: How to make Chord correct", IEEE TSE
2017) shows that this loses the ring. The rules here are the corrected ones:

* a cluster becomes our first successor only by its own reply, never by what others say of it, and
  its list replaces the rest of ours **in the same step**, so that a list is always what one live
  cluster said of itself and its followers;
* a better predecessor is adopted at once; a worse one only after the present one was found dead;
* an entry leaves when its primary does not answer, and the next one takes its place.

The pointers only route. Who owns a key is decided by the arcs (`Cluster.owns`), so a wrong pointer
costs time, never an event.
"""

from __future__ import annotations

from overlay.chord.keys import in_arc
from overlay.chord.messages import Cluster
from overlay.machine import Key, NodeId


def between(key: Key, start: Key, end: Key) -> bool:
    """Whether `key` is strictly inside (start, end); anything but `start` where both are equal."""
    return key not in (start, end) and in_arc(key, start, end)


class Pointers:
    """Pure state: the caller does the talking."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.own: Key = ""
        self.predecessor: Cluster | None = None
        self.successors: tuple[Cluster, ...] = ()

    def begin(self, own: Key, predecessor: Cluster | None, successors: tuple[Cluster, ...]) -> None:
        """Serve at `own` from now on, knowing this much."""
        self.own = own
        self.predecessor = predecessor
        self.successors = self._list(successors)

    def first(self) -> Cluster | None:
        """Our successor. In a ring of two the predecessor is the successor as well."""
        return self.successors[0] if self.successors else self.predecessor

    def adopt(self, cluster: Cluster, followers: tuple[Cluster, ...]) -> bool:
        """`cluster` has sent its followers. False if our first successor is another, and closer."""
        first = self.first()
        if cluster.key == self.own or (
            first is not None
            and cluster.key != first.key
            and not between(cluster.key, self.own, first.key)
        ):
            return False
        self.successors = self._list((cluster, *followers))
        return True

    def better_successor(self, candidate: Cluster | None) -> bool:
        """Whether `candidate` (our successor's predecessor) comes before our first successor. It
        has to speak for itself before it is adopted."""
        first = self.first()
        return (
            candidate is not None
            and first is not None
            and between(candidate.key, self.own, first.key)
        )

    def rectify(self, cluster: Cluster) -> bool:
        """`cluster` takes itself for our predecessor. False if ours is closer: then ours has to be
        checked, since a dead one would shut out the living."""
        present = self.predecessor
        if cluster.key == self.own:
            return False
        if (
            present is None
            or cluster.key == present.key
            or between(cluster.key, present.key, self.own)
        ):
            self.predecessor = cluster
            return True
        return False

    def set_predecessor(self, cluster: Cluster) -> None:
        """`cluster` stands directly before us now: it was split off from us."""
        self.predecessor = cluster

    def refresh(self, cluster: Cluster) -> None:
        """A newer description of a cluster that may be among ours."""
        if self.predecessor is not None and self.predecessor.key == cluster.key:
            self.predecessor = cluster
        self.successors = tuple(
            cluster if known.key == cluster.key else known for known in self.successors
        )

    def peer_lost(self, node: NodeId) -> bool:
        """The primary `node` does not answer. True if a pointer left."""
        before = (self.predecessor, len(self.successors))
        if self.predecessor is not None and self.predecessor.primary.id == node:
            self.predecessor = None
        self.successors = tuple(c for c in self.successors if c.primary.id != node)
        return before != (self.predecessor, len(self.successors))

    def forget(self, key: Key) -> None:
        """The cluster `key` is no more."""
        if self.predecessor is not None and self.predecessor.key == key:
            self.predecessor = None
        self.successors = tuple(c for c in self.successors if c.key != key)

    def _list(self, clusters: tuple[Cluster, ...]) -> tuple[Cluster, ...]:
        """Clockwise from us, cut where it comes around to us again."""
        kept: list[Cluster] = []
        last = self.own
        for cluster in clusters[: self.length]:
            if cluster.key == self.own or not between(cluster.key, last, self.own):
                break
            kept.append(cluster)
            last = cluster.key
        return tuple(kept)
