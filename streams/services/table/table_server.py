"""The tables of all shards that this node leads and whose stream has a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.machine import Peer, Port, Timer
from streams.replication.leading import Leading
from streams.replication.replica import Replica, ShardCommitted, ShardLed, ShardUnled
from streams.services.led_shards import ReplicaOf, ShardServer, work
from streams.services.table.shard_table import ShardTable

BUDGET: Final = 1_000
"""Rows' worth of work in a turn: half of what readers get (`services.read.read_server.BUDGET`)."""

LOOK: Final = 2.0
"""Seconds between two looks at what is not kept any more: as of retention."""


class ReadTables(Timer, frozen=True):
    """Go on reading, in a turn of its own."""


class LookAtTables(Timer, frozen=True):
    """Time to look at what is not kept any more."""


class TableServer(ShardServer[ShardTable]):
    """The tables at this node."""

    def __init__(
        self,
        port: Port,
        leading: ReplicaOf,
        replica: ReplicaOf,
        clock: Callable[[], int],
    ) -> None:
        """As of `ShardServer`."""
        super().__init__(port, leading, replica, clock)
        self._is_awake = self._is_looking = False

    def table(self, shard: str) -> ShardTable | None:
        """Of a shard that this node leads; None: it does not, or the stream has no key."""
        replica = self._leading(shard)
        if replica is None or not replica.keep.key:
            return None
        return self._led.get(shard)

    def keys(self, shard: str) -> int | None:
        """How many keys a shard has; None: it has no key, or that is not known here, or not yet."""
        table = self.table(shard)
        return len(table.table.places) if table is not None and table.is_complete else None

    def _made(self, replica: Replica, leading: Leading) -> ShardTable:
        if not self._is_looking:
            self._is_looking = True
            self.port.set_timer(LOOK, LookAtTables())
        self._wake()
        return ShardTable(replica, leading, self._clock, self._wake)

    def _ended(self, shard: str, known: ShardTable, leader: Peer | None) -> None:
        """Nothing is to be said to anybody."""

    def on_led(self, event: ShardLed) -> None:
        """This node leads a shard: read its table."""
        self.table(event.shard)

    def on_unled(self, event: ShardUnled) -> None:
        """This node leads a shard no more."""
        if self._leading(event.shard) is None:
            self._led.end(event.shard)

    def on_committed(self, event: ShardCommitted) -> None:
        """More of a shard's log is committed."""
        if (known := self.table(event.shard)) is not None:
            known.committed()

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self.port.set_timer(0.0, ReadTables())

    def on_read_tables(self, timer: ReadTables) -> None:
        """Do a turn's work, and go on in another one."""
        self._is_awake = False
        if work(self._led, BUDGET):
            self._wake()

    def on_look_at_tables(self, timer: LookAtTables) -> None:
        """See what is not kept any more."""
        for known in self._led.each():
            known.look()
        self._is_looking = bool(self._led.kept)
        if self._is_looking:
            self.port.set_timer(LOOK, timer)
