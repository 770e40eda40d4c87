"""All shards that this node leads, as readers see them.

Work is done in slices, some of it in each turn, in which the shards take part one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from overlay.lower_random.policies import PolicyChanged
from overlay.machine import NodeId, Peer, Port, Timer
from streams.programs.reader.messages import (
    CommitPosition,
    EndReadings,
    KeepReadings,
    ReadingsMoved,
    ReadShard,
)
from streams.services.read.shard_readings import ReadingWakes, ShardReadings
from streams.services.service import Agenda, Leaderships, ReplicaOf, ShardService
from streams.services.table.shard_table import ShardTable
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

BUDGET: Final = 2_000
"""Rows' worth of work in a turn: 2 to 10 ms, so that a node goes on answering meanwhile. Guess."""

MARK: Final = 0.25
"""Seconds between two words on how far was scanned."""

COMMIT: Final = 0.1
"""Seconds in which positions of durable consumers are gathered before they are written."""

LOOK: Final = 1.0
"""Seconds between two looks at who is there."""


class ScanOn(Timer, frozen=True):
    """Go on scanning, in a turn of its own."""


class MarkPositions(Timer, frozen=True):
    """Time to say how far was scanned."""


class LookAtShardReadings(Timer, frozen=True):
    """Time to look at who is there."""


class WritePositions(Timer, frozen=True):
    """Time to write what is queued of durable consumers."""


class ReadServer(ShardService[ShardReadings]):
    """Serves readers at the shards that this node leads."""

    def __init__(
        self,
        port: Port,
        leaderships: Leaderships,
        leading: ReplicaOf,
        clock: Callable[[], int],
        table: Callable[[str], ShardTable | None] = lambda shard: None,
    ) -> None:
        """`table`: the newest rows of a shard that this node leads, where its stream has a key; the
        others: as of `ShardService`."""
        super().__init__(port, leaderships, leading, clock)
        self._table = table
        self._scans = Agenda(port, ScanOn(), 0.0)
        self._marks = Agenda(port, MarkPositions(), MARK)
        self._looks = Agenda(port, LookAtShardReadings(), LOOK)
        self._writes = Agenda(port, WritePositions(), COMMIT)

    def make(self, replica: Replica, leader: ShardLeader) -> ShardReadings:
        """Take requests of readers."""
        shard = replica.shard
        self._looks.add(shard)
        return ShardReadings(
            self.port,
            replica,
            leader,
            self._clock,
            ReadingWakes(
                partial(self._scans.add, shard),
                partial(self._marks.add, shard),
                partial(self._looks.add, shard),
                lambda now: self._writes.add(shard, 0.0 if now else COMMIT),
            ),
            partial(self._table, shard),
        )

    # -- requests --------------------------------------------------------------------------------

    def on_read_shard(self, sender: Peer, message: ReadShard) -> None:
        """Begin a reading, or name the node that leads the shard."""
        shard = self.shard(message.shard)
        if shard is None:
            self._refuse(sender, message.shard, message.reading)
        else:
            shard.open(sender, message)

    def on_keep_readings(self, sender: Peer, message: KeepReadings) -> None:
        """Readings that are still wanted, with their credit."""
        shard = self.shard(message.shard)
        if shard is None:
            self._refuse(sender, message.shard, *(number for number, _ in message.readings))
        else:
            shard.keep(sender, message)

    def on_end_readings(self, sender: Peer, message: EndReadings) -> None:
        """Readings that are not wanted any more."""
        shard = self.shard(message.shard)
        if shard is not None:
            for number in message.readings:
                shard.drop((sender.id, number))

    def on_commit_position(self, sender: Peer, message: CommitPosition) -> None:
        """A durable consumer is done with rows."""
        shard = self.shard(message.shard)
        if shard is None:
            self._refuse(sender, message.shard, message.reading)
        else:
            shard.commit(sender, message)

    def _refuse(self, sender: Peer, shard: str, *readings: int) -> None:
        self.port.send(sender, ReadingsMoved(shard, readings, self.leader(shard)))

    def on_policy_changed(self, event: PolicyChanged) -> None:
        """Tenants' readings begin again where they are, with what the tenants may see now."""
        for known in [known for name in list(self._kept) if (known := self.present(name))]:
            moved: dict[NodeId, tuple[Peer, list[int]]] = {}
            for reading in [one for one in known.readings.values() if one.permitted]:
                known.drop(reading.key)
                moved.setdefault(reading.peer.id, (reading.peer, []))[1].append(reading.number)
            for peer, numbers in moved.values():
                shard = known.replica.shard
                self.port.send(peer, ReadingsMoved(shard, tuple(numbers), self.port.me))

    # -- what goes on ----------------------------------------------------------------------------

    def on_scan_on(self, timer: ScanOn) -> None:
        """Do a turn's work, and go on in another one."""
        self.work(self._scans, BUDGET)

    def on_mark_positions(self, timer: MarkPositions) -> None:
        """Say how far was scanned."""
        for shard, known in self.due(self._marks):
            if known.mark():
                self._marks.add(shard)

    def on_look(self, timer: LookAtShardReadings) -> None:
        """Look at who is there."""
        for shard, known in self.due(self._looks):
            if known.look():
                self._looks.add(shard)

    def on_write_positions(self, timer: WritePositions) -> None:
        """Write what is queued of durable consumers."""
        for _, known in self.due(self._writes):
            known.durable.flush()
