"""The base of what a node offers for the shards that it leads.

A service is a machine (`ShardService`) that keeps an object for a shard (`LedShard`): made at the
first request, or when the node begins to lead, and ended with the leadership. It belongs to one
leadership: another epoch gets another one, also when the same node leads again, since what waits in
it may have been cut off in between.

A shard without requests costs nothing: what has something to do at a timer is on an `Agenda`, and
nothing else is visited. `Leaderships` hears for all services that chunks are committed, and hands
that on to those that keep something for that shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from overlay.machine import Alarm, Machine, Peer, Port, Timer
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica, ShardCommitted, ShardLed, ShardUnled

ReplicaOf = Callable[[str], Replica | None]
"""This node's replica of a shard; None: it has none, or none of the kind that is asked for."""


class HearsCommits(Protocol):
    """What is called when more of a shard's log is committed."""

    def committed(self) -> None:
        """More of the log is committed."""


class LedShard:
    """What a service keeps for one shard, under one epoch of this node's. A service defines the
    methods that it needs; who does not define `committed` is not called."""

    def __init__(
        self, port: Port, replica: Replica, leader: ShardLeader, clock: Callable[[], int]
    ) -> None:
        """`clock`: nanoseconds since 1970."""
        self.port = port
        self.replica = replica
        self.leader = leader
        self._clock = clock

    def committed(self) -> None:
        """More of the log is committed."""

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do now."""
        return False

    def step(self, budget: int) -> int:
        """Do some work, for `budget` rows' worth or a little more; returns how much it was."""
        return 0

    def stop(self, leader: Peer | None) -> None:
        """This node leads the shard no more; `leader`: who does, if that is known. Nobody here
        knows what becomes of what is not committed."""


class Agenda:
    """The shards of one service for which something is to be done when a timer fires."""

    def __init__(self, port: Port, timer: Timer, delay: float) -> None:
        """`delay`: seconds from the first entry to the timer."""
        self._alarm = Alarm(port, timer)
        self._delay = delay
        self._shards: dict[str, None] = {}

    def add(self, shard: str, within: float | None = None) -> None:
        """Something is to be done for a shard; `within` so many seconds, None: the usual ones."""
        if within is None and shard in self._shards:
            return
        self._shards[shard] = None
        self._alarm.within(self._delay if within is None else within)

    def put_last(self, shard: str) -> None:
        """The same, after all others."""
        self._shards.pop(shard, None)
        self.add(shard)

    def due(self) -> list[str]:
        """The timer has fired: the shards whose turn it is, in the order in which they came. To be
        called first in the timer's handler."""
        self._alarm.rang()
        shards, self._shards = list(self._shards), {}
        return shards


class Leaderships(Machine):
    """What becomes of the shards that this node leads, told to the services."""

    def __init__(self, port: Port, replica: ReplicaOf) -> None:
        """`replica`: a shard's replica if this node has one."""
        super().__init__(port)
        self._replica = replica
        self._services: list[ShardService[Any]] = []
        self._hearing: dict[str, list[tuple[HearsCommits, Replica | None, ShardLeader | None]]] = {}

    def add(self, service: ShardService[Any]) -> None:
        """A service is there. They are told in the order in which they were added."""
        self._services.append(service)

    def leader(self, shard: str) -> Peer | None:
        """Whom this node's replica of the shard follows; None: it leads, or has none."""
        replica = self._replica(shard)
        return None if replica is None else replica.followed

    def hear(self, shard: str, who: HearsCommits) -> None:
        """`who` is called whenever more of a shard's log is committed; of one leadership only, if
        it is a `LedShard`."""
        led = (who.replica, who.leader) if isinstance(who, LedShard) else (None, None)
        self._hearing.setdefault(shard, []).append((who, *led))

    def hear_no_more(self, shard: str, who: HearsCommits) -> None:
        """`who` is not called any more."""
        left = [entry for entry in self._hearing.get(shard, ()) if entry[0] is not who]
        if left:
            self._hearing[shard] = left
        else:
            self._hearing.pop(shard, None)

    def on_committed(self, event: ShardCommitted) -> None:
        """More of a shard's log is committed."""
        hearing = self._hearing.get(event.shard)
        if hearing is not None:
            for who, replica, leader in tuple(hearing):
                if replica is None or replica.leader is leader:
                    who.committed()

    def on_led(self, event: ShardLed) -> None:
        """This node leads a shard."""
        for service in self._services:
            service.led(event.shard, event.epoch)

    def on_unled(self, event: ShardUnled) -> None:
        """This node leads a shard no more."""
        self.check(event.shard)

    def check(self, shard: str) -> None:
        """End what services keep for a shard that this node does not lead for them any more."""
        for service in self._services:
            service.check(shard)


Kept = TypeVar("Kept", bound=LedShard)


class ShardService(Machine, Generic[Kept]):
    """The base of machines that keep something for each shard that this node leads."""

    def __init__(
        self,
        port: Port,
        leaderships: Leaderships,
        leading: ReplicaOf,
        clock: Callable[[], int],
    ) -> None:
        """`leading`: a shard's replica if this node leads it, a chunk of its epoch is committed,
        and the service is offered for it; `clock`: nanoseconds since 1970."""
        super().__init__(port)
        self._leaderships = leaderships
        self._leading = leading
        self._clock = clock
        self._kept: dict[str, Kept] = {}
        leaderships.add(self)

    # -- what a service defines ------------------------------------------------------------------

    def make(self, replica: Replica, leader: ShardLeader) -> Kept:
        """What is kept of a leadership from now on."""
        raise NotImplementedError

    def led(self, shard: str, epoch: int) -> None:
        """This node leads a shard, under `epoch`. Nothing is kept for it yet."""

    def ended(self, shard: str, kept: Kept, leader: Peer | None) -> None:
        """What was kept for a shard is not any more; `leader`: who leads it instead, if that is
        known."""
        kept.stop(leader)

    # -- what is kept ----------------------------------------------------------------------------

    @property
    def shards(self) -> Mapping[str, Kept]:
        """By shard, what there is, in the order of its making."""
        return self._kept

    def shard(self, shard: str) -> Kept | None:
        """Of a shard that this node leads, made now if there is none; None: it does not lead it."""
        replica = self._leading(shard)
        kept = self._kept.get(shard)
        if kept is not None and (replica is None or replica.leader is not kept.leader):
            self.end(shard)
            kept = None
        if kept is None and replica is not None and replica.leader is not None:
            kept = self._kept[shard] = self.make(replica, replica.leader)
            if type(kept).committed is not LedShard.committed:
                self._leaderships.hear(shard, kept)
        return kept

    def present(self, shard: str) -> Kept | None:
        """The same, but nothing is made."""
        self.check(shard)
        return self._kept.get(shard)

    def check(self, shard: str) -> None:
        """End what is kept for a shard if this node does not lead it any more."""
        kept = self._kept.get(shard)
        if kept is not None:
            replica = self._leading(shard)
            if replica is None or replica.leader is not kept.leader:
                self.end(shard)

    def end(self, shard: str) -> None:
        """This node leads the shard no more."""
        kept = self._kept.pop(shard, None)
        if kept is not None:
            self._leaderships.hear_no_more(shard, kept)
            self.ended(shard, kept, self.leader(shard))

    def leader(self, shard: str) -> Peer | None:
        """Whom this node's replica of the shard follows; None: it leads, or has none."""
        return self._leaderships.leader(shard)

    # -- what is done at timers ------------------------------------------------------------------

    def due(self, agenda: Agenda) -> Iterator[tuple[str, Kept]]:
        """The timer of an agenda has fired: what is kept for the shards on it that this node leads
        still."""
        for shard in agenda.due():
            if (kept := self.present(shard)) is not None:
                yield shard, kept

    def work(self, agenda: Agenda, budget: int) -> None:
        """The timer of an agenda has fired: do `budget` rows' worth of work, the shards by turns.
        What is left is on the agenda again."""
        served: list[tuple[str, Kept]] = []
        for shard, kept in self.due(agenda):
            if not kept.has_work:
                continue
            if budget > 0:
                budget -= kept.step(budget)
                served.append((shard, kept))
            else:
                agenda.add(shard)
        for shard, kept in served:
            if kept.has_work:
                agenda.put_last(shard)
