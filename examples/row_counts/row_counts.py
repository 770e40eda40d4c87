"""A service that counts the rows of each value of an attribute (docs/guide/extending.md)."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from matching import Value
from overlay.machine import Message, Peer, Timer, Uint53
from streams.log.batches import rows_of
from streams.log.chunk import EVENTS
from streams.services.service import Leaderships, LedShard, ReplicaOf, ShardService
from streams.shard.kept_chunks import ChunkReader
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

BUDGET: Final = 2_000
"""Rows' worth of work in a turn; reading a chunk counts for `CHUNK_WORK`."""
CHUNK_WORK: Final = 50
VALUES_MOST: Final = 10_000
"""Values that are counted; rows with others count together, under None."""


class AskRowCounts(Message, frozen=True):
    """Asks a shard's leader for its counts. Answered by RowCounts, or RowCountsMoved."""

    shard: Annotated[str, msgspec.Meta(max_length=256)]
    ticket: Uint53


class RowCounts(Message, frozen=True):
    """How many of the rows below the offset `end` have which value."""

    ticket: Uint53
    end: Uint53
    counts: tuple[tuple[Value | None, Uint53], ...]


class RowCountsMoved(Message, frozen=True):
    """The node that was asked does not lead; `leader` does, if that is known."""

    ticket: Uint53
    leader: Peer | None


class CountRows(Timer, frozen=True):
    """Go on counting, in a turn of its own."""


class ShardCounts(LedShard):
    """The counts of one shard, under one epoch of this node's."""

    def __init__(self, service: RowCounting, replica: Replica, leader: ShardLeader) -> None:
        super().__init__(service, replica, leader)
        self._by = service.by
        self._counts: Counter[Value | None] = Counter()
        self._end = replica.log.first_offset
        wake = partial(self.later, CountRows)
        self._reader = ChunkReader(replica.chunks, replica.log.before_offset(self._end)[0], wake)
        self._asked: list[tuple[Peer, int]] = []  # who waits, with their tickets

    @classmethod
    def moved(cls, message: Any, leader: Peer | None) -> Message | None:
        return RowCountsMoved(message.ticket, leader)

    def on_ask(self, sender: Peer, message: AskRowCounts) -> None:
        self._asked.append((sender, message.ticket))
        self.later(CountRows)

    def committed(self) -> None:
        self.later(CountRows)

    @property
    def has_work(self) -> bool:
        return not self._reader.waits and (bool(self._asked) or self._is_behind)

    @property
    def _is_behind(self) -> bool:
        return self._reader.number <= self.replica.committed

    def step(self, budget: int) -> int:
        work = 1
        while self._is_behind and work < budget and (chunk := self._reader.peek()) is not None:
            self._reader.take()
            self._end = chunk.next_offset
            for row in rows_of(chunk) if chunk.kind == EVENTS else ():
                value = row.attributes.get(self._by)
                is_counted = value in self._counts or len(self._counts) < VALUES_MOST
                self._counts[value if is_counted else None] += 1
            work += CHUNK_WORK + chunk.offsets
        if not self._is_behind:
            for sender, ticket in self._asked:
                answer = RowCounts(ticket, self._end, tuple(self._counts.items()))
                self.port.send(sender, answer)
            self._asked.clear()
        return work

    def stop(self, leader: Peer | None) -> None:
        for sender, ticket in self._asked:
            self.port.send(sender, RowCountsMoved(ticket, leader))


class RowCounting(ShardService[ShardCounts]):
    """Counts rows at the shards that this node leads, from the first question on. `by`: the
    attribute."""

    kind = ShardCounts

    def __init__(self, leaderships: Leaderships, leading: ReplicaOf, by: str) -> None:
        super().__init__(leaderships, leading)
        self.by = by

    def on_count_rows(self, timer: CountRows) -> None:
        self.work(timer, BUDGET)
