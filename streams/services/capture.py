"""Capture by content: published events that match a stream's selector are appended to it.

*Promises*: an event that was published after the capture was acknowledged is in the stream once, as
long as one node that had got it lives until a leader has committed it; no event is there twice
within the bounds of `streams.log.origins` (docs/design/streams.md#capture).

*Called by*: `streams.machines`, which builds `Captures` in every node.

A node that has a shard of a stream with a selector subscribes as a program does, whether it leads
or follows, so that there is no moment without a subscriber when another leader takes over, and the
next leader has what the last one did not commit. The node registers the subscription again when
it was refused or has ended, and with another selector before the former one ends. The state of the
log says which events are in it (`streams.log.origins`); an event is dropped when that holds up to
a chunk that is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from overlay.client import Command, Delivered, Ended, Event, Failed, Lapsed, Subscribe, Subscribed
from overlay.info import IntakeInfo
from overlay.machine import Alarm, InnerReply, Machine, Port, Timer
from streams.directory.entry import StreamEntry
from streams.disk import Opened
from streams.log.batches import BatchHead, Row, encode_rows
from streams.log.chunk import CHUNK_TARGET, ChunkId
from streams.log.origins import CAPTURED
from streams.programs.producer.messages import BATCH_MOST
from streams.programs.producer.producers import shard_of
from streams.services.service import Leaderships
from streams.shard.hosting.shard_hosts import ShardHosts, StreamDescribed
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica, ShardUnled

LOOK: Final = 0.25
"""Seconds between looks at which shards there are, and at what is committed."""

AGAIN: Final = 1.0
"""Seconds after which a refused subscription is tried again."""


PENDING_MOST: Final = 50_000
"""Events that wait at one replica; beyond it the oldest are given up. Guess: half a second at
100,000 a second, in which a leader that lives commits. Some 50 MB."""

Identity = tuple[str, int, int]


class ShardCapture:
    """Captured events at one replica of a shard: kept until they are committed, appended if it
    leads."""

    def __init__(self, port: Port, replica: Replica, clock: Callable[[], int]) -> None:
        """`clock`: nanoseconds since 1970."""
        self.port = port
        self.replica = replica
        self._clock = clock
        self._waiting: dict[Identity, Event] = {}
        self._unsent: dict[Identity, Event] = {}  # what `_leader` has not appended
        self._leader: ShardLeader | None = None
        self._mark: ChunkId | None = None  # up to this chunk …
        self._marked: list[Identity] = []  # … these are in the log

    @property
    def waiting(self) -> int:
        """Events that are not known to be committed."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the shard has reached its limit, so that events wait. (Rows that are appended
        together, up to a chunk, may exceed it.)"""
        leader = self.replica.leader
        return leader is not None and bool(leader.retention.full(0, 1))

    def add(self, events: Sequence[Event]) -> None:
        """Take events that have come for this shard."""
        origins = self.replica.state.origins
        for event in events:
            identity = (event.publisher, event.incarnation, event.sequence)
            if identity in self._waiting:
                continue
            if origins.has(*_origin(identity)):
                self._count_known(identity)
            else:
                self._waiting[identity] = self._unsent[identity] = event
        while len(self._waiting) > PENDING_MOST:
            identity = next(iter(self._waiting))
            del self._waiting[identity]
            if self._unsent.pop(identity, None) and not origins.has(*_origin(identity)):
                self.port.count("captures_given_up")

    def _count_known(self, identity: Identity) -> None:
        late = self.replica.state.origins.is_forgotten(*_origin(identity))
        self.port.count("captures_late" if late else "captures_repeated")

    def committed(self) -> None:
        """Append pending events, if this node leads and not too many are under way: more of the log
        may be committed."""
        leader = self.replica.leader if self.replica.serves else None
        if leader is not self._leader:
            self._leader = leader
            self._unsent = dict(self._waiting)
        while leader is not None and self._unsent and leader.has_room:
            if self.is_full:
                return
            self._append(leader)

    def _append(self, leader: ShardLeader) -> None:
        """Append one chunk of the captured events that wait and are not in the log yet."""
        origins = self.replica.state.origins
        heads: list[BatchHead] = []
        rows: list[Row] = []
        encoded: list[bytes] = []
        size = 0
        while self._unsent and size < CHUNK_TARGET:
            identity, event = next(iter(self._unsent.items()))
            row = Row(event.attributes, event.payload, event.payload_type)
            data = encode_rows((row,))
            if rows and size + len(data) > BATCH_MOST:
                break
            del self._unsent[identity]
            if origins.has(*_origin(identity)):  # by a leader before this one
                self._count_known(identity)
            elif len(data) > BATCH_MOST:
                self.port.count("captures_too_large")
                del self._waiting[identity]
            else:
                _add_head(heads, BatchHead(*_origin(identity), 1))
                rows.append(row)
                encoded.append(data)
                size += len(data)
        if not rows:
            return
        leader.append_rows(heads, encoded, rows, self._clock())
        self.port.count("captured", len(rows))

    def look(self) -> None:
        """Forget waiting events that are committed, by a mark at the end of the log."""
        replica = self.replica
        if self._mark is not None and self._mark.number <= replica.committed:
            if replica.log.has(self._mark):
                for identity in self._marked:
                    self._waiting.pop(identity, None)
                    self._unsent.pop(identity, None)
            self._mark, self._marked = None, []
        if self._waiting and (self._mark is None or not replica.log.has(self._mark)):
            origins = replica.state.origins
            self._marked = [each for each in self._waiting if origins.has(*_origin(each))]
            self._mark = replica.log.end


def _origin(identity: Identity) -> tuple[str, int, int]:
    """Return the names under which the state of a log keeps an event: publisher, start and
    number."""
    return CAPTURED + identity[0], identity[1], identity[2]


def _add_head(heads: list[BatchHead], head: BatchHead) -> None:
    """Add the head of a row, to that of the row before if it follows on it."""
    last = heads[-1] if heads else None
    if last is not None and head == replace(last, sequence=last.sequence + last.count, count=1):
        heads[-1] = replace(last, count=last.count + 1)
    else:
        heads.append(head)


class LookAtCaptures(Timer, frozen=True):
    """Fires when the captures are to be checked."""


@dataclass(eq=False)
class _Subscription:
    """One subscription for a stream. `client`: the client number under which it was made."""

    entry: StreamEntry
    client: int
    asked_at: float
    gaps: int
    """Number of times that events may have been missed."""
    is_ready: bool = False
    has_failed: bool = False

    @property
    def selector(self) -> str:
        """The selector of the subscription."""
        return self.entry.options.capture


class Captures(Machine):
    """The subscriptions by which this node captures events into streams."""

    def __init__(
        self,
        leaderships: Leaderships,
        hosts: ShardHosts,
        ask: Callable[[int, Command], None],
        close: Callable[[int], None],
    ) -> None:
        """`ask` carries out a client's command, `close` ends a client."""
        super().__init__(leaderships.port)
        self._leaderships = leaderships
        self._hosts = hosts
        self._ask, self._close = ask, close
        self._streams: dict[str, StreamEntry] = {}  # that may have something to capture here
        self._shards: dict[str, ShardCapture] = {}
        self._subscriptions: dict[str, _Subscription] = {}  # by stream id
        self._former: dict[str, _Subscription] = {}  # until the newer one is acknowledged
        self._by_client: dict[int, _Subscription] = {}
        self._client = 0
        self._looks = Alarm(self.port, LookAtCaptures())

    def status(self, shard: str) -> IntakeInfo | None:
        """Return the progress of capturing for a shard; None: nothing is captured for it."""
        capture = self._shards.get(shard)
        subscription = self._subscriptions.get(shard.rpartition("/")[0])
        if capture is None or subscription is None:
            return None
        state = "captures" if subscription.is_ready else "registers"
        state = "full" if capture.is_full else state
        return IntakeInfo(state, subscription.selector, capture.waiting, subscription.gaps)

    # -- subscriptions ---------------------------------------------------------------------------

    def on_opened(self, event: Opened) -> None:
        """Look for the stream of a shard that this node has opened."""
        self._look_for(event.shard.rpartition("/")[0])

    def on_described(self, event: StreamDescribed) -> None:
        """A stream may have got a selector, or lost it."""
        self._look_for(event.id)

    def _look_for(self, id_: str) -> None:
        entry = self._hosts.entries.get(id_)
        if entry is None or not (entry.options.capture or id_ in self._streams):
            return
        self._streams[id_] = entry
        self._looks.within(LOOK)

    def on_look(self, timer: LookAtCaptures) -> None:
        """Subscribe for the shards that are here, end subscriptions that are not wanted, and
        release committed events."""
        self._looks.rang()
        wanted: dict[str, StreamEntry] = {}
        shards: dict[str, None] = {}
        for entry in list(self._streams.values()):
            here = [shard for shard in entry.shards() if shard in self._hosts.hosted]
            if here and entry.options.capture and not entry.removed:
                wanted[entry.id] = entry
                shards.update(dict.fromkeys(here))
            else:
                del self._streams[entry.id]
        for shard in shards:
            replica = self._hosts.replica(shard)
            known = self._shards.get(shard)
            if replica is not None and (known is None or known.replica is not replica):
                self._let_go(shard)
                known = self._shards[shard] = ShardCapture(
                    self.port, replica, self._leaderships.clock
                )
                self._leaderships.hear(shard, known)
            if known is not None:
                known.look()
                known.committed()
        for shard in [one for one in self._shards if one not in shards]:
            self._let_go(shard)
        for entry in wanted.values():
            self._subscribe(entry)
        for id_ in [one for one in self._subscriptions if one not in wanted]:
            self._end(self._subscriptions.pop(id_))
            self._end(self._former.pop(id_, None))
        if self._streams:
            self._looks.within(LOOK)

    def _let_go(self, shard: str) -> None:
        known = self._shards.pop(shard, None)
        if known is not None:
            self._leaderships.hear_no_more(shard, known)

    def _subscribe(self, entry: StreamEntry) -> None:
        """Have a subscription with the selector of this entry."""
        known = self._subscriptions.get(entry.id)
        gaps = 0
        if known is not None:
            is_same = known.selector == entry.options.capture
            if is_same and not (known.has_failed and self.port.now - known.asked_at > AGAIN):
                return
            gaps = known.gaps
            if is_same or not known.is_ready:
                self._end(known)
            else:
                self._end(self._former.pop(entry.id, None))
                self._former[entry.id] = known
        self._client -= 1
        mine = _Subscription(entry, self._client, self.port.now, gaps)
        self._subscriptions[entry.id] = self._by_client[mine.client] = mine
        self._ask(mine.client, Subscribe(1, mine.selector, f"stream {entry.name}"))

    def _end(self, subscription: _Subscription | None) -> None:
        if subscription is not None and self._by_client.pop(subscription.client, None) is not None:
            self._close(subscription.client)

    def on_inner_reply(self, event: InnerReply) -> None:
        """Handle a reply that a program with this subscription would be sent."""
        mine = self._by_client.get(event.client)
        reply = event.reply
        if mine is None:
            return
        if isinstance(reply, Delivered):
            self._take(mine.entry.id, [delivery.event for delivery in reply.deliveries])
        elif isinstance(reply, Subscribed):
            mine.is_ready = True
            self._end(self._former.pop(mine.entry.id, None))
        elif isinstance(reply, Lapsed) and reply.is_over:
            mine.is_ready = True
        elif isinstance(reply, Failed):
            self.port.count("capture_gaps", int(mine.is_ready))
            mine.gaps += mine.is_ready
            if isinstance(reply, Lapsed):
                mine.is_ready = False
            elif reply.request or isinstance(reply, Ended):
                mine.has_failed, mine.is_ready = True, False
                mine.asked_at = self.port.now

    # -- events ----------------------------------------------------------------------------------

    def _take(self, stream: str, events: Sequence[Event]) -> None:
        """Give events to the shards in which they belong."""
        for shard, capture in self._shards.items():
            id_, _, number = shard.rpartition("/")
            if id_ != stream:
                continue
            options = self._subscriptions[stream].entry.options
            count, by = options.shards, options.by
            capture.add(
                events
                if count == 1
                else [e for e in events if shard_of(e.attributes.get(by), count) == int(number)]
            )
            capture.committed()

    def on_unled(self, event: ShardUnled) -> None:
        """Append nothing to a shard that is destroyed."""
        if event.shard not in self._hosts.hosted:
            self._let_go(event.shard)
