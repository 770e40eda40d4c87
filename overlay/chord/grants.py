"""What is signed of clusters, where nodes have keys: votes, and descriptions (`ring.claims`)."""

from __future__ import annotations

from msgspec.structs import replace

from overlay.chord.messages import Cluster
from overlay.links.signing import statement
from overlay.machine import Key, NodeId


def granting(ring: str, key: Key, epoch: int, primary: NodeId) -> bytes:
    """What a voter of the cluster `key` signs: this node leads it under this epoch."""
    return statement("grant", ring, key, epoch, primary)


def sealing(cluster: Cluster) -> bytes:
    """What the primary signs of its description: all of it."""
    return statement("cluster", replace(cluster, seal=None))
