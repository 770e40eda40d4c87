"""What the trees need of the ring and of the own cluster (overlay/chord)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from overlay.chord.messages import Cluster
from overlay.machine import Key, NodeId, Peer


class ClusterView(Protocol):
    """What the trees need of overlay/chord's `Clusters`."""

    @property
    def cluster(self) -> Cluster | None:
        """The newest description of the own cluster."""

    @property
    def is_primary(self) -> bool:
        """Whether this node leads it."""

    @property
    def is_followed(self) -> bool:
        """Whether it leads it, and a majority of the voters follows."""

    @property
    def led_for(self) -> float:
        """Seconds that it has led under this epoch."""

    @property
    def lease_left(self) -> float:
        """Seconds for which no other node can lead it (leader lease); 0.0 or less: another may."""

    def is_silent(self, node: NodeId) -> bool:
        """Whether it leads, and does not hear this member."""

    def owns(self, key: Key) -> bool:
        """Whether this node decides about `key` now."""

    def append(self, entry: bytes) -> int:
        """Write to the log; the entry's index."""

    def append_all(self, entries: Sequence[bytes]) -> int:
        """Write some at once, while no arc leaves; the last one's index."""

    def is_copied(self, index: int) -> bool:
        """Whether the log's observers have this entry; ObserversProgressed tells of a change."""

    def is_whole(self, key: Key) -> bool:
        """Whether the copy of this other cluster's log has all that was acknowledged."""

    def forget_log(self, key: Key) -> None:
        """It has served its purpose."""

    def send_snapshot(self, entries: Sequence[bytes]) -> None:
        """Answer to FollowerSnapshotWanted: the state as log entries."""

    def store_snapshot(self, entries: Sequence[bytes]) -> None:
        """Answer to DiskSnapshotWanted: the state as log entries."""

    def transfer(self, entries: Sequence[bytes]) -> None:
        """Answer to ArcLeaving: what of the state leaves, as log entries."""

    def release(self, peer: Peer) -> None:
        """Answer to MemberLeaving: `peer` has nothing to do here any more."""

    def want(self, members: int) -> None:
        """Recruit until the cluster has so many."""

    def prefer(self, peers: Sequence[Peer]) -> None:
        """When members are recruited, take these first."""

    def outrank(self, epoch: int) -> None:
        """Lead on under an epoch above this one."""

    def request_split(self, middle: Key) -> None:
        """Give the arc up to `middle` to a new cluster, if possible."""


class RingView(Protocol):
    """What the trees need of overlay/chord's `Ring`."""

    def find(self, key: Key) -> None:
        """Look the owner up: OwnerFound or OwnerUnknown follows."""

    def owner(self, key: Key) -> Cluster | None:
        """The owner as last heard of."""

    def learn(self, cluster: Cluster) -> None:
        """Take note of a cluster's description, if it is newer than the known one."""
