"""The base of what a node offers for the shards that it leads.

A service is a machine (`ShardService`) that keeps an object for a shard (`LedShard`): made at the
first request, or when the node begins to lead, and ended with the leadership. It belongs to one
leadership: another epoch gets another one, also when the same node leads again, since what waits in
it may have been cut off in between.

The object has handlers as a machine has: `on_…`, of messages with a field `shard`, and of timers
that it has set with `later`. The service calls them for the shard that is meant, and answers itself
(`moved`) where this node does not lead that shard. All shards of a service share its timers, and a
shard without requests costs nothing. `Leaderships` hears for all services that chunks are
committed, and hands that on to those that keep something for that shard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Final, Generic, Protocol, TypeVar

from matching import Value
from overlay.machine import (
    Alarm,
    Handler,
    Handlers,
    Machine,
    Message,
    Peer,
    Port,
    Timer,
    handlers_by_name,
)
from streams.log.chunk import Chunk
from streams.log.state import Entry, encode_entries, split_entries
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica, ShardCommitted, ShardLed, ShardUnled
from streams.shard.retention import life_of

KEPT: Final = 15.0
"""A reading or a member ends when its node has been silent for this long, in seconds: nodes send a
message every second, and a link that is silent for longer is lost."""

ReplicaOf = Callable[[str], Replica | None]
"""This node's replica of a shard; None: it has none, or none of the kind that is asked for."""

Item = TypeVar("Item")


def by_peer(
    items: Iterable[tuple[Peer, Item]], most: int
) -> Iterator[tuple[Peer, tuple[Item, ...]]]:
    """Yield the items for each peer, in tuples of at most `most`."""
    found: dict[Peer, list[Item]] = {}
    for peer, item in items:
        found.setdefault(peer, []).append(item)
    for peer, mine in found.items():
        for start in range(0, len(mine), most):
            yield peer, tuple(mine[start : start + most])


class HearsCommits(Protocol):
    """The interface that is called when more of a shard's log is committed."""

    def committed(self) -> None:
        """More of the log is committed."""


class LedShard:
    """The state of a service for one shard, under one epoch of this node. A service defines the
    handlers and methods that it needs."""

    def __init__(self, service: ShardService[Any], replica: Replica, leader: ShardLeader) -> None:
        self.service = service
        self.port = service.port
        self.replica = replica
        self.leader = leader
        self.clock = service.clock
        """Nanoseconds since 1970."""
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # for a chunk's commit

    @classmethod
    def is_wanted(cls, replica: Replica) -> bool:
        """Whether there is something to do from the beginning of a leadership on, without a
        request."""
        return False

    @classmethod
    def moved(cls, message: Any, leader: Peer | None) -> Message | None:
        """Return the answer to a request for a shard that this node does not lead; None: there is
        none. `leader`: the leader, if it is known."""
        return None

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do now."""
        return False

    def step(self, budget: int) -> int:
        """Do some work, for `budget` rows' worth or a little more; returns how much it was."""
        return 0

    def stop(self, leader: Peer | None) -> None:
        """Stop, because this node no longer leads the shard. `leader`: the new leader, if it is
        known. The outcome of uncommitted entries is unknown here."""

    @property
    def first(self) -> int:
        """The oldest offset that is kept."""
        return max(self.replica.state.floor, self.replica.log.first_offset)

    @property
    def end(self) -> int:
        """The offset after the last committed row."""
        line = self.replica.log.line(self.replica.committed)
        assert line is not None, "the last chunks have their lines in memory"
        return line.first + line.offsets

    # -- lifetimes of rows -----------------------------------------------------------------------
    #
    # They are counted from the time of a chunk, by the clock of the leader. Rows past theirs are
    # not delivered; retention removes them, a segment at a time.

    @property
    def has_lives(self) -> bool:
        """Whether each row may have a lifetime of its own."""
        return bool(self.leader.retention.keep.ttl_by)

    def is_over(self, time: int) -> bool:
        """Whether all rows that were appended at `time` are past theirs, as far as that can be said
        without looking at them."""
        keep = self.leader.retention.keep
        return bool(keep.ttl) and not keep.ttl_by and time + keep.ttl <= self.clock()

    def is_row_over(self, time: int, attributes: Mapping[str, Value | None]) -> bool:
        """Whether a row that was appended at `time` is past its time."""
        life = life_of(self.leader.retention.keep, attributes)
        return bool(life) and time + life <= self.clock()

    # -- what it has done later ------------------------------------------------------------------

    def later(self, timer: type[Timer], delay: float = 0.0) -> None:
        """Have the handler of this timer called in `delay` seconds, or earlier."""
        self.service.agendas[timer].add(self.replica.shard, delay)

    def when_committed(self, then: Callable[[], None], number: int | None = None) -> None:
        """Call `then` when chunk `number` is committed (None: the last one of the log as it is
        now), after those who wait already. It is not called if the leadership ends before: a
        leader that has been replaced without knowing it commits nothing, and so says nothing."""
        if number is None:
            number = self.replica.log.end.number
        if number <= self.replica.committed:
            then()
        else:
            self._waiting.append((number, then))

    def committed(self) -> None:
        """More of the log is committed: call those who wait for it."""
        while self._waiting and self._waiting[0][0] <= self.replica.committed:
            self._waiting.popleft()[1]()

    def append_entries(self, kind: int, entries: Sequence[Entry]) -> Chunk:
        """Append entries of the log's state, in as many chunks of a kind as they need. Returns the
        last one."""
        for run in split_entries(entries):
            chunk = self.leader.append_chunk(kind, encode_entries(run), time=self.clock())
        return chunk


class Agenda:
    """The shards of one service for which something is to be done when a timer fires."""

    def __init__(self, port: Port, timer: Timer) -> None:
        self._alarm = Alarm(port, timer)
        self._delay = float("inf")  # the shortest one that was asked for since the timer fired
        self._shards: dict[str, None] = {}

    def add(self, shard: str, delay: float) -> None:
        """Something is to be done for a shard in `delay` seconds, or earlier."""
        if delay >= self._delay and shard in self._shards:
            return
        self._shards[shard] = None
        self._delay = min(self._delay, delay)
        self._alarm.within(delay)

    def put_last(self, shard: str) -> None:
        """Something is to be done for a shard at once, after all others."""
        self._shards.pop(shard, None)
        self.add(shard, 0.0)

    def due(self) -> list[str]:
        """The timer has fired: the shards whose turn it is, in the order in which they came. To be
        called first in the timer's handler."""
        self._alarm.rang()
        self._delay = float("inf")
        shards, self._shards = list(self._shards), {}
        return shards


class Leaderships(Machine):
    """Tells the services which shards this node leads, and which of their chunks are committed."""

    def __init__(self, port: Port, replica: ReplicaOf, clock: Callable[[], int]) -> None:
        """`replica`: a shard's replica if this node has one; `clock`: nanoseconds since 1970."""
        super().__init__(port)
        self.clock = clock
        self.replica = replica
        self._services: list[ShardService[Any]] = []
        self._hearing: dict[str, list[tuple[HearsCommits, Replica | None, ShardLeader | None]]] = {}

    def add(self, service: ShardService[Any]) -> None:
        """Add a service. Services are called in the order in which they were added."""
        self._services.append(service)

    def leader(self, shard: str) -> Peer | None:
        """Whom this node's replica of the shard follows; None: it leads, or has none."""
        replica = self.replica(shard)
        return None if replica is None else replica.followed

    def hear(self, shard: str, who: HearsCommits) -> None:
        """`who` is called whenever more of a shard's log is committed; of one leadership only, if
        it is a `LedShard`."""
        led = (who.replica, who.leader) if isinstance(who, LedShard) else (None, None)
        self._hearing.setdefault(shard, []).append((who, *led))

    def hear_no_more(self, shard: str, who: HearsCommits) -> None:
        """Stop calling `who` when something of the shard is committed."""
        left = [entry for entry in self._hearing.get(shard, ()) if entry[0] is not who]
        if left:
            self._hearing[shard] = left
        else:
            self._hearing.pop(shard, None)

    def on_committed(self, event: ShardCommitted) -> None:
        """Tell those that listen to the shard that more of its log is committed, unless they
        listened to an earlier leadership."""
        hearing = self._hearing.get(event.shard)
        if hearing is not None:
            for who, replica, leader in tuple(hearing):
                if replica is None or replica.leader is leader:
                    who.committed()

    def on_led(self, event: ShardLed) -> None:
        """Tell the services that this node leads a shard."""
        for service in self._services:
            service.led(event.shard, event.epoch)

    def on_unled(self, event: ShardUnled) -> None:
        """End the state of a shard that this node no longer leads."""
        self.check(event.shard)

    def check(self, shard: str) -> None:
        """End what services keep for a shard that this node has stopped leading for them."""
        for service in self._services:
            service.present(shard)


Kept = TypeVar("Kept", bound=LedShard)


class ShardService(Machine, Generic[Kept]):
    """The base of machines that keep something for each shard that this node leads."""

    kind: type[Kept]
    """The class of the record kept for each leadership."""

    def __init__(self, leaderships: Leaderships, leading: ReplicaOf) -> None:
        """`leading`: a shard's replica if this node leads it, a chunk of its epoch is committed,
        and the service is offered for it."""
        port = leaderships.port
        super().__init__(port)
        self.clock = leaderships.clock
        self._leaderships = leaderships
        self._leading = leading
        self._kept: dict[str, Kept] = {}
        machine: type = type(self)
        kind: type = self.kind
        mine, theirs = handlers_by_name(machine), handlers_by_name(kind)
        timers = [what for what in (*mine, *theirs) if issubclass(what, Timer)]
        self.agendas = {timer: Agenda(port, timer()) for timer in timers}
        self._handlers: dict[Any, Handler] = dict(super().handlers())
        for what, name in theirs.items():
            is_timer = what in self.agendas
            self._handlers[what] = self._at_timer(name) if is_timer else self._at_message(name)
        leaderships.add(self)

    def handlers(self) -> Handlers:
        """Return the handlers of the service, and those of the state that it keeps."""
        return self._handlers

    def _at_message(self, name: str) -> Handler:
        """Return a handler that calls a method of the state of the shard that a message names."""

        @wraps(getattr(self.kind, name))
        def handle(sender: Peer, message: Any) -> None:
            kept = self.shard(message.shard)
            if kept is None:
                self.refuse(sender, message)
            else:
                getattr(kept, name)(sender, message)

        return handle

    def _at_timer(self, name: str) -> Handler:
        """Return a handler that calls a method of the state of each shard that has set a timer."""

        @wraps(getattr(self.kind, name))
        def handle(timer: Timer) -> None:
            for kept in self.due(timer):
                getattr(kept, name)(timer)

        return handle

    # -- what a service may define ---------------------------------------------------------------

    def make(self, replica: Replica, leader: ShardLeader) -> Kept:
        """Make the state for a new leadership."""
        return self.kind(self, replica, leader)

    def led(self, shard: str, epoch: int) -> None:
        """Begin with a shard that this node leads under `epoch`. There is no state for it yet."""
        replica = self._leading(shard)
        if replica is not None and self.kind.is_wanted(replica):
            self.shard(shard)

    def refuse(self, sender: Peer, message: Any) -> None:
        """Answer a request for a shard that this node does not lead."""
        answer = self.kind.moved(message, self._leaderships.leader(message.shard))
        if answer is not None:
            self.port.send(sender, answer)

    # -- what is kept ----------------------------------------------------------------------------

    @property
    def shards(self) -> Mapping[str, Kept]:
        """By shard, what there is, in the order of its making."""
        return self._kept

    def shard(self, shard: str) -> Kept | None:
        """Return the state of a shard that this node leads, making it if there is none; None: this
        node does not lead the shard."""
        kept = self.present(shard)
        if kept is None:
            replica = self._leading(shard)
            if replica is not None and replica.leader is not None:
                kept = self._kept[shard] = self.make(replica, replica.leader)
                self._leaderships.hear(shard, kept)
        return kept

    def present(self, shard: str) -> Kept | None:
        """The same, but nothing is made. If this node has stopped leading the shard, its state
        ends."""
        kept = self._kept.get(shard)
        if kept is not None:
            replica = self._leading(shard)
            if replica is None or replica.leader is not kept.leader:
                self.end(shard)
                return None
        return kept

    def end(self, shard: str) -> None:
        """End the state of a shard, because this node no longer leads it."""
        kept = self._kept.pop(shard, None)
        if kept is not None:
            self._leaderships.hear_no_more(shard, kept)
            kept.stop(self._leaderships.leader(shard))

    # -- what is done at timers ------------------------------------------------------------------

    def due(self, timer: Timer) -> Iterator[Kept]:
        """Yield the state of each shard that has set this timer and that this node still leads."""
        for shard in self.agendas[type(timer)].due():
            if (kept := self.present(shard)) is not None:
                yield kept

    def work(self, timer: Timer, budget: int) -> None:
        """Do `budget` rows' worth of work when a timer has fired, the shards by turns. Shards with
        work left set the timer again; those that were served come after those that were not."""
        agenda, served = self.agendas[type(timer)], list[Kept]()
        for kept in self.due(timer):
            if not kept.has_work:
                continue
            if budget > 0:
                budget -= kept.step(budget)
                served.append(kept)
            else:
                agenda.add(kept.replica.shard, 0.0)
        for kept in served:
            if kept.has_work:
                agenda.put_last(kept.replica.shard)
