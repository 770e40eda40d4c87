"""Trace records of committed rows, by the leader that has committed them.

All rows are recorded while few are committed, and a share where there are many
(canopy/traces/sampling.py), which the records name; no chunk is decoded of which no row is in it.
What a leader commits in its last moments may have no record: then nothing is concluded from it.
"""

from __future__ import annotations

from streams.log.batches import rows_of
from streams.log.chunk import EVENTS, Chunk
from streams.log.names import TRACES, sampled
from streams.services.service import LedShard, ShardService
from streams.shard.replica import Replica


class ShardRecords(LedShard):
    """Of one shard, under one epoch of this node's."""

    _recorded: int | None = None  # the last chunk that was looked at

    @classmethod
    def is_wanted(cls, replica: Replica) -> bool:
        """Records are written from the beginning of a leadership on."""
        return True

    def committed(self) -> None:
        """More of the log is committed."""
        replica = self.replica
        before = self.leader.first - 1 if self._recorded is None else self._recorded
        self._recorded = replica.committed
        for chunk in replica.chunks.recent_from(before + 1, replica.committed - before):
            if chunk.kind == EVENTS:
                self._record(chunk)

    def _record(self, chunk: Chunk) -> None:
        shard = self.replica.shard
        share = self.port.row_share("row", chunk.offsets)
        names = sampled(shard, range(chunk.first, chunk.next_offset), share)
        rows = rows_of(chunk) if names else ()
        said = {"share": share} if share < 1.0 else {}
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
                **said,
            )


class RowRecords(ShardService[ShardRecords]):
    """Records what is committed at the shards that this node leads."""

    kind = ShardRecords
