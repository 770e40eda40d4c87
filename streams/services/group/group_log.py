"""The writes of one shard's groups to its log, and the actions that wait for their commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from overlay.machine import Port
from streams.log.chunk import DEAD, POSITIONS
from streams.log.group_state import DeadRow, GroupEntry
from streams.log.state import encode_entries, split_entries
from streams.services.read.expiry import Expiry
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

GATHER: Final = 0.05
"""Seconds in which acknowledgements are gathered before they are written: no more than twenty
chunks a second, however many members there are."""


class GroupLog:
    """The entries of one shard's groups, under one epoch of this node's."""

    def __init__(
        self,
        port: Port,
        replica: Replica,
        leader: ShardLeader,
        clock: Callable[[], int],
        wake: Callable[[float], None],
    ) -> None:
        """`clock`: nanoseconds since 1970; `wake`: has `flush` called after the given seconds."""
        self.port = port
        self.replica = replica
        self.leader = leader
        self.clock = clock
        self.expiry = Expiry(lambda: leader.retention.keep, clock)
        self._wake = wake
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # for a chunk's commit

    def wake(self, seconds: float = GATHER) -> None:
        """Have the queued entries written soon."""
        self._wake(seconds)

    def write(self, entries: list[GroupEntry]) -> None:
        """Append entries, dead letters first: a run of done rows may contain them, and must not be
        in the log without them."""
        dead = [entry for entry in entries if isinstance(entry, DeadRow)]
        others = [entry for entry in entries if not isinstance(entry, DeadRow)]
        for kind, some in ((DEAD, dead), (POSITIONS, others)):
            for run in split_entries(some) if some else ():
                self.leader.append_chunk(kind, encode_entries(run), time=self.clock())
                self.port.count("stream_group_chunks")

    def when_committed(self, then: Callable[[], None]) -> None:
        """Call `then` when the log up to here is committed."""
        number = self.replica.log.end.number
        if number <= self.replica.committed:
            then()
        else:
            self._waiting.append((number, then))

    def committed(self) -> None:
        """Call those whose chunks are committed."""
        while self._waiting and self._waiting[0][0] <= self.replica.committed:
            self._waiting.popleft()[1]()
