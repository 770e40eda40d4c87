"""What a program may ask of its node about streams, beside what `overlay.client` has of them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from matching import Value
from overlay.client import Command, Draft, Reply
from overlay.info import AppendReceipt, GroupInfo, TransactionInfo
from overlay.machine import Uint53


class AddStream(Command, frozen=True):
    """Found a stream with these options. Answered by Streams, when the
    directory has it for good; by Failed with code exists, usage, full or time-out.

    `capture`: the selector of events that it takes in; then the answer comes when all replicas that
    answer have registered it. On time-out the stream is there, and goes on registering.
    `sources`: streams of which it takes in the rows that a selector is true for ("": all);
    `mirror`: the stream whose rows it has, with the same offsets; nobody else appends to it.
    `region`: its replicas are nodes of this region, as far as the owner knows some.
    `key`: the attribute of whose values each has its newest row kept, however old, until a row that
    `deletes` matches ("": one that has the key only). `ttl_seconds`: how long rows are of use, 0:
    for ever; `ttl_by`: the attribute with the seconds of a row that has its own.
    `prefer`: "availability" if replicas without a majority are to take rows into a fork.
    `writers`: who may append: producer:NAME, node:ID, tenant:NAME; (), or *: anybody.
    """

    name: str
    shards: int = 1
    by: str = ""
    replicas: int = 3
    keep_seconds: float = 0.0
    keep_bytes: int = 0
    capture: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    mirror: str = ""
    region: str = ""
    drop_unread: bool = False
    expire_consumers: float = 0.0
    max_bytes: int = 0
    max_rows: int = 0
    when_full: str = "refuse"
    key: str = ""
    deletes: str = ""
    ttl_seconds: float = 0.0
    ttl_by: str = ""
    prefer: str = "consistency"
    writers: tuple[str, ...] = ()


class EditStream(Command, frozen=True):
    """Change a stream's options; None: as they are. Answered as AddStream, or by Failed
    (unknown)."""

    name: str
    keep_seconds: float | None = None
    keep_bytes: int | None = None
    capture: str | None = None
    drop_unread: bool | None = None
    expire_consumers: float | None = None
    max_bytes: int | None = None
    max_rows: int | None = None
    when_full: str | None = None
    ttl_seconds: float | None = None
    ttl_by: str | None = None
    prefer: str | None = None
    writers: tuple[str, ...] | None = None


class WhyRow(Command, frozen=True):
    """Ask what became of the row with this offset. Answered by RowExplained, or by Failed (unknown,
    usage, time-out)."""

    stream: str
    shard: int
    offset: int


class BeginProducer(Command, frozen=True):
    """Append to a stream as `producer`, whose other sessions end. Answered by ProducerReady, when
    that is in the logs of all shards, or by Failed (unknown, expired, fenced, full, usage).

    `first`: the number of the first event that follows, by the program's own count; events below
    the number that comes next are passed over, since they are appended already. -1: whatever comes
    next. With several shards -1, or 0: numbers count the events of each shard. `firsts`: the same
    by shard, instead of `first`. `step`: which step of its work the program begins, or begins
    again, from 1 on (0: it has none). Without `first` and `firsts` the first event of the step
    follows, and an earlier step than the newest is refused (fenced).

    `token` names the program's start. `resumed`: how many times it has begun the producer before
    by this token, as after it has lost its node; above 0 it goes on only if no program of another
    token, and no later beginning of its own, has begun meanwhile (else fenced).
    """

    stream: str
    producer: str
    first: int = -1
    firsts: tuple[int, ...] = ()
    step: Uint53 = 0
    token: Annotated[str, msgspec.Meta(max_length=32, pattern="^[^/]*$")] = ""
    resumed: Uint53 = 0


class ProducerReady(Reply, frozen=True):
    """The session has begun. `next`: by shard the number of the producer's next event: so many are
    appended. `begins`: the number of the event that is to follow, of a step its first."""

    next: tuple[int, ...]
    begins: tuple[int, ...] = ()


class RowReader(msgspec.Struct, frozen=True, array_like=True):
    """What a durable consumer has to do with a row. `what`: "read" (below its position, and its
    selector is true for it), "passed over" (its selector is not), "waits", "will pass over"; of a
    row that is not there: "unread" (its position is not beyond it) or "passed". Of a group, whose
    name is "group NAME" and position its floor, also who has the row, or why it is dead."""

    name: str
    selector: str
    position: int
    what: str


class RowExplained(Reply, frozen=True):
    """A row, as its shard's leader knows it. `state`: kept, past its time (there, and not
    delivered any more), removed, or not yet; the offsets from
    `first` up to `next` are there. `producer` and `number` are its identity in the shard; `time`:
    when it was appended, seconds since 1970. `fork`: the fork of the shard from which it was
    copied, where its offset was `at`; "": from none."""

    state: str
    first: int
    next: int
    producer: str
    number: int
    epoch: int
    chunk: int
    time: float
    attributes: dict[str, Value | None]
    readers: tuple[RowReader, ...]
    fork: str = ""
    at: int = 0


class AttachGroup(Command, frozen=True):
    """Become a member of a consumer group of a stream. Answered by GroupReady, or by Failed
    (unknown, selector, options, offset-out-of-range, fenced, unknown-group, full, usage).

    Options that are None are those that the group has; a group that is not known is founded with
    them, and from `start` on (as BeginReading). `name`: another member of this name is fenced, ""
    for one of its own; `attachments`: those of GroupReady, for a program that comes back.
    `credit`: rows of each shard that the program may have at once.
    """

    stream: str
    group: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    name: Annotated[str, msgspec.Meta(max_length=128)] = ""
    start: Literal["first", "new", "offset", "time"] = "new"
    at: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    credit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 64
    selector: str | None = None
    lease: float | None = None
    deliveries: int | None = None
    by: str | None = None
    priority: str | None = None
    delay: str | None = None
    delay_seconds: float | None = None
    attachments: tuple[tuple[Uint53, Uint53], ...] = ()


class TakeRows(Command, frozen=True):
    """Take rows that have come for a member, named by the request number of its AttachGroup: at
    most `most`. Answered by RowsTaken as soon as there are some, by Failed when it is no member any
    more."""

    member: int
    most: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000


class RowSettled(msgspec.Struct, frozen=True, array_like=True):
    """What becomes of a row. `nack`: it is delivered again, `delay` seconds from now at the
    earliest; `reject`: it becomes a dead letter; `extend`: its lease begins anew."""

    shard: Uint53
    offset: Uint53
    lease: Uint53
    what: Literal["ack", "nack", "reject", "extend"]
    delay: Annotated[float, msgspec.Meta(ge=0, le=86_400 * 30)] = 0.0
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""


class SettleRows(Command, frozen=True):
    """Say what becomes of rows. Answered by RowsSettled when that is committed."""

    member: int
    rows: Annotated[tuple[RowSettled, ...], msgspec.Meta(max_length=10_000)]


class DetachGroup(Command, frozen=True):
    """Be a member no more: what it has goes to others. Answered by Done."""

    member: int


class GetGroups(Command, frozen=True):
    """Ask for the groups of a stream, or for one with its dead letters. Answered by Groups."""

    stream: str
    group: Annotated[str, msgspec.Meta(max_length=128)] = ""


class EndDead(Command, frozen=True):
    """Have dead letters of a group delivered again (`retry`), or drop them: (shard, offset) of
    each, none for all. Answered by DeadEnded when that is committed."""

    stream: str
    group: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    rows: Annotated[tuple[tuple[Uint53, Uint53], ...], msgspec.Meta(max_length=4_000)] = ()
    retry: bool = True


class EditGroup(Command, frozen=True):
    """Change the options of a group; what is None stays. Answered by Done when they hold in all
    shards, or by Failed (unknown, unknown-group, selector, options, full, time-out: in some shards
    they may hold; the same may be asked again).

    A new selector is for rows that are appended from then on. `by` can be named, and has to be the
    group's."""

    stream: str
    group: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    selector: str | None = None
    lease: float | None = None
    deliveries: int | None = None
    by: str | None = None
    priority: str | None = None
    delay: str | None = None
    delay_seconds: float | None = None


class RemoveGroup(Command, frozen=True):
    """Forget a group with all that it has. Answered by Done when that is committed."""

    stream: str
    group: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class BeginLogCheck(Command, frozen=True):
    """Have this node read the logs of its shards from end to end, now: of one stream, or of all
    (""). At most `rate` bytes a second are read. Answered by LogCheck, or by Failed (unknown: it
    has no shard of that stream; refused: a check is under way). It ends when the program has
    gone."""

    stream: str = ""
    rate: Annotated[int, msgspec.Meta(ge=64 * 1024, le=1 << 32)] = 16 * 1024 * 1024


class GetLogCheck(Command, frozen=True):
    """Ask how the check stands that this program has begun. Answered by LogCheck."""


class ShardCheck(msgspec.Struct, frozen=True):
    """A shard's log at one node, as a check has found it. `state`: waits, reads, whole, mended
    (there was damage, and all of it is mended), damaged (it stays: there is no other replica),
    mending (others are asked still), opening, or barred (it has lost its vote). `bytes` of
    `size` are read; more where it is read again after it was mended.

    `found`: places at which there is not what was written; `mended`: chunks that other replicas
    had; `refused`: chunks that others sent and that were never there; `left`: places that stay;
    `ended`: times that nobody had what was missing, so that the log ends before it, and the rest
    comes from its leader."""

    stream: str
    shard: int
    state: str
    bytes: int
    size: int
    found: int
    mended: int
    refused: int
    left: int
    ended: int


class LogCheck(Reply, frozen=True):
    """How a check of the logs of the node `node`, at `address`, stands."""

    node: str
    address: str
    is_over: bool
    shards: tuple[ShardCheck, ...]


class GroupReady(Reply, frozen=True):
    """The program is a member at all shards. `attachments`: by shard, which attachment it is (for
    AttachGroup); `lease`: seconds for which it has a row."""

    attachments: tuple[tuple[int, int], ...]
    selector: str
    lease: float


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of a group, which the program has for `left` seconds. `deliveries`: how many times it
    was given to a member, with this one. The rest is as in StreamEvent."""

    shard: int
    offset: int
    lease: int
    deliveries: int
    left: float
    time: float
    attributes: dict[str, Value | None]
    payload: bytes = b""
    payload_type: str = ""


class RowsTaken(Reply, frozen=True):
    """Rows that the program has from now on."""

    rows: tuple[GroupRow, ...]


class RowsSettled(Reply, frozen=True):
    """What was said of rows is committed, but for those that are `lost`, (shard, offset): their
    leases were over, and they are delivered again."""

    lost: tuple[tuple[int, int], ...]


class DeadLetter(msgspec.Struct, frozen=True):
    """A row that a group has given up. `time`: when, in seconds since 1970. `attributes` and
    `payload` are None where the row is not kept any more, or is too large to be shown."""

    shard: int
    offset: int
    deliveries: int
    reason: str
    time: float
    attributes: dict[str, Value | None] | None = None
    payload: bytes | None = None
    payload_type: str = ""


class Groups(Reply, frozen=True):
    """The groups of a stream. Where one was asked for, its dead letters, at most 200 of each
    shard; `complete` is False if a shard's leader did not answer in time."""

    groups: tuple[GroupInfo, ...]
    letters: tuple[DeadLetter, ...] = ()
    complete: bool = True


class DeadEnded(Reply, frozen=True):
    """So many dead letters are none any more."""

    count: int


GROUP_COMMANDS = (
    AttachGroup
    | TakeRows
    | SettleRows
    | DetachGroup
    | GetGroups
    | EndDead
    | EditGroup
    | RemoveGroup
)
"""What the control socket decodes of these."""

CHECK_COMMANDS = BeginLogCheck | GetLogCheck

GROUP_REPLIES = GroupReady | RowsTaken | RowsSettled | Groups | DeadEnded
"""What the control socket sends of these."""


class PrepareEvents(Command, frozen=True):
    """Keep events, invisible, until their transaction is decided. Its id is the program's choice;
    asked twice, it is the same. Answered by TransactionState when they are committed to the logs of
    all shards that they belong to, or by Failed (unknown, event, usage, conflict, full, quota,
    malformed, too-large, leaving)."""

    stream: str
    transaction: str
    producer: str
    events: tuple[Draft, ...]


class DecideTransaction(Command, frozen=True):
    """Commit a transaction, so that its events are appended, or roll it back. Answered by
    TransactionState with the first decision that was taken, whoever took it, or by Failed (unknown,
    unknown-transaction, conflict: an operator has decided its shards differently)."""

    stream: str
    transaction: str
    commit: bool


class GetTransactions(Command, frozen=True):
    """Ask for the transactions of a stream that are not decided, of one producer ("": of all).
    Answered by Transactions."""

    stream: str
    producer: str = ""


class TakeReviews(Command, frozen=True):
    """This program says what became of transactions of `producer`. Answered by ReviewsAsked as soon
    as that is asked of it, or by Failed (fenced: another program says it now). The answer is a
    DecideTransaction or LeaveUnknown."""

    stream: str
    producer: str


class LeaveUnknown(Command, frozen=True):
    """Answer to a review: the program cannot say what became of the transaction. Answered by
    Done."""

    stream: str
    transaction: str


class TransactionState(Reply, frozen=True):
    """A transaction's `outcome`, prepared, committed or rolled-back, in a stream with this id.
    `receipts`: of one that is committed, for each shard where its events are; none where that was
    long ago."""

    outcome: str
    stream: str
    receipts: tuple[AppendReceipt, ...] = ()


class Transactions(Reply, frozen=True):
    """Transactions that are not decided, shard by shard."""

    transactions: tuple[TransactionInfo, ...]


class ReviewsAsked(Reply, frozen=True):
    """Leaders want to know what became of these transactions."""

    transactions: tuple[str, ...]


TRANSACTION_COMMANDS = (
    PrepareEvents | DecideTransaction | GetTransactions | TakeReviews | LeaveUnknown
)
"""What the control socket decodes of these."""

TRANSACTION_REPLIES = TransactionState | Transactions | ReviewsAsked
"""What the control socket sends of these."""
