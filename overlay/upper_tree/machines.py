"""Computes how many hosts the machines of an overlay are worth (C6).

Processes on one machine share its processors: where these are busy, one host more does not serve an
event more, and each event costs a visit more. Hosts take about half of what an event costs all
nodes, so one host counts for every two processors of a machine, and at least one. Owners plan for
this number (owner/placement.py), and a publisher turns to no more of its own machine where one is
behind (publisher/replicas.py). A machine is the part of its nodes' addresses that is not the port;
how many processors it has, its nodes say. One that has not said so yet counts with one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from overlay.bounded import BoundedDict
from overlay.machine import Peer

MACHINES_MOST = 1_024
"""Machines of which the processors are remembered, as many as possible hosts."""

HOSTS_SHARE = 0.5
"""The share of a machine's processors that hosts are to have; the others are publishers' and
interested nodes'. Measured once on a busy machine: eight nodes on two processors take a third of
the processor time per event with one host that they take with four
(docs/design/attribute-trees.md)."""


def hosts_of(processors: int) -> int:
    """Return how many hosts a machine with `processors` processors counts as."""
    return max(1, int(processors * HOSTS_SHARE))


def machine_of(peer: Peer) -> str:
    """The machine that a node runs on."""
    return peer.address.rpartition(":")[0]


class Machines:
    """The processors of machines, as their nodes report them."""

    def __init__(self) -> None:
        self._processors: BoundedDict[str, int] = BoundedDict(MACHINES_MOST)

    def reported(self, peer: Peer, processors: int) -> None:
        """Note how many processors the machine of a node has."""
        self._processors.renew(machine_of(peer), processors)

    def _worth(self, machine: str) -> int:
        return hosts_of(self._processors.get(machine, 1))

    def worth(self, hosts: Iterable[Peer]) -> int:
        """With how many of these hosts an owner may count."""
        there = Counter(map(machine_of, hosts))
        return sum([min(count, self._worth(machine)) for machine, count in there.items()])

    def is_full(self, machine: str, hosts: Iterable[Peer]) -> bool:
        """Whether a machine carries no host beside those that are on it already."""
        count = sum([machine_of(host) == machine for host in hosts])
        return count >= self._worth(machine)
