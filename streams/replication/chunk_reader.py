"""A leader's log read chunk by chunk, from memory or from disk, without keeping a turn waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from streams.log.chunk import Chunk
from streams.replication.replica import Replica

FETCHED: Final = 64
"""Chunks that are taken from memory at once."""


class ChunkReader:
    """Hands over the chunks from one on, in their order."""

    def __init__(self, replica: Replica, number: int, wake: Callable[[], None]) -> None:
        """`wake` is called when chunks that were waited for are there."""
        self.replica = replica
        self.number = number
        """The chunk that comes next."""
        self.waits = False
        """For chunks from disk."""
        self.is_lost = False
        """What comes next is not kept any more, or cannot be read."""
        self._wake = wake
        self._queue: deque[Chunk] = deque()

    def peek(self) -> Chunk | None:
        """The next chunk; None: it is waited for."""
        if not self._queue and not self.waits:
            self._take(self.replica.chunks.recent_from(self.number, FETCHED))
            if not self._queue and not self.is_lost:
                self.waits = True
                self.replica.chunks.scan(self.number, self._found)
        return self._queue[0] if self._queue else None

    def take(self) -> Chunk:
        """The next chunk, which is there."""
        chunk = self._queue.popleft()
        self.number = chunk.number + 1
        return chunk

    def _take(self, chunks: list[Chunk]) -> None:
        if chunks and chunks[0].number > self.number:
            self.is_lost = True
        else:
            self._queue.extend(chunks)

    def _found(self, chunks: list[Chunk]) -> None:
        self.waits = False
        self.is_lost = self.is_lost or not chunks
        self._take(chunks)
        self._wake()
