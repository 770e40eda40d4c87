"""A shard's log in a replica's memory: its segments, its last chunks, and the place of each.

The bytes are on disk. Memory has a line for each of the last chunks, by which a leader finds the
chunks that a follower lacks, and a follower those that contradict its leader; and a sparse index of
each segment by chunk number, offset and time. Recovery builds both from the files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final, NamedTuple

from streams.log.chunk import BEGINS, COMPLETES, Chunk, ChunkId

SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a segment after which another one begins."""

SEGMENT_AGE: Final = 3_600 * 1_000_000_000
"""Nanoseconds after its first chunk for which a segment is written to."""

INDEX_BYTES: Final = 64 * 1024
"""The least bytes between two lines of the sparse index."""

LINES_MOST: Final = 16_384
"""Chunks with a line in memory: some 5 MB. The sparse index finds older ones."""


def segment_name(chunk: Chunk) -> str:
    """The name of the file that begins with `chunk`: its first offset and its number. (A leader
    that was lost while a segment began may leave two with the same first offset.)"""
    return f"{chunk.first:020d}-{chunk.number:020d}.log"


def parse_name(name: str) -> tuple[int, int] | None:
    """(first offset, first chunk number) of a segment's file; None if it is no segment."""
    stem, dot, ending = name.partition(".")
    offset, dash, number = stem.partition("-")
    if (dot, ending, dash) != (".", "log", "-") or len(offset) != 20 or len(number) != 20:
        return None
    if not (offset.isascii() and offset.isdigit() and number.isascii() and number.isdigit()):
        return None
    return int(offset), int(number)


class Line(NamedTuple):
    """A chunk without its bytes, and their place."""

    number: int
    hash: bytes
    epoch: int
    kind: int
    first: int
    offsets: int
    time: int
    segment: str
    at: int
    length: int

    @property
    def id(self) -> ChunkId:
        """The number and hash by which replicas compare chunks."""
        return ChunkId(self.number, self.hash)


class IndexLine(NamedTuple):
    """The position of a chunk in a segment."""

    number: int
    offset: int
    time: int
    at: int


class Segment:
    """One file: its name, its first chunk and offset, its size, and its sparse index."""

    def __init__(self, name: str, size: int = 0) -> None:
        found = parse_name(name)
        assert found is not None, f"{name} is no segment"
        self.name = name
        self.offset, self.number = found
        self.size = size
        self.began = 0
        """Time of its first chunk that has one; 0: not known. (The chunks with which the first
        leader of a shard begins have none.)"""
        self.state_end = 0
        """Number of the chunk that completes the state at its beginning; 0: not known, or none."""
        self.index: list[IndexLine] = []


class Place(NamedTuple):
    """The position at which to begin to read: at most `INDEX_BYTES` and one chunk before the wanted
    chunk, if the segment is indexed."""

    segment: str
    at: int


class ShardLog:
    """The chunks of one shard at one replica."""

    def __init__(self, after: ChunkId) -> None:
        """An empty log, whose first chunk follows on `after` (`chunk.genesis`)."""
        self.end = after
        self.epoch = 0  # of the last chunk
        self.next_offset = 0
        self.time = 0  # of the last chunk
        self.segments: list[Segment] = []
        self.lines: deque[Line] = deque()
        self._cuts: deque[tuple[int, int]] = deque()  # number of the chunk, and the floor
        self._floor = 0  # of the last committed Cut

    @property
    def position(self) -> tuple[int, int]:
        """(epoch of the last chunk, its number): of two logs the higher position is further."""
        return self.epoch, self.end.number

    def add(self, chunk: Chunk) -> Line:
        """Append a chunk that follows on the end. ValueError if it does not, or if it does not fit
        into the segments."""
        if chunk.number != self.end.number + 1 or chunk.previous != self.end.hash:
            raise ValueError(f"chunk {chunk.number} does not follow on chunk {self.end.number}")
        if chunk.first != self.next_offset or chunk.epoch < self.epoch or chunk.time < self.time:
            raise ValueError(f"chunk {chunk.number} goes back in offset, epoch or time")
        if chunk.flags & BEGINS:
            self.segments.append(Segment(segment_name(chunk)))
        elif not self.segments:
            raise ValueError(f"chunk {chunk.number} stands before any segment")
        return self.place(chunk, self.segments[-1], self.segments[-1].size)

    def place(self, chunk: Chunk, segment: Segment, at: int) -> Line:
        """Note a chunk that stands in `segment` at byte `at`, and is the last one."""
        line = Line(
            chunk.number,
            chunk.hash,
            chunk.epoch,
            chunk.kind,
            chunk.first,
            chunk.offsets,
            chunk.time,
            segment.name,
            at,
            len(chunk.data),
        )
        segment.began = segment.began or chunk.time
        if not segment.index or at - segment.index[-1].at >= INDEX_BYTES:
            segment.index.append(IndexLine(chunk.number, chunk.first, chunk.time, at))
        segment.size = max(segment.size, at + len(chunk.data))
        if chunk.flags & COMPLETES:
            segment.state_end = chunk.number
        self.lines.append(line)
        if len(self.lines) > LINES_MOST:
            self.lines.popleft()
        self.end = ChunkId(chunk.number, chunk.hash)
        self.epoch, self.time = chunk.epoch, chunk.time
        self.next_offset = chunk.first + chunk.offsets
        return line

    def line(self, number: int) -> Line | None:
        """The line of a chunk; None if there is none in memory."""
        if not self.lines or not self.lines[0].number <= number <= self.lines[-1].number:
            return None
        place = number - self.lines[0].number
        if place >= len(self.lines) or self.lines[place].number != number:
            place = bisect_left(self.lines, number, key=lambda line: line.number)  # behind a hole
        there = self.lines[place]
        return there if there.number == number else None

    def has(self, chunk: ChunkId) -> bool | None:
        """Whether this log has this chunk; None if only the disk can tell."""
        if chunk.number > self.end.number:
            return False
        if chunk == self.end:
            return True
        line = self.line(chunk.number)
        return None if line is None else line.hash == chunk.hash

    @property
    def start(self) -> int:
        """Number of the first chunk that is kept; 0: there is none."""
        return self.segments[0].number if self.segments else 0

    def size_of(self, name: str) -> int:
        """Bytes of a segment; 0 if it is not kept."""
        return next((segment.size for segment in self.segments if segment.name == name), 0)

    def state_at(self, committed: int) -> int:
        """Number of the first chunk of the newest state that is complete within the chunks up to
        `committed`; 0: none in the segments that were read."""
        for segment in reversed(self.segments):
            if 0 < segment.state_end <= committed:
                return segment.number
        return 0

    def should_roll(
        self, size: int, time: int, most: int = 1 << 62, age: int = SEGMENT_AGE
    ) -> bool:
        """Whether a chunk of `size` bytes at `time` has to begin another segment: the present one
        would be longer than `most` or `SEGMENT_BYTES`, or is older than `age` nanoseconds."""
        if not self.segments:
            return True
        newest = self.segments[-1]
        is_full = newest.size + size > min(most, SEGMENT_BYTES)
        return is_full or 0 < newest.began < time - min(age, SEGMENT_AGE)

    def cut(self, number: int, floor: int) -> None:
        """Note that chunk `number` raises the floor to `floor`, once it is committed."""
        self._cuts.append((number, floor))

    def committed_floor(self, committed: int) -> int:
        """The floor by the Cuts among the chunks up to `committed`, as far as they were noted."""
        while self._cuts and self._cuts[0][0] <= committed:
            self._floor = max(self._floor, self._cuts.popleft()[1])
        return self._floor

    def retain(self, floor: int, state_at: int) -> list[str]:
        """Forget the segments without an offset from `floor` on, and return their names. The newest
        segment stays, and all from the one with chunk `state_at` on, with which the last complete
        state begins: recovery needs it."""
        gone = []
        while len(self.segments) > 1:
            following = self.segments[1]
            if following.offset > floor or following.number > state_at:
                break
            gone.append(self.segments.pop(0).name)
        while self.lines and self.lines[0].number < self.segments[0].number:
            self.lines.popleft()
        return gone

    def at_number(self, number: int) -> Place | None:
        """Return where to read to find a chunk; None if it is not kept."""
        place = bisect_right(self.segments, number, key=lambda s: s.number) - 1
        if number > self.end.number or place < 0:
            return None
        segment = self.segments[place]
        line = self._index_line(segment, number, 0)
        return Place(segment.name, 0 if line is None else line.at)

    @property
    def first_offset(self) -> int:
        """The first offset of the oldest segment."""
        return self.segments[0].offset if self.segments else 0

    def before_offset(self, offset: int) -> tuple[int, int]:
        """Return the number and first offset of a kept chunk that does not begin after the row with
        this offset. If its segment is indexed, the chunk is at most `INDEX_BYTES` and one chunk
        before that row."""
        place = bisect_right(self.segments, offset, key=lambda s: s.offset) - 1
        return self._before(place, offset, 1)

    def before_time(self, time: int) -> tuple[int, int]:
        """(number, first offset) of a kept chunk before which all are older than `time`, as near as
        `before_offset`. Segments that were not read since the start have no times."""
        place = len(self.segments) - 1
        while place > 0 and (not self.segments[place].began or self.segments[place].began >= time):
            place -= 1
        return self._before(place, time, 2)

    def _before(self, place: int, wanted: int, field: int) -> tuple[int, int]:
        if not self.segments:
            return self.end.number + 1, self.next_offset
        segment = self.segments[max(place, 0)]
        line = self._index_line(segment, wanted, field)
        return (segment.number, segment.offset) if line is None else (line.number, line.offset)

    @staticmethod
    def _index_line(segment: Segment, wanted: int, field: int) -> IndexLine | None:
        # Chunks without rows have the offset, and chunks of one moment the time, of others: there a
        # line with the wanted value may lie behind the first such chunk.
        key = wanted + 1 if field == 0 else wanted
        line = bisect_right(segment.index, key - 1, key=lambda i: int(i[field])) - 1
        return segment.index[line] if line >= 0 else None
