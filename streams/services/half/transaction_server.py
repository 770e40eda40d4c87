"""The halves of all shards that this node leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.machine import Peer, Port, Timer
from streams.access.reasons import MOVED, POLICY
from streams.log.writers import denial
from streams.programs.transaction.messages import (
    AskHalves,
    DecideHalf,
    HalfNotKnown,
    HalfRefused,
    PrepareHalf,
)
from streams.services.half.halves import Halves
from streams.services.service import Agenda, Leaderships, ReplicaOf, ShardService
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

LOOK: Final = 5.0
"""Seconds between looks at halves that nobody decides."""


class LookAtHalves(Timer, frozen=True):
    """Time to look at halves that nobody decides."""


class TransactionServer(ShardService[Halves]):
    """Serves those who prepare and decide at the shards that this node leads, and asks about halves
    that nobody decides."""

    def __init__(
        self,
        port: Port,
        leaderships: Leaderships,
        leading: ReplicaOf,
        clock: Callable[[], int],
    ) -> None:
        """As of `ShardService`."""
        super().__init__(port, leaderships, leading, clock)
        self._looks = Agenda(port, LookAtHalves(), LOOK)

    def make(self, replica: Replica, leader: ShardLeader) -> Halves:
        """Take requests, and look after the halves that there are."""
        self._looks.add(replica.shard)
        return Halves(self.port, replica, leader, self._clock)

    def led(self, shard: str, epoch: int) -> None:
        """From now on this node asks about the shard's halves."""
        replica = self._leading(shard)
        if replica is not None and replica.state.transactions.halves:
            self.shard(shard)

    def on_prepare_half(self, sender: Peer, message: PrepareHalf) -> None:
        """A batch is to be kept until it is decided."""
        halves = self.shard(message.shard)
        if halves is None:
            self._refuse(sender, message.shard, message.request, message.transaction)
        elif reason := denial(halves.replica.terms.access, message.producer, sender.id, None):
            asked = (message.shard, message.request, message.transaction)
            self.port.send(sender, HalfRefused(*asked, POLICY, reason))
        else:
            halves.prepare(sender, message)
            self._looks.add(message.shard)

    def on_decide_half(self, sender: Peer, message: DecideHalf) -> None:
        """A half is to be committed or rolled back."""
        halves = self.shard(message.shard)
        if halves is None:
            self._refuse(sender, message.shard, message.request, message.transaction)
        else:
            halves.decide(sender, message)

    def on_ask_halves(self, sender: Peer, message: AskHalves) -> None:
        """Somebody wants to know which halves are not decided."""
        halves = self.shard(message.shard)
        if halves is None:
            self._refuse(sender, message.shard, message.request, "")
        else:
            halves.list(sender, message)

    def on_half_not_known(self, sender: Peer, message: HalfNotKnown) -> None:
        """A producer cannot say what became of a transaction."""
        halves = self.shard(message.shard)
        if halves is not None:
            halves.not_known(message)

    def on_look(self, timer: LookAtHalves) -> None:
        """Ask about halves that nobody decides."""
        for shard, halves in self.due(self._looks):
            if halves.look():
                self._looks.add(shard)

    def _refuse(self, sender: Peer, shard: str, request: int, transaction: str) -> None:
        reason = "this node does not lead the shard"
        leader = self.leader(shard)
        self.port.send(sender, HalfRefused(shard, request, transaction, MOVED, reason, leader))
