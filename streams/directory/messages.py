"""The vocabulary of the directory: between any node and a stream's owner (the primary of the
cluster that owns its name), and between that owner and the nodes that have its shards."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec.structs import asdict

from overlay.chord.messages import Cluster
from overlay.command_faults import STREAM_NAME_MOST
from overlay.info import ConsumerInfo, ForkInfo, IntakeInfo, ReplicaInfo
from overlay.machine import Duration, Message, NodeId, Peer, Uint53, Uint63, Version
from streams.directory.entry import ATTRIBUTE_MOST, StreamEntry, StreamOptions
from streams.log.chunk import NANOSECONDS
from streams.log.writers import Names
from streams.shard.messages import Shard

Name = Annotated[str, msgspec.Meta(max_length=STREAM_NAME_MOST)]

SHARDS_PER_MESSAGE = 512
"""The limit of shards in one heartbeat or report: 100 KiB."""


class FoundStream(Message, frozen=True):
    """Asks the owner to found a stream with this id, which the sender has drawn: a repeated message
    founds no second stream. Answered by StreamFound or StreamRefused."""

    ticket: Uint53
    name: Name
    id: Shard
    options: StreamOptions


class ChangeStream(Message, frozen=True):
    """Asks the owner to change a stream's options; None: unchanged. Answered by StreamFound or
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
    """Asks the owner for a stream's entry and the leaders of its shards."""

    ticket: Uint53
    name: Name


class StreamFound(Message, frozen=True):
    """The entry of a stream, and the leader of each of its shards (None: it has none now)."""

    ticket: Uint53
    entry: StreamEntry
    leaders: tuple[Peer | None, ...]
    answering: tuple[Annotated[int, msgspec.Meta(ge=-1, lt=1 << 53)], ...] = ()
    """For each shard the replicas that answer, if they have been no majority for a while; -1: a
    majority answers."""


class StreamRefused(Message, frozen=True):
    """The owner's refusal: `code` as in `overlay.client.Failed`. `removed`: the owner knows that
    the stream was removed; without it the owner may lack the entry, since it is cut off, or has
    replaced a lost cluster."""

    ticket: Uint53
    code: str
    reason: str
    removed: bool = False


class StreamElsewhere(Message, frozen=True):
    """The receiver of a question does not own the name; perhaps `cluster` does."""

    ticket: Uint53
    cluster: Cluster | None


class AskStreams(Message, frozen=True):
    """Asks a primary for the streams of its cluster with names behind `after`, in order."""

    ticket: Uint53
    after: str


class StreamsReport(Message, frozen=True):
    """Streams of one cluster, in order of name; `more`: there are others behind them."""

    ticket: Uint53
    key: str
    entries: tuple[StreamEntry, ...]
    more: bool


class ShardOrder(msgspec.Struct, frozen=True, array_like=True):
    """The owner's order about one shard, for a node that is to be its replica."""

    shard: Shard
    leader: NodeId
    """The node that is to lead: it takes over if it does not; "": the owner waits for reports."""
    founders: tuple[Peer, ...]
    """The replicas that begin the log; () once it has had a leader."""
    replicas: tuple[Peer, ...]
    """The wanted replicas: the leader adds the missing ones, then removes the others."""
    removed: bool = False
    """Destroy the shard: the stream was removed, or the node is no longer a replica."""
    released: tuple[NodeId, ...] = ()
    """Leaving nodes that may stop: the shard goes on without them, or cannot be helped."""


class KeepShards(Message, frozen=True):
    """The owner's heartbeat. `entries`: the streams of these shards, for nodes that lack them."""

    orders: Annotated[tuple[ShardOrder, ...], msgspec.Meta(max_length=SHARDS_PER_MESSAGE)]
    entries: tuple[StreamEntry, ...]


class ShardReport(msgspec.Struct, frozen=True, array_like=True):
    """A node's report on one of its shards."""

    shard: Shard
    leading: Uint53
    """The epoch under which it leads and has committed a chunk; 0: it does not lead."""
    position: Version
    is_ready: bool
    replicas: tuple[Peer, ...]
    """If it leads: the replicas by its log, once they are committed; else ()."""
    is_gone: bool = False
    """It has destroyed the shard."""
    is_barred: bool = False
    """It has lost its vote: it never takes part again with its present log."""
    is_leaving: bool = False
    """It drains: another replica has to lead, and the leader has to remove it if the others are no
    majority."""


class ShardsReport(Message, frozen=True):
    """The answer to `KeepShards`; also sent at once when a shard has a new leader."""

    reports: Annotated[tuple[ShardReport, ...], msgspec.Meta(max_length=SHARDS_PER_MESSAGE)]


class ShardsOrphaned(Message, frozen=True):
    """A node has shards of these streams and no owner's heartbeat: the owner of a name adds the
    entry if it has none."""

    entries: tuple[StreamEntry, ...]


class AskShards(Message, frozen=True):
    """Asks a node for the state of its replicas of these shards. Answered by ShardsStatus."""

    ticket: Uint53
    shards: Annotated[tuple[Shard, ...], msgspec.Meta(max_length=SHARDS_PER_MESSAGE)]


class ShardStatus(msgspec.Struct, frozen=True, array_like=True):
    """A replica of a shard, for people. Numbers are of chunks, `first` and `next` are offsets."""

    shard: Shard
    state: str  # leads, follows, opening, mending, or barred
    epoch: Uint53
    first: Uint53
    next: Uint53
    end: Uint53
    durable: Uint53
    committed: Uint53
    bytes: Uint53  # of the segments whose sizes are known
    time: Uint63  # of the last chunk, nanoseconds since 1970
    intake: IntakeInfo | None = None
    damaged: bool = False
    behind: tuple[tuple[NodeId, Uint53], ...] = ()  # of the leader: chunks, by follower
    consumers: tuple[ConsumerInfo, ...] = ()  # of the leader: the durable ones
    halves: Uint53 = 0  # undecided
    parked: Uint53 = 0  # those of the halves that wait for an operator
    keys: Uint53 | None = None  # of the leader of a stream with a key
    forks: tuple[ForkInfo, ...] = ()
    lost: tuple[tuple[Uint53, Uint53], ...] = ()  # of the leader, as in ReplicaInfo


def replica_info(peer: Peer, status: ShardStatus | None) -> ReplicaInfo:
    """A replica for people; `status` None: it has not answered."""
    if status is None:
        return ReplicaInfo(peer.id, peer.address, "silent", region=peer.region)
    about = asdict(status)
    del about["shard"], about["end"]
    about["time"] /= NANOSECONDS
    return ReplicaInfo(peer.id, peer.address, **about, region=peer.region)


class ShardsStatus(Message, frozen=True):
    """The state of the shards that the node has."""

    ticket: Uint53
    shards: tuple[ShardStatus, ...]
