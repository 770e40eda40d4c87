"""Events of the ring and the cluster for the machines above."""

from __future__ import annotations

from typing import Literal

from overlay.chord.messages import Cluster
from overlay.machine import Key, LocalEvent, Peer

Role = Literal["primary", "standby", "broker", "none"]


class OwnerFound(LocalEvent, frozen=True):
    """Answer to `Ring.find`: the cluster that owns the key, by its own word."""

    key: Key
    cluster: Cluster
    hops: int  # messages that the lookup took


class OwnerUnknown(LocalEvent, frozen=True):
    """`Ring.find` got no answer in time: no way into the ring is known, or it is under repair."""

    key: Key


class RingKnown(LocalEvent, frozen=True):
    """The first way into a ring is known: this node can look up keys."""

    ring: str


class RoleChanged(LocalEvent, frozen=True):
    """This node's role, or the description of its cluster, has changed to this."""

    cluster: Cluster | None
    role: Role


class MemberJoined(LocalEvent, frozen=True):
    """At the primary: this node serves in the cluster from now on."""

    peer: Peer


class MemberLost(LocalEvent, frozen=True):
    """At the primary: this node was lost without warning. It is no longer a member, or will not be
    when it has been voted out."""

    peer: Peer


class MemberLeaving(LocalEvent, frozen=True):
    """At the primary: take over what this node hosts, then call `Clusters.release(peer)`."""

    peer: Peer


class EntryReceived(LocalEvent, frozen=True):
    """At a voter, or at the new primary of a split-off arc: apply this entry."""

    key: Key
    index: int
    entry: bytes


class LogReset(LocalEvent, frozen=True):
    """Forget the state of this cluster: a whole one follows as EntryReceived."""

    key: Key


class Committed(LocalEvent, frozen=True):
    """At the primary: all entries before `next` are with a majority of the voters."""

    key: Key
    next: int


class Elected(LocalEvent, frozen=True):
    """This node leads a cluster whose former primary `lost` (perhaps this node, before a restart)
    could not hand over. Messages of `lost` to hosts and publishers that are not in the log are
    unknown. Follows RoleChanged. `forked`: the log may lack entries that another branch of the
    cluster committed."""

    cluster: Cluster
    lost: Peer
    forked: bool = False


class ArcDivided(LocalEvent, frozen=True):
    """This node has led `arc` while another node unknowingly led it as well, or a part of it. Each
    may have lacked registrations that the other had. Emitted both at the node that continues to
    lead and at the one that stops, which keeps its state until RoleChanged follows."""

    arc: Cluster


class Replanted(LocalEvent, frozen=True):
    """This node now leads an arc whose cluster `lost` is gone with all its state, so subscribers
    there have to register again. `others`: all other clusters of the ring are gone as well, and
    this node leads their arcs, too. Follows RoleChanged."""

    lost: Cluster
    others: bool = False


class ClusterForked(LocalEvent, frozen=True):
    """A cluster continued without its majority, or in place of another. Registrations made there
    may be missing."""

    cluster: Cluster


class FollowerSnapshotWanted(LocalEvent, frozen=True):
    """At the primary: a follower or observer needs the whole state. Call
    `Clusters.send_snapshot(entries)` in this handler; entries appended later follow by
    themselves."""

    key: Key


class DiskSnapshotWanted(LocalEvent, frozen=True):
    """At a member that holds the log: the state file has grown. Call
    `Clusters.store_snapshot(entries)` with the whole state in this handler."""


class LogGrown(LocalEvent, frozen=True):
    """At a primary: the log has more entries, which observers were not sent yet."""


class ObserversProgressed(LocalEvent, frozen=True):
    """At a primary: an observer has more of the log, or is no longer awaited."""


class ObservedReset(LocalEvent, frozen=True):
    """At an observer: a whole copy of this cluster's state follows as EntryObserved."""

    key: Key


class EntryObserved(LocalEvent, frozen=True):
    """At an observer: the next entry of the log of the cluster `key`."""

    key: Key
    entry: bytes


class ObservedArc(LocalEvent, frozen=True):
    """At an observer: the cluster `key` owns (start, key] from here in its log on; what the copy
    has of other keys is another cluster's."""

    key: Key
    start: Key


class ObservedEnded(LocalEvent, frozen=True):
    """At an observer: forget the copy of this cluster's state."""

    key: Key


class ArcLeaving(LocalEvent, frozen=True):
    """At the primary: the keys that `arc` owns go to a new cluster. Begin no new change there, wait
    until those under way are done, then call `Clusters.transfer(entries)` with their state.
    (`arc` is the whole own cluster where a leaving primary hands over to its standby: then only
    the soft state that is in no log need be given as entries.)"""

    arc: Cluster


class ArcGone(LocalEvent, frozen=True):
    """At the old primary, and at the voters that hold a copy of its state: `arc` is served by its
    own primary now; forget its keys. (`arc` is the whole own cluster where a leaving primary has
    handed over, or another was elected; RoleChanged to none follows. A primary that becomes none
    *without* it was fenced by a cluster that knows nothing of its trees, or gave its ring up: what
    it owned is void, and its hosts have to stop serving.)"""

    arc: Cluster


class ArcKept(LocalEvent, frozen=True):
    """At the primary: the arc does not leave after all; go on as before."""

    arc: Cluster


class ArcMerging(LocalEvent, frozen=True):
    """At the primary: the whole `arc` is to go to the cluster after this one. Have no host serve
    any of its trees and no publisher keep a summary of them, then call
    `Clusters.hand_to_successor(entries)` with their state. `decided`: that was done under a former
    primary; only the state is wanted."""

    arc: Cluster
    decided: bool


class ArcArrived(LocalEvent, frozen=True):
    """At the primary of the cluster after it: the state of `arc` has come. Write its trees to the
    log, with hosts of this cluster, and call `Clusters.arc_stored()`. ArcTaken follows when they
    are committed."""

    arc: Cluster
    entries: tuple[bytes, ...]


class ArcTaken(LocalEvent, frozen=True):
    """At the primary: `arc` is part of its own arc from now on, and the log has its trees."""

    arc: Cluster


class PredecessorUnheard(LocalEvent, frozen=True):
    """At a primary: no cluster that ends where the own arc begins was heard for `UNHEARD_FOR`,
    though no link was lost. `cluster` is the arc, as if this node had led it."""

    cluster: Cluster


class RingWalked(LocalEvent, frozen=True):
    """Answer to `Ring.walk`: all clusters in ring order."""

    clusters: tuple[Cluster, ...]
    complete: bool


class ClusterMoved(LocalEvent, frozen=True):
    """A node that was taken for a cluster's primary answered with this newer description. `unled`:
    it only remembers that (`Moved`)."""

    cluster: Cluster
    sender: Peer
    unled: bool


class ClaimBelieved(LocalEvent, frozen=True):
    """In an overlay with keys: a description that contradicted the known state is now believed
    (`ring.claims`)."""

    cluster: Cluster


class Fenced(LocalEvent, frozen=True):
    """At a member: keys of its arc are served under a higher epoch than that of its cluster."""

    cluster: Cluster


class PrimarySuspected(LocalEvent, frozen=True):
    """At a voter: the primary of its cluster is silent, and this node may become a candidate."""

    cluster: Cluster


class OtherRing(LocalEvent, frozen=True):
    """There is another ring, in which `peer` serves as far as is known, perhaps with a description
    of its `cluster`. The ring with the smaller id continues."""

    ring: str
    peer: Peer
    cluster: Cluster | None


class RingLeft(LocalEvent, frozen=True):
    """This node has moved to the ring `into`. Its knowledge of clusters, owners and trees was about
    the former ring. RingKnown follows."""

    ring: str
    into: str


class MergePhaseWanted(LocalEvent, frozen=True):
    """At the primary of a ring that ends: bring the registrations to `phase` of the merge into the
    ring of `into`, then call `Clusters.merge_phase_reached(phase)`. `into` is None (and the phase
    0) where the ring does not end after all: go on as before."""

    into: Cluster | None
    phase: int
