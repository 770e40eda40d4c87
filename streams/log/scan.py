"""One segment read from its beginning: its chunks, its holes, and where its tail is torn.

Chunks are appended to a segment one behind the other. So after a crash there may be a *torn tail*:
the bytes behind the last valid chunk were never durable, or they were and are damaged. The two look
alike, so that a replica with a torn tail proves nothing by the chunks that it lacks. A *hole* is
damage for certain: valid chunks behind it were written after it. The chunk behind a hole has the
hash of the last chunk in it, by which any other replica can repair the hole.

A chunk with a valid CRC, but not with the hash that the next chunk names, was altered, not damaged:
it is a hole as well.
"""

from __future__ import annotations

from typing import NamedTuple

from streams.log.chunk import MARK, Chunk, ChunkId, read


class Placed(NamedTuple):
    """A chunk and where in its segment it begins."""

    at: int
    chunk: Chunk


class Hole(NamedTuple):
    """Bytes [at, end) of a segment that are damaged: the chunks `first` to `last`, of which the
    last has the hash `hash`."""

    at: int
    end: int
    first: int
    last: int
    hash: bytes
    is_last: bool = False
    """No chunk of the segment stands behind it."""


class Scan(NamedTuple):
    """The content of a segment."""

    chunks: list[Placed]
    holes: list[Hole]
    end: int  # where the next chunk would begin
    torn: bool  # there are other bytes
    size: int

    @property
    def last(self) -> Chunk | None:
        """Its last valid chunk."""
        return self.chunks[-1].chunk if self.chunks else None


def scan(data: bytes, number: int, after: ChunkId | None = None) -> Scan:
    """Read a segment whose first chunk is `number`, with the predecessor `after` if it is known."""
    chunks: list[Placed] = []
    holes: list[Hole] = []
    at = 0
    while True:
        chunk = read(data, at)
        if chunk is None or chunk.number != number:
            found = _next(data, at, number)
            if found is None:
                return Scan(chunks, holes, at, at < len(data), len(data))
            holes.append(Hole(at, found.at, number, found.chunk.number - 1, found.chunk.previous))
            at, chunk = found
        elif after is not None and after.number == number - 1 and chunk.previous != after.hash:
            _drop_altered(chunks, holes, chunk)
        chunks.append(Placed(at, chunk))
        after, number = chunk.id, chunk.number + 1
        at += len(chunk.data)


def _next(data: bytes, at: int, number: int) -> Placed | None:
    """The next valid chunk behind `at` with a number above `number`."""
    while (at := data.find(MARK, at + 1)) >= 0:
        chunk = read(data, at)
        if chunk is not None and chunk.number > number:
            return Placed(at, chunk)
    return None


def _drop_altered(chunks: list[Placed], holes: list[Hole], follower: Chunk) -> None:
    """Make a hole of the last chunk: `follower` names another hash for it."""
    if not chunks:  # the predecessor is in another segment
        return
    at, altered = chunks.pop()
    holes.append(
        Hole(at, at + len(altered.data), altered.number, altered.number, follower.previous)
    )
