"""The parts of replies (overlay/client.py): nodes, clusters, programs, subscriptions, reasons."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from overlay.machine import Key, NodeId, Uint53


class PeerInfo(msgspec.Struct, frozen=True):
    """One neighbour or link, for `canopy peers`."""

    node: NodeId
    address: str
    state: str  # of the link
    age: int  # in shuffles; -1 if it is no neighbour
    neighbour: bool
    sent: int  # messages
    received: int
    region: str = ""
    tier: int = 0
    load: int = 0  # of a neighbour: per cent of what it can host that was asked of it of late
    protocol: int = 0  # version that the link speaks; 0: never connected


class ClusterInfo(msgspec.Struct, frozen=True):
    """One cluster as `canopy ring --json` shows it."""

    key: Key
    start: Key  # it owns the keys after this one, up to and including `key`
    epoch: int
    primary: NodeId
    standby: NodeId  # "" if it has none
    brokers: tuple[NodeId, ...]
    attributes: tuple[str, ...]
    addresses: dict[NodeId, str]
    led_for: float = -1.0
    """Seconds that its primary has led it; -1: not known."""
    silent: tuple[NodeId, ...] = ()
    """Members that its primary does not hear."""
    sub_healthy: dict[NodeId, str] = {}
    """Members that are sub-healthy, as far as the node that was asked knows, and why."""


class Incident(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened. `what`: link down, back (a peer); silent (a primary), elected,
    fenced; joined, member gone (at the primary); identity conflict (another process
    has this node's id); role (of this node)."""

    ago: float  # seconds
    what: str
    node: NodeId
    cluster: Key  # "" if it is about no cluster
    epoch: int
    text: str


class VirtualNodeInfo(msgspec.Struct, frozen=True):
    """One virtual node of a tree: an interval of values, as text, and the node that serves it."""

    lo: str
    hi: str
    host: NodeId
    registrations: int
    others: tuple[NodeId, ...] = ()  # replicas beside `host`


class SubscriptionInfo(msgspec.Struct, frozen=True):
    """A subscription of a client of this node."""

    subscription: str
    name: str
    selector: str
    acknowledged: bool
    delivered: int  # events; where its client gathers, those that are counted for this one
    pivots: tuple[str, ...]  # per conjunction: the attribute tree(s) it is registered in
    client: int = 0  # whose it is: a number of `ClientInfo`
    level: int = 0  # latency level; 0: none
    unanswered: int = 0  # registrations that their owners have not acknowledged
    put_off: int = 0  # of these, what owners take later: so much at a time of a leaf


class ClientInfo(msgspec.Struct, frozen=True):
    """A program at a node's control socket, connected or with a session that is kept for it. All
    but the numbers of client and process are bytes, `dropped` deliveries, `parked_for` seconds.
    """

    client: int
    pid: int  # of its process; 0: the system does not say
    credit: int
    under_way: int  # sent, and not consumed
    waiting: int  # for credit
    dropped: int  # since it has connected
    parked_for: float = -1.0
    """Seconds since its connection was lost, while its session is kept; -1: it is connected."""


class ExplanationLine(msgspec.Struct, frozen=True):
    """One line of an explanation, indented by `depth`."""

    depth: int
    text: str  # of the sub-expression
    verdict: str  # true, false, unknown
    seen: str  # the value(s) seen, as text; "" if none


class Reason(msgspec.Struct, frozen=True):
    """The reason why the event was delivered to one subscription or not."""

    subscription: str
    name: str
    selector: str
    delivered: bool
    summary: str  # one sentence
    verdicts: tuple[ExplanationLine, ...]
    attribute: str = ""  # pivot, or the tree that completed it
    lo: str = ""
    hi: str = ""
    hops: int = 0


class RecipientInfo(msgspec.Struct, frozen=True):
    """A node that an event would be sent to."""

    node: NodeId
    address: str
    subscriptions: int  # of this node that match; at least so many if `ids` are fewer
    ids: tuple[str, ...]  # of subscriptions; not all if they are many


class EventRecipients(msgspec.Struct, frozen=True):
    """The recipients of one event, as `canopy pub --dry-run` shows them."""

    refused: str  # why the event cannot be published; "": it can
    nodes: int = 0  # at least so many if they are more than `listed`
    listed: tuple[RecipientInfo, ...] = ()
    unanswered: tuple[tuple[str, str], ...] = ()
    """Trees that are not known to have been matched, by attribute, and why: others may get it."""


class OriginInfo(msgspec.Struct, frozen=True):
    """A shard of another stream that is copied: all its rows below `position` are dealt with.
    `fault`: why it is not read just now."""

    stream: str
    shard: Uint53
    position: Uint53
    fault: str = ""


class IntakeInfo(msgspec.Struct, frozen=True):
    """The capturing and copying of a replica into its shard. `state`: "captures", or "registers"
    while the subscription is not acknowledged; "copies" other streams, or "waits" for one; "full":
    the shard has reached its limit."""

    state: str
    selector: str
    waiting: Uint53 = 0  # events that are not known to be committed
    gaps: Uint53 = 0  # how often this node may have missed events, since its start
    origins: tuple[OriginInfo, ...] = ()


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A durable consumer of a shard, by its leader's log."""

    name: str
    selector: str
    position: Uint53  # the offset that it reads next
    dropped: Uint53 = 0  # offsets that it had not read when they were let go of
    was_at: Uint53 = 0  # where it was when rows there were lost, until another program comes


class ForkInfo(msgspec.Struct, frozen=True):
    """A fork of a shard. `state`: "open" while it takes rows, "waits" until it is copied, both at
    its holder; "copied" at a leader that has all or some of it. `rows`: the number of rows of the
    fork, or of copied ones; among these, `repeated` were in the main log already, and `conflicting`
    have lost their producer's numbers, which other rows have."""

    fork: str
    state: str
    rows: Uint53
    repeated: Uint53 = 0
    conflicting: Uint53 = 0


class ReplicaInfo(msgspec.Struct, frozen=True):
    """One replica of a shard, as it describes itself; `state` "silent": it has not answered."""

    node: NodeId
    address: str
    state: str  # leads, follows, opening, mending, barred or silent
    epoch: int = 0
    first: int = 0  # the oldest offset that is kept
    next: int = 0  # the offset of the next row, committed or not
    durable: int = 0  # number of the last chunk on its disk
    committed: int = 0  # number of the last chunk that it knows to be committed
    bytes: int = 0
    time: float = 0.0  # of the last chunk; seconds since 1970
    intake: IntakeInfo | None = None
    damaged: bool = False
    """Its log was torn or damaged: it proves nothing in a campaign until a leader has completed
    it."""
    behind: tuple[tuple[NodeId, Uint53], ...] = ()
    """At the leader: the number of chunks that each follower has not acknowledged."""
    consumers: tuple[ConsumerInfo, ...] = ()
    """At the leader: its durable consumers, the first 100 by name."""
    halves: Uint53 = 0
    """Transactions that are not decided."""
    parked: Uint53 = 0
    """Number of dead rows that wait for an operator."""
    keys: Uint53 | None = None
    """At the leader of a stream with a key: the number of keys; None also while it counts them."""
    forks: tuple[ForkInfo, ...] = ()
    """The forks of which it is the holder; at the leader also those that were copied."""
    region: str = ""
    """Its region, as the stream's owner knows it."""
    lost: tuple[tuple[Uint53, Uint53], ...] = ()
    """At the leader: rows that its log has lost at its end, by damage that no replica could mend,
    the last ones: the first offset, and that behind the last one, or the next one, where nobody
    knows how many there were. Other rows may have them since. Those that retention would have
    removed by now are not named."""


class HeldShard(msgspec.Struct, frozen=True):
    """A shard that a node has. `stream` is its name, or its id where no owner has told the name
    yet."""

    stream: str
    number: int
    here: ReplicaInfo


class ShardInfo(msgspec.Struct, frozen=True):
    """One shard of a stream. `leader`: "" while there is none."""

    number: int
    leader: NodeId
    replicas: tuple[ReplicaInfo, ...]


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream, its options and its shards."""

    name: str
    id: str
    by: str
    replicas: int
    keep_seconds: float
    keep_bytes: int
    shards: tuple[ShardInfo, ...]
    capture: str = ""  # the selector of the events that it captures
    sources: tuple[tuple[str, str], ...] = ()  # streams that are copied, with the selector of each
    mirror: str = ""  # the stream that it has the rows of, with their offsets
    region: str = ""  # where its replicas are to be
    drop_unread: bool = False
    expire_consumers: float = 0.0  # seconds; 0: never
    max_bytes: int = 0  # of a shard, as is `max_rows`; 0: without a bound
    max_rows: int = 0
    when_full: str = "refuse"  # or drop-oldest
    key: str = ""  # the attribute of whose values each has its newest row kept
    deletes: str = ""  # the selector of rows that delete their key
    ttl_seconds: float = 0.0  # how long rows are of use; 0: for ever
    ttl_by: str = ""  # the attribute with the seconds of a row that has its own
    prefer: str = "consistency"  # or availability
    writers: tuple[str, ...] = ()  # who may append (streams/log/writers.py)


class GroupShardInfo(msgspec.Struct, frozen=True):
    """A group at one shard. `floor`: all rows below it are done. `end`: the offset after the last
    committed row. `scanned`: the offset up to which the shard's leader has looked for rows, 0: not
    yet. `open`: the number of rows found and not done, including those that are `leased` or
    `delayed`."""

    shard: int
    floor: int
    end: int
    scanned: int
    open: int
    leased: int
    delayed: int
    dead: int
    members: tuple[str, ...]
    former: tuple[tuple[int, str], ...] = ()
    """(offset, selector): rows below the offset that it is not done with go by that selector."""


class GroupInfo(msgspec.Struct, frozen=True):
    """A consumer group of a stream. `shards`: those whose leaders have answered and know it."""

    name: str
    selector: str
    lease: float
    deliveries: int
    by: str
    priority: str
    delay: str
    delay_seconds: float
    shards: tuple[GroupShardInfo, ...]


class TransactionInfo(msgspec.Struct, frozen=True):
    """A transaction that is not decided, in one shard: `count` events that `node` has prepared for
    `producer`. `parked`: nobody could say what became of it; an operator has to."""

    shard: int
    transaction: str
    producer: str
    node: NodeId
    count: int
    bytes: int
    time: float  # when it was prepared; seconds since 1970
    parked: bool


class AppendReceipt(msgspec.Struct, frozen=True):
    """The place of events of one batch: the offsets `first` to `first + count - 1` of a shard, in
    the chunk with this number, epoch and hash (hexadecimal). Together with shard and stream id it
    is proven by `canopy stream verify --receipt`."""

    shard: int
    epoch: int
    first: int
    count: int
    chunk: int
    hash: str
    replicas: tuple[NodeId, ...]
    """The nodes that had it on disk when it was acknowledged."""
    places: tuple[int, ...] = ()
    """Positions of the events in the command; (): all."""
    fork: str = ""
    """The place is in this fork of the shard, and not yet in its main log; "": in the main log."""


class AcceptedEvents(msgspec.Struct, frozen=True, array_like=True):
    """Events of a receipt with numbers one after the other, which the same hosts have accepted."""

    first: int  # sequence number
    count: int
    hosts: dict[str, NodeId]  # by the attribute of the tree

    @staticmethod
    def of(hosts: Mapping[int, Mapping[str, NodeId]]) -> tuple[AcceptedEvents, ...]:
        """Group consecutive events, by sequence number, that have the same hosts. Events that visit
        no host are in no group."""
        groups: list[AcceptedEvents] = []
        for sequence, found in sorted(hosts.items()):
            last = groups[-1] if groups else AcceptedEvents(0, 0, {})
            if found and found == last.hosts and sequence == last.first + last.count:
                groups[-1] = AcceptedEvents(last.first, last.count + 1, last.hosts)
            elif found:
                groups.append(AcceptedEvents(sequence, 1, dict(found)))
        return tuple(groups)
