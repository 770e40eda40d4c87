"""Commands and replies about streams, beside those of `overlay.client`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from matching import Value
from overlay.client import Command, Draft, Reply
from overlay.info import AppendReceipt, GroupInfo, TransactionInfo
from overlay.machine import Uint53


class AddStream(Command, frozen=True):
    """Found a stream with these options. Answered by Streams, when the directory has committed it;
    by Failed with code exists, usage, full or time-out.

    `capture`: the selector of published events that the stream takes in; the answer then comes when
    all replicas that answer have registered it. On time-out the stream exists, and its replicas go
    on registering.
    `sources`: (stream, selector) of the streams whose matching rows it takes in ("": all rows);
    `mirror`: the stream whose rows it copies, with the same offsets; nobody else appends to it.
    `region`: its replicas are nodes of this region, if the owner knows any there.
    `key`: an attribute; the newest row of each of its values is kept, however old, until a row that
    matches `deletes` ("": a row with the key only). `ttl_seconds`: the lifetime of a row, 0: no
    end; `ttl_by`: the attribute with the seconds of a row that has a lifetime of its own.
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
    """Change a stream's options; None: unchanged. Answered as AddStream, or by Failed (unknown)."""

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
    """Ask about the row with this offset, and what each consumer has done with it. Answered by
    RowExplained, or by Failed (unknown, usage, time-out)."""

    stream: str
    shard: int
    offset: int


class BeginProducer(Command, frozen=True):
    """Open a session of `producer`, which ends its other sessions. Answered by ProducerReady, when
    the logs of all shards have committed it, or by Failed (unknown, expired, fenced, full, usage).

    `first`: the program's own number of the first event that it will append; events below the next
    number are skipped, since they are appended already. -1: the next number. With several shards
    -1 or 0, since numbers count the events of each shard. `firsts`: `first` by shard, instead of
    it. `step`: the step of its work that the program begins or repeats, from 1 on (0: it has no
    steps). Without `first` and `firsts` the session continues at the first event of the step; a
    step before the newest one is refused (fenced).

    `token` identifies the start of the program. `resumed`: the sessions that it has opened with
    this token before, as after the loss of its node; above 0 the session is refused (fenced) if a
    program with another token, or this program, has opened a later session.
    """

    stream: str
    producer: str
    first: int = -1
    firsts: tuple[int, ...] = ()
    step: Uint53 = 0
    token: Annotated[str, msgspec.Meta(max_length=32, pattern="^[^/]*$")] = ""
    resumed: Uint53 = 0


class ProducerReady(Reply, frozen=True):
    """The session is open. `next`: by shard, the number of the producer's next event, which is the
    count of its appended events. `begins`: by shard, the number of the event that has to follow: of
    a step its first."""

    next: tuple[int, ...]
    begins: tuple[int, ...] = ()


class RowReader(msgspec.Struct, frozen=True, array_like=True):
    """The handling of a row by a durable consumer. `what`: "read" (the row is below its position
    and matches its selector), "passed over" (it does not match), "waits", "will pass over"; for a
    row that the log does not have: "unread" (its position is not beyond it) or "passed". For a
    group (`name` is "group NAME", `position` its floor) also the member that has the row, or why it
    is a dead letter."""

    name: str
    selector: str
    position: int
    what: str


class RowExplained(Reply, frozen=True):
    """A row, by its shard's leader. `state`: kept, past its time (kept, but no longer delivered),
    removed, or not yet; the log has the offsets from `first` to before `next`. `producer` and
    `number` identify the row in the shard; `time`: seconds since 1970 of its append. `fork`: the
    fork of the shard from which it was copied, where its offset was `at`; "": it was not copied
    from a fork."""

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

    Options that are None are not compared with the group's; a group that does not exist is founded
    with these options, from `start` on (as BeginReading). `name`: the member's name, which fences
    another member of that name; "": the node chooses one. `attachments`: those of GroupReady, for a
    program that returns. `credit`: rows of each shard that the program may have at once.
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
    """Take up to `most` rows that have come for a member, named by the request number of its
    AttachGroup. Answered by RowsTaken as soon as there are rows, by Failed when the membership has
    ended."""

    member: int
    most: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000


class RowSettled(msgspec.Struct, frozen=True, array_like=True):
    """A member's answer to a row. `ack`: it is done; `nack`: it is delivered again, not before
    `delay` seconds from now; `reject`: it becomes a dead letter; `extend`: its lease restarts."""

    shard: Uint53
    offset: Uint53
    lease: Uint53
    what: Literal["ack", "nack", "reject", "extend"]
    delay: Annotated[float, msgspec.Meta(ge=0, le=86_400 * 30)] = 0.0
    reason: Annotated[str, msgspec.Meta(max_length=200)] = ""


class SettleRows(Command, frozen=True):
    """Answer rows (RowSettled). Answered by RowsSettled when the answers are committed."""

    member: int
    rows: Annotated[tuple[RowSettled, ...], msgspec.Meta(max_length=10_000)]


class DetachGroup(Command, frozen=True):
    """End a membership: its rows go to other members. Answered by Done."""

    member: int


class GetGroups(Command, frozen=True):
    """Ask for the groups of a stream, or for one with its dead letters. Answered by Groups."""

    stream: str
    group: Annotated[str, msgspec.Meta(max_length=128)] = ""


class EndDead(Command, frozen=True):
    """Have dead letters of a group delivered again (`retry`), or drop them: (shard, offset) of
    each, (): all. Answered by DeadEnded when the change is committed."""

    stream: str
    group: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    rows: Annotated[tuple[tuple[Uint53, Uint53], ...], msgspec.Meta(max_length=4_000)] = ()
    retry: bool = True


class EditGroup(Command, frozen=True):
    """Change the options of a group; None: unchanged. Answered by Done when all shards have
    committed the change, or by Failed (unknown, unknown-group, selector, options, full, time-out:
    some shards may have it, and the program may repeat the command).

    A new selector applies to rows that are appended after the change. `by` cannot change: it is
    None or the group's."""

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
    """Remove a group with all of its state. Answered by Done when the removal is committed."""

    stream: str
    group: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class BeginLogCheck(Command, frozen=True):
    """Have this node read the logs of its shards from end to end, now: of one stream, or of all
    (""), at a `rate` of bytes per second. Answered by LogCheck, or by Failed (unknown: it has no
    shard of that stream; refused: another check runs). The check ends when the program
    disconnects."""

    stream: str = ""
    rate: Annotated[int, msgspec.Meta(ge=64 * 1024, le=1 << 32)] = 16 * 1024 * 1024


class GetLogCheck(Command, frozen=True):
    """Ask for the progress of the check that this program has begun. Answered by LogCheck."""


class ShardCheck(msgspec.Struct, frozen=True):
    """The check of a shard's log at one node. `state`: waits, reads, whole, mended (all damage was
    repaired), damaged (no other replica can repair it), mending (other replicas are being asked),
    opening, or barred (the replica has lost its vote). `bytes` of `size` are read; more than
    `size` if the log was read again after a repair.

    `found`: damaged places; `mended`: chunks repaired from other replicas; `refused`: chunks that
    others sent and whose hash was wrong; `left`: places that stay damaged; `ended`: how many times
    no replica had the missing chunks, so that the log was cut there and its leader sends the
    rest."""

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
    """The progress of a check of the logs of the node `node`, at `address`."""

    node: str
    address: str
    is_over: bool
    shards: tuple[ShardCheck, ...]


class GroupReady(Reply, frozen=True):
    """The program is a member at all shards. `attachments`: by shard, the attachment's number (for
    AttachGroup); `lease`: seconds of the lease of a row."""

    attachments: tuple[tuple[int, int], ...]
    selector: str
    lease: float


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of a group, leased to the program for `left` more seconds. `deliveries`: the deliveries
    so far, with this one. The rest is as in StreamEvent."""

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
    """Rows that are leased to the program. `waits`: as in EventsTaken."""

    rows: tuple[GroupRow, ...]
    waits: str = ""


class RowsSettled(Reply, frozen=True):
    """The answers to rows are committed, but for the rows in `lost`, (shard, offset): their leases
    had ended, and they are delivered again."""

    lost: tuple[tuple[int, int], ...]


class DeadLetter(msgspec.Struct, frozen=True):
    """A row that a group has given up, at `time` (seconds since 1970). `attributes` and `payload`
    are None if the log has removed the row, or if it is too large to be shown."""

    shard: int
    offset: int
    deliveries: int
    reason: str
    time: float
    attributes: dict[str, Value | None] | None = None
    payload: bytes | None = None
    payload_type: str = ""


class Groups(Reply, frozen=True):
    """The groups of a stream; for a single group also its dead letters, up to 200 of each shard.
    `complete` is False if a shard's leader did not answer in time."""

    groups: tuple[GroupInfo, ...]
    letters: tuple[DeadLetter, ...] = ()
    complete: bool = True


class DeadEnded(Reply, frozen=True):
    """`count` dead letters have ended."""

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
"""The commands of these that the control socket decodes."""

CHECK_COMMANDS = BeginLogCheck | GetLogCheck

GROUP_REPLIES = GroupReady | RowsTaken | RowsSettled | Groups | DeadEnded
"""The replies to these that the control socket sends."""


class PrepareEvents(Command, frozen=True):
    """Keep events, invisible, until their transaction is decided. The program chooses the id; a
    repeated command with the same id has no further effect. Answered by TransactionState when the
    logs of all shards of the events have committed them, or by Failed (unknown, event, usage,
    conflict, full, quota, malformed, too-large, leaving)."""

    stream: str
    transaction: str
    producer: str
    events: tuple[Draft, ...]


class DecideTransaction(Command, frozen=True):
    """Commit a transaction, which appends its events, or roll it back. Answered by TransactionState
    with the first decision about it, whoever made that, or by Failed (unknown, unknown-transaction,
    conflict: an operator has decided its shards differently)."""

    stream: str
    transaction: str
    commit: bool


class GetTransactions(Command, frozen=True):
    """Ask for the undecided transactions of a stream, of one producer or of all (""). Answered by
    Transactions."""

    stream: str
    producer: str = ""


class TakeReviews(Command, frozen=True):
    """Offer to decide transactions of `producer` in review. Answered by ReviewsAsked as soon as a
    leader asks, or by Failed (fenced: another program has made this offer since). The program then
    sends DecideTransaction or LeaveUnknown."""

    stream: str
    producer: str


class LeaveUnknown(Command, frozen=True):
    """Answer to a review: the program does not know the transaction's outcome. Answered by Done."""

    stream: str
    transaction: str


class TransactionState(Reply, frozen=True):
    """A transaction's `outcome`, prepared, committed or rolled-back, in a stream with this id.
    `receipts`: of a committed transaction, for each shard of its events; (): the log has forgotten
    them."""

    outcome: str
    stream: str
    receipts: tuple[AppendReceipt, ...] = ()


class Transactions(Reply, frozen=True):
    """Undecided transactions, shard by shard."""

    transactions: tuple[TransactionInfo, ...]


class ReviewsAsked(Reply, frozen=True):
    """Leaders ask for the outcomes of these transactions."""

    transactions: tuple[str, ...]


TRANSACTION_COMMANDS = (
    PrepareEvents | DecideTransaction | GetTransactions | TakeReviews | LeaveUnknown
)
"""The commands of these that the control socket decodes."""

TRANSACTION_REPLIES = TransactionState | Transactions | ReviewsAsked
"""The replies to these that the control socket sends."""
