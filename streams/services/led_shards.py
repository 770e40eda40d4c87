"""What a node keeps for each shard that it leads: made at the first request, ended with the
leadership.

Producers, readers, groups and transactions each have such a thing for a shard (an `Appender`,
`ShardReadings` …). It belongs to one leadership: another epoch gets another one, also when the same
node leads again, since what waits in it may have been cut off in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from overlay.machine import Machine, NodeId, Peer, Port, by_id
from streams.replication.leading import Leading
from streams.replication.replica import Replica


class OfLeading(Protocol):
    """What is kept of one leadership."""

    @property
    def leading(self) -> Leading:
        """The leadership that it was made for."""


class Worker(OfLeading, Protocol):
    """What does its work in pieces."""

    @property
    def has_work(self) -> bool:
        """Whether there is anything to do now."""

    def step(self, budget: int) -> int:
        """Do some of it, for `budget` rows' worth at most or a little more; how much it was."""


Kept = TypeVar("Kept", bound=OfLeading)
KeptWorker = TypeVar("KeptWorker", bound=Worker)

ReplicaOf = Callable[[str], Replica | None]
"""This node's replica of a shard; None: it has none, or none of the kind that is asked for."""


class LedShards(Generic[Kept]):
    """By shard, what is kept while this node leads it."""

    def __init__(
        self,
        me: NodeId,
        leading: ReplicaOf,
        replica: ReplicaOf,
        make: Callable[[Replica, Leading], Kept],
        end: Callable[[str, Kept, Peer | None], None],
    ) -> None:
        """`leading`: a shard's replica if this node (`me`) leads it and a chunk of its epoch is
        committed; `replica`: its replica if this node has one; `end` is told the shard, what was
        kept, and who leads it instead if that is known."""
        self._me = me
        self._leading = leading
        self._replica = replica
        self._make, self._end = make, end
        self._kept: dict[str, Kept] = {}

    @property
    def kept(self) -> Mapping[str, Kept]:
        """What there is, in the order of its making, or of its last turn of `work`."""
        return self._kept

    def get(self, shard: str) -> Kept | None:
        """Of a shard that this node leads, made now if there is none; None: it does not lead it."""
        replica = self._leading(shard)
        kept = self._kept.get(shard)
        if kept is not None and (replica is None or replica.leading is not kept.leading):
            self.end(shard)
            kept = None
        if kept is None and replica is not None and replica.leading is not None:
            kept = self._kept[shard] = self._make(replica, replica.leading)
        return kept

    def present(self, shard: str) -> Kept | None:
        """The same, but nothing is made."""
        kept = self._kept.get(shard)
        return kept if kept is not None and self.get(shard) is kept else None

    def each(self) -> Iterator[Kept]:
        """All that is led still; what is not is ended on the way."""
        for shard in list(self._kept):
            if (kept := self.get(shard)) is not None:
                yield kept

    def end(self, shard: str) -> None:
        """This node leads the shard no more."""
        kept = self._kept.pop(shard, None)
        if kept is not None:
            self._end(shard, kept, self.leader(shard))

    def leader(self, shard: str) -> Peer | None:
        """Whom this node's replica of the shard follows; None: it leads, or has none."""
        replica = self._replica(shard)
        if replica is None or replica.hard_state.candidate == self._me:
            return None
        return by_id(replica.replicas).get(replica.hard_state.candidate)

    def last(self, shard: str) -> None:
        """It comes last in `each` next time."""
        self._kept[shard] = self._kept.pop(shard)


def work(shards: LedShards[KeptWorker], budget: int) -> bool:
    """Do `budget` rows' worth of work, the shards by turns. Whether some is left."""
    is_left = False
    for shard in list(shards.kept):
        kept = shards.get(shard)
        if kept is None or not kept.has_work:
            continue
        if budget <= 0:
            return True
        budget -= kept.step(budget)
        shards.last(shard)
        is_left = is_left or kept.has_work
    return is_left


class ShardServer(Machine, Generic[Kept]):
    """The base of machines that keep something for each shard that this node leads."""

    def __init__(
        self,
        port: Port,
        leading: ReplicaOf,
        replica: ReplicaOf,
        clock: Callable[[], int],
    ) -> None:
        """`leading` and `replica`: as of `LedShards`; `clock`: nanoseconds since 1970."""
        super().__init__(port)
        self._leading = leading
        self._clock = clock
        self._led = LedShards(port.me.id, leading, replica, self._made, self._ended)

    def _made(self, replica: Replica, leading: Leading) -> Kept:
        """What is kept of a leadership that begins."""
        raise NotImplementedError

    def _ended(self, shard: str, known: Kept, leader: Peer | None) -> None:
        """What was kept is not needed any more; `leader`: who leads the shard instead, if that is
        known."""
        raise NotImplementedError
