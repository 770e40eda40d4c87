"""An arc whose former owner is lost: its trees are planted, its subscribers register anew (P5).

Until that is done, an event that came to a tree would find it half empty. So publishers are told
nothing of the arc's trees meanwhile: events wait where they were published, as they do for any
owner that does not answer, and go on together. That ends when nobody has registered for a moment
(at once, if a copy of what the former owner knew is whole), and for a tree that was planted from a
copy (adopting.py) when its hosts serve.
"""

from __future__ import annotations

from collections.abc import Callable

from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.machine import Peer

LEAST = 1.5
"""Seconds: who missed the owner looks for another twice a second, and renews within half a second.
Wild guess."""

QUIET = 1.0
"""Seconds without a registration after which all are taken to be there. Wild guess."""

MOST = 8.0
"""Seconds after which the arc's events wait no longer: some rounds of gossip, by which also those
hear of it who had nothing to do with the owner for long. Wild guess."""


class Replanting:
    """At the primary of the arc. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._arc: Cluster | None = None
        self._until = self._end = 0.0
        self.believers: tuple[Peer, ...] | None = None
        """Whom the former owner may have told something (believers.py); None: nobody knows."""
        self._planting: dict[str, Callable[[], bool]] = {}  # attribute -> do its hosts serve it?

    def begin(self, arc: Cluster, now: float) -> None:
        """This arc is ours now, and we know nothing of it."""
        self._arc, self._until, self._end = arc, now + LEAST, now + MOST
        self._planting.clear()
        self.believers = None

    def knows_all(self, believers: tuple[Peer, ...] | None, now: float) -> None:
        """All that its former owner had acknowledged is known: nobody has to register anew."""
        self._until, self.believers = now, believers

    def plant(self, attribute: str, is_served: Callable[[], bool]) -> None:
        """This tree is known, and is being given to its hosts."""
        self._planting[attribute] = is_served

    def registered(self, attribute: str, now: float) -> None:
        """Somebody has: others may follow."""
        if self._waits(attribute, now):
            self._until = min(max(self._until, now + QUIET), self._end)

    def holds(self, attribute: str, now: float) -> bool:
        """Whether nobody may be told of the attribute's tree yet."""
        is_served = self._planting.get(attribute)
        if is_served is not None and (now >= self._end or is_served()):
            del self._planting[attribute]
        return attribute in self._planting or self._waits(attribute, now)

    def _waits(self, attribute: str, now: float) -> bool:
        return (
            now < self._until and self._arc is not None and self._arc.owns(attribute_key(attribute))
        )
