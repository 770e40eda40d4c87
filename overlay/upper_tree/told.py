"""Whom the owner told that nobody subscribes to an attribute (C5).

A publisher may believe *nobody* for a short term. The first SUBACK of a new tree therefore waits
until everybody who was told has acknowledged the recall, or the term has run out: every event that
is published after the SUBACK finds the tree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from overlay.machine import NodeId, Peer

CAPACITY = 100_000
"""Remembered (attribute, node) pairs: about 30 MB at most; wild guess."""


class ToldTable:
    """Bounded memory of negative answers. Times are the Port's seconds."""

    def __init__(self, term: float, capacity: int = CAPACITY) -> None:
        """`term`: how long a publisher may believe the answer."""
        self.term = term
        self.capacity = capacity
        self._told: OrderedDict[tuple[str, NodeId], tuple[Peer, float]] = OrderedDict()
        self.blind_until = 0.0
        """Until then somebody may believe it whom this table had no room to remember."""

    def tell(self, attribute: str, peer: Peer, now: float, term: float | None = None) -> None:
        """`peer` is being told *nobody*."""
        key = (attribute, peer.id)
        self._told[key] = (peer, now + (self.term if term is None else term))
        self._told.move_to_end(key)
        while self._told:
            oldest, (_, until) = next(iter(self._told.items()))
            if until > now and len(self._told) <= self.capacity:
                break
            if until > now:  # pushed out while still believed: whoever plants it has to wait
                self.blind_until = max(self.blind_until, until)
            del self._told[oldest]

    def believers(self, attribute: str, now: float) -> tuple[Peer, ...]:
        """Those who may still believe it."""
        return tuple(
            peer
            for (name, _), (peer, until) in self._told.items()
            if name == attribute and until > now
        )

    def recalled(self, attribute: str, node: NodeId) -> None:
        """`node` has forgotten it."""
        self._told.pop((attribute, node), None)

    def safe_at(self, attribute: str, now: float) -> float:
        """From when on nobody believes *nobody*, even if no recall is acknowledged."""
        latest = [until for (name, _), (_, until) in self._told.items() if name == attribute]
        return max([now, self.blind_until, *latest])

    def entries(self, now: float) -> Iterator[tuple[str, Peer, float]]:
        """(attribute, peer, remaining term), for whoever takes an arc over."""
        for (attribute, _), (peer, until) in self._told.items():
            if until > now:
                yield attribute, peer, until - now
