"""Messages of the ring and of its clusters: lookups and stabilisation (P2), membership and
hand-over (P1).

`cluster`, `recovery` and `ring_merge` have messages of their own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from overlay.chord.keys import in_arc
from overlay.links.statements import Signature
from overlay.machine import Key, Message, NodeId, Peer, Uint53, Version


class Cluster(msgspec.Struct, frozen=True, array_like=True):
    """The description of a cluster that any node may have. Of two descriptions the one with the
    higher version is newer.

    The cluster owns the keys of the arc (start, key]: those after `start` up to and including
    `key`. If both are equal it owns the whole ring. `key` is its identity. `version` is (epoch,
    number): a new primary raises the epoch, any other change the number.
    """

    ring: str
    key: Key
    start: Key
    version: Version
    primary: Peer
    standby: Peer | None = None
    brokers: tuple[Peer, ...] = ()
    merged: bool = False
    """Its log has given the arc to the cluster after it: it owns nothing any more, and ends when
    that cluster has everything."""
    grants: Annotated[tuple[Signature, ...], msgspec.Meta(max_length=64)] = ()
    """In an overlay with keys: the signed votes by which its primary leads under this epoch."""
    seal: Signature | None = None
    """In an overlay with keys: its primary's signature over all of this, the grants included."""

    @property
    def epoch(self) -> int:
        """The epoch under which its primary leads."""
        return self.version[0]

    def is_newer_than(self, other: Cluster) -> bool:
        """Whether this is a later description of the same cluster, or the same one, sealed."""
        if self.version == other.version:
            return self.seal is not None and other.seal is None
        return self.version > other.version

    def owns(self, key: Key) -> bool:
        """Whether `key` lies in this cluster's arc, and that is still its own."""
        return not self.merged and in_arc(key, self.start, self.key)

    def members(self) -> tuple[Peer, ...]:
        """All nodes that serve in it, primary first, then standby, then match brokers."""
        return (self.primary, *self.others())

    def others(self) -> tuple[Peer, ...]:
        """All members but the primary, the standby first."""
        return self.brokers if self.standby is None else (self.standby, *self.brokers)

    def has_member(self, node: NodeId) -> bool:
        """Whether `node` is its primary, its standby or one of its match brokers."""
        return any(member.id == node for member in self.members())

    def changed(self, **fields: Any) -> Cluster:
        """The description one version later, in which these fields are different."""
        return replace(self, version=(self.epoch, self.version[1] + 1), **fields)

    def under(self, epoch: int, **fields: Any) -> Cluster:
        """The first description under `epoch`, in which these fields are different."""
        return replace(self, version=(epoch, 0), grants=(), seal=None, **fields)

    def served_by(self, primary: Peer, *others: Peer) -> Cluster:
        """Return this description with other members. The first of `others` becomes the standby."""
        standby = others[0] if others else None
        return replace(self, primary=primary, standby=standby, brokers=others[1:])

    def with_member(self, peer: Peer) -> Cluster:
        """The next description, with `peer` as the standby if it has none, else as a broker."""
        if self.standby is None:
            return self.changed(standby=peer)
        return self.changed(brokers=(*self.brokers, peer))

    def without(self, *nodes: NodeId) -> Cluster:
        """The next description, without these members; the primary is none of them."""
        standby = self.standby
        return self.changed(
            standby=None if standby is not None and standby.id in nodes else standby,
            brokers=tuple(peer for peer in self.brokers if peer.id not in nodes),
        )

    def with_standby(self, peer: Peer) -> Cluster:
        """The next description, with the broker `peer` as standby, and the former one as broker."""
        former = () if self.standby is None else (self.standby,)
        rest = (broker for broker in self.brokers if broker.id != peer.id)
        return self.changed(standby=peer, brokers=(*former, *rest))


class Find(Message, frozen=True):
    """Asks for the owner of `key`. Passed on towards the owner, which answers `origin` directly."""

    overtakes = True

    key: Key
    origin: Peer
    number: Uint53
    hop: Uint53


class FindReply(Message, frozen=True):
    """The owner of the key, by its own word."""

    overtakes = True

    number: Uint53
    cluster: Cluster
    hop: Uint53


class Stabilise(Message, frozen=True):
    """From a cluster's primary to its successor's: which clusters are before and after the
    receiver?"""

    cluster: Cluster


class Neighbourhood(Message, frozen=True):
    """Answer to Stabilise and AskNeighbourhood: the primary's cluster and its pointers, the nearest
    successor first."""

    cluster: Cluster
    predecessor: Cluster | None
    successors: tuple[Cluster, ...]


class AskNeighbourhood(Message, frozen=True):
    """The question of Stabilise, from any node (`canopy ring` walks around the ring with it)."""


class Rectify(Message, frozen=True):
    """To a successor: the sender takes itself for its predecessor (Zave's rectify)."""

    cluster: Cluster


class Recruit(Message, frozen=True):
    """To an idle node: serve in this cluster."""

    cluster: Cluster


class RecruitReply(Message, frozen=True):
    """Accepted, or refused because the node serves elsewhere or is about to leave."""

    key: Key
    accepted: bool


class Membership(Message, frozen=True):
    """From the primary to its members: the cluster's newest description."""

    cluster: Cluster


class Leaving(Message, frozen=True):
    """From a member to its primary: it wants to leave. The primary moves its virtual nodes to other
    hosts, then releases it."""

    key: Key


class Released(Message, frozen=True):
    """To a member that leaves or is no longer needed: it is no longer a member of the cluster."""

    key: Key


class TakeOver(Message, frozen=True):
    """To the standby of a primary that leaves, or to the first primary of a split-off arc: all
    entries up to `index` were sent to it, and it is to lead this cluster (a split-off arc only
    after `ArcGiven`)."""

    cluster: Cluster
    index: Uint53
    successors: tuple[Cluster, ...]
    predecessor: Cluster | None


class TakenOver(Message, frozen=True):
    """Answer: done; of a split-off arc: its state is on disk here, and waits for the decision. Not
    accepted: the node leaves itself, or lacks the state."""

    cluster: Cluster
    accepted: bool


class AskArc(Message, frozen=True):
    """From the coming primary of a split-off arc to the members of the old cluster: has it been
    decided that it serves the arc?"""

    arc: Cluster


class ArcGiven(Message, frozen=True):
    """From the primary of the old cluster: its log says, with a majority, that the arc is served by
    its own cluster, or (not given) that it stays."""

    arc: Cluster
    given: bool


Load = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
"""The share of a node's time that is asked of it: 1 is all of it."""


class MergeOffer(Message, frozen=True):
    """From a cluster that is too small to the primary of the one after it: an offer of its arc,
    which is as large as this. Its map versions are of `epoch` at most. `decided`: its log has given
    the arc to the receiver (or to the cluster in whose place that is)."""

    arc: Cluster
    trees: Uint53
    registrations: Uint53
    load: Load
    epoch: Uint53
    decided: bool


class MergeAnswer(Message, frozen=True):
    """Answer: the sender's log promises to take the arc if the other one gives it (`promised`); it
    has it, with all that belongs to it (`taken`); or neither, now (`refused`)."""

    arc: Cluster
    answer: Literal["promised", "taken", "refused"]


class MergeState(Message, frozen=True):
    """The log of this arc's cluster has given it away: one of `pieces` pieces of its state, counted
    from 0."""

    arc: Cluster
    number: Uint53
    pieces: Uint53
    entries: tuple[bytes, ...]


class AskMerge(Message, frozen=True):
    """From the cluster that has promised to take this arc to the members of the other cluster: asks
    for the state of the arc."""

    arc: Cluster


class MergeCancelled(Message, frozen=True):
    """The arc is not given away: the promise to take it is void."""

    arc: Cluster


class Moved(Message, frozen=True):
    """Answer to a node that asked a former primary: the newest description known here.

    `unled`: the sender only remembers it. It serves elsewhere or nowhere, or has missed a primary
    for `election.fork_after`."""

    cluster: Cluster
    unled: bool = False


class Contact(Message, frozen=True):
    """To a node that may know a way into the ring: answered by Moved, any cluster, if it does."""

    node: NodeId


class Rejoin(Message, frozen=True):
    """REJOIN (Phoenix section 2), to the ring neighbours of a lost primary: this cluster's primary
    has taken its place."""

    cluster: Cluster


class MergePhase(IntEnum):
    """In order. Messages carry the number."""

    NONE = 0
    """The ring does not end."""
    UNITED = 1
    """The winning ring's owners have acknowledged all that is registered here. What is registered
    or ended meanwhile waits; events are matched here as before."""
    STOPPED = 2
    """No host serves a tree of this ring, and no publisher has a summary of one. Events wait where
    they are published."""
    ENDED = 3
    """The cluster has ended."""

    def following(self) -> MergePhase:
        """The next phase; ENDED is the last."""
        return MergePhase(min(self + 1, MergePhase.ENDED))


class RingMet(Message, frozen=True):
    """To a primary of the ring `ring`: there is a better one, `better`, in which `way` serves.
    Answered by Moved, or by RingEnded."""

    ring: str
    better: str
    way: Peer


class Merge(Message, frozen=True):
    """From the cluster that leads the merging of its ring to each cluster of it: it goes over to
    the ring of `into`, and this is the phase to be reached (0: it does not go over now)."""

    into: Cluster
    phase: MergePhase


class MergeReply(Message, frozen=True):
    """Answer: the cluster `key` has reached this phase."""

    key: Key
    phase: MergePhase


class RingEnded(Message, frozen=True):
    """The ring `ring` has ended. All its registrations are in the ring of `into`, to which the
    receiver should move. Each node passes this on when it first receives it."""

    ring: str
    into: Cluster
