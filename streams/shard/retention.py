"""Retention: the leader of a shard decides which rows to remove, and every replica removes them.

The leader compares the segments with the stream's options, and appends a Cut with the *floor*, the
lowest offset to keep. When the Cut is committed, each replica deletes the segments that lie wholly
below the floor, but never the one with the newest complete committed state, which recovery needs.
So rows are removed a segment at a time, and a leader begins segments that are small in comparison
with the rows to keep.

Rows that a registered consumer or group has not read stay, whatever their age, unless the stream's
options say otherwise (`Keep.drops_unread`, and for consumers `Keep.drops_oldest`). Then the log's
state counts for each consumer the rows that it has missed. Rows past their time (`Keep.ttl`) are
removed whether they were read or not: they are not delivered either.

A replica that lacks chunks which its leader has deleted restarts at the first segment of the leader
(`ShardAppend.start`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from matching import Value
from streams.log.chunk import NANOSECONDS
from streams.log.shard_log import SEGMENT_AGE, SEGMENT_BYTES, Segment, ShardLog

PARTS: Final = 8
"""The least number of segments that hold the rows to keep: so rows stay an eighth longer than
asked for. Guess; to be measured by the files of a node with many shards."""

SEGMENT_BYTES_LEAST: Final = 1024 * 1024
_SLACK: Final = 3 * SEGMENT_BYTES_LEAST  # for segments that are not dropped yet
SEGMENT_AGE_LEAST: Final = 10 * 1_000_000_000
"""Retention makes no segment smaller or shorter. Guess: each begins with a state, and costs a
file."""


class Keep(NamedTuple):
    """Bounds of kept rows: their age (nanoseconds), and the bytes of a shard's log; 0: no limit."""

    time: int = 0
    bytes: int = 0
    drops_unread: bool = False
    """Whether rows are removed that a durable consumer has not read."""
    expire: int = 0
    """Seconds of silence after which a durable consumer expires that has no such time of its own;
    0: never."""
    most_bytes: int = 0
    most_rows: int = 0
    """The limits of a shard; 0: no limit."""
    drops_oldest: bool = False
    """Whether a full shard removes its oldest rows; else it refuses new ones."""
    key: str = ""
    """The attribute whose newest row of each value is kept, however old; "": none."""
    deletes: str = ""
    """The selector of rows that delete their key; "": rows with the key only."""
    ttl: int = 0
    """Nanoseconds of a row's lifetime after its append; 0: no end."""
    ttl_by: str = ""
    """The attribute with the seconds of a row that has a lifetime of its own; "": none."""
    forks: bool = False
    """Whether replicas without a leader take rows by themselves (streams/services/fork/)."""

    @property
    def segment_bytes(self) -> int:
        """The limit of a segment's bytes."""
        bounds = [self.bytes, self.most_bytes if self.drops_oldest else 0]
        least = min((bound for bound in bounds if bound), default=0)
        if not least:
            return SEGMENT_BYTES
        return min(SEGMENT_BYTES, max(least // PARTS, SEGMENT_BYTES_LEAST))

    @property
    def segment_age(self) -> int:
        """The limit of a segment's nanoseconds."""
        least = min((time for time in (self.time, self.ttl) if time), default=0)
        if not least:
            return SEGMENT_AGE
        return min(SEGMENT_AGE, max(least // PARTS, SEGMENT_AGE_LEAST))


EVERYTHING: Final = Keep()

LIFE_MOST: Final = 100 * 365 * 86_400.0
"""The limit of the seconds of a row's own lifetime: a longer one counts as this."""

FULL_AGAIN: Final = 2
"""A stream that drops its oldest rows refuses new ones at this multiple of its limits: something
holds the oldest rows then (a group that has not acknowledged them, a change of replicas)."""


def life_of(keep: Keep, attributes: Mapping[str, Value | None]) -> int:
    """Nanoseconds of a row's lifetime after its append; 0: no end."""
    own = attributes.get(keep.ttl_by) if keep.ttl_by else None
    if isinstance(own, bool) or not isinstance(own, int | float) or not own >= 0:
        return keep.ttl
    return max(1, int(min(own, LIFE_MOST) * NANOSECONDS))


def over(keep: Keep, log: ShardLog, floor: int, size: int, rows: int) -> str:
    """Return why a shard cannot take `size` bytes and `rows` rows more; "" if it can. `floor`: the
    floor of the shard's state."""
    most_bytes, most_rows = keep.most_bytes, keep.most_rows
    if not most_bytes and not most_rows:
        return ""
    if keep.drops_oldest:
        most_bytes = max(FULL_AGAIN * most_bytes, _SLACK)
        most_rows = FULL_AGAIN * most_rows
    held = sum(segment.size for segment in log.segments) + size
    if keep.most_bytes and held > most_bytes:
        return f"a shard is full, which may have {keep.most_bytes:,} bytes (--max-bytes)"
    there = log.next_offset - max(floor, log.first_offset) + rows
    if keep.most_rows and there > most_rows:
        return f"a shard is full, which may have {keep.most_rows:,} rows (--max-rows)"
    return ""


def quota_floor(keep: Keep, log: ShardLog) -> int:
    """The lowest offset to keep in a full stream that drops its oldest rows. Rows are counted one
    by one, bytes by segments."""
    floor = log.first_offset
    if not keep.drops_oldest:
        return floor
    if keep.most_rows:
        floor = max(floor, log.next_offset - keep.most_rows)
    size = sum(segment.size for segment in log.segments)
    for segment, following in pairwise(log.segments):
        if not keep.most_bytes or size <= keep.most_bytes:
            break
        size -= segment.size
        floor = max(floor, following.offset)
    return floor


def floor_of(segments: Sequence[Segment], keep: Keep, now: int) -> int:
    """The lowest offset to keep at `now` (nanoseconds since 1970). A segment is removed when the
    next one began too long ago, or when the segments behind it have enough bytes. The beginning of
    segments that were not read since the start is not known."""
    floor = segments[0].offset if segments else 0
    size = sum(segment.size for segment in segments)
    for segment, following in pairwise(segments):
        size -= segment.size
        is_old = keep.time and following.began and following.began <= now - keep.time
        if is_old or (keep.bytes and size >= keep.bytes):
            floor = following.offset
    return floor


def next_due(log: ShardLog, keep: Keep, now: int) -> float:
    """Return when (nanoseconds since 1970) further rows expire if nothing is appended until then.
    Returns `now` while the age of a segment is unknown."""
    lives = [life for life in (keep.time, 0 if keep.ttl_by else keep.ttl) if life]
    begun = [segment.began for segment in log.segments[1:]]
    if lives and not all(begun):
        return now
    due = [time + life for time in (*begun, log.time) for life in lives]
    return min((time for time in due if time > now), default=float("inf"))
