"""What of a shard's log is not kept any more: decided by its leader, carried out by every replica.

The leader compares segments with the stream's options, and appends a Cut that names the *floor*,
below which offsets are not kept. When that is committed, each replica deletes the segments that lie
wholly below it, but never the one with the newest complete state that is committed, without which
the log could not be recovered. So rows are removed a segment at a time, and a leader begins
segments that are small beside what is to be kept.

What a registered consumer or group has not read stays, whatever its age, unless the stream says
otherwise (`Keep.drops_unread`, and of consumers `Keep.drops_oldest`). Then the log's state counts
for each consumer what it has missed. Rows that are past their time (`Keep.ttl`) go whether they
were read or not: nobody is given them any more.

A replica that lacks chunks which its leader has deleted begins anew at the first segment that the
leader has (`ShardAppend.start`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from matching import Value
from streams.log.shard_log import SEGMENT_AGE, SEGMENT_BYTES, Segment, ShardLog

PARTS: Final = 8
"""Segments of what is kept, at least: rows stay by an eighth longer than was asked for. Guess; to
be measured by the files of a node with many shards."""

SEGMENT_BYTES_LEAST: Final = 1024 * 1024
_SLACK: Final = 3 * SEGMENT_BYTES_LEAST  # of segments that are not dropped yet
SEGMENT_AGE_LEAST: Final = 10 * 1_000_000_000
"""No segment is smaller, or shorter, for the sake of retention. Guess: each has a state at its
beginning, and costs a file."""


class Keep(NamedTuple):
    """How long rows are kept (nanoseconds), and how many bytes of a shard's log; 0: without a
    bound."""

    time: int = 0
    bytes: int = 0
    drops_unread: bool = False
    """Also what a durable consumer has not read."""
    expire: int = 0
    """Seconds of silence after which a durable consumer is forgotten that names no time of its own;
    0: never."""
    most_bytes: int = 0
    most_rows: int = 0
    """What a shard may have, 0: without a bound."""
    drops_oldest: bool = False
    """When it is full; else new rows are refused."""
    key: str = ""
    """The attribute of whose values each has its newest row kept, however old; "": none."""
    deletes: str = ""
    """The selector of rows that delete their key; "": those that have the key only."""
    ttl: int = 0
    """Nanoseconds for which a row is of use after it was appended; 0: for ever."""
    ttl_by: str = ""
    """The attribute with the seconds of a row that has its own; "": none has."""
    forks: bool = False
    """Replicas that hear of no leader take rows by themselves (streams/services/fork/)."""

    @property
    def segment_bytes(self) -> int:
        """Bytes of a segment at most."""
        bounds = [self.bytes, self.most_bytes if self.drops_oldest else 0]
        least = min((bound for bound in bounds if bound), default=0)
        if not least:
            return SEGMENT_BYTES
        return min(SEGMENT_BYTES, max(least // PARTS, SEGMENT_BYTES_LEAST))

    @property
    def segment_age(self) -> int:
        """Nanoseconds of a segment at most."""
        least = min((time for time in (self.time, self.ttl) if time), default=0)
        if not least:
            return SEGMENT_AGE
        return min(SEGMENT_AGE, max(least // PARTS, SEGMENT_AGE_LEAST))


EVERYTHING: Final = Keep()

NANOSECONDS: Final = 1_000_000_000
LIFE_MOST: Final = 100 * 365 * 86_400.0
"""Seconds of a row's own time at most: what is longer counts as this."""

FULL_AGAIN: Final = 2
"""A stream that drops its oldest rows refuses new ones when it has so many times what it may have:
then something holds the oldest (a group that has not acknowledged them, a change of replicas)."""


def life_of(keep: Keep, attributes: Mapping[str, Value | None]) -> int:
    """Nanoseconds for which a row is of use after it was appended; 0: for ever."""
    own = attributes.get(keep.ttl_by) if keep.ttl_by else None
    if isinstance(own, bool) or not isinstance(own, int | float) or not own >= 0:
        return keep.ttl
    return max(1, int(min(own, LIFE_MOST) * NANOSECONDS))


def over(keep: Keep, log: ShardLog, floor: int, size: int, rows: int) -> str:
    """Why a shard cannot take so many bytes and rows more; "": it can. `floor`: of its state."""
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
    """The lowest offset that is kept of a stream that drops its oldest rows when it is full. Rows
    are counted one by one, bytes by segments."""
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


def next_due(log: ShardLog, keep: Keep, now: int) -> float:
    """When (nanoseconds since 1970) there is more to be let go of for its age, if nothing is
    appended until then. At once while it is not known how old the segments are."""
    lives = [life for life in (keep.time, 0 if keep.ttl_by else keep.ttl) if life]
    begun = [segment.began for segment in log.segments[1:]]
    if lives and not all(begun):
        return now
    due = [time + life for time in (*begun, log.time) for life in lives]
    return min((time for time in due if time > now), default=float("inf"))
