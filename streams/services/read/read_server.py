"""All shards that this node leads, as readers see them.

A `ShardReadings` is made when the first request comes for a shard that this node leads, and ended
when it leads no more, or under another epoch. Work is done in slices, some of it in each turn, in
which the shards take part one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from overlay.lower_random.policies import PolicyChanged
from overlay.machine import NodeId, Peer, Port, Timer
from streams.consuming.messages import (
    CommitPosition,
    EndReadings,
    KeepReadings,
    ReadingsMoved,
    ReadShard,
)
from streams.replication.leading import Leading
from streams.replication.replica import Replica, ShardCommitted, ShardUnled
from streams.services.led_shards import ReplicaOf, ShardServer, work
from streams.services.read.shard_readings import ShardReadings
from streams.services.table.shard_table import ShardTable

BUDGET: Final = 2_000
"""Rows' worth of work in a turn: 2 to 10 ms, so that a node goes on answering meanwhile. Guess."""

MARK: Final = 0.25
"""Seconds between two words on how far was scanned."""

COMMIT: Final = 0.1
"""Seconds in which positions of durable consumers are gathered before they are written."""

LOOKS: Final = 4
"""Marks between two looks at who is there: a second."""


class ScanOn(Timer, frozen=True):
    """Go on scanning, in a turn of its own."""


class MarkPositions(Timer, frozen=True):
    """Time to say how far was scanned."""


class WritePositions(Timer, frozen=True):
    """Time to write what is queued of durable consumers."""


class ReadServer(ShardServer[ShardReadings]):
    """Serves readers at the shards that this node leads."""

    def __init__(
        self,
        port: Port,
        leading: ReplicaOf,
        replica: ReplicaOf,
        clock: Callable[[], int],
        table: Callable[[str], ShardTable | None] = lambda shard: None,
    ) -> None:
        """`table`: the newest rows of a shard that this node leads, where its stream has a key; the
        others: as of `ShardServer`."""
        super().__init__(port, leading, replica, clock)
        self._table = table
        self._is_awake = False
        self._writes_at = float("inf")
        self._marks = 0

    @property
    def shards(self) -> Mapping[str, ShardReadings]:
        """By shard, those that have had a request."""
        return self._led.kept

    def shard(self, name: str) -> ShardReadings | None:
        """Of a shard that this node leads; None: it does not."""
        return self._led.get(name)

    def _made(self, replica: Replica, leading: Leading) -> ShardReadings:
        if not self._led.kept:
            self.port.set_timer(MARK, MarkPositions())
        return ShardReadings(
            *(self.port, replica, leading, self._clock),
            *(self._wake, self._wake_writing, lambda: self._table(replica.shard)),
        )

    def _ended(self, shard: str, known: ShardReadings, leader: Peer | None) -> None:
        known.end_all(leader)

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
        self.port.send(sender, ReadingsMoved(shard, readings, self._led.leader(shard)))

    def on_policy_changed(self, event: PolicyChanged) -> None:
        """Tenants' readings begin again where they are, with what the tenants may see now."""
        for known in self._led.each():
            moved: dict[NodeId, tuple[Peer, list[int]]] = {}
            for reading in [one for one in known.readings.values() if one.permitted]:
                known.drop(reading.key)
                moved.setdefault(reading.peer.id, (reading.peer, []))[1].append(reading.number)
            for peer, numbers in moved.values():
                shard = known.replica.shard
                self.port.send(peer, ReadingsMoved(shard, tuple(numbers), self.port.me))

    # -- what goes on ----------------------------------------------------------------------------

    def on_committed(self, event: ShardCommitted) -> None:
        """More of a shard's log is committed."""
        known = self._led.present(event.shard)
        if known is not None:
            known.committed()

    def on_unled(self, event: ShardUnled) -> None:
        """This node leads a shard no more."""
        if self._leading(event.shard) is None:
            self._led.end(event.shard)

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self.port.set_timer(0.0, ScanOn())

    def on_scan_on(self, timer: ScanOn) -> None:
        """Do a turn's work, and go on in another one."""
        self._is_awake = False
        if work(self._led, BUDGET):
            self._wake()

    def on_mark_positions(self, timer: MarkPositions) -> None:
        """Say how far was scanned, and from time to time look at who is there."""
        self._marks += 1
        for known in self._led.each():
            known.mark()
            if self._marks % LOOKS == 0:
                known.look()
        if self._led.kept:
            self.port.set_timer(MARK, timer)

    def _wake_writing(self, now: bool) -> None:
        due = self.port.now + (0.0 if now else COMMIT)
        if due < self._writes_at:
            self._writes_at = due
            self.port.set_timer(due - self.port.now, WritePositions())

    def on_write_positions(self, timer: WritePositions) -> None:
        """Write what is queued of durable consumers."""
        self._writes_at = float("inf")
        for known in self._led.each():
            known.durable.flush()
