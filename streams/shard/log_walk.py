"""Scrubbing: a log is read from its oldest segment on, to find damage before a reader does.

At its start a replica reads its newest segment only. Damage of an older segment would be found when
a reader needs it, perhaps after the other copies are damaged as well (latent sector errors: L.
Bairavasundaram et al., SIGMETRICS 2007). So each node reads its logs, a piece at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streams.log.chunk import CHUNK_MOST, Chunk, read
from streams.log.recovery import FoundHole, Hole, Placed, scan
from streams.log.shard_log import Segment
from streams.shard.replica import Replica

ANSWER_WITHIN: Final = 60.0
"""Seconds after which a piece is read again, since the folder was reopened meanwhile."""


class LogWalk:
    """One walk over a replica's segments."""

    def __init__(self, replica: Replica, first: str = "", alone: bool = False) -> None:
        """Begin at the segment `first`, "": the oldest; if `alone`, read this segment only."""
        self.replica = replica
        self._alone = alone
        self._segment = first
        self._at = 0
        self._number = 0  # of the chunk expected at `_at`; 0: the segment's first
        self._last: Placed | None = None  # the chunk before it in the segment
        self._asked = float("-inf")
        self._generation = replica.chunks.generation
        self.is_done = False
        self.again = False
        """It has found damage that is being repaired: there may be more behind it."""
        self.bytes = 0
        """Bytes read so far."""

    @property
    def segment(self) -> str:
        """The name of the segment in hand."""
        return self._segment

    @property
    def is_reading(self) -> bool:
        """Whether the disk still has to answer."""
        return self._asked > float("-inf")

    def step(self) -> None:
        """Read a piece, unless one is being read."""
        now = self.replica.port.now
        if self.is_done or now < self._asked + ANSWER_WITHIN or not self.replica.ready:
            return
        segment = self._there()
        if segment is None:
            self.is_done = True
            return
        if self._generation != self.replica.chunks.generation:  # it may have been cut since
            self._generation = self.replica.chunks.generation
            self._at, self._number, self._last = 0, 0, None
        size = segment.size
        self._number = self._number or segment.number
        if self._at < size:
            most = min(CHUNK_MOST, size - self._at)
            self._read(segment, self._at, most, lambda data: self._found(segment, size, data))
        else:
            self._segment_ends(segment, size)

    def _there(self) -> Segment | None:
        """The segment in hand; the next one, if it was removed."""
        segments = self.replica.log.segments
        name = self._segment
        found = next((s for s in segments if s.name >= name), None)
        if found is not None and found.name != name:
            if name and self._alone:
                return None
            self._segment, self._at, self._number, self._last = found.name, 0, 0, None
        return found

    def _read(self, segment: Segment, at: int, size: int, then: Callable[[bytes], None]) -> None:
        self._asked, generation = self.replica.port.now, self.replica.chunks.generation

        def found(data: bytes) -> None:
            self._asked = float("-inf")
            self.bytes += len(data)
            if generation == self.replica.chunks.generation:
                then(data)

        self.replica.chunks.read_bytes(segment.name, at, size, found)

    def _found(self, segment: Segment, size: int, data: bytes) -> None:
        """Check the CRCs and hashes of the bytes that were read."""
        at = 0
        while (chunk := read(data, at)) is not None and self._follows(chunk):
            self._last = Placed(self._at + at, chunk._replace(data=b""))
            self._number = chunk.number + 1
            at += len(chunk.data)
        self._at += at
        if not at:
            self._look_behind(segment, size)

    def _follows(self, chunk: Chunk) -> bool:
        if chunk.number != self._number:
            return False
        return self._last is None or chunk.previous == self._last.chunk.hash

    def _segment_ends(self, segment: Segment, size: int) -> None:
        """Check that the next segment continues the one that was read to its end."""
        following = self._following(segment)
        if following is not None and following.number != self._number:
            self._look_behind(segment, size)
            return
        self._go_on(following)

    def _go_on(self, following: Segment | None) -> None:
        self.is_done = following is None or self._alone
        if following is not None:
            self._segment, self._at, self._number, self._last = following.name, 0, 0, None

    def _following(self, segment: Segment) -> Segment | None:
        segments = self.replica.log.segments
        return next((s for s in segments if s.number > segment.number), None)

    def _look_behind(self, segment: Segment, size: int) -> None:
        """Find the holes of a damaged segment: read its rest, and the first chunk of the next."""
        last, number = self._last, self._number
        start = self._at if last is None else last.at  # the last chunk may be the altered one
        number = number if last is None else last.chunk.number
        following = self._following(segment)
        end = self.replica.log.end

        def holes_of(rest: bytes, follower: bytes) -> None:
            found = scan(rest, number)
            holes = [
                hole._replace(at=hole.at + start, end=hole.end + start) for hole in found.holes
            ]
            follows = found.last.number + 1 if found.last is not None else number
            behind = read(follower)
            to, digest = end if following is None else (following.number - 1, b"")
            if following is not None and behind is not None:
                digest = behind.previous
            if follows <= to and digest:
                span = (found.end + start, size, follows, to)
                holes.append(Hole(*span, digest, is_last=True))
            if holes:
                self.is_done = True
                found_holes = [FoundHole(segment.name, hole) for hole in holes]
                self.again = self.replica.damaged(found_holes)
            else:  # the next segment is damaged as well, and proves nothing about this one's end
                self._go_on(following)

        def read_follower(rest: bytes) -> None:
            if following is None:
                holes_of(rest, b"")
            else:
                self._read(following, 0, CHUNK_MOST, lambda data: holes_of(rest, data))

        self._read(segment, start, max(size - start, 0), read_follower)
