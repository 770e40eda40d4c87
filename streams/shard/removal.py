"""The removal of segments by each replica, when a Cut is committed."""

from __future__ import annotations

from collections import deque

from streams.log.chunk import CHUNK_MOST, read
from streams.shard.local import LocalReplica


class Removal:
    """The committed and pending Cuts of one replica."""

    def __init__(self, replica: LocalReplica) -> None:
        self._replica = replica
        self._cuts: deque[tuple[int, int]] = deque()  # number of the chunk, and the floor
        self._floor = 0  # of the last committed Cut
        self._learning = False

    def clear(self, is_learning: bool) -> None:
        """Forget all Cuts: the log was replaced. `is_learning`: pending reads of the disk still
        have answers to come."""
        self._cuts.clear()
        self._learning = self._learning and is_learning

    def add(self, number: int, floor: int) -> None:
        """Note a Cut: its chunk and its floor."""
        self._cuts.append((number, floor))

    def carry_out(self) -> None:
        """Delete the segments below the floor of a committed Cut."""
        replica = self._replica
        while self._cuts and self._cuts[0][0] <= replica.committed:
            self._floor = max(self._floor, self._cuts.popleft()[1])
        if len(replica.log.segments) > 1 and replica.log.segments[1].offset <= self._floor:
            needed = replica.log.state_at(replica.committed)
            half = replica.state.transactions.oldest_chunk(replica.committed)
            table = replica.state.oldest_table_chunk(replica.committed)
            needed = min(number for number in (needed, half, table) if number is not None)
            for name in replica.log.retain(self._floor, needed):
                replica.disk.drop(replica.shard, name)

    def learn_times(self) -> None:
        """Read the beginning of the oldest segment whose time is not known, one at a time."""
        replica = self._replica
        for segment in replica.log.segments[1:]:
            if not segment.began:
                break
        else:
            return
        if self._learning:
            return
        self._learning = True

        def found(data: bytes) -> None:
            self._learning = False
            if (chunk := read(data)) is not None:
                segment.began = chunk.time

        replica.chunks.read_bytes(segment.name, 0, CHUNK_MOST, found)
