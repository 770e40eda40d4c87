"""Captured events at one replica of a shard: kept until they are committed, appended if it leads.

Every replica gets every event, so that the next leader has what the last one did not commit. Which
events are in the log its state says (`streams.log.origins`); an event is let go when that is so up
to a chunk that is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from overlay.client import Event
from overlay.machine import Port
from streams.log.batches import BatchHead, Row, encode_rows, join_batches
from streams.log.chunk import CHUNK_MOST, CHUNK_TARGET, EVENTS, HEAD, ChunkId
from streams.log.origins import CAPTURED
from streams.log.zones import encode_zones, zone_map
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

UNDER_WAY: Final = 4
"""Chunks that are appended and not committed, from which on smaller ones wait: as
`streams.services.append.appender.UNDER_WAY`."""

ROW_MOST: Final = CHUNK_MOST - 64 * 1024
"""Bytes of one row at most (`streams.programs.producer.messages.BATCH_MOST`)."""

PENDING_MOST: Final = 50_000
"""Events that wait at one replica; beyond it the oldest are given up. Guess: half a second at
100,000 a second, in which a leader that lives commits. Some 50 MB."""

Identity = tuple[str, int, int]


class ShardCapture:
    """One shard at this node."""

    def __init__(self, port: Port, replica: Replica, clock: Callable[[], int]) -> None:
        """`clock`: nanoseconds since 1970."""
        self.port = port
        self.replica = replica
        self._clock = clock
        self._waiting: dict[Identity, Event] = {}
        self._unsent: dict[Identity, Event] = {}  # what `_leading` has not appended
        self._leading: ShardLeader | None = None
        self._sent: list[int] = []  # numbers of the own chunks that are not committed
        self._mark: ChunkId | None = None  # up to this chunk …
        self._marked: list[Identity] = []  # … these are in the log

    @property
    def waiting(self) -> int:
        """Events that are not known to be committed."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the shard has as much as it may have, so that events wait. (What is appended at
        once, a chunk, may lie beyond that.)"""
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
        """More of the log is committed: there is room for more."""
        self.pump()

    def pump(self) -> None:
        """Append what has not been appended, if this node leads and not too much is under way."""
        leader = self.replica.leader if self.replica.serves else None
        if leader is not self._leading:
            self._leading = leader
            self._sent.clear()
            self._unsent = dict(self._waiting)
        while self._sent and self._sent[0] <= self.replica.committed:
            del self._sent[0]
        while leader is not None and self._unsent and len(self._sent) < UNDER_WAY:
            if self.is_full:
                return
            self._append(leader)

    def _append(self, leader: ShardLeader) -> None:
        """Append one chunk."""
        origins = self.replica.state.origins
        heads: list[BatchHead] = []
        rows: list[Row] = []
        encoded: list[bytes] = []
        size = 0
        while self._unsent and size < CHUNK_TARGET:
            identity, event = next(iter(self._unsent.items()))
            row = Row(event.attributes, event.payload, event.payload_type)
            data = encode_rows((row,))
            if rows and size + len(data) > ROW_MOST:
                break
            del self._unsent[identity]
            if origins.has(*_origin(identity)):  # by a leader before this one
                self._count_known(identity)
            elif len(data) > ROW_MOST:
                self.port.count("captures_too_large")
                del self._waiting[identity]
            else:
                _add_head(heads, BatchHead(*_origin(identity), 1))
                rows.append(row)
                encoded.append(data)
                size += len(data)
        if not rows:
            return
        body = join_batches(heads, encoded)
        zones = encode_zones(zone_map(rows))
        if HEAD.size + len(zones) + len(body) > CHUNK_MOST:
            zones = b""
        chunk = leader.append_chunk(EVENTS, body, len(rows), zones=zones, time=self._clock())
        self._sent.append(chunk.number)
        self.port.count("captured", len(rows))

    def look(self) -> None:
        """Let go what is committed."""
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
    """An event's name, session and number in the state of a log."""
    return CAPTURED + identity[0], identity[1], identity[2]


def _add_head(heads: list[BatchHead], head: BatchHead) -> None:
    """Add the head of a row, to that of the row before if it follows on it."""
    last = heads[-1] if heads else None
    if last is not None and head == replace(last, sequence=last.sequence + last.count, count=1):
        heads[-1] = replace(last, count=last.count + 1)
    else:
        heads.append(head)
