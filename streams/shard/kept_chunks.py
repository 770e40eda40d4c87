"""Chunks of one replica's log, for sending and reading: the last from memory, others from disk.

Chunks from disk are passed on when they come, but never if the folder was reopened meanwhile: the
log may have changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from overlay.machine import LocalEvent, Port
from streams.disk import LogDisk, ReadDone
from streams.log.chunk import CHUNK_MOST, Chunk, read
from streams.log.shard_log import Place, ShardLog

PIECE: Final = 512 * 1024
"""Bytes of chunks in one message. A larger chunk has its own message."""

READ: Final = 4 * PIECE
"""Bytes of one read of a segment."""

RECENT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the last chunks that memory keeps for sending; older ones are read from disk."""

CHUNK_WORK: Final = 50
"""Rows that taking a chunk counts for: reading one of 256 KiB takes 0.3 ms, testing a row some 2
microseconds, most are smaller. Guess."""

FETCHED: Final = 64
"""Chunks that a `ChunkReader` takes from memory at once."""


class DamageSeen(LocalEvent, frozen=True):
    """A read has found damage in a segment."""

    shard: str
    segment: str


class KeptChunks:
    """The chunks of the log that `log` returns."""

    def __init__(self, port: Port, disk: LogDisk, shard: str, log: Callable[[], ShardLog]) -> None:
        self._port, self._disk, self._shard, self._log = port, disk, shard, log
        self.recent: deque[Chunk] = deque()
        self.generation = 0
        """Times that the log has been replaced by another one."""
        self._recent_bytes = 0
        self._learns = False  # when a segment began is being read
        self._waiting: dict[int, Callable[[bytes], None]] = {}

    def add(self, chunk: Chunk) -> None:
        """Keep the newest chunk of the log."""
        self.recent.append(chunk)
        self._recent_bytes += len(chunk.data)
        while self._recent_bytes > RECENT_BYTES and len(self.recent) > 1:
            self._recent_bytes -= len(self.recent.popleft().data)

    def clear(self) -> None:
        """Forget the chunks in memory: the log was replaced."""
        self.recent.clear()
        self._recent_bytes = 0
        self.generation += 1

    def forget_readings(self) -> None:
        """Drop the answers to all pending reads of the disk."""
        self._waiting.clear()
        self._learns = False

    def was_read(self, event: ReadDone) -> None:
        """Pass on the bytes of a read."""
        if then := self._waiting.pop(event.ticket, None):
            then(event.data)

    def read(self, number: int, then: Callable[[tuple[bytes, ...]], None]) -> None:
        """Pass on chunks from `number` on, up to `PIECE` bytes: at once from memory, or later from
        disk; () if they were removed."""
        self.read_pieces(number, lambda pieces: then(pieces[0] if pieces else ()))

    def read_pieces(self, number: int, then: Callable[[Sequence[tuple[bytes, ...]]], None]) -> None:
        """As `read`, all such pieces of one read of the disk."""
        if there := self.recent_from(number):
            then(_pieces(there))
        else:
            self.scan(number, lambda chunks: then(_pieces(chunks)))

    def scan(self, number: int, then: Callable[[list[Chunk]], None]) -> None:
        """Pass on, later, the chunks from `number` on in one read of the disk, without their
        hashes; [] if they were removed."""
        log = self._log()
        number = max(number, log.start)
        line = log.line(number)
        place = Place(line.segment, line.at) if line is not None else log.at_number(number)
        if place is None:
            then([])
        else:
            self._read_on(place, number, then)

    def recent_from(self, number: int, most: int = 1 << 62) -> list[Chunk]:
        """Up to `most` chunks from `number` on, committed or not, if memory has all from there on;
        else none."""
        if not self.recent or number < self.recent[0].number:
            return []
        start = number - self.recent[0].number
        behind = max(len(self.recent) - start, 0)
        if behind < start:  # nearer to the end
            return list(islice(reversed(self.recent), behind))[::-1][:most]
        return list(islice(self.recent, start, start + most))

    def _read_on(self, place: Place, number: int, then: Callable[[list[Chunk]], None]) -> None:
        """Read a segment from `place` on until there are chunks from `number` on."""

        def found(data: bytes) -> None:
            chunks, at = [], 0
            while (chunk := read(data, at, hashed=False)) is not None:
                if chunk.number >= number:
                    chunks.append(chunk)
                at += len(chunk.data)
            if not at and place.at < self._log().size_of(place.segment):
                self._port.emit(DamageSeen(self._shard, place.segment))
            if chunks or not at:
                then(chunks)
            else:
                self._read_on(Place(place.segment, place.at + at), number, then)

        self.read_bytes(place.segment, place.at, READ, found)

    def read_bytes(self, segment: str, at: int, size: int, then: Callable[[bytes], None]) -> None:
        """Pass on bytes of a segment, as they are on disk; never if the folder is reopened
        meanwhile."""
        self._waiting[self._disk.read(self._shard, segment, at, size)] = then

    def learn_times(self) -> None:
        """Read the beginning of the oldest segment whose time is not known, one at a time."""
        segments = self._log().segments[1:]
        segment = next((segment for segment in segments if not segment.began), None)
        if segment is None or self._learns:
            return
        self._learns = True

        def found(data: bytes) -> None:
            self._learns = False
            if (chunk := read(data)) is not None:
                segment.began = chunk.time

        self.read_bytes(segment.name, 0, CHUNK_MOST, found)


class ChunkReader:
    """Returns the chunks of a log from a number on, in their order, without blocking a turn."""

    def __init__(self, chunks: KeptChunks, number: int, wake: Callable[[], None]) -> None:
        """`wake` is called when awaited chunks have come from disk."""
        self._chunks = chunks
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
            self._take(self._chunks.recent_from(self.number, FETCHED))
            if not self._queue and not self.is_lost:
                self.waits = True
                self._chunks.scan(self.number, self._found)
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


def _pieces(chunks: Sequence[Chunk]) -> list[tuple[bytes, ...]]:
    """The bytes of chunks, in pieces of `PIECE` bytes and `READ` together."""
    found: list[tuple[bytes, ...]] = []
    taken: list[bytes] = []
    size = all_sizes = 0
    for chunk in chunks:
        if taken and size + len(chunk.data) > PIECE:
            found.append(tuple(taken))
            taken, size = [], 0
        if found and all_sizes + len(chunk.data) > READ:
            break
        taken.append(chunk.data)
        size += len(chunk.data)
        all_sizes += len(chunk.data)
    return [*found, tuple(taken)] if taken else found
