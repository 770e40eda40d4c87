"""Peers that a node with a ranked view has heard of lately, whether or not they are in it.

A place that gets another seed (ranked_slots.py) shall go to the best of all peers. Without a memory
it goes to the best of those that are named from then on, and who pushes most is named at once, the
others as exchanges happen to bring them. For the same reason exchanges name some of these peers,
too: neighbours have the same ones in their views for long, so that there are peers of which a node
would never hear.

How often a peer is named does not matter here either: of too many those stay that are lowest by a
secret hash, a sample of all. A peer stays as long as there is news of it that is young enough. Ages
are counted in shuffles since the peer itself spoke, wherever the news has been since, so that the
dead are forgotten everywhere.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from hashlib import blake2b
from random import Random

from msgspec.structs import replace

from overlay.lower_random.constants import HEARD_FOR, MAX_HEARD
from overlay.lower_random.messages import Neighbour
from overlay.machine import NodeId, Peer


class HeardPeers:
    """At most `MAX_HEARD` of them."""

    def __init__(self, rng: Random) -> None:
        self._key = rng.getrandbits(128).to_bytes(16, "big")
        self._known: dict[NodeId, tuple[Neighbour, int]] = {}  # with the shuffle in which it spoke
        self._ranks: list[tuple[bytes, NodeId]] = []  # the same peers, the lowest first

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, entry: Neighbour, now: int) -> None:
        """There is news of a peer in the shuffle with number `now`."""
        node, spoke = entry.peer.id, now - entry.age
        if entry.age > HEARD_FOR:
            return
        known = self._known.get(node)
        if known is None:
            insort(self._ranks, (self._rank(node), node))
            if len(self._ranks) > MAX_HEARD:
                _, highest = self._ranks.pop()
                self._known.pop(highest, None)
                if highest == node:
                    return
        elif spoke < known[1]:
            return
        self._known[node] = entry, spoke

    def forget(self, node: NodeId) -> None:
        """Contact with this node failed."""
        if self._known.pop(node, None) is not None:
            del self._ranks[bisect_left(self._ranks, (self._rank(node), node))]

    def expire(self, now: int) -> None:
        """Forget those of whom there is no young news any more in the shuffle `now`."""
        for node in [n for n, (_, spoke) in self._known.items() if now - spoke > HEARD_FOR]:
            self.forget(node)

    def peers(self) -> list[Peer]:
        """All of them, with their addresses."""
        return [entry.peer for entry, _ in self._known.values()]

    def entry(self, node: NodeId, now: int) -> Neighbour:
        """One of them as an entry of the shuffle `now`. Raises KeyError if it is none of them."""
        entry, spoke = self._known[node]
        aged: Neighbour = replace(entry, age=now - spoke)
        return aged

    def _rank(self, node: NodeId) -> bytes:
        return blake2b(node.encode(), digest_size=8, key=self._key).digest()
