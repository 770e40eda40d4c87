"""Epochs that nobody granted (P5): a cluster that lost its majority goes on under a *fork*.

The high part of an epoch counts forks, the low part elections. A fork begins with a number by
chance, so that two who fork the same cluster, each on its side of a partition, never choose the
same epoch: when they meet, the higher one fences the other. Every epoch of a fork is higher than
all that the lost cluster may still grant, so it is fenced, too, when it comes back; but a cluster
that was never lost, only out of sight, has its majority grant an epoch above the fork's.
"""

from __future__ import annotations

from random import Random
from typing import Final

FORK: Final = 1 << 32
"""Epochs of one fork. Two million forks fit into the 53 bits that JSON readers keep."""

CHANCE: Final = 16
"""Bits by chance in a fork's first epoch, above …"""

ELECTIONS: Final = 15
"""… those that count elections in it: one a second for nine hours. Few forks of one cluster meet,
so 16 bits tell them apart."""


def fork_of(epoch: int, rng: Random) -> int:
    """An epoch above all of the branch to which `epoch` belongs."""
    return (epoch // FORK + 1) * FORK + (rng.getrandbits(CHANCE) << ELECTIONS)


def branch(epoch: int) -> int:
    """How many forks led to this epoch."""
    return epoch // FORK
