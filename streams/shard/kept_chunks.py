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
from streams.log.chunk import Chunk, read
from streams.log.shard_log import Place, ShardLog

PIECE: Final = 512 * 1024
"""Bytes of chunks in one message. A larger chunk has its own message."""

READ: Final = 4 * PIECE
"""Bytes of one read of a segment."""

RECENT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the last chunks that memory keeps for sending; older ones are read from disk."""


class DamageSeen(LocalEvent, frozen=True):
    """A read has found damage in a segment."""

    shard: str
    segment: str


class KeptChunks:
    """The chunks of the log that `log` returns."""

    def __init__(self, port: Port, disk: LogDisk, shard: str, log: Callable[[], ShardLog]) -> None:
        self._port, self._disk, self._shard, self._log = port, disk, shard, log
        self.recent: deque[Chunk] = deque()
        self._recent_bytes = 0
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

    def forget_readings(self) -> None:
        """Drop the answers to all pending reads of the disk."""
        self._waiting.clear()

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
            self._read_from(number, lambda chunks: then(_pieces(chunks)), hashed=False)

    def scan(self, number: int, then: Callable[[list[Chunk]], None]) -> None:
        """Pass on, later, the chunks from `number` on in one read of the disk, without hashes, for
        their rows; [] if they were removed."""
        self._read_from(number, then, hashed=False)

    def _read_from(
        self, number: int, then: Callable[[list[Chunk]], None], hashed: bool = True
    ) -> None:
        number = max(number, self._log().start)
        line = self._log().line(number)
        place = Place(line.segment, line.at) if line is not None else self._log().at_number(number)
        if place is None:
            then([])
            return
        self._read_on(place, number, then, hashed)

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

    def _read_on(
        self, place: Place, number: int, then: Callable[[list[Chunk]], None], hashed: bool
    ) -> None:
        """Read a segment from `place` on until there are chunks from `number` on."""

        def found(data: bytes) -> None:
            chunks, at = [], 0
            while (chunk := read(data, at, hashed=hashed)) is not None:
                if chunk.number >= number:
                    chunks.append(chunk)
                at += len(chunk.data)
            if not at and place.at < self._log().size_of(place.segment):
                self._port.emit(DamageSeen(self._shard, place.segment))
            if chunks or not at:
                then(chunks)
            else:
                self._read_on(Place(place.segment, place.at + at), number, then, hashed)

        self.read_bytes(place.segment, place.at, READ, found)

    def read_bytes(self, segment: str, at: int, size: int, then: Callable[[bytes], None]) -> None:
        """Hand over bytes of a segment, as they are on disk; nothing is handed over if the folder
        is opened anew meanwhile."""
        self._waiting[self._disk.read(self._shard, segment, at, size)] = then


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
