"""The tables of all shards that this node leads and whose stream has a key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from overlay.machine import Port, Timer
from streams.services.service import Agenda, Leaderships, ReplicaOf, ShardService
from streams.services.table.shard_table import ShardTable
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

BUDGET: Final = 1_000
"""Rows' worth of work in a turn: half of what readers get (`services.read.read_server.BUDGET`)."""

LOOK: Final = 2.0
"""Seconds between two looks at what is not kept any more: as of retention."""


class ReadTables(Timer, frozen=True):
    """Go on reading, in a turn of its own."""


class LookAtTables(Timer, frozen=True):
    """Time to look at what is not kept any more."""


class TableServer(ShardService[ShardTable]):
    """The tables at this node, of the shards that it leads whose streams have a key: read from the
    beginning of the leadership on."""

    def __init__(
        self,
        port: Port,
        leaderships: Leaderships,
        leading: ReplicaOf,
        clock: Callable[[], int],
    ) -> None:
        """As of `ShardService`."""
        super().__init__(port, leaderships, leading, clock)
        self._reads = Agenda(port, ReadTables(), 0.0)
        self._looks = Agenda(port, LookAtTables(), LOOK)

    def table(self, shard: str) -> ShardTable | None:
        """Of a shard that this node leads; None: it does not, or the stream has no key."""
        replica = self._leading(shard)
        if replica is None or not replica.terms.keep.key:
            return None
        return self.shard(shard)

    def keys(self, shard: str) -> int | None:
        """How many keys a shard has; None: it has no key, or that is not known here, or not yet."""
        table = self.table(shard)
        return len(table.table.places) if table is not None and table.is_complete else None

    def make(self, replica: Replica, leader: ShardLeader) -> ShardTable:
        """Begin to read a table."""
        self._reads.add(replica.shard)
        self._looks.add(replica.shard)
        wake = partial(self._reads.add, replica.shard)
        return ShardTable(self.port, replica, leader, self._clock, wake)

    def led(self, shard: str, epoch: int) -> None:
        """This node leads a shard: read its table."""
        self.table(shard)

    def on_read_tables(self, timer: ReadTables) -> None:
        """Do a turn's work, and go on in another one."""
        self.work(self._reads, BUDGET)

    def on_look_at_tables(self, timer: LookAtTables) -> None:
        """See what is not kept any more."""
        for shard, known in self.due(self._looks):
            known.look()
            self._looks.add(shard)
