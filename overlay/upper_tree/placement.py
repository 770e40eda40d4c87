"""C6: which host serves which virtual node, so that few hosts are visited and none is overloaded.

The virtual nodes of all trees of a cluster are laid out in order of popularity and cut into runs of
what a host has room for (packing.py); each run has one host. A plan stands until it has to change:
a host has more than its room, a host came or went, or half the hosts would do. Runs go to the hosts
that have most of them already, so that little moves (balance.py does the moving).

Rooms are filled to three quarters only, so that what grows does not have to move at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matching import Interval
from overlay.machine import NodeId, Peer
from overlay.upper_tree.packing import by_popularity, pack

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
    host: NodeId
    registrations: int


class Plan(NamedTuple):
    """Hosts of virtual nodes, and how many hosts it would take."""

    hosts: dict[Key, Peer]
    wanted: int


def runs_of(parts: Sequence[Part], popularity: Mapping[str, int], room: int) -> list[list[Part]]:
    """What belongs on one host each."""
    by_tree: dict[str, list[Part]] = {}
    for part in parts:
        by_tree.setdefault(part.attribute, []).append(part)
    in_order = [part for name in by_popularity(by_tree, popularity) for part in by_tree[name]]
    return pack(((part, part.registrations) for part in in_order), room)


def make_plan(
    parts: Sequence[Part], popularity: Mapping[str, int], hosts: Sequence[Peer], room: int
) -> Plan:
    """A host for each part; where hosts are too few their rooms are overfilled alike."""
    size = max(1, int(room * FILL))
    runs = runs_of(parts, popularity, size)
    wanted = len(runs)
    while len(runs) > len(hosts):
        size += size // 4 + 1
        runs = runs_of(parts, popularity, size)
    left = {host.id: host for host in hosts}
    there: list[tuple[int, int, NodeId]] = []
    for number, run in enumerate(runs):
        held: dict[NodeId, int] = {}
        for part in run:
            held[part.host] = held.get(part.host, 0) + 1 + part.registrations
        there += [(-amount, number, host) for host, amount in held.items() if host in left]
    chosen: dict[int, Peer] = {}
    for _, number, host in sorted(there):
        if number not in chosen and host in left:
            chosen[number] = left.pop(host)
    for number in range(len(runs)):
        if number not in chosen:
            chosen[number] = left.pop(next(iter(left)))
    return Plan(
        {(p.attribute, p.interval): chosen[n] for n, run in enumerate(runs) for p in run}, wanted
    )


class Placement:
    """The present plan, and when it is to be made anew. Times are the Port's seconds."""

    def __init__(self, room: int) -> None:
        """`room`: registrations that a host is to have at most."""
        self.room = room
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
            self.plan = make_plan(parts, popularity, hosts, self.room)
        return self.plan

    def _is_wrong(self, parts: Sequence[Part], hosts: tuple[NodeId, ...]) -> bool:
        load: dict[NodeId, int] = {}
        for part in parts:
            load[part.host] = load.get(part.host, 0) + part.registrations
        enough = sum(load.values()) / (self.room * FILL) + 1
        return len(load) > SPARE * enough or any(count > self.room for count in load.values())
