"""All shards that this node leads, as producers see them."""

from __future__ import annotations

from functools import partial

from overlay.machine import LocalEvent, Peer, ProtocolError
from streams.access.reasons import DISK_FULL, MOVED, POLICY
from streams.disk import DiskFailed, Written
from streams.log.names import split_shard
from streams.log.writers import denial
from streams.programs.producer.messages import (
    FORKED,
    NODE_PREFIX,
    AppendRefused,
    AppendRows,
    JoinFork,
    OpenProducer,
)
from streams.services.append.appender import Appender, Join
from streams.services.service import Leaderships, ReplicaOf, ShardService
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica


class FlushAppends(LocalEvent, frozen=True):
    """Append what has come in together."""


class AppendServer(ShardService[Appender]):
    """Serves producers at the shards that this node leads."""

    kind = Appender

    def __init__(
        self,
        leaderships: Leaderships,
        leading: ReplicaOf,
        join: Join | None = None,
    ) -> None:
        """`join`: what a fork says of a producer that comes from the main log; the others: as of
        `ShardService`."""
        super().__init__(leaderships, leading)
        self._join = join
        self._full: dict[str, None] = {}  # shards whose disk has had no room since the last write
        self._awake: dict[str, None] = {}  # shards for which something came in

    def make(self, replica: Replica, leader: ShardLeader) -> Appender:
        """Take requests of producers."""
        return Appender(self, replica, leader, partial(self._wake, replica.shard))

    def on_append_rows(self, sender: Peer, message: AppendRows) -> None:
        """Append a producer's rows, or name the node that leads the shard. Raises ProtocolError,
        as those below, for the own producer of another node."""
        appender = self._asked(sender, message)
        if appender is not None:
            appender.append(sender, message)

    def on_open_producer(self, sender: Peer, message: OpenProducer) -> None:
        """A producer's session begins."""
        appender = self._asked(sender, message)
        if appender is not None:
            appender.open(sender, message)

    def on_join_fork(self, sender: Peer, message: JoinFork) -> None:
        """A producer goes on in a fork."""
        appender = self._asked(sender, message)
        if appender is None:
            return
        if self._join is None or not split_shard(message.shard)[1]:
            self.refuse(sender, message)
        else:
            appender.join(sender, message, self._join)

    def _asked(
        self, sender: Peer, message: AppendRows | OpenProducer | JoinFork
    ) -> Appender | None:
        """The appender for a producer's request; None: it was refused. Raises ProtocolError."""
        _check(sender, message.producer)
        appender = self.shard(message.shard)
        if appender is None:
            self.refuse(sender, message)
            return None
        access = appender.replica.terms.access
        if access.writers or message.asker is not None:
            reason = denial(access, message.producer, sender.id, message.asker)
            if reason:
                appender.refuse(sender, message.request, POLICY, reason)
                return None
        return appender

    def flush(self, shard: str) -> None:
        """Append what is queued for a shard, if this node leads it."""
        if (appender := self.present(shard)) is not None:
            appender.flush(everything=True)

    def refuse(self, sender: Peer, message: AppendRows | OpenProducer | JoinFork) -> None:
        """The disk of this node is full, or it does not lead the shard."""
        code, reason = MOVED, "this node does not lead the shard"
        if message.shard in self._full:
            code, reason = DISK_FULL, "the disk of the shard's leader is full"
        self.port.count("stream_appends_refused")
        where = (message.shard, message.request)
        refusal = AppendRefused(*where, code, reason, leader=self.leader(message.shard))
        self.port.send(sender, refusal)

    def on_flush(self, event: FlushAppends) -> None:
        """Append what came in together."""
        awake, self._awake = self._awake, {}
        for shard in awake:
            if (appender := self._kept.get(shard)) is not None:
                appender.flush()

    def _wake(self, shard: str) -> None:
        if not self._awake:
            self.port.emit(FlushAppends())
        self._awake[shard] = None

    def on_written(self, event: Written) -> None:
        """A shard's disk has room."""
        self._full.pop(event.shard, None)

    def on_disk_failed(self, event: DiskFailed) -> None:
        """A shard's disk has failed: nothing is known of what was not answered."""
        if event.full:
            self._full[event.shard] = None
            if (appender := self._kept.get(event.shard)) is not None:
                appender.refuse_all(DISK_FULL, self.leader(event.shard))
        self.end(event.shard)


def _check(sender: Peer, producer: str) -> None:
    own = NODE_PREFIX + sender.id
    if producer.startswith(NODE_PREFIX) and producer.partition(FORKED)[0] != own:
        raise ProtocolError("the producer of another node")
