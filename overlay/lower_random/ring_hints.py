"""Hints about the ring: ways in, gossiped with the view.

A hint is no authority: the cluster that it names may have moved on, and then names a better one. Of
each cluster the newest hint is kept. Hints of rings that have ended are neither kept nor passed on.
"""

from __future__ import annotations

from random import Random

from overlay.bounded import BoundedDict
from overlay.lower_random.constants import MAX_RING_HINTS, RING_HINTS_PER_EXCHANGE
from overlay.lower_random.messages import RingHint
from overlay.machine import Key, NodeId


class RingHints:
    """The hint of this node's own cluster, and those heard from others, oldest first."""

    def __init__(self) -> None:
        self._own: RingHint | None = None
        self._heard: BoundedDict[tuple[str, Key], RingHint] = BoundedDict(MAX_RING_HINTS)
        self._ended: BoundedDict[str, None] = BoundedDict(MAX_RING_HINTS)  # rings

    def advertise(self, hint: RingHint | None) -> None:
        """Replace the hint of this node's own cluster, which goes out first; None: it is in
        none."""
        self._own = hint

    def forget_ring(self, ring: str) -> None:
        """Drop the hints of a ring that has ended, and accept none again."""
        self._ended[ring] = None
        for place in [place for place in self._heard if place[0] == ring]:
            del self._heard[place]

    def forget_primary(self, node: NodeId) -> None:
        """Drop the hints that name this node as a primary: it cannot be one."""
        for place in [place for place, hint in self._heard.items() if hint.primary.id == node]:
            del self._heard[place]

    def learn(self, hint: RingHint) -> RingHint | None:
        """Take a hint. Returns the newest one of the same cluster; None if its ring has ended."""
        if hint.ring in self._ended:
            return None
        place = (hint.ring, hint.key)
        known = self._heard.get(place)
        if known is not None and (known.version, _until(known)) > (hint.version, _until(hint)):
            hint = known
        self._heard.renew(place, hint)
        return hint

    def sample(self, rng: Random) -> tuple[RingHint, ...]:
        """What an exchange carries: the own hint, and some others at random."""
        own = self._own
        others = [hint for hint in self._heard.values() if hint != own]
        some = rng.sample(others, min(RING_HINTS_PER_EXCHANGE, len(others)))
        return tuple(some) if own is None else (own, *some)


def _until(hint: RingHint) -> int:
    """Until when its primary has signed it."""
    return 0 if hint.record is None else hint.record.until
