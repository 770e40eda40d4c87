"""Whom the owner told what of a tree: that nobody subscribes (C5), or who does in summary (C9).

A publisher may believe what it was told for a short term, and skips visits on the strength of it.
The SUBACK of a registration that somebody's belief has no room for therefore waits until everybody
who was told so has acknowledged the recall, or the term has run out: every event that is published
after the SUBACK finds the registration.

*Nobody* is the empty summary. A belief is known by the summary's digest (0: the empty one), and by
a number that grows with each telling, so that an old recall does not end a younger belief.
"""

from __future__ import annotations

from collections import OrderedDict

from overlay.machine import NodeId, Peer

CAPACITY = 100_000
"""Remembered (attribute, node) pairs: about 30 MB at most; wild guess."""


class CachedCopy:
    """What one publisher was told of one tree."""

    __slots__ = ("digest", "number", "peer", "recalled", "until")

    def __init__(self, peer: Peer, until: float, number: int, digest: int) -> None:
        self.peer = peer
        self.until = until
        self.number = number
        self.digest = digest
        self.recalled = False  # and its answer has not come yet


class InvalidationTable:
    """Bounded memory of what was told. Times are the Port's seconds."""

    def __init__(self, term: float, capacity: int = CAPACITY) -> None:
        """`term`: how long a publisher may believe the answer."""
        self.term = term
        self.capacity = capacity
        self.number = 0  # of the last telling
        self._told: OrderedDict[tuple[str, NodeId], CachedCopy] = OrderedDict()
        self._by_tree: dict[str, dict[NodeId, CachedCopy]] = {}
        self.blind_until = 0.0
        """Until then somebody may believe something whom this table had no room to remember, or
        whom a former owner told and nobody knows (believers.py)."""

    def tell(
        self, attribute: str, peer: Peer, now: float, term: float | None = None, digest: int = 0
    ) -> None:
        """`peer` is being told *nobody*, or the summary with this digest."""
        self.number += 1
        until = now + (self.term if term is None else term)
        key = (attribute, peer.id)
        if (before := self._told.get(key)) is not None:
            until = max(until, before.until)
        belief = CachedCopy(peer, until, self.number, digest)
        self._told[key] = belief
        self._told.move_to_end(key)
        self._by_tree.setdefault(attribute, {})[peer.id] = belief
        while self._told:
            oldest, belief = next(iter(self._told.items()))
            if belief.until > now and len(self._told) <= self.capacity:
                break
            if belief.until > now:  # pushed out while still believed: registrations have to wait
                self.blind_until = max(self.blind_until, belief.until)
            self._forget(*oldest)

    def attributes(self) -> tuple[str, ...]:
        """Of which somebody was told something."""
        return tuple(self._by_tree)

    def believers(self, attribute: str, now: float) -> list[CachedCopy]:
        """What may still be believed of the tree."""
        return [b for b in self._by_tree.get(attribute, {}).values() if b.until > now]

    def recalled(self, attribute: str, node: NodeId, number: int) -> None:
        """`node` has forgotten what it was told up to this number."""
        belief = self._told.get((attribute, node))
        if belief is not None and belief.number <= number:
            self._forget(attribute, node)

    def _forget(self, attribute: str, node: NodeId) -> None:
        del self._told[attribute, node]
        tree = self._by_tree[attribute]
        del tree[node]
        if not tree:
            del self._by_tree[attribute]
