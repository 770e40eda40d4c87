"""The wire vocabulary of the lower layer: shuffles (C1, C2) and walks (C3, C4)."""

from __future__ import annotations

import msgspec

from overlay.machine import Key, Message, NodeId, Peer, Version


class Neighbour(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a view. `age` in shuffles since the node itself was heard of (C1)."""

    peer: Peer
    age: int
    idle: bool = True  # it serves in no cluster and may be recruited (P1)


class AccessPoint(msgspec.Struct, frozen=True, array_like=True):
    """A node that can enter an event into an attribute's tree (C2)."""

    attribute: str
    peer: Peer
    version: Version  # of the partition map when this was true
    age: int  # in shuffles
    ring: int = 0  # mark of the ring whose tree it is: of two that meet each has its own


class RingHint(msgspec.Struct, frozen=True, array_like=True):
    """A way into the ring, gossiped with the view: the primary of some cluster."""

    ring: str  # id of the ring; where two meet the smaller one wins
    key: Key
    version: Version
    primary: Peer


class Shuffle(Message, frozen=True):
    """Cyclon's exchange: some of my entries (and myself, age 0) for some of yours."""

    neighbours: tuple[Neighbour, ...]
    access_points: tuple[AccessPoint, ...]
    rings: tuple[RingHint, ...]


class ShuffleReply(Message, frozen=True):
    """The other half of the exchange."""

    neighbours: tuple[Neighbour, ...]
    access_points: tuple[AccessPoint, ...]
    rings: tuple[RingHint, ...]


class Walk(Message, frozen=True):
    """A random walk that looks for the trees of some attributes (C3).

    The event itself waits at `origin`, which keeps it until a tree has accepted it anyway: a lost
    walk loses nothing, and one walk serves all events that wait for the attribute.
    """

    origin: Peer
    number: int  # of this walk at its origin
    attributes: tuple[str, ...]  # those that are still looked for
    hop: int  # this message's number on the walk, from 1
    left: int  # hops that remain after this one
    limit: int  # the present limit; halved at each recovery (C4)
    trace: tuple[Peer, ...]  # the last k nodes visited, oldest first
    ring: int = 0  # mark of the origin's ring: only its access points will do

    def data_units(self) -> int:
        """Each attribute counts."""
        return len(self.attributes)


class WalkHit(Message, frozen=True):
    """To the origin: access points for some of the walk's attributes."""

    number: int
    hop: int
    found: tuple[AccessPoint, ...]


class WalkMiss(Message, frozen=True):
    """To the origin: the walk ended without finding these."""

    number: int
    hop: int
    attributes: tuple[str, ...]


class StalePoint(Message, frozen=True):
    """To who named it: this access point no longer has the attribute (C2, C10)."""

    attribute: str
    peer: NodeId
    version: Version
