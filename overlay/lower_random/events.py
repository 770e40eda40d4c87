"""What the lower layer tells the machines above."""

from __future__ import annotations

from overlay.lower_random.messages import AccessPoint, RingHint
from overlay.machine import LocalEvent, Peer


class NeighbourUp(LocalEvent, frozen=True):
    """A node entered the view."""

    peer: Peer


class NeighbourDown(LocalEvent, frozen=True):
    """A node left the view because it does not answer or has left."""

    peer: Peer


class RingHintReceived(LocalEvent, frozen=True):
    """A way into a ring, from gossip."""

    hint: RingHint


class WalkFound(LocalEvent, frozen=True):
    """A walk of ours met somebody who knows the attribute's tree."""

    point: AccessPoint
    hop: int


class WalkFailed(LocalEvent, frozen=True):
    """A walk of ours ended, or was not heard of in time, without finding these attributes."""

    attributes: tuple[str, ...]
    hop: int
