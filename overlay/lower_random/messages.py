"""The messages of the lower layer: shuffles (C1, C2) and walks (C3, C4)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from overlay.links.messages import AnyFrame
from overlay.links.statements import Chain, Signature
from overlay.machine import Key, LocalEvent, Message, NodeId, Peer, Uint53, Version

Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class PeerRecord(msgspec.Struct, frozen=True, array_like=True):
    """In an overlay with keys: a node's signature over its addresses, or over a cluster that it
    leads, valid until a time in seconds since 1970, with the certificates which prove that the node
    exists (`peer_records`)."""

    until: Uint53
    signature: Signature
    chain: Chain = ()


class Neighbour(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a view (C1). `age`: shuffles since the node itself was heard of."""

    peer: Peer
    age: Uint53
    idle: bool = True  # it serves in no cluster and may be recruited (P1)
    load: Percent = 0  # of what it can host is asked of it, in time or in room (M2)
    record: PeerRecord | None = None  # that it is reached so, by its own word


class AccessPoint(msgspec.Struct, frozen=True, array_like=True):
    """A node that can enter an event into an attribute's tree: an entry of the APT (C2)."""

    attribute: str
    peer: Peer
    version: Version  # of the partition map when this was true
    age: Uint53  # in shuffles since then
    ring: Uint53 = 0  # CRC-32 of the id of the ring whose tree it is


class RingHint(msgspec.Struct, frozen=True, array_like=True):
    """A way into the ring: the primary of some cluster, as of a version of its description."""

    ring: str  # id of the ring; of two rings that meet the smaller id wins
    key: Key  # of the cluster
    version: Version
    primary: Peer
    record: PeerRecord | None = None  # that it leads this cluster, by the primary's own word


class Relayed(Message, frozen=True):
    """A frame from `origin` to `to`, whose link is silent, by way of the receiver (P3)."""

    origin: Peer
    to: Peer
    number: Uint53  # of the connection, by the end that opened it
    is_answer: bool  # that end is `to`
    frame: AnyFrame


class Shuffle(Message, frozen=True):
    """Cyclon's exchange, first half: some of the sender's entries, and itself with age 0, for some
    of the receiver's. Answered by ShuffleReply."""

    neighbours: tuple[Neighbour, ...]
    access_points: tuple[AccessPoint, ...]
    rings: tuple[RingHint, ...]


class ShuffleReply(Message, frozen=True):
    """Cyclon's exchange, second half: the same three parts from the node that was asked."""

    neighbours: tuple[Neighbour, ...]
    access_points: tuple[AccessPoint, ...]
    rings: tuple[RingHint, ...]


class Walk(Message, frozen=True):
    """A random walk that looks for the trees of some attributes (C3; CBDLO section 3.1). Sent from
    node to node; WalkHit and WalkMiss go to the origin.

    The event itself waits at `origin`, which keeps it until a tree has accepted it anyway: a lost
    walk loses nothing, and one walk serves all events that wait for the attribute.
    """

    origin: Peer
    number: Uint53  # of this walk at its origin
    attributes: tuple[str, ...]  # those that are not found yet
    hop: Uint53  # the number of this message on the walk, from 1
    left: Uint53  # hops that remain after this one
    limit: Uint53  # hops since the start or the last recovery, at most; halved by recovery (C4)
    trace: tuple[Peer, ...]  # the last k nodes visited, oldest first
    ring: Uint53 = 0  # CRC-32 of the id of the origin's ring: only its access points count

    def data_units(self) -> int:
        """The size in units: one for each attribute, as in the figures of the paper."""
        return len(self.attributes)


class RevocationsKnown(Message, frozen=True):
    """`DocumentVersion` of the list of revocations."""

    version: Uint53


class RevocationList(Message, frozen=True):
    """`SignedDocument` with the list of revocations."""

    data: Annotated[bytes, msgspec.Meta(max_length=1 << 20)]


DocumentKind = Annotated[str, msgspec.Meta(max_length=16)]
"""``policy``; revocations have messages of their own, which are older."""


class DocumentVersion(Message, frozen=True):
    """The version of the sender's document of this kind (0: none). A receiver with a later version
    sends its document; one with an earlier version answers with its version."""

    capability = "documents"

    kind: DocumentKind
    version: Uint53


class SignedDocument(Message, frozen=True):
    """A document that the overlay's operators have signed; passed on by each node to which it is
    new."""

    capability = "documents"

    kind: DocumentKind
    data: Annotated[bytes, msgspec.Meta(max_length=1 << 20)]


class WalkHit(Message, frozen=True):
    """To the origin of a walk: access points for some of its attributes, found at `hop`; those of
    one attribute one after the other, the preferred one first."""

    number: Uint53
    hop: Uint53
    found: tuple[AccessPoint, ...]


class WalkMiss(Message, frozen=True):
    """Tells the origin of a walk that it ended at `hop` without finding these attributes. `lost`:
    it ended since the next node on its way did not answer."""

    number: Uint53
    hop: Uint53
    attributes: tuple[str, ...]
    lost: bool = False


class StalePoint(Message, frozen=True):
    """To the node that named an access point: `peer` no longer serves the attribute, as of
    `version` (C2, C10)."""

    attribute: str
    peer: NodeId
    version: Version


# --- what the lower layer emits for the machines above ---


class RingHintReceived(LocalEvent, frozen=True):
    """An exchange brought a way into a ring. Emitted for old news, too."""

    hint: RingHint


class WalkFound(LocalEvent, frozen=True):
    """A walk of this node found an access point, `hop` messages away (0: in its own table), and
    perhaps others of the same tree."""

    point: AccessPoint
    hop: int
    others: tuple[AccessPoint, ...] = ()


class WalkFailed(LocalEvent, frozen=True):
    """A walk of this node ended at `hop` without finding these attributes, or was not heard of in
    time (hop 0)."""

    attributes: tuple[str, ...]
    hop: int


class AskClock(Message, frozen=True):
    """Asks for the time of the receiver's wall clock."""

    overtakes = True
    capability = "clocks"

    number: Uint53


class ClockTold(Message, frozen=True):
    """Answer to AskClock: the sender's wall clock, in microseconds since 1970."""

    overtakes = True
    capability = "clocks"

    number: Uint53
    wall: Uint53
