"""C6: what moves when hosts are busy: as little as relieves them.

A plan that lays all virtual nodes out anew (placement.py) moves many of them: where one run is cut
a node sooner, so is each that follows. Each move costs its hosts frames and registrations, and the
reports by which it was made are different a second later. So where the hosts that are busy have
virtual nodes that could be elsewhere, some of these move to hosts that have time, and all others
stay.

Only virtual nodes whose events visit next to nothing else there (`alone`) move or get another
replica by this. What is visited together has to be placed together, and so needs a new plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matching import Interval
from overlay.machine import NodeId, Peer
from overlay.upper_tree.owner.constants import ALONE_SHARE, REPLICAS_MOST, SPARE
from overlay.upper_tree.owner.placed_node import PlacedNode

Places = dict[tuple[str, Interval], tuple[Peer, ...]]
"""Hosts by (attribute, virtual node)."""


class LoadRelief:
    """The virtual nodes where they are, and what their hosts are asked for."""

    def __init__(
        self,
        nodes: Sequence[PlacedNode],
        hosts: Sequence[Peer],
        room: int,
        share: float,
        elsewhere: Mapping[NodeId, float],
    ) -> None:
        """`room` in registrations of one host; `share` of its time that each host is to be asked
        for; `elsewhere`: what hosts are asked for beside these virtual nodes."""
        self._hosts = {host.id: host for host in hosts}
        self._room = room
        self._limit = share * (1 + SPARE)
        self._share = share
        self._nodes = nodes
        self._at = [list(node.hosts) for node in nodes]
        self._busy = {host: elsewhere.get(host, 0.0) for host in self._hosts}
        self._filled = dict.fromkeys(self._hosts, 0)
        for node in nodes:
            for host in node.hosts:
                if host in self._hosts:
                    self._busy[host] += node.busy / len(node.hosts)
                    self._filled[host] += 1 + node.registrations

    def places(self) -> Places | None:
        """Where all virtual nodes are to be; None: so few moves do not relieve the busy hosts, or
        some virtual node has no host that may serve it."""
        if not all(host in self._hosts for at in self._at for host in at):
            return None
        for number in self._by_load():
            self._add_replicas(number)
        while busy := [host for host, asked in self._busy.items() if asked > self._limit]:
            if not self._relieve(max(busy, key=lambda host: self._busy[host])):
                return None
        return {
            (node.attribute, node.interval): tuple([self._hosts[host] for host in at])
            for node, at in zip(self._nodes, self._at, strict=True)
        }

    def _by_load(self) -> list[int]:
        return sorted(range(len(self._nodes)), key=lambda number: -self._nodes[number].busy)

    def _may_move(self, number: int) -> bool:
        node = self._nodes[number]
        return 0 < ALONE_SHARE * node.busy <= node.alone and not node.interval.is_shard()

    def _add_replicas(self, number: int) -> None:
        """More hosts for a virtual node that asks each of them for more than it should have."""
        node, at = self._nodes[number], self._at[number]
        most = min(REPLICAS_MOST, len(self._hosts))
        while node.busy / len(at) > self._limit and len(at) < most and self._may_move(number):
            fit = [host for host in self._hosts if self._fits(number, host)]
            if not fit:
                return
            self._place(number, [*at, min(fit, key=lambda host: self._busy[host])])
            at = self._at[number]

    def _relieve(self, busy: NodeId) -> bool:
        """Move one virtual node away from this host: the largest that has room elsewhere, or the
        smallest of those that are enough. Whether there was one."""
        excess = self._busy[busy] - self._share
        there = [n for n, at in enumerate(self._at) if busy in at and self._may_move(n)]
        there.sort(key=lambda n: (self._part(n) < excess, abs(self._part(n) - excess)))
        for number in there:
            part = self._part(number)
            fit = [host for host in self._hosts if self._fits(number, host)]
            to = min(fit, key=lambda host: self._busy[host], default=None)
            if to is not None and self._busy[to] + part <= self._limit:
                self._place(number, [to if host == busy else host for host in self._at[number]])
                return True
        return False

    def _part(self, number: int) -> float:
        """What a virtual node asks each of its hosts for."""
        return self._nodes[number].busy / len(self._at[number])

    def _fits(self, number: int, host: NodeId) -> bool:
        size = 1 + self._nodes[number].registrations
        has_room = not self._filled[host] or self._filled[host] + size <= self._room
        return host not in self._at[number] and has_room

    def _place(self, number: int, at: list[NodeId]) -> None:
        node, before = self._nodes[number], self._at[number]
        for host in before:
            self._busy[host] -= node.busy / len(before)
            self._filled[host] -= 1 + node.registrations
        for host in at:
            self._busy[host] += node.busy / len(at)
            self._filled[host] += 1 + node.registrations
        self._at[number] = at
