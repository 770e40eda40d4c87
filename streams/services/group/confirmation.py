"""The confirmation of a leader by a majority of the shard's replicas.

A replaced leader that does not know of its successor commits nothing, but it could go on leasing
rows of a key, of which its successor leases others. So rows of groups with a key are leased only
within `FRESH` seconds of the beginning of a round in which a majority has confirmed that it voted
in no higher epoch. A new leader, whose majority has a replica in common with every such round,
waits for `FRESH` seconds and the length of a lease before it leases any.
"""

from __future__ import annotations

from typing import Final

from overlay.consensus.quorum import has_majority
from overlay.machine import NodeId
from streams.programs.group.messages import ConfirmLeader, LeaderConfirmed
from streams.services.service import LedShard

FRESH: Final = 4.0
"""Seconds for which a round counts: some rounds may fail before leases stop. Guess."""

ROUND: Final = 1.0
"""Seconds between two rounds."""


class Confirmation:
    """The rounds of one leader."""

    def __init__(self, led: LedShard) -> None:
        self.port, self.replica, self.leader = led.port, led.replica, led.leader
        self._ticket = 0
        self._began = float("-inf")
        self._confirmed = float("-inf")
        self._heard: set[NodeId] = set()

    @property
    def is_fresh(self) -> bool:
        """Whether no other leader can have leased rows yet."""
        return self.port.now <= self._confirmed + FRESH

    def ask(self) -> None:
        """Begin a round, unless the last one began less than `ROUND` seconds ago."""
        if self.port.now < self._began + ROUND:
            return
        self._ticket += 1
        self._began = self.port.now
        self._heard = {self.port.me.id}
        for peer in self.replica.replicas:
            if peer.id != self.port.me.id:
                asked = ConfirmLeader(self.replica.shard, self.leader.epoch, self._ticket)
                self.port.send(peer, asked)
        self._count()

    def heard(self, node: NodeId, message: LeaderConfirmed) -> bool:
        """Take a replica's answer. Returns whether it completes the round."""
        if (message.epoch, message.ticket) != (self.leader.epoch, self._ticket):
            return False
        before = self._confirmed
        self._heard.add(node)
        self._count()
        return self._confirmed > before

    def _count(self) -> None:
        if has_majority(self.replica.replicas, self._heard):
            self._confirmed = max(self._confirmed, self._began)
