"""The vocabulary between a member's node and the leader of a shard.

A *member* of a group is one program at one shard; the program's node chooses its number. A member
has rows by *leases*, each with a number that is unique at its leader. Nodes have no common clock.
So a member's node names its own time in each request (`at`), and the leader returns the newest one:
a lease that is given then ends, by the member's clock, no sooner than its length after that time.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from overlay.machine import Duration, Message, Peer, Uint53, Uint63
from streams.log.group_state import DELIVERIES_MOST, NAME_MOST, Attribute, GroupOptions
from streams.programs.reader.messages import ReadFrom
from streams.shard.messages import Shard

LISTED_MOST: Final = 4_096
"""The limit of members or rows in one message."""

CREDIT_MOST: Final = 10_000
"""The limit of rows that a member may have at once: as many as a group may have under way."""

REASON_MOST: Final = 200
"""The limit of characters of a member's reason for returning a row."""


Number = Uint53
Lease = Uint53
GroupName = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MOST)]
Listed = msgspec.Meta(max_length=LISTED_MOST)
Attachment = tuple[Uint53, Uint53]
"""(epoch of the leader, number in it): of two attachments of one name the higher one is valid."""


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """The options that a program asks for; None: those of the group. An unknown group is founded
    with them, from `start` on."""

    start: ReadFrom
    selector: Annotated[str, msgspec.Meta(max_length=16 * 1024)] | None = None
    lease: Duration | None = None
    deliveries: Annotated[int, msgspec.Meta(ge=1, le=DELIVERIES_MOST)] | None = None
    by: Attribute | None = None
    priority: Attribute | None = None
    delay: Attribute | None = None
    delay_seconds: Duration | None = None


class JoinGroup(Message, frozen=True):
    """Become a member. `name`: a member of the same name is fenced, unless its attachment is newer
    than `attachment`; (0, 0): a new attachment. `token`: identifies the program, so that a repeated
    request is not a second member. `credit`: the limit of rows that the member has at once. `held`:
    (offset, lease) of the rows that it has when it comes back. Answered by GroupJoined or
    MemberRefused."""

    shard: Shard
    member: Number
    group: GroupName
    name: GroupName
    token: GroupName
    attachment: Attachment
    wanted: Wanted
    credit: Annotated[int, msgspec.Meta(ge=1, le=CREDIT_MOST)]
    held: Annotated[tuple[tuple[Number, Lease], ...], msgspec.Meta(max_length=CREDIT_MOST)]
    at: Duration


class GroupJoined(Message, frozen=True):
    """The program is a member. `kept`: the leases of `JoinGroup.held` that continue."""

    shard: Shard
    member: Number
    attachment: Attachment
    options: GroupOptions
    kept: Annotated[tuple[Lease, ...], msgspec.Meta(max_length=CREDIT_MOST)]


class LeasedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row that was appended at `time`, for the member alone while the lease lasts. `deliveries`:
    the number of deliveries, with this one."""

    offset: Number
    lease: Lease
    deliveries: Number
    time: Uint63
    row: bytes


class LeasedRows(Message, frozen=True):
    """Rows for a member. Their leases began at `at` or later, by the member's clock."""

    shard: Shard
    member: Number
    at: Duration
    rows: Annotated[tuple[LeasedRow, ...], Listed]


class Settlement(msgspec.Struct, frozen=True, array_like=True):
    """The acknowledgement of a row. *ack*: it is done; *nack*: it is delivered again, after `delay`
    seconds or later; *reject*: it becomes a dead letter; *extend*: its lease begins again;
    *release*: no program has seen it, and the delivery does not count."""

    offset: Number
    lease: Lease
    what: Literal["ack", "nack", "reject", "extend", "release"]
    delay: Annotated[float, msgspec.Meta(ge=0, le=86_400.0 * 30)] = 0.0
    reason: Annotated[str, msgspec.Meta(max_length=REASON_MOST)] = ""


class SettleLeases(Message, frozen=True):
    """Acknowledge rows. It may be repeated. Answered by LeasesSettled in several parts: extensions
    at once, the others when they are committed."""

    shard: Shard
    member: Number
    at: Duration
    settled: Annotated[tuple[Settlement, ...], Listed]


class LeasesSettled(Message, frozen=True):
    """The answers to acknowledgements, by lease. `done`: committed; `extended`: the lease began
    again at `at`; `lost`: the lease had ended before, and the row is delivered again."""

    shard: Shard
    member: Number
    at: Duration
    done: Annotated[tuple[Lease, ...], Listed]
    extended: Annotated[tuple[Lease, ...], Listed]
    lost: Annotated[tuple[Lease, ...], Listed]


class KeepMembers(Message, frozen=True):
    """The keep-alive of members. Sent every second, since a leader ends silent members. Answered by
    MembersKept."""

    shard: Shard
    at: Duration
    members: Annotated[tuple[Number, ...], Listed]


class MembersKept(Message, frozen=True):
    """The answer to a keep-alive. `missing`: the members that the leader does not have. `cut_off`:
    as in ReadingsKept."""

    shard: Shard
    present: Annotated[tuple[Number, ...], Listed]
    missing: Annotated[tuple[Number, ...], Listed]
    cut_off: bool = False


class LeaveGroup(Message, frozen=True):
    """End a member: its rows go to others at once. `untouched`: the leases of rows that the program
    has not seen."""

    shard: Shard
    member: Number
    untouched: Annotated[tuple[Lease, ...], msgspec.Meta(max_length=CREDIT_MOST)]


class MemberRefused(Message, frozen=True):
    """The leader refuses or ends a member."""

    shard: Shard
    member: Number
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Annotated[str, msgspec.Meta(max_length=500)]


class MembersMoved(Message, frozen=True):
    """The sender does not serve these members. `leader`: the leader that it knows."""

    shard: Shard
    members: Annotated[tuple[Number, ...], Listed]
    leader: Peer | None


class ConfirmLeader(Message, frozen=True):
    """Ask a replica whether it has voted in a higher epoch. Answered by LeaderConfirmed, or not at
    all."""

    shard: Shard
    epoch: Number
    ticket: Number


class LeaderConfirmed(Message, frozen=True):
    """The sender had voted in no higher epoch when it sent this."""

    shard: Shard
    epoch: Number
    ticket: Number


class AskGroups(Message, frozen=True):
    """Ask a shard's leader for all groups, or for one group with its dead letters. `place`: the
    shard's number, for the answer. Answered by GroupsReport or GroupRefused."""

    ticket: Number
    shard: Shard
    place: Number
    group: Annotated[str, msgspec.Meta(max_length=NAME_MOST)]


class GroupReport(msgspec.Struct, frozen=True, array_like=True):
    """The state of a group at one shard. `floor`: all rows below this offset are done. `scanned`:
    rows below this offset were matched; 0: none under this leader. `open`: the number of matching
    rows that are not done, including those that are `leased` or `delayed`."""

    name: str
    options: GroupOptions
    floor: Number
    scanned: Number
    open: Number
    leased: Number
    delayed: Number
    dead: Number
    members: tuple[str, ...]
    former: tuple[tuple[Number, str], ...] = ()
    """(offset, selector): the former selectors, each for the rows below its offset."""


class DeadReport(msgspec.Struct, frozen=True, array_like=True):
    """A dead letter, and its row while that is kept."""

    offset: Number
    deliveries: Number
    reason: str
    time: Uint63
    row: bytes = b""


class GroupsReport(Message, frozen=True):
    """All groups of a shard, or one with its dead letters. `end`: the offset after the shard's last
    committed row."""

    ticket: Number
    shard: Shard
    end: Number
    groups: tuple[GroupReport, ...]
    dead: tuple[DeadReport, ...] = ()


class EndDeadLetters(Message, frozen=True):
    """Deliver dead letters again (`retry`), or drop them; without offsets, all of the group.
    Answered by GroupChanged when it is committed, or by GroupRefused."""

    ticket: Number
    shard: Shard
    place: Number
    group: GroupName
    offsets: Annotated[tuple[Number, ...], Listed]
    retry: bool


class ForgetGroup(Message, frozen=True):
    """Remove a group with all its state. Answered by GroupChanged when it is committed, or by
    GroupRefused."""

    ticket: Number
    shard: Shard
    place: Number
    group: GroupName


class ChangeGroup(Message, frozen=True):
    """Change the options of a group; options that are None stay, and `wanted.start` is ignored.
    Answered by GroupChanged when they are committed and apply, or by GroupRefused."""

    capability = "groups"

    ticket: Number
    shard: Shard
    place: Number
    group: GroupName
    wanted: Wanted


class GroupChanged(Message, frozen=True):
    """The change is committed. `count`: the number of dead letters that it concerned."""

    ticket: Number
    place: Number
    count: Number = 0


class GroupRefused(Message, frozen=True):
    """The leader refuses a question or a change."""

    ticket: Number
    place: Number
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Annotated[str, msgspec.Meta(max_length=500)]
    leader: Peer | None = None
