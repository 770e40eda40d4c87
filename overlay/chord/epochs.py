"""Epochs, and how a cluster that lost its majority forks them (P5).

An epoch is Raft's term. Its high part counts forks, its low part elections. The first epoch of a
fork contains how many other nodes its leader saw, and random bits: two nodes that fork the same
cluster, each on its side of a partition, choose different epochs, and when they meet, the one from
the larger side fences the other, as far as a view can tell. Every epoch of a fork is above all that
the lost cluster may still grant, so that cluster is fenced as well when it comes back; but a
cluster that was never lost, only out of sight, has its majority grant an epoch above the fork's.
"""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec.structs import replace

from overlay.chord.messages import Cluster
from overlay.links.statements import statement
from overlay.machine import Key, NodeId

FORK: Final = 1 << 32
"""Epochs of one fork. Two million forks fit into the 53 bits that JSON readers keep exactly."""

SEEN_BITS: Final = 6
"""Bits of a fork's first epoch that hold the number of nodes seen (a view has 20)."""

CHANCE_BITS: Final = 11
"""Random bits below them: they distinguish the few forks of one cluster that ever meet."""

OVERRIDE_BITS: Final = 9
"""Random bits by which a cluster overrides a fork. There is room for some hundred such steps in
SEEN_BITS and CHANCE_BITS, and few clusters override the same fork."""

ELECTION_BITS: Final = 15
"""Lowest bits, which count the elections within a fork: one per second for nine hours."""


def new_fork(epoch: int, seen: int, rng: Random) -> int:
    """An epoch above every epoch of the fork to which `epoch` belongs; `seen` is the number of
    other nodes in view."""
    size = min(seen, (1 << SEEN_BITS) - 1)
    first = (size << CHANCE_BITS | rng.getrandbits(CHANCE_BITS)) << ELECTION_BITS
    return (epoch // FORK + 1) * FORK + first


def fork_count(epoch: int) -> int:
    """Return the number of forks that led to this epoch; 0 for epochs that only elections
    granted."""
    return epoch // FORK


def fork_id(epoch: int) -> int:
    """Return the part that all epochs of one fork share: the epoch without its count of
    elections."""
    return epoch >> ELECTION_BITS


def above_fork(epoch: int, rng: Random) -> int:
    """An epoch with the same fork count, above all epochs that share `epoch`'s fork id.

    The step is random, since two clusters that override the same fork each have voters of their
    own.
    """
    return (epoch | ((1 << ELECTION_BITS) - 1)) + (rng.getrandbits(OVERRIDE_BITS) << ELECTION_BITS)


# What is signed of clusters, where nodes have keys: votes, and descriptions (`ring.claims`).


def granting(ring: str, key: Key, epoch: int, primary: NodeId) -> bytes:
    """Return the statement that a voter of the cluster `key` signs: `primary` leads it under this
    epoch."""
    return statement("grant", ring, key, epoch, primary)


def sealing(cluster: Cluster) -> bytes:
    """Return the statement that the primary signs: its whole description of the cluster."""
    return statement("cluster", replace(cluster, seal=None))
