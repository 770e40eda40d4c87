"""What of a shard's log is not kept any more: decided by its leader, carried out by every replica.

The leader compares segments with the stream's options, and appends a Cut that names the *floor*,
below which offsets are not kept. When that is committed, each replica deletes the segments that lie
wholly below it, but never the one with the newest complete state that is committed, without which
the log could not be recovered. So rows are removed a segment at a time, and a leader begins
segments that are small beside what is to be kept.

A replica that lacks chunks which its leader has deleted begins anew at the first segment that the
leader has (`ShardAppend.start`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from streams.log.shard_log import SEGMENT_AGE, SEGMENT_BYTES, Segment

PARTS: Final = 8
"""Segments of what is kept, at least: rows stay by an eighth longer than was asked for. Guess; to
be measured by the files of a node with many shards."""

SEGMENT_BYTES_LEAST: Final = 1024 * 1024
SEGMENT_AGE_LEAST: Final = 10 * 1_000_000_000
"""No segment is smaller, or shorter, for the sake of retention. Guess: each has a state at its
beginning, and costs a file."""


class Keep(NamedTuple):
    """How long rows are kept (nanoseconds), and how many bytes of a shard's log; 0: without a
    bound."""

    time: int = 0
    bytes: int = 0

    @property
    def segment_bytes(self) -> int:
        """Bytes of a segment at most."""
        if not self.bytes:
            return SEGMENT_BYTES
        return min(SEGMENT_BYTES, max(self.bytes // PARTS, SEGMENT_BYTES_LEAST))

    @property
    def segment_age(self) -> int:
        """Nanoseconds of a segment at most."""
        if not self.time:
            return SEGMENT_AGE
        return min(SEGMENT_AGE, max(self.time // PARTS, SEGMENT_AGE_LEAST))


EVERYTHING: Final = Keep()


def floor_of(segments: Sequence[Segment], keep: Keep, now: int) -> int:
    """The lowest offset that is to be kept at `now` (nanoseconds since 1970). A segment goes when
    the next one began too long ago, or when those behind it are enough; of some that were not read
    since the start it is not known when they began."""
    floor = segments[0].offset if segments else 0
    size = sum(segment.size for segment in segments)
    for segment, following in pairwise(segments):
        size -= segment.size
        is_old = keep.time and following.began and following.began <= now - keep.time
        if is_old or (keep.bytes and size >= keep.bytes):
            floor = following.offset
    return floor
