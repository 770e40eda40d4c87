"""The newest rows below a new floor are written again, and then the floor is raised.

Rows are taken from the table's chunks so far and from the log below the new floor, in the order of
their offsets, and those that are the newest of their key now go into chunks of kind Table. Rows
that come meanwhile may replace some of them, which does no harm: whoever folds the table and what
follows it has the newer row last. The Cut that names these chunks and the floor is appended behind
them, so that it is committed only if they are. Where it is not, they count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streams.log.batches import rows_of
from streams.log.chunk import CHUNK_TARGET, CUT, EVENTS, TABLE, Chunk
from streams.log.state import encode_entries
from streams.log.table import (
    KeyTable,
    TableRow,
    TableWritten,
    encode_table,
    key_of,
    table_row,
    table_rows,
)
from streams.shard.kept_chunks import ChunkReader
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica
from streams.shard.retention import life_of

UNDER_WAY: Final = 4
"""Chunks that are appended and not committed, from which on no more are: as those of producers."""

CHUNK_WORK: Final = 50
"""What reading a chunk counts for, in rows: as `streams.services.read.history.CHUNK_WORK`."""


class TableWriting:
    """The table below one new floor, while it is written."""

    def __init__(
        self,
        replica: Replica,
        leader: ShardLeader,
        table: KeyTable,
        floor: int,
        clock: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """`clock`: nanoseconds since 1970; `wake` is called when chunks that were waited for are
        there."""
        self.replica = replica
        self.leader = leader
        self.floor = floor
        self.is_done = False
        """The Cut is appended, or this was given up."""
        self.cut = 0
        """The number of its chunk; 0: none."""
        self._table = table
        self._clock = clock
        self._wake = wake
        self._rows: list[TableRow] = []
        self._size = 0
        self._sent: list[int] = []  # numbers of the chunks so far
        self._former = replica.state.table
        self._reader = ChunkReader(replica.chunks, self._former.first, wake)
        self._is_in_table = bool(self._former.first)
        if not self._is_in_table:
            self._read_log()

    def _read_log(self) -> None:
        self._is_in_table = False
        number = self.replica.log.before_offset(self.replica.state.floor)[0]
        self._reader = ChunkReader(self.replica.chunks, number, self._wake)

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do now."""
        return not self.is_done and not self._reader.waits and self._has_room

    @property
    def _has_room(self) -> bool:
        committed = self.replica.committed
        return sum(number > committed for number in self._sent[-UNDER_WAY:]) < UNDER_WAY

    def step(self, budget: int) -> int:
        """Go on for `budget` rows' worth of work; returns the work done."""
        work = 0
        while work < budget and self.has_work:
            if self._is_in_table and self._reader.number > self._former.last:
                self._read_log()
            if not self._is_in_table and self._reader.number > self.replica.committed:
                self._finish()
                break
            chunk = self._reader.peek()
            if self._reader.is_lost:
                self.is_done = True
            if chunk is None:
                break
            if not self._is_in_table and chunk.first >= self.floor:
                self._finish()
                break
            work += CHUNK_WORK + self._take(self._reader.take())
        return work

    def _take(self, chunk: Chunk) -> int:
        """Look at the rows of a chunk; returns how many."""
        if self._is_in_table and chunk.kind == TABLE:
            rows = table_rows(chunk)
            for each in rows:
                self._look_at(each)
            return len(rows)
        if self._is_in_table or chunk.kind != EVENTS:
            return 0
        floor = self.replica.state.floor
        for offset, row in enumerate(rows_of(chunk), chunk.first):
            if floor <= offset < self.floor and self._table.is_newest(offset, row.attributes):
                self._look_at(table_row(offset, chunk.time, row))
        return chunk.offsets

    def _look_at(self, each: TableRow) -> None:
        attributes = each.row.attributes
        if not self._table.is_newest(each.offset, attributes):
            return
        life = life_of(self.leader.retention.keep, attributes)
        if life and each.time + life <= self._clock():
            self._table.forget([key_of(attributes, self._table.key)])
            return
        if self._rows and self._size + len(each.encoded) > CHUNK_TARGET:
            self._write()
        self._rows.append(each)
        self._size += len(each.encoded)

    def _write(self) -> None:
        body = encode_table(self._rows)
        chunk = self.leader.append_chunk(TABLE, body, time=self._clock())
        self._sent.append(chunk.number)
        self.replica.port.count("stream_table_rows_written", len(self._rows))
        self._rows, self._size = [], 0

    def _finish(self) -> None:
        """All rows are written: raise the floor, if that is still what is wanted."""
        self.is_done = True
        now = self._clock()
        if self.leader.retention.floor_due(now) < self.floor:
            return  # somebody has begun to read there
        if self._rows:
            self._write()
        first, last = (self._sent[0], self._sent[-1]) if self._sent else (0, 0)
        entries = [*self.leader.retention.cut_entries(self.floor, now), TableWritten(first, last)]
        chunk = self.leader.append_chunk(CUT, encode_entries(entries), time=now)
        self.cut = chunk.number
        self.replica.port.count("stream_tables_written")
