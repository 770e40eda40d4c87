"""The vocabulary between a member's node and the leader of a shard.

A *member* of a group is one program at one shard; its number is chosen by the program's node. What
it is given it has by *leases*: each has a number, which no other lease of that leader has. Nodes
have no common clock, so whoever asks for a lease names the time by its own (`at`), and the leader
names the newest time that it has heard: a lease that was given then ends no sooner than its length
after that moment, by the member's clock.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from overlay.machine import Message, Peer, Uint53, Uint63
from streams.log.group_state import DELIVERIES_MOST, NAME_MOST, Attribute, GroupOptions
from streams.programs.reader.messages import ReadFrom
from streams.shard.messages import Shard

LISTED_MOST: Final = 4_096
"""Members or rows in one message at most."""

CREDIT_MOST: Final = 10_000
"""Rows that a member may have at once, at most: as many as a group may have under way."""

REASON_MOST: Final = 200
"""Characters of the reason that a member gives for sending a row back."""


Number = Uint53
Lease = Uint53
GroupName = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MOST)]
Listed = msgspec.Meta(max_length=LISTED_MOST)
Attachment = tuple[Uint53, Uint53]
"""(the leader's epoch, a number under it): of two attachments under one name the higher counts."""


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """Which options of a group a program asks for; None: whatever the group has. A group that is
    not known is founded with them, from `start` on."""

    start: ReadFrom
    selector: Annotated[str, msgspec.Meta(max_length=16 * 1024)] | None = None
    lease: float | None = None
    deliveries: Annotated[int, msgspec.Meta(ge=1, le=DELIVERIES_MOST)] | None = None
    by: Attribute | None = None
    priority: Attribute | None = None
    delay: Attribute | None = None
    delay_seconds: float | None = None


class JoinGroup(Message, frozen=True):
    """Become a member. `name`: another member of this name is fenced, unless its attachment is
    newer than `attachment`; (0, 0): a new one. `token`: which program it is, so that an attempt
    whose answer was lost is not another. `credit`: rows that it may have at once. `held`: (offset,
    lease) of what it has, when it comes back. Answered by GroupJoined or MemberRefused."""

    shard: Shard
    member: Number
    group: GroupName
    name: GroupName
    token: GroupName
    attachment: Attachment
    wanted: Wanted
    credit: Annotated[int, msgspec.Meta(ge=1, le=CREDIT_MOST)]
    held: Annotated[tuple[tuple[Number, Lease], ...], msgspec.Meta(max_length=CREDIT_MOST)]
    at: float


class GroupJoined(Message, frozen=True):
    """The member is one. `kept`: those of the leases that it has named which go on."""

    shard: Shard
    member: Number
    attachment: Attachment
    options: GroupOptions
    kept: Annotated[tuple[Lease, ...], msgspec.Meta(max_length=CREDIT_MOST)]


class LeasedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row that was appended at `time`, for the member alone while the lease lasts. `deliveries`:
    how many times it was given to a member, with this one."""

    offset: Number
    lease: Lease
    deliveries: Number
    time: Uint63
    row: bytes


class LeasedRows(Message, frozen=True):
    """Rows for a member. Their leases began when `at` had come, by the member's clock."""

    shard: Shard
    member: Number
    at: float
    rows: Annotated[tuple[LeasedRow, ...], Listed]


class Settlement(msgspec.Struct, frozen=True, array_like=True):
    """What becomes of a row. `ack`: it is done with; `nack`: it is to be delivered again, `delay`
    seconds from now at the earliest; `reject`: it is a dead letter; `extend`: the lease begins
    anew; `release`: no program has seen it, and the delivery does not count."""

    offset: Number
    lease: Lease
    what: Literal["ack", "nack", "reject", "extend", "release"]
    delay: Annotated[float, msgspec.Meta(ge=0, le=86_400.0 * 30)] = 0.0
    reason: Annotated[str, msgspec.Meta(max_length=REASON_MOST)] = ""


class SettleLeases(Message, frozen=True):
    """What becomes of rows that a member has. May be repeated. Answered by LeasesSettled in several
    parts: leases that are extended at once, the rest when it is in the log."""

    shard: Shard
    member: Number
    at: float
    settled: Annotated[tuple[Settlement, ...], Listed]


class LeasesSettled(Message, frozen=True):
    """Leases: of some what was asked for has happened, or the group is done with the row; some
    were `extended`, and began anew when `at` had come; the others were `lost` before, and the row
    is delivered again."""

    shard: Shard
    member: Number
    at: float
    done: Annotated[tuple[Lease, ...], Listed]
    extended: Annotated[tuple[Lease, ...], Listed]
    lost: Annotated[tuple[Lease, ...], Listed]


class KeepMembers(Message, frozen=True):
    """The sender has these members. Sent every second, since a leader ends members of which it does
    not hear. Answered by MembersKept."""

    shard: Shard
    at: float
    members: Annotated[tuple[Number, ...], Listed]


class MembersKept(Message, frozen=True):
    """The leader is there, and does not know the members that are `missing`. `cut_off`: as in
    ReadingsKept."""

    shard: Shard
    present: Annotated[tuple[Number, ...], Listed]
    missing: Annotated[tuple[Number, ...], Listed]
    cut_off: bool = False


class LeaveGroup(Message, frozen=True):
    """The program has gone: what the member has goes to others at once. `untouched`: leases of rows
    that the program has not seen."""

    shard: Shard
    member: Number
    untouched: Annotated[tuple[Lease, ...], msgspec.Meta(max_length=CREDIT_MOST)]


class MemberRefused(Message, frozen=True):
    """A member is none, or is none any more."""

    shard: Shard
    member: Number
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Annotated[str, msgspec.Meta(max_length=500)]


class MembersMoved(Message, frozen=True):
    """These members are not served here (any more); `leader`: who leads, if that is known."""

    shard: Shard
    members: Annotated[tuple[Number, ...], Listed]
    leader: Peer | None


class ConfirmLeader(Message, frozen=True):
    """A leader asks a replica whether it has voted in no higher epoch. Answered by LeaderConfirmed
    if so, else not at all."""

    shard: Shard
    epoch: Number
    ticket: Number


class LeaderConfirmed(Message, frozen=True):
    """When this was sent, it had voted in no higher epoch."""

    shard: Shard
    epoch: Number
    ticket: Number


class AskGroups(Message, frozen=True):
    """Asks a shard's leader for its groups, or for one with its dead letters. `place`: the shard's
    number, for the answer. Answered by GroupsReport or GroupRefused."""

    ticket: Number
    shard: Shard
    place: Number
    group: Annotated[str, msgspec.Meta(max_length=NAME_MOST)]


class GroupReport(msgspec.Struct, frozen=True, array_like=True):
    """A group at one shard. `floor`: all below are done with; `scanned`: how far its selector has
    been looked for, 0: not since this leader began; `open`: rows found and not done with, of which
    some are `leased` and some `delayed`."""

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
    """(offset, selector): rows below the offset, with which the group is not done, go by that."""


class DeadReport(msgspec.Struct, frozen=True, array_like=True):
    """A dead letter, and its row while that is kept."""

    offset: Number
    deliveries: Number
    reason: str
    time: Uint63
    row: bytes = b""


class GroupsReport(Message, frozen=True):
    """All groups of a shard, or one with its dead letters. `end`: the offset after its last
    committed row."""

    ticket: Number
    shard: Shard
    end: Number
    groups: tuple[GroupReport, ...]
    dead: tuple[DeadReport, ...] = ()


class EndDeadLetters(Message, frozen=True):
    """Have dead letters delivered again (`retry`), or drop them; no offsets: all of the group.
    Answered by GroupChanged when that is committed, or by GroupRefused."""

    ticket: Number
    shard: Shard
    place: Number
    group: GroupName
    offsets: Annotated[tuple[Number, ...], Listed]
    retry: bool


class ForgetGroup(Message, frozen=True):
    """Forget a group and all that it has. Answered by GroupChanged when that is committed, or by
    GroupRefused."""

    ticket: Number
    shard: Shard
    place: Number
    group: GroupName


class ChangeGroup(Message, frozen=True):
    """Give a group other options; those that are None stay, and `wanted.start` says nothing.
    Answered by GroupChanged when that is committed and holds, or by GroupRefused."""

    capability = "groups"

    ticket: Number
    shard: Shard
    place: Number
    group: GroupName
    wanted: Wanted


class GroupChanged(Message, frozen=True):
    """What was asked for is in the log; of so many dead letters."""

    ticket: Number
    place: Number
    count: Number = 0


class GroupRefused(Message, frozen=True):
    """What was asked for has not happened."""

    ticket: Number
    place: Number
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Annotated[str, msgspec.Meta(max_length=500)]
    leader: Peer | None = None
