"""How many hosts the machines of an overlay are worth (C6).

Processes on one machine share its processors: where these are busy, one host more does not serve an
event more, and each event costs a visit more. So as many hosts count on a machine as its processors
carry with `TARGET` of their time each. A machine is the part of its nodes' addresses that is not
the port; how many processors it has, its nodes say. One that has not said so yet counts with one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil

from overlay.bounded import BoundedDict
from overlay.machine import Peer
from overlay.upper_tree.owner.constants import MACHINES_MOST, TARGET


def machine_of(peer: Peer) -> str:
    """The machine that a node runs on."""
    return peer.address.rpartition(":")[0]


class Machines:
    """The processors of machines, as their nodes report them."""

    def __init__(self) -> None:
        self._processors: BoundedDict[str, int] = BoundedDict(MACHINES_MOST)

    def reported(self, peer: Peer, processors: int) -> None:
        """A node says how many processors its machine has."""
        self._processors.renew(machine_of(peer), processors)

    def _worth(self, machine: str) -> int:
        return ceil(self._processors.get(machine, 1) / TARGET)

    def worth(self, hosts: Iterable[Peer]) -> int:
        """With how many of these hosts an owner may count."""
        there = Counter(map(machine_of, hosts))
        return sum([min(count, self._worth(machine)) for machine, count in there.items()])

    def is_full(self, machine: str, hosts: Iterable[Peer]) -> bool:
        """Whether a machine carries no host beside those that are on it already."""
        count = sum([machine_of(host) == machine for host in hosts])
        return count >= self._worth(machine)
