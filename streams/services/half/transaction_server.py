"""The halves of all shards that this node leads."""

from __future__ import annotations

from typing import Final

from overlay.machine import Peer, Timer
from streams.disk import DiskFailed
from streams.log.writers import denial
from streams.producing.messages import MOVED, POLICY
from streams.replication.leading import Leading
from streams.replication.replica import Replica, ShardCommitted, ShardLed, ShardUnled
from streams.services.half.halves import Halves
from streams.services.led_shards import ShardServer
from streams.transactions.messages import (
    AskHalves,
    DecideHalf,
    HalfNotKnown,
    HalfRefused,
    PrepareHalf,
)

LOOK: Final = 5.0
"""Seconds between looks at halves that nobody decides."""


class LookAtHalves(Timer, frozen=True):
    """Time to look at halves that nobody decides."""


class TransactionServer(ShardServer[Halves]):
    """Serves those who prepare and decide at the shards that this node leads."""

    def start(self) -> None:
        """Set the first timer."""
        self.port.set_timer(LOOK, LookAtHalves())

    def halves(self, shard: str) -> Halves | None:
        """Those of a shard that this node leads; None: it does not."""
        return self._led.get(shard)

    def _made(self, replica: Replica, leading: Leading) -> Halves:
        return Halves(self.port, replica, leading, self._clock)

    def _ended(self, shard: str, halves: Halves, leader: Peer | None) -> None:
        halves.end(leader)

    def on_prepare_half(self, sender: Peer, message: PrepareHalf) -> None:
        """A batch is to be kept until it is decided."""
        halves = self.halves(message.shard)
        if halves is None:
            self._refuse(sender, message.shard, message.request, message.transaction)
        elif reason := denial(halves.replica.access, message.producer, sender.id, None):
            asked = (message.shard, message.request, message.transaction)
            self.port.send(sender, HalfRefused(*asked, POLICY, reason))
        else:
            halves.prepare(sender, message)

    def on_decide_half(self, sender: Peer, message: DecideHalf) -> None:
        """A half is to be committed or rolled back."""
        halves = self.halves(message.shard)
        if halves is None:
            self._refuse(sender, message.shard, message.request, message.transaction)
        else:
            halves.decide(sender, message)

    def on_ask_halves(self, sender: Peer, message: AskHalves) -> None:
        """Somebody wants to know which halves are not decided."""
        halves = self.halves(message.shard)
        if halves is None:
            self._refuse(sender, message.shard, message.request, "")
        else:
            halves.list(sender, message)

    def on_half_not_known(self, sender: Peer, message: HalfNotKnown) -> None:
        """A producer cannot say what became of a transaction."""
        halves = self.halves(message.shard)
        if halves is not None:
            halves.not_known(message)

    def on_committed(self, event: ShardCommitted) -> None:
        """More of a shard's log is committed."""
        halves = self._led.present(event.shard)
        if halves is not None:
            halves.committed()

    def on_led(self, event: ShardLed) -> None:
        """From now on this node asks about the shard's halves."""
        self.halves(event.shard)

    def on_unled(self, event: ShardUnled | DiskFailed) -> None:
        """Nobody here knows what becomes of what is pending."""
        self._led.end(event.shard)

    def on_look(self, timer: LookAtHalves) -> None:
        """Ask about halves that nobody decides."""
        for halves in self._led.each():
            halves.look()
        self.port.set_timer(LOOK, timer)

    def _refuse(self, sender: Peer, shard: str, request: int, transaction: str) -> None:
        reason = "this node does not lead the shard"
        leader = self._led.leader(shard)
        self.port.send(sender, HalfRefused(shard, request, transaction, MOVED, reason, leader))
