"""C6: which hosts serve which virtual node, so that few are visited and none is overloaded.

The virtual nodes of all trees of a cluster are laid out in order of popularity and cut into runs of
what a host has room for (packing.py). Each run has so many *replicas*, hosts that serve all of it,
as hosts and their rooms allow, up to `tree.replicas`: with hosts enough each has one run, with
fewer some have several, but no more than there is room for.

A plan stands until it has to change: a host has more than its room, a host came or went, or half
the hosts would do. Runs go to the hosts that have most of them already, so that little moves
(balance.py does the moving).

Rooms are filled to three quarters only, so that what grows does not have to move at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matching import Interval
from overlay.machine import NodeId, Peer
from overlay.upper_tree.owner.packing import by_popularity, pack

FILL = 0.75
"""The share of a host's room that a plan fills. Wild guess."""

PLAN_EVERY = 5.0
"""Seconds between two plans for the load's sake: what the last one moves has mostly arrived by
then. Wild guess."""

SPARE = 2
"""Runs that need no more than half of the hosts in use are packed anew. Wild guess."""

Key = tuple[str, Interval]
"""An attribute and one of its virtual nodes."""


class Part(NamedTuple):
    """A virtual node as it is."""

    attribute: str
    interval: Interval
    hosts: tuple[NodeId, ...]
    registrations: int


class Plan(NamedTuple):
    """Hosts of virtual nodes, and how many hosts it would take."""

    hosts: dict[Key, tuple[Peer, ...]]
    wanted: int


def runs_of(parts: Sequence[Part], popularity: Mapping[str, int], room: int) -> list[list[Part]]:
    """What belongs on one host each."""
    by_tree: dict[str, list[Part]] = {}
    for part in parts:
        by_tree.setdefault(part.attribute, []).append(part)
    in_order = [part for name in by_popularity(by_tree, popularity) for part in by_tree[name]]
    return pack(((part, part.registrations) for part in in_order), room)


def make_plan(
    parts: Sequence[Part],
    popularity: Mapping[str, int],
    hosts: Sequence[Peer],
    room: int,
    replicas: int = 1,
) -> Plan:
    """Hosts for each part; where they are too few for one replica of everything their rooms are
    overfilled alike."""
    size = max(1, int(room * FILL))
    runs = runs_of(parts, popularity, size)
    wanted = len(runs) * replicas
    while len(runs) > len(hosts):
        size += size // 4 + 1
        runs = runs_of(parts, popularity, size)
    filling = Filling(runs, hosts, room)
    for _ in range(replicas):
        filling.round()
    return Plan(
        {
            (p.attribute, p.interval): tuple(filling.chosen[n])
            for n, run in enumerate(runs)
            for p in run
        },
        wanted,
    )


class Filling:
    """Runs that get hosts, one replica each per round."""

    def __init__(self, runs: Sequence[Sequence[Part]], hosts: Sequence[Peer], room: int) -> None:
        """`hosts` at least as many as `runs`."""
        self.room = room
        self.hosts = hosts
        self.sizes = [sum(part.registrations for part in run) for run in runs]
        self.chosen: list[list[Peer]] = [[] for _ in runs]
        self._load = {host.id: 0 for host in hosts}
        self._order = {host.id: number for number, host in enumerate(hosts)}
        self._held: list[dict[NodeId, int]] = []
        """Per run, what each host has of it already."""
        for run in runs:
            held: dict[NodeId, int] = {}
            for part in run:
                for host in part.hosts:
                    held[host] = held.get(host, 0) + 1 + part.registrations
            self._held.append(held)

    def round(self) -> None:
        """One more host for each run, if there is one: first for the run of which most is somewhere
        already. In the first round no host gets two runs."""
        first = not any(self.chosen)
        open_runs = set(range(len(self.chosen)))
        there = [
            (-amount, number, self._order[host])
            for number, held in enumerate(self._held)
            for host, amount in held.items()
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
    """The present plan, and when it is to be made anew. Times are the Port's seconds."""

    def __init__(self, room: int, replicas: int = 1) -> None:
        """`room`: registrations that a host is to have at most."""
        self.room = room
        self.replicas = replicas
        self.plan = Plan({}, 0)
        self._hosts: tuple[NodeId, ...] = ()
        self._again_at = float("-inf")

    def look(
        self,
        parts: Sequence[Part],
        popularity: Mapping[str, int],
        hosts: Sequence[Peer],
        now: float,
    ) -> Plan:
        """The plan for these parts and fit hosts."""
        ids = tuple(host.id for host in hosts)
        if ids != self._hosts or (now >= self._again_at and self._is_wrong(parts, ids)):
            self._hosts = ids
            self._again_at = now + PLAN_EVERY
            self.plan = make_plan(parts, popularity, hosts, self.room, self.replicas)
        return self.plan

    def _is_wrong(self, parts: Sequence[Part], hosts: tuple[NodeId, ...]) -> bool:
        load: dict[NodeId, int] = {}
        for part in parts:
            for host in part.hosts:
                load[host] = load.get(host, 0) + part.registrations
        enough = sum(load.values()) / (self.room * FILL) + self.replicas
        return len(load) > SPARE * enough or any(count > self.room for count in load.values())
