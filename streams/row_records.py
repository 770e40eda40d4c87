"""Trace records of committed rows, written by the leader that commits them.

Only sampled rows are recorded, and a node without traces decodes none. Rows that a leader commits
in its last moments may have no record: the analysis concludes nothing from a missing one.
"""

from __future__ import annotations

from collections.abc import Callable

from overlay.machine import Machine, Port
from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, Chunk
from streams.log.row_names import TRACES, RowNames
from streams.replication.leading import Leading
from streams.replication.replica import Replica, ShardCommitted


class RowRecords(Machine):
    """Records the rows that are committed at the shards led here."""

    def __init__(self, port: Port, leading: Callable[[str], Replica | None]) -> None:
        """`leading`: a shard's replica if this node leads it."""
        super().__init__(port)
        self._leading = leading
        self._recorded: dict[str, tuple[Leading, int]] = {}  # up to which chunk, by shard

    def on_committed(self, event: ShardCommitted) -> None:
        """More of a shard's log is committed."""
        replica = self._leading(event.shard)
        if replica is None or replica.leading is None:
            self._recorded.pop(event.shard, None)
            return
        leading, number = self._recorded.get(event.shard, (None, 0))
        if leading is not replica.leading:
            number = replica.leading.first - 1
        self._recorded[event.shard] = (replica.leading, replica.committed)
        for chunk in replica.chunks.recent_from(number + 1, replica.committed - number):
            if chunk.kind == EVENTS:
                self._record(event.shard, chunk)

    def _record(self, shard: str, chunk: Chunk) -> None:
        names = self.port.sampled(RowNames(shard, range(chunk.first, chunk.next_offset)))
        rows = rows_of(chunk) if names else ()
        for name in names:
            row = rows[name.offset - chunk.first]
            if row.payload_type == TRACES:
                continue
            self.port.trace(
                "row",
                event=name.identity,
                shard=shard,
                offset=name.offset,
                epoch=chunk.epoch,
                attributes=row.attributes,
            )
