"""A leader's log, chunk by chunk, from memory or from disk, without blocking a turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from streams.log.chunk import Chunk
from streams.shard.replica import Replica

FETCHED: Final = 64
"""Chunks taken from memory at once."""


class ChunkReader:
    """Returns the chunks from a number on, in their order."""

    def __init__(self, replica: Replica, number: int, wake: Callable[[], None]) -> None:
        """`wake` is called when awaited chunks have come from disk."""
        self.replica = replica
        self.number = number
        """The number of the next chunk."""
        self.waits = False
        """Whether it waits for the disk."""
        self.is_lost = False
        """Whether the next chunk was removed, or cannot be read."""
        self._wake = wake
        self._queue: deque[Chunk] = deque()

    def peek(self) -> Chunk | None:
        """The next chunk; None: it has not come from disk yet, or is lost."""
        if not self._queue and not self.waits:
            self._take(self.replica.chunks.recent_from(self.number, FETCHED))
            if not self._queue and not self.is_lost:
                self.waits = True
                self.replica.chunks.scan(self.number, self._found)
        return self._queue[0] if self._queue else None

    def take(self) -> Chunk:
        """Return the chunk that `peek` has shown, and go on to the next."""
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
