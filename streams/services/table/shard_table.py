"""The table of one shard that this node leads: in memory, kept up with what is committed.

A new leader reads the chunks of kind Table and the log from the floor on, in slices. Until it has
them nobody is served from the table, and nothing is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from matching import Predicate, compile_selector
from overlay.machine import Port
from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, TABLE, Chunk
from streams.log.table import KeyTable, TableView, table_rows
from streams.services.service import LedShard
from streams.services.table.writing import CHUNK_WORK, TableWriting
from streams.shard.kept_chunks import ChunkReader
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

KEYS_MOST: Final = 1_000_000
"""Keys of a shard's table at which it takes no more rows: some 250 MB at its leader."""

GARBAGE: Final = 2
"""The table is written again when the segments to be removed have so many times its bytes: so what
is written again is at most half of what was appended (the cleaning of log-structured file systems;
Rosenblum and Ousterhout, 1992)."""


class ShardTable(LedShard):
    """Of one shard, under one epoch of this node's."""

    def __init__(
        self,
        port: Port,
        replica: Replica,
        leader: ShardLeader,
        clock: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """As of `LedShard`; `wake`: have `step` called in a turn of its own."""
        super().__init__(port, replica, leader, clock)
        self.is_complete = False
        """Whether everything that was committed has been read once."""
        self.writing: TableWriting | None = None
        self._wake = wake
        self._begin()

    def _begin(self) -> None:
        keep, state = self.leader.retention.keep, self.replica.state
        deletes: Predicate | None = compile_selector(keep.deletes) if keep.deletes else None
        self.table = KeyTable(keep.key, deletes)
        self.table.end = state.floor
        self.is_complete = False
        self._former = state.table
        self._is_in_table = bool(self._former.first)
        self._reader = ChunkReader(self.replica.chunks, self._former.first, self._wake)
        if not self._is_in_table:
            self._read_log()

    def _read_log(self) -> None:
        self._is_in_table = False
        number = self.replica.log.before_offset(self.replica.state.floor)[0]
        self._reader = ChunkReader(self.replica.chunks, number, self._wake)

    # -- what others ask -------------------------------------------------------------------------

    def view(self) -> TableView:
        """The table as it is now."""
        return TableView(self.table)

    # -- work ------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do now."""
        return self._has_chunks or (self.writing is not None and self.writing.has_work)

    @property
    def _has_chunks(self) -> bool:
        reader = self._reader
        is_behind = self._is_in_table or reader.number <= self.replica.committed
        return is_behind and not reader.waits

    def step(self, budget: int) -> int:
        """Read what is committed, and write; returns the work done."""
        work = 0
        while work < budget and self._has_chunks:
            if self._is_in_table and self._reader.number > self._former.last:
                self._read_log()
                continue
            chunk = self._reader.peek()
            if self._reader.is_lost:
                self._begin()
                work += CHUNK_WORK
                break
            if chunk is None:
                break
            work += CHUNK_WORK + self._take(self._reader.take())
        if not self._is_in_table and self._reader.number > self.replica.committed:
            self.is_complete = True
        is_full = len(self.table.places) >= KEYS_MOST
        self.leader.retention.refuse(f"a shard has at most {KEYS_MOST:,} keys" if is_full else "")
        if self.writing is not None and work < budget:
            work += self.writing.step(budget - work)
        return work

    def _take(self, chunk: Chunk) -> int:
        if self._is_in_table and chunk.kind == TABLE:
            rows = table_rows(chunk)
            for each in rows:
                self.table.add(each.offset, each.row, len(each.encoded))
            return len(rows)
        if not self._is_in_table and chunk.kind == EVENTS:
            size = len(chunk.rows) // chunk.offsets
            floor = self.replica.state.floor
            for offset, row in enumerate(rows_of(chunk), chunk.first):
                if offset >= floor:
                    self.table.add(offset, row, size)
        if not self._is_in_table:
            self.table.end = max(self.table.end, chunk.next_offset)
        return chunk.offsets

    # -- what goes on ----------------------------------------------------------------------------

    def committed(self) -> None:
        """More of the log is committed."""
        if self.has_work:
            self._wake()

    def look(self) -> None:
        """Write the table anew, if enough of the log is not kept any more."""
        writing = self.writing
        if writing is not None and (not writing.is_done or writing.cut > self.replica.committed):
            return
        self.writing = None
        keep, replica = self.leader.retention.keep, self.replica
        if keep.key != self.table.key or not self.is_complete:
            return
        floor = min(self.leader.retention.floor_due(self._clock()), self.table.end)
        if floor <= replica.state.floor:
            return
        garbage = sum(
            segment.size
            for segment, following in pairwise(replica.log.segments)
            if following.offset <= floor
        )
        if garbage and garbage >= GARBAGE * self.table.bytes:
            self.writing = TableWriting(
                *(replica, self.leader, self.table, floor, self._clock, self._wake)
            )
            self._wake()
