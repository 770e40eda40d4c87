"""Recovery of a shard's folder at start: from its newest segment, and older ones if needed.

A *hole* proves that its chunks were durable here, and the chunk behind it identifies them: the
replica keeps its position and fetches them again. A *torn tail* proves nothing: its chunks may have
been acknowledged, or never have been durable. `Recovered.intact`: the folder has neither.

Recovery reads all chunks that may be uncommitted, so that a replica can compare each with its
leader's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from streams.log.chunk import genesis
from streams.log.chunk import read as read_chunk
from streams.log.scan import Hole, Scan, scan
from streams.log.shard_log import Segment, ShardLog, parse_name
from streams.log.state import ShardState


class FoundHole(NamedTuple):
    """A hole, and the segment that has it."""

    segment: str
    hole: Hole


class Recovered(NamedTuple):
    """The content of a shard's folder."""

    log: ShardLog
    state: ShardState  # folded up to the end; not to be relied upon while there are holes
    committed: int  # number of a chunk that is known to have been committed
    state_at: int  # number of the chunk with which the newest complete state begins; 0: none
    torn: bool  # the bytes behind the end are no chunks, and are to be cut off
    holes: list[FoundHole]
    surplus: list[str]  # files that have no valid chunk at all, to be removed with the torn tail
    beginning: FoundHole | None = None
    """The log begins behind its floor: older segments were lost. The hole's `last` is the chunk
    before the first one present; its `first` is 0, since the first lost chunk is not known."""

    @property
    def intact(self) -> bool:
        """Whether the folder has neither a torn tail nor a hole."""
        return not self.torn and not self.holes


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
    return Recovered(log, state, committed, state_at, torn, holes, surplus, beginning)


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
