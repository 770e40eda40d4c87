"""Epochs that nobody granted (P5): a cluster that lost its majority goes on under a *fork*.

The high part of an epoch counts forks, the low part elections. A fork begins with how many others
its node sees, and a number by chance: two who fork the same cluster, each on its side of a
partition, never choose the same epoch, and when they meet, the one from the larger side fences the
other, as far as a view can tell. Every epoch of a fork is higher than
all that the lost cluster may still grant, so it is fenced, too, when it comes back; but a cluster
that was never lost, only out of sight, has its majority grant an epoch above the fork's.
"""

from __future__ import annotations

from random import Random
from typing import Final

FORK: Final = 1 << 32
"""Epochs of one fork. Two million forks fit into the 53 bits that JSON readers keep."""

SEEN: Final = 6
"""Bits of a fork's first epoch that say how many others were seen: a view has 20. Then …"""

CHANCE: Final = 11
"""… bits by chance: few forks of one cluster meet, so they tell them apart; above …"""

OUTLIVING: Final = 9
"""Bits by chance for a cluster that outlives a fork: those of `CHANCE` and some of `SEEN` have room
for some hundred such steps, and clusters that outlive the same fork are few."""

ELECTIONS: Final = 15
"""… those that count elections in it: one a second for nine hours."""


def fork_of(epoch: int, seen: int, rng: Random) -> int:
    """An epoch above all of the branch to which `epoch` belongs. `seen`: other nodes."""
    size = min(seen, (1 << SEEN) - 1)
    first = (size << CHANCE | rng.getrandbits(CHANCE)) << ELECTIONS
    return (epoch // FORK + 1) * FORK + first


def branch(epoch: int) -> int:
    """How many forks led to this epoch."""
    return epoch // FORK


def lineage(epoch: int) -> int:
    """What all epochs have in common that were granted by elections after one another."""
    return epoch >> ELECTIONS


def beyond(epoch: int, rng: Random) -> int:
    """In the same branch, above all of the epoch's lineage: the next one is granted to nobody else.

    By chance, since of two that outlive the same fork each has voters of its own to grant it."""
    return (epoch | ((1 << ELECTIONS) - 1)) + (rng.getrandbits(OUTLIVING) << ELECTIONS)
