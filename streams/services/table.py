"""Streams with a key: the newest row of each value of an attribute, kept for ever.

*Promises*: the fold of the newest chunks of kind Table and of the rows from the floor on is, at any
offset from the floor on, the newest row of each key that no row has deleted; a key that was deleted
does not come back; no row goes below the floor that a registered consumer or group has not read,
unless the stream says so (docs/design/streams.md#newest-rows).

*Called by*: `streams.machines`; `streams.services.read` asks `TableServer.shard` for readings that
begin with the newest rows. `streams.log.table` has the content of chunks of kind Table.

A new leader reads the chunks of kind Table and the log from the floor on, in slices. Until it has
them nobody is served from the table, and nothing is removed.

The newest rows below a new floor are written again, and then the floor is raised. Rows are taken
from the table's chunks so far and from the log below the new floor, in the order of their offsets,
and those that are the newest of their key now go into chunks of kind Table. Rows that come
meanwhile may replace some of them, which does no harm: whoever folds the table and what follows it
has the newer row last. The Cut that names these chunks and the floor is appended behind them, so
that it is committed only if they are. Where it is not, they count for nothing.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Final

from matching import compile_selector
from overlay.machine import Timer
from streams.log.batches import encode_rows, rows_of
from streams.log.chunk import CHUNK_TARGET, CUT, EVENTS, TABLE, Chunk
from streams.log.state import encode_entries
from streams.log.table import (
    KeyTable,
    TableRow,
    TableView,
    TableWritten,
    encode_table,
    key_of,
    table_rows,
)
from streams.services.service import Leaderships, LedShard, ReplicaOf, ShardService
from streams.shard.kept_chunks import CHUNK_WORK, ChunkReader
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

KEYS_MOST: Final = 1_000_000
"""Keys of a shard's table at which it takes no more rows: some 250 MB at its leader."""

GARBAGE: Final = 2
"""The table is written again when the segments to be removed have this many times its bytes: so at
most half of what was appended is written again (the cleaning of log-structured file systems;
Rosenblum and Ousterhout, 1992)."""

BUDGET: Final = 1_000
"""Rows' worth of work in a turn: half of `streams.services.read.shard_readings.BUDGET`."""

LOOK: Final = 2.0
"""Seconds between two looks at what retention may remove."""


class ReadTables(Timer, frozen=True):
    """Go on reading, in a turn of its own."""


class LookAtTables(Timer, frozen=True):
    """Time to look at what retention may remove."""


class TableChunks:
    """The chunks from which a table is made, in order: those of kind Table, then the committed ones
    of the log from the floor on."""

    def __init__(self, led: LedShard) -> None:
        self._replica = led.replica
        self._table = led.replica.state.table
        self._wake = partial(led.later, ReadTables)
        self.is_in_table = bool(self._table.first)
        """Whether the next chunk is not of the log."""
        self.reader = ChunkReader(
            self._replica.chunks, self._table.first or self._floor, self._wake
        )

    @property
    def _floor(self) -> int:
        return self._replica.log.before_offset(self._replica.state.floor)[0]

    @property
    def is_behind(self) -> bool:
        """Whether there are more that are committed."""
        return self.is_in_table or self.reader.number <= self._replica.committed

    def peek(self) -> Chunk | None:
        """The next chunk; None: there is none, it has not come from disk yet, or is lost."""
        if self.is_in_table and self.reader.number > self._table.last:
            self.is_in_table = False
            self.reader = ChunkReader(self._replica.chunks, self._floor, self._wake)
        return self.reader.peek() if self.is_behind else None


class ShardTable(LedShard):
    """The table of one shard in memory, under one epoch of this node's."""

    def __init__(
        self, service: ShardService[ShardTable], replica: Replica, leader: ShardLeader
    ) -> None:
        super().__init__(service, replica, leader)
        self.is_complete = False
        """Whether everything that was committed has been read once."""
        self.writing: TableWriting | None = None
        self._begin()
        self.later(ReadTables)
        self.later(LookAtTables, LOOK)

    @classmethod
    def is_wanted(cls, replica: Replica) -> bool:
        """Tables are read from the beginning of a leadership on."""
        return True

    def _begin(self) -> None:
        keep = self.leader.retention.keep
        self.table = KeyTable(keep.key, compile_selector(keep.deletes) if keep.deletes else None)
        self.table.end = self.replica.state.floor
        self.is_complete = False
        self._chunks = TableChunks(self)

    def view(self) -> TableView:
        """The table as it is now."""
        return TableView(self.table)

    # -- work ------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do now."""
        reads = self._chunks.is_behind and not self._chunks.reader.waits
        return reads or (self.writing is not None and self.writing.has_work)

    def step(self, budget: int) -> int:
        """Read committed rows, and write. Return the amount of work done."""
        work = 0
        while work < budget and self._chunks.peek() is not None:
            work += CHUNK_WORK + self._take(self._chunks.reader.take())
        if self._chunks.reader.is_lost:
            self._begin()
            work += CHUNK_WORK
        elif not self._chunks.is_behind:
            self.is_complete = True
        is_full = len(self.table.places) >= KEYS_MOST
        reason = f"a shard has at most {KEYS_MOST:,} keys" if is_full else ""
        self.leader.retention.refuse(reason)
        if self.writing is not None and work < budget:
            work += self.writing.step(budget - work)
        return work

    def _take(self, chunk: Chunk) -> int:
        """Add the rows of a chunk; returns how many it has."""
        if self._chunks.is_in_table:
            rows = table_rows(chunk) if chunk.kind == TABLE else ()
            for each in rows:
                self.table.add(each.offset, each.row, len(each.encoded))
            return len(rows)
        if chunk.kind == EVENTS:
            size = len(chunk.rows) // chunk.offsets
            floor = self.replica.state.floor
            for offset, row in enumerate(rows_of(chunk), chunk.first):
                if offset >= floor:
                    self.table.add(offset, row, size)
        self.table.end = max(self.table.end, chunk.next_offset)
        return chunk.offsets

    # -- what goes on ----------------------------------------------------------------------------

    def committed(self) -> None:
        """More of the log is committed."""
        if self.has_work:
            self.later(ReadTables)

    def on_look_at_tables(self, timer: LookAtTables) -> None:
        """Write the table again, if retention may remove enough of the log."""
        self.later(LookAtTables, LOOK)
        writing = self.writing
        if writing is not None and (not writing.is_done or writing.cut > self.replica.committed):
            return
        self.writing = None
        keep, replica = self.leader.retention.keep, self.replica
        if keep.key != self.table.key or not self.is_complete:
            return
        floor = min(self.leader.retention.floor_due(self.clock()), self.table.end)
        if floor <= replica.state.floor:
            return
        garbage = sum(
            segment.size
            for segment, following in pairwise(replica.log.segments)
            if following.offset <= floor
        )
        if garbage and garbage >= GARBAGE * self.table.bytes:
            self.writing = TableWriting(self, floor)
            self.later(ReadTables)


class TableWriting:
    """The table below one new floor, while it is written."""

    def __init__(self, led: ShardTable, floor: int) -> None:
        self._led = led
        self.replica = led.replica
        self.leader = led.leader
        self.floor = floor
        self.is_done = False
        """The Cut is appended, or this was given up."""
        self.cut = 0
        """The number of its chunk; 0: none."""
        self._table = led.table
        self._rows: list[TableRow] = []
        self._size = 0
        self._sent: list[int] = []  # numbers of the chunks so far
        self._chunks = TableChunks(led)

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do now."""
        return not self.is_done and not self._chunks.reader.waits and self.leader.has_room

    def step(self, budget: int) -> int:
        """Go on for `budget` rows' worth of work; returns the work done."""
        work = 0
        while work < budget and self.has_work:
            chunk = self._chunks.peek()
            if self._chunks.reader.is_lost:
                self.is_done = True
            elif self._is_beyond(chunk):
                self._finish()
            if chunk is None or self.is_done:
                break
            work += CHUNK_WORK + self._take(self._chunks.reader.take())
        return work

    def _is_beyond(self, chunk: Chunk | None) -> bool:
        """Whether all rows below the floor have been looked at when this chunk comes next."""
        if chunk is None:
            return not self._chunks.is_behind
        return not self._chunks.is_in_table and chunk.first >= self.floor

    def _take(self, chunk: Chunk) -> int:
        """Look at the rows of a chunk; returns how many."""
        if self._chunks.is_in_table:
            rows = table_rows(chunk) if chunk.kind == TABLE else ()
            for each in rows:
                self._look_at(each)
            return len(rows)
        if chunk.kind != EVENTS:
            return 0
        floor = self.replica.state.floor
        for offset, row in enumerate(rows_of(chunk), chunk.first):
            if floor <= offset < self.floor and self._table.is_newest(offset, row.attributes):
                self._look_at(TableRow(offset, chunk.time, encode_rows((row,))))
        return chunk.offsets

    def _look_at(self, each: TableRow) -> None:
        attributes = each.row.attributes
        if not self._table.is_newest(each.offset, attributes):
            return
        if self._led.is_row_over(each.time, attributes):
            self._table.forget([key_of(attributes, self._table.key)])
            return
        if self._rows and self._size + len(each.encoded) > CHUNK_TARGET:
            self._write()
        self._rows.append(each)
        self._size += len(each.encoded)

    def _write(self) -> None:
        body = encode_table(self._rows)
        chunk = self.leader.append_chunk(TABLE, body, time=self._led.clock())
        self._sent.append(chunk.number)
        self.replica.port.count("stream_table_rows_written", len(self._rows))
        self._rows, self._size = [], 0

    def _finish(self) -> None:
        """Raise the floor after all rows are written, if it is still due."""
        self.is_done = True
        now = self._led.clock()
        if self.leader.retention.floor_due(now) < self.floor:
            return  # somebody has begun to read there
        if self._rows:
            self._write()
        first, last = (self._sent[0], self._sent[-1]) if self._sent else (0, 0)
        entries = [*self.leader.retention.cut_entries(self.floor, now), TableWritten(first, last)]
        chunk = self.leader.append_chunk(CUT, encode_entries(entries), time=now)
        self.cut = chunk.number
        self.replica.port.count("stream_tables_written")


class TableServer(ShardService[ShardTable]):
    """The tables at this node, of the shards that it leads whose streams have a key."""

    kind = ShardTable

    def __init__(self, leaderships: Leaderships, leading: ReplicaOf) -> None:
        """The arguments are those of `ShardService`. There is a table only where the stream has a
        key."""

        def keyed(shard: str) -> Replica | None:
            replica = leading(shard)
            return replica if replica is not None and replica.terms.keep.key else None

        super().__init__(leaderships, keyed)

    def keys(self, shard: str) -> int | None:
        """Return the number of keys of a shard; None: it has no key, or the number is not known
        here, or not yet."""
        table = self.shard(shard)
        return len(table.table.places) if table is not None and table.is_complete else None

    def on_read_tables(self, timer: ReadTables) -> None:
        """Do a turn's work, and go on in another one."""
        self.work(timer, BUDGET)
