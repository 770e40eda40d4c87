"""Which publishers have cached copies of which trees' summaries, for invalidation (C5, C9).

A publisher may cache a summary for a short term, and skips visits on the strength of it. The SUBACK
of a registration that some copy does not admit therefore waits until every holder of such a copy
has acknowledged its invalidation, or the copy's term is over: every event that is published after
the SUBACK finds the registration. (These are leases on cached data with write invalidation: Gray &
Cheriton, SOSP 1989.)

*No subscribers* is the empty summary, with digest 0. A copy is known by its summary's digest and by
a number that grows with each grant, so that the acknowledgement of an old invalidation does not end
a younger copy.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from overlay.machine import NodeId, Peer
from overlay.upper_tree.summaries.constants import COPIES_MOST


class CachedCopy(msgspec.Struct):
    """One publisher's copy of one tree's summary."""

    peer: Peer
    until: float  # it may be used until then
    number: int
    digest: int
    invalidating: bool = False  # `Invalidate` was sent, and no answer has come
    inherited_until: float = 0.0  # until then it may be one that a former owner granted


class InvalidationTable:
    """Bounded memory of copies. Times are the Port's seconds."""

    def __init__(self, capacity: int = COPIES_MOST) -> None:
        """`capacity` in copies."""
        self.capacity = capacity
        self.number = 0
        """Of the last copy that was granted."""
        self._copies: OrderedDict[tuple[str, NodeId], CachedCopy] = OrderedDict()
        self._by_tree: dict[str, dict[NodeId, CachedCopy]] = {}
        self.unknown_until = 0.0
        """Until then publishers may have valid copies that this table does not name: for want of
        room, or since a former owner granted them (cache_holders.py)."""

    def inherit(self, attribute: str, peer: Peer, now: float, left: float, digest: int) -> None:
        """A former owner has granted `peer` a copy, which it may use for `left` seconds."""
        self.grant(attribute, peer, now, left, digest)
        copy = self._copies.get((attribute, peer.id))
        if copy is not None:
            copy.inherited_until = now + left

    def grant(self, attribute: str, peer: Peer, now: float, term: float, digest: int = 0) -> None:
        """`peer` is sent the tree's summary with this digest (0: the tree has no subscribers), and
        may use it for `term` seconds."""
        self.number += 1
        until = now + term
        key = (attribute, peer.id)
        if (before := self._copies.get(key)) is not None:
            until = max(until, before.until)  # it uses the old copy until the new one arrives
        copy = CachedCopy(peer, until, self.number, digest)
        if before is not None:
            copy.inherited_until = before.inherited_until
        self._copies[key] = copy
        self._copies.move_to_end(key)
        self._by_tree.setdefault(attribute, {})[peer.id] = copy
        while self._copies:
            oldest, copy = next(iter(self._copies.items()))
            if copy.until > now and len(self._copies) <= self.capacity:
                break
            if copy.until > now:  # evicted while valid: registrations have to wait for its term
                self.expect_unknown(copy.until)
            self._forget(*oldest)

    def expect_unknown(self, until: float) -> None:
        """Until then publishers may have valid copies that this table does not name."""
        self.unknown_until = max(self.unknown_until, until)

    def attributes(self) -> tuple[str, ...]:
        """The trees of which some publisher was granted a copy."""
        return tuple(self._by_tree)

    def holders(self, attribute: str, now: float) -> list[CachedCopy]:
        """The copies of the tree's summary that may still be used."""
        return [b for b in self._by_tree.get(attribute, {}).values() if b.until > now]

    def has_inherited(self, attribute: str, now: float) -> bool:
        """Whether a publisher may use a copy of the tree's summary that a former owner granted."""
        copies = self._by_tree.get(attribute, {}).values()
        return self.unknown_until > now or any(copy.inherited_until > now for copy in copies)

    def invalidated(self, attribute: str, node: NodeId, number: int) -> None:
        """`node` has dropped its copies of the tree's summary up to this number."""
        copy = self._copies.get((attribute, node))
        if copy is not None and copy.number <= number:
            self._forget(attribute, node)

    def _forget(self, attribute: str, node: NodeId) -> None:
        del self._copies[attribute, node]
        tree = self._by_tree[attribute]
        del tree[node]
        if not tree:
            del self._by_tree[attribute]
