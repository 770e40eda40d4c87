"""Recovery of a shard's folder at start: from its newest segment, and older ones if needed.

Chunks are appended to a segment one behind the other. So after a crash there may be a *torn tail*:
the bytes behind the last valid chunk were never durable, or they were and are damaged. The two look
alike, so that a replica with a torn tail proves nothing by the chunks that it lacks. A *hole* is
damage for certain: valid chunks behind it were written after it. The chunk behind a hole has the
hash of the last chunk in it, by which any other replica can repair the hole: the replica keeps its
position and fetches them again.

A chunk with a valid CRC, but not with the hash that the next chunk names, was altered, not damaged:
it is a hole as well.

Recovery reads all chunks that may be uncommitted, so that a replica can compare each with its
leader's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from streams.log.chunk import MARK, Chunk, ChunkId, genesis
from streams.log.chunk import read as read_chunk
from streams.log.shard_log import Segment, ShardLog, parse_name
from streams.log.state import ShardState


class Placed(NamedTuple):
    """A chunk and where in its segment it begins."""

    at: int
    chunk: Chunk


class Hole(NamedTuple):
    """A damaged range of bytes [at, end) in a segment: the chunks `first` to `last`. The chunk
    `last` has the hash `hash`."""

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
        """The last valid chunk of the segment."""
        return self.chunks[-1].chunk if self.chunks else None


def scan(data: bytes, number: int, after: ChunkId | None = None) -> Scan:
    """Read a segment whose first chunk is `number`, with the predecessor `after` if it is known."""
    chunks: list[Placed] = []
    holes: list[Hole] = []
    at = 0
    while True:
        chunk = read_chunk(data, at)
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
        chunk = read_chunk(data, at)
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


class FoundHole(NamedTuple):
    """A hole, and the segment that has it."""

    segment: str
    hole: Hole


class Recovered(NamedTuple):
    """The content of a shard's folder."""

    log: ShardLog
    state: ShardState  # folded up to the end; not to be relied upon while there are holes
    committed: int  # number of a chunk that is known to have been committed
    torn: bool  # the bytes behind the end are no chunks, and are to be cut off
    holes: list[FoundHole]
    surplus: list[str]  # files that have no valid chunk at all, to be removed with the torn tail
    beginning: FoundHole | None = None
    """The log begins behind its floor: older segments were lost. The hole's `last` is the chunk
    before the first one present; its `first` is 0, since the first lost chunk is not known."""


def recover(
    shard: str,
    names: Sequence[str],
    read: Callable[[str], bytes],
    size: Callable[[str], int] = lambda name: 0,
) -> Recovered:
    """Read the folder of `shard`, which has files with these names; files that are no segments are
    ignored. `read` returns the bytes of a file, `size` their number."""
    segments = sorted((name for name in names if parse_name(name)), key=_number)
    scans: list[tuple[str, Scan]] = []  # from the newest to the oldest that has to be read
    surplus: list[str] = []
    torn, state_at, committed = False, 0, 0
    for name in reversed(segments):
        found = scan(read(name), _number(name))
        if not found.chunks and not scans:
            surplus.append(name)
            torn = True
            continue
        torn = torn or (found.torn and not scans)
        scans.append((name, found))
        committed = max([committed, *(placed.chunk.committed for placed in found.chunks)])
        state_at = state_at or _state_of(found)
        if state_at and found.chunks and found.chunks[0].chunk.number <= committed:
            break
    log, state = ShardLog(genesis(shard)), ShardState()
    kept = segments[: len(segments) - len(surplus)]
    log.segments = [Segment(name, size(name)) for name in kept]
    read_names = dict(scans)
    holes: list[FoundHole] = []
    before: tuple[str, Scan] | None = None
    for segment in log.segments:
        there = read_names.get(segment.name)
        if there is None:
            continue
        if before is not None:
            holes += _missing(*before, there)
        holes += [FoundHole(segment.name, hole) for hole in there.holes]
        for at, chunk in there.chunks:
            log.place(chunk, segment, at)
            state.apply(chunk)
        segment.size = there.end
        before = (segment.name, there)
    beginning = _lost_beginning(log, state, read)
    return Recovered(log, state, committed, torn, holes, surplus, beginning)


def _lost_beginning(
    log: ShardLog, state: ShardState, read_file: Callable[[str], bytes]
) -> FoundHole | None:
    """Segments that something other than retention deleted: retention keeps the one with the
    floor."""
    if not log.segments or log.segments[0].offset <= state.floor:
        return None
    first = read_chunk(read_file(log.segments[0].name))
    if first is None:
        return None
    return FoundHole("", Hole(0, 0, 0, first.number - 1, first.previous, is_last=True))


def _missing(name: str, before: Scan, there: Scan) -> list[FoundHole]:
    """The chunks between the end of the segment `name` and the first chunk of the next one: the
    former is damaged at its end, or was cut off."""
    if not there.chunks or (there.holes[:1] and there.holes[0].at == 0):
        return []  # its predecessor is known when the hole at its beginning is mended
    first = _number(name) if before.last is None else before.last.number + 1
    follower = there.chunks[0].chunk
    if first >= follower.number:
        return []
    span = (before.end, before.size, first, follower.number - 1)
    return [FoundHole(name, Hole(*span, follower.previous, is_last=True))]


def _number(name: str) -> int:
    found = parse_name(name)
    assert found is not None
    return found[1]


def _state_of(found: Scan) -> int:
    """The number of the first chunk of a segment's state, if the state is complete; else 0."""
    begun = 0
    for _, chunk in found.chunks:
        if chunk.begins_segment:
            begun = chunk.number
        if chunk.completes_state:
            return begun if begun else 0
    return 0
