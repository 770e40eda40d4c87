"""The vocabulary of a shard's replicas. A *position* is (epoch of the last chunk, its number): of
two logs of a shard the one with the higher position is further, whichever is longer."""

from __future__ import annotations

from typing import Annotated

import msgspec

from overlay.machine import Message, NodeId, Uint53, Version

Shard = Annotated[str, msgspec.Meta(max_length=128)]


class RequestShardVote(Message, frozen=True, tag="ShardSeal"):
    """A candidate asks a replica for its vote in `epoch`, after which the replica takes nothing of
    a lower one, and for the end of its log."""

    shard: Shard
    epoch: Uint53


class ShardVoteReply(Message, frozen=True, tag="ShardSealed"):
    """The sender has voted, durably. `intact`: its log lacks no chunk that it ever had (no torn
    tail, no damage)."""

    shard: Shard
    epoch: Uint53
    position: Version
    intact: bool


class ShardFenced(Message, frozen=True):
    """Refused: the sender has voted for another node in `epoch`."""

    shard: Shard
    epoch: Uint53


class ShardFetch(Message, frozen=True):
    """Asks the furthest replica, on behalf of a candidate, for the chunks that follow; fields as of
    `ShardBehind`."""

    shard: Shard
    epoch: Uint53
    end: tuple[Uint53, bytes]
    committed: Uint53


class ShardFetched(Message, frozen=True):
    """Chunks in order, whole as they are on disk. `start`: as in `ShardAppend`."""

    shard: Shard
    epoch: Uint53
    chunks: tuple[bytes, ...]
    start: Uint53 = 0


class ShardAppend(Message, frozen=True):
    """AppendEntries: chunks in order, each with the hash of the one before it. Without chunks it
    asks whether the follower has chunk `end`. `first`: the first chunk of this epoch; `committed`:
    the last committed chunk; `start`: the first chunk that the leader has: all before it were
    committed, and are removed."""

    shard: Shard
    epoch: Uint53
    end: tuple[Uint53, bytes]
    first: Uint53
    committed: Uint53
    chunks: tuple[bytes, ...]
    start: Uint53 = 0


class ShardAck(Message, frozen=True):
    """The follower has all chunks up to `number` on disk, as this epoch's leader has them."""

    shard: Shard
    epoch: Uint53
    number: Uint53


class ShardBehind(Message, frozen=True):
    """The follower's log ends with chunk `end`, and is the same in all logs up to `committed`; what
    was sent does not follow on it."""

    shard: Shard
    epoch: Uint53
    end: tuple[Uint53, bytes]
    committed: Uint53


class ShardMissing(Message, frozen=True):
    """Asks another replica for the chunks `first` to `last`, which a hole has taken from the
    sender's log. The chunk `last` has the hash `hash`. Answered by ShardMissingSent."""

    shard: Shard
    first: Uint53
    last: Uint53
    hash: bytes


class ShardMissingSent(Message, frozen=True):
    """Chunks in order, whole, up to chunk `last`; none: the sender does not have that chunk."""

    shard: Shard
    last: Uint53
    chunks: tuple[bytes, ...]
    leads: Uint53 = 0
    """The epoch under which the sender leads: its log has all that was committed before, and is
    kept. 0: it does not lead."""


class HardState(msgspec.Struct, frozen=True, array_like=True):
    """The durable state of a replica: it accepts no messages of a lower epoch, and messages of this
    epoch only from `candidate`. `suspect`: its log may lack acknowledged chunks, until a leader has
    completed it."""

    epoch: Uint53
    candidate: NodeId
    suspect: bool
    segment: Uint53 = 0
    """Number of the first chunk of the newest segment that the log has had. A segment that was
    deleted leaves no other trace."""
    lost_end: Uint53 = 0
    """The log has ended before this offset, below which it had rows that no replica has; 0: it has
    not, or all rows that were committed are there again."""
