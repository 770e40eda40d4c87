"""C6: which hosts serve which virtual node, so that few are visited and none is overloaded.

An event visits each host once, with all of its attributes that have a virtual node there. So what
is visited together should be together. Two popular attributes are in one event far more often than
two rare ones: laid out in order of popularity, the trees that most events visit are all on one
host, and the rare ones, which few events visit, are spread over the others. (The order is that of
popularity, not of size: with pivots.py the trees of the most popular attributes are the smallest.)

So the virtual nodes of all trees of a cluster are laid out in that order and cut into *runs* of
what a host has room for. Each run has so many *replicas*, hosts that serve all of it, as hosts and
their rooms allow, up to `tree.replicas`: with hosts enough each has one run, with fewer some have
several, but no more than there is room for.

A plan stands until it has to change: a host has more than its room, a host came or went, or half
the hosts would do. Runs go to the hosts that have most of them already, so that little moves
(rebalance.py does the moving).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from matching import Interval
from overlay.chord.keys import attribute_key
from overlay.machine import NodeId, Peer
from overlay.upper_tree.owner.constants import FILL, PLAN_PERIOD, REPACK_SHARE

T = TypeVar("T")


class PlacedNode(NamedTuple):
    """A virtual node where it is or is going to be, with its number of registrations."""

    attribute: str
    interval: Interval
    hosts: tuple[NodeId, ...]
    registrations: int


class Plan(NamedTuple):
    """Hosts by (attribute, virtual node), and how many hosts it would take to overfill none."""

    hosts: dict[tuple[str, Interval], tuple[Peer, ...]]
    wanted: int


def by_popularity(attributes: Iterable[str], popularity: Mapping[str, int]) -> list[str]:
    """Most asked for first; equals by the hash of the name, so that all nodes agree."""
    return sorted(attributes, key=lambda name: (-popularity.get(name, 0), attribute_key(name)))


def pack(items: Iterable[tuple[T, int]], room: int) -> list[list[T]]:
    """Cut a sequence of (item, registrations) into runs of at most `room` registrations each.

    An item that is larger than `room` has a run of its own. The order is kept, so neighbours stay
    together; filling gaps with later items would save a few hosts and cost visits.
    """
    runs: list[list[T]] = []
    filled = 0
    for item, registrations in items:
        if not runs or filled + registrations > room:
            runs.append([])
            filled = 0
        runs[-1].append(item)
        filled += registrations
    return runs


def runs_of(
    nodes: Sequence[PlacedNode], popularity: Mapping[str, int], room: int
) -> list[list[PlacedNode]]:
    """The virtual nodes in runs, each of which belongs on one host."""
    by_tree: dict[str, list[PlacedNode]] = {}
    for node in nodes:
        by_tree.setdefault(node.attribute, []).append(node)
    in_order = [node for name in by_popularity(by_tree, popularity) for node in by_tree[name]]
    return pack(((node, node.registrations) for node in in_order), room)


def make_plan(
    nodes: Sequence[PlacedNode],
    popularity: Mapping[str, int],
    hosts: Sequence[Peer],
    room: int,
    replicas: int = 1,
) -> Plan:
    """Hosts for each virtual node; where they are too few for one replica of everything, all are
    overfilled alike."""
    size = max(1, int(room * FILL))
    runs = runs_of(nodes, popularity, size)
    wanted = len(runs) * replicas
    while len(runs) > len(hosts):
        size += size // 4 + 1
        runs = runs_of(nodes, popularity, size)
    assignment = RunAssignment(runs, hosts, room)
    for _ in range(replicas):
        assignment.add_replica()
    return Plan(
        {
            (p.attribute, p.interval): tuple(assignment.chosen[n])
            for n, run in enumerate(runs)
            for p in run
        },
        wanted,
    )


class RunAssignment:
    """Gives runs their hosts, one replica per round."""

    def __init__(
        self, runs: Sequence[Sequence[PlacedNode]], hosts: Sequence[Peer], room: int
    ) -> None:
        """`hosts` at least as many as `runs`."""
        self.room = room
        self.hosts = hosts
        self.sizes = [sum(node.registrations for node in run) for run in runs]
        self.chosen: list[list[Peer]] = [[] for _ in runs]
        self._load = {host.id: 0 for host in hosts}
        self._order = {host.id: number for number, host in enumerate(hosts)}
        self._present: list[dict[NodeId, int]] = []
        """Per run, what each host has of it already."""
        for run in runs:
            present: dict[NodeId, int] = {}
            for node in run:
                for host in node.hosts:
                    present[host] = present.get(host, 0) + 1 + node.registrations
            self._present.append(present)

    def add_replica(self) -> None:
        """One more host for each run, if there is one: first for the run of which most is somewhere
        already. In the first round no host gets two runs."""
        first = not any(self.chosen)
        open_runs = set(range(len(self.chosen)))
        there = [
            (-amount, number, self._order[host])
            for number, present in enumerate(self._present)
            for host, amount in present.items()
            if host in self._order
        ]
        for _, number, at in sorted(there):
            if number in open_runs and self._fits(number, self.hosts[at], first):
                open_runs.discard(number)
                self._give(number, self.hosts[at])
        for number in sorted(open_runs):
            fit = [host for host in self.hosts if self._fits(number, host, first)]
            if fit:
                self._give(number, min(fit, key=self._rank))

    def _rank(self, host: Peer) -> tuple[int, int]:
        return self._load[host.id], self._order[host.id]

    def _fits(self, number: int, host: Peer, first: bool) -> bool:
        if host in self.chosen[number]:
            return False
        load = self._load[host.id]
        return load == 0 or (not first and load + 1 + self.sizes[number] <= self.room)

    def _give(self, number: int, host: Peer) -> None:
        self.chosen[number].append(host)
        self._load[host.id] += 1 + self.sizes[number]


class Placement:
    """The present plan, and when to make another. Times are the Port's seconds."""

    def __init__(self, room: int, replicas: int = 1) -> None:
        """`room`: registrations that a host is to have at most."""
        self.room = room
        self.replicas = replicas
        self.plan = Plan({}, 0)
        self._hosts: tuple[NodeId, ...] = ()
        self._next_plan_at = float("-inf")

    def update(
        self,
        nodes: Sequence[PlacedNode],
        popularity: Mapping[str, int],
        hosts: Sequence[Peer],
        now: float,
    ) -> Plan:
        """The plan for these virtual nodes and hosts, made anew if that is due."""
        ids = tuple(host.id for host in hosts)
        if ids != self._hosts or (now >= self._next_plan_at and self._is_wrong(nodes, ids)):
            self._hosts = ids
            self._next_plan_at = now + PLAN_PERIOD
            self.plan = make_plan(nodes, popularity, hosts, self.room, self.replicas)
        return self.plan

    def _is_wrong(self, nodes: Sequence[PlacedNode], hosts: tuple[NodeId, ...]) -> bool:
        load: dict[NodeId, int] = {}
        for node in nodes:
            for host in node.hosts:
                load[host] = load.get(host, 0) + node.registrations
        enough = sum(load.values()) / (self.room * FILL) + self.replicas
        return len(load) > REPACK_SHARE * enough or any(
            count > self.room for count in load.values()
        )
