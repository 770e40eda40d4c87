"""The vocabulary of the directory: between any node and a stream's owner (the primary of the
cluster that owns its name), and between that owner and the nodes that have its shards."""

from __future__ import annotations

from typing import Annotated

import msgspec

from overlay.chord.messages import Cluster
from overlay.info import ConsumerInfo, ForkInfo, IntakeInfo
from overlay.machine import Duration, Message, NodeId, Peer, Uint53, Uint63, Version
from streams.directory.entry import ATTRIBUTE_MOST, NAME_MOST, StreamEntry, StreamOptions
from streams.log.writers import Names
from streams.replication.messages import Shard

Name = Annotated[str, msgspec.Meta(max_length=NAME_MOST)]

SHARDS_PER_MESSAGE = 512
"""Shards in one heartbeat or report: 100 KiB at most."""


class FoundStream(Message, frozen=True):
    """Asks the owner to found a stream under this id, which the sender has drawn. Asked twice,
    it is the same stream. Answered by StreamFound or StreamRefused."""

    ticket: Uint53
    name: Name
    id: Shard
    options: StreamOptions


class ChangeStream(Message, frozen=True):
    """Asks the owner to change a stream's options; None: as they are. Answered by StreamFound or
    StreamRefused."""

    ticket: Uint53
    name: Name
    keep_seconds: Duration | None
    keep_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] | None
    capture: str | None
    drop_unread: bool | None = None
    expire_consumers: Duration | None = None
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)] | None = None
    max_rows: Uint53 | None = None
    when_full: Annotated[str, msgspec.Meta(max_length=32)] | None = None
    ttl_seconds: Duration | None = None
    ttl_by: Annotated[str, msgspec.Meta(max_length=ATTRIBUTE_MOST)] | None = None
    prefer: Annotated[str, msgspec.Meta(max_length=32)] | None = None
    writers: Names | None = None


class EraseStream(Message, frozen=True):
    """Asks the owner to remove a stream for ever. Answered by StreamFound (the tombstone)."""

    ticket: Uint53
    name: Name


class AskStream(Message, frozen=True):
    """Asks the owner for a stream, and for who leads its shards."""

    ticket: Uint53
    name: Name


class StreamFound(Message, frozen=True):
    """The entry of a stream, and the leader of each of its shards (None: there is none just
    now)."""

    ticket: Uint53
    entry: StreamEntry
    leaders: tuple[Peer | None, ...]
    answering: tuple[Annotated[int, msgspec.Meta(ge=-1, lt=1 << 53)], ...] = ()
    """How many replicas of each shard answer, where they have been no majority for a while; -1 for
    a shard whose majority answers."""


class StreamRefused(Message, frozen=True):
    """The owner's answer where there is nothing to be found, or it may not be done: `code` as in
    `overlay.client.Failed`. `removed`: the owner knows that the stream was; one that does not may
    be at a side of a cut, or have taken a lost cluster's place."""

    ticket: Uint53
    code: str
    reason: str
    removed: bool = False


class StreamElsewhere(Message, frozen=True):
    """The node that was asked does not own the name; perhaps `cluster` does."""

    ticket: Uint53
    cluster: Cluster | None


class AskStreams(Message, frozen=True):
    """Asks a primary for all streams of its cluster, those whose names come after `after`."""

    ticket: Uint53
    after: str


class StreamsReport(Message, frozen=True):
    """Some streams of one cluster, in order of name; `more`: there are others behind."""

    ticket: Uint53
    key: str
    entries: tuple[StreamEntry, ...]
    more: bool


class ShardOrder(msgspec.Struct, frozen=True, array_like=True):
    """What the owner has to say of one shard to a node that is to have it."""

    shard: Shard
    leader: NodeId
    """Who is to lead it: whoever does not is to take over; "": the owner is still asking."""
    founders: tuple[Peer, ...]
    """The replicas with which a log begins; none once it has had a leader."""
    replicas: tuple[Peer, ...]
    """Which nodes are to have it: the leader adds who is missing, then removes who is too many."""
    removed: bool = False
    """Destroy the shard: the stream is gone, or the node is no replica any more."""
    released: tuple[NodeId, ...] = ()
    """Nodes that leave and are not waited for any more: the shard goes on without them, or nothing
    can be done about it."""


class KeepShards(Message, frozen=True):
    """The owner's heartbeat. `entries`: the streams of these shards, for who does not know them."""

    orders: Annotated[tuple[ShardOrder, ...], msgspec.Meta(max_length=SHARDS_PER_MESSAGE)]
    entries: tuple[StreamEntry, ...]


class ShardReport(msgspec.Struct, frozen=True, array_like=True):
    """A node's word on one shard that it has."""

    shard: Shard
    leading: Uint53
    """The epoch under which it leads and has committed; 0: it does not."""
    position: Version
    is_ready: bool
    replicas: tuple[Peer, ...]
    """If it leads: the replicas by its log, when that is committed; else none."""
    is_gone: bool = False
    """It has destroyed the shard."""
    is_barred: bool = False
    """It has lost its vote, and never takes part again with what it has."""
    is_leaving: bool = False
    """It drains: it is to lead no more, and to be a replica no more where the others would be no
    majority without it."""


class ShardsReport(Message, frozen=True):
    """The answer to `KeepShards`, and at once when a shard has got a leader."""

    reports: Annotated[tuple[ShardReport, ...], msgspec.Meta(max_length=SHARDS_PER_MESSAGE)]


class ShardsOrphaned(Message, frozen=True):
    """A node has shards of these streams and hears from no owner: whoever owns the names takes the
    entries in, where it has none."""

    entries: tuple[StreamEntry, ...]


class AskShards(Message, frozen=True):
    """Asks a node how these shards are there. Answered by ShardsStatus."""

    ticket: Uint53
    shards: Annotated[tuple[Shard, ...], msgspec.Meta(max_length=SHARDS_PER_MESSAGE)]


class ShardStatus(msgspec.Struct, frozen=True, array_like=True):
    """A shard at one node, for people. Numbers are of chunks, `first` and `next` are offsets."""

    shard: Shard
    state: str  # leads, follows, opening, mending, or barred
    epoch: Uint53
    first: Uint53
    next: Uint53
    end: Uint53
    durable: Uint53
    committed: Uint53
    size: Uint53  # bytes of the segments whose sizes are known
    time: Uint63  # of the last chunk, nanoseconds since 1970
    intake: IntakeInfo | None = None
    damaged: bool = False
    behind: tuple[tuple[NodeId, Uint53], ...] = ()  # of the leader: chunks, by follower
    consumers: tuple[ConsumerInfo, ...] = ()  # of the leader: the durable ones
    halves: Uint53 = 0  # that are not decided
    parked: Uint53 = 0  # those of them that wait for an operator
    keys: Uint53 | None = None  # of the leader of a stream with a key
    forks: tuple[ForkInfo, ...] = ()
    lost: tuple[tuple[Uint53, Uint53], ...] = ()  # of the leader, as in ReplicaInfo


class ShardsStatus(Message, frozen=True):
    """Those of the shards that the node has."""

    ticket: Uint53
    shards: tuple[ShardStatus, ...]
