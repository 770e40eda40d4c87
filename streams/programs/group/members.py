"""The memberships of a node's programs.

A membership survives a change, a silence or a loss of a shard's leader: its session
(`streams.access.session`) joins the next leader under the number of its attachment, and learns
which of its leases continue. A program's acknowledgements are repeated until they are answered.
This node extends the leases of rows that wait for the program; the program extends the leases of
the rows that it has taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Final, NamedTuple

from overlay.command_faults import fault_in_group
from overlay.machine import Message, Peer, Timer
from overlay.stream_client import (
    AttachGroup,
    DetachGroup,
    GroupReady,
    GroupRow,
    RowsSettled,
    RowsTaken,
    SettleRows,
    TakeRows,
)
from streams.access import pacing
from streams.access.attachments import Attached, Attachments
from streams.access.reasons import Cause
from streams.access.session import Move, Phase, Session
from streams.directory.entry import StreamEntry
from streams.log.batches import decode_rows
from streams.log.chunk import NANOSECONDS
from streams.programs.group.messages import (
    LISTED_MOST,
    Attachment,
    GroupJoined,
    JoinGroup,
    KeepMembers,
    LeasedRow,
    LeasedRows,
    LeasesSettled,
    LeaveGroup,
    MemberRefused,
    MembersKept,
    MembersMoved,
    SettleLeases,
    Settlement,
)
from streams.programs.group.options import fault_of, wanted_by

TAKEN_BYTES: Final = 192 * 1024
"""The limit of bytes in one answer to a program, unless its only row is larger."""


class LookAtMembers(Timer, frozen=True):
    """Time to look at the sessions of all memberships."""


class Lease(NamedTuple):
    """The lease of a row, which ends at `until` by the node's clock."""

    offset: int
    until: float


@dataclass(eq=False)
class SettleRequest:
    """A `SettleRows` of a program that is not answered. Its rows may be of several shards."""

    request: int
    open: set[tuple[int, int]] = field(default_factory=set)  # (shard, lease)
    lost: list[tuple[int, int]] = field(default_factory=list)  # (shard, offset)


Settling = dict[int, tuple[Settlement, list[SettleRequest]]]
"""Acknowledgements without an answer by lease, each with the requests that wait."""


@dataclass(eq=False)
class ShardLeases:
    """The leases of one member at one shard, and the acknowledgements that are not answered."""

    place: int
    """The shard's number in its stream."""
    attachment: Attachment = (0, 0)
    """The number under which the program was a member before; (0, 0): none."""
    lease: float = 0.0
    rows: deque[LeasedRow] = field(default_factory=deque)
    """The rows that wait for the program."""
    held: dict[int, Lease] = field(default_factory=dict)
    """All leases, by number."""
    settling: Settling = field(default_factory=dict)
    extending: Settling = field(default_factory=dict)
    """Those of leases that the program extends."""

    def settle(self, settled: Iterable[Settlement], by: SettleRequest) -> None:
        """Note acknowledgements of the program. `by` waits for the answers."""
        for one in settled:
            by.open.add((self.place, one.lease))
            table = self.extending if one.what == "extend" else self.settling
            table.setdefault(one.lease, (one, []))[1].append(by)

    def joined(self, attachment: Attachment, lease: float, kept: Iterable[int]) -> None:
        """Take the leader's answer to joining. Only the leases in `kept` continue."""
        self.attachment, self.lease = attachment, lease
        there = set(kept)
        self.held = {lease: held for lease, held in self.held.items() if lease in there}
        self._forget_others()

    def _forget_others(self) -> None:
        self.rows = deque(row for row in self.rows if row.lease in self.held)

    def take_in(self, rows: Iterable[LeasedRow], at: float, now: float) -> str:
        """Take rows whose leases begin at `at` or later. Skip rows that the member has already.
        Return the reason why no honest leader sends them; "": one can."""
        if isnan(at) or at > now:
            return f"leases began at {at}, which has not come"
        until = at + self.lease
        fault = ""
        for row in rows:
            if row.lease in self.held or row.lease in self.settling:
                fault = f"the row at offset {row.offset} has come twice by one lease"
            elif until > now:  # else it is another's by now, perhaps
                self.held[row.lease] = Lease(row.offset, until)
                self.rows.append(row)
        return fault

    def expire(self, now: float) -> None:
        """Forget leases that have ended."""
        over = [lease for lease, held in self.held.items() if held.until <= now]
        for lease in over:
            del self.held[lease]
        if over:
            self._forget_others()

    def to_extend(self, now: float) -> list[Settlement]:
        """Return extensions of the leases that are half over and whose rows wait here."""
        waiting = [row for row in self.rows if self.held[row.lease].until - now < self.lease / 2]
        return [Settlement(row.offset, row.lease, "extend") for row in waiting]

    def unanswered(self, now: float) -> list[Settlement]:
        """Return acknowledgements without an answer, and extensions that are due."""
        said = (*self.settling.values(), *self.extending.values())
        return [settlement for settlement, _ in said] + self.to_extend(now)

    def extended(self, leases: Iterable[int], at: float, now: float) -> str:
        """Extend leases from `at` on. Return the reason why no honest leader does; "": one can."""
        if leases and (isnan(at) or at > now):
            return f"leases began again at {at}, which has not come"
        for lease in leases:
            held = self.held.get(lease)
            if held is not None:
                self.held[lease] = Lease(held.offset, max(held.until, at + self.lease))
            if lease in self.extending:
                self._answer(self.extending.pop(lease)[1], lease)
        return ""

    def settled(self, leases: Iterable[int]) -> None:
        """Note acknowledgements that are committed."""
        for lease in leases:
            self.held.pop(lease, None)
            if lease in self.settling:
                self._answer(self.settling.pop(lease)[1], lease)

    def lost(self, leases: Iterable[int]) -> None:
        """Note leases that had ended before their acknowledgement came."""
        for lease in leases:
            self.held.pop(lease, None)
            for table in (self.settling, self.extending):
                if lease in table:
                    settlement, waiting = table.pop(lease)
                    for one in waiting:
                        one.lost.append((self.place, settlement.offset))
                    self._answer(waiting, lease)
        self._forget_others()

    def _answer(self, waiting: list[SettleRequest], lease: int) -> None:
        for one in waiting:
            one.open.discard((self.place, lease))

    def take(self, most: int, size: int, now: float) -> tuple[list[GroupRow], int, str]:
        """Hand over at most `most` rows of about `size` bytes. Return them, their bytes, and the
        reason why the next row cannot be read, so that its lease is left to end; "": none."""
        found: list[GroupRow] = []
        taken = 0
        while self.rows and len(found) < most and taken < size:
            leased = self.rows.popleft()
            try:
                (row,) = decode_rows(leased.row, 1)
            except ValueError as error:
                del self.held[leased.lease]
                return found, taken, f"the row at offset {leased.offset} cannot be read: {error}"
            taken += len(leased.row)
            left = self.held[leased.lease].until - now
            found.append(
                GroupRow(
                    self.place,
                    leased.offset,
                    leased.lease,
                    leased.deliveries,
                    left,
                    leased.time / NANOSECONDS,
                    row.attributes,
                    row.payload,
                    row.payload_type,
                )
            )
        return found, taken, ""


class _Membership(Attached[AttachGroup, ShardLeases]):
    """The membership of a program, with leases at each shard."""

    def __init__(self, client: int, command: AttachGroup, token: str) -> None:
        super().__init__(client, command, goes_on=bool(command.attachments))
        self.wanted = wanted_by(command)
        self.name = command.name or token
        self.token = token
        self.takes: deque[tuple[int, int]] = deque()  # (request, most)
        self.settling: list[SettleRequest] = []


_Session = Session[_Membership, ShardLeases]


class Members(Attachments[_Membership, ShardLeases]):
    """The memberships of this node's programs."""

    noun = "membership"
    needs_majority = True  # without one a leader takes no member in
    look_timer = LookAtMembers()

    def commands(self) -> dict[type, Callable[..., None]]:
        """Return the method that carries out each command."""
        return {
            AttachGroup: self.attach,
            TakeRows: self.take,
            SettleRows: self.settle,
            DetachGroup: self.detach,
        }

    # -- programs --------------------------------------------------------------------------------

    def attach(self, client: int, command: AttachGroup) -> None:
        """Begin a membership in a group for a program, and answer the program when the leaders have
        opened it. Refuses a command with invalid options."""
        if fault := fault_of(wanted_by(command)) or fault_in_group(command):
            self.fail(client, command.request, fault)
            return
        token = f"{self.port.me.id}.{self.incarnation}.{self.next_number()}"
        self.begin_attachment(_Membership(client, command, token))

    def take(self, client: int, command: TakeRows) -> None:
        """Answer with rows as soon as there are some."""
        member = self.get(client, command, command.member)
        if member is not None:
            member.takes.append((command.request, command.most))
            self.serve(member)

    def settle(self, client: int, command: SettleRows) -> None:
        """Acknowledge, return, reject or extend rows."""
        member = self.get(client, command, command.member)
        if member is None:
            return
        settling = SettleRequest(command.request)
        by_shard: dict[int, list[Settlement]] = {}
        for row in command.rows:
            if not 0 <= row.shard < len(member.sessions):
                reason = ("usage", f"there is no shard {row.shard}")
                self.fail(client, command.request, reason)
                return
            one = Settlement(row.offset, row.lease, row.what, row.delay, row.reason)
            by_shard.setdefault(row.shard, []).append(one)
        for place, settled in by_shard.items():
            session = member.sessions[place]
            session.part.settle(settled, settling)
            self._send_settled(session, settled)
        member.settling.append(settling)
        self._answer_settled(member)

    def detach(self, client: int, command: DetachGroup) -> None:
        """End a program's membership. Rows that are not acknowledged go to other members."""
        self.end_attachment(client, command, command.member)

    def abandoned(self, attachment: _Membership) -> None:
        """Forget the takes and settlements that wait for an answer."""
        attachment.takes.clear()
        attachment.settling.clear()

    def dropped(self, attachment: _Membership, reason: Cause) -> None:
        """As `Attachments`: rows that the program has not taken go to other members."""
        for request, _ in attachment.takes:
            self.fail(attachment.client, request, reason)
        for settling in attachment.settling:
            self.fail(attachment.client, settling.request, reason)
        self.abandoned(attachment)

    def serve(self, attachment: _Membership) -> None:
        """Answer takes with rows whose leases are not over, or with the reason why none come."""
        member, now = attachment, self.port.now
        for leases in member.parts:
            leases.expire(now)
        while member.takes and any(leases.rows for leases in member.parts):
            request, most = member.takes.popleft()
            rows: list[GroupRow] = []
            size = 0
            for session in member.in_turn():
                if len(rows) < most and size < TAKEN_BYTES:
                    found, taken, fault = session.part.take(
                        most - len(rows), TAKEN_BYTES - size, now
                    )
                    rows += found
                    size += taken
                    if session.errors and found:
                        session.proven()
                    if fault:
                        self.protocol_error(session, fault)
            if not rows and not member.failed:
                member.takes.appendleft((request, most))
                continue
            self.port.count("stream_group_rows_taken", len(rows))
            member.told = member.waits
            self.port.reply(member.client, RowsTaken(request, tuple(rows), member.waits))
        if member.takes and member.waits != member.told:
            member.told = member.waits
            reply = RowsTaken(member.takes.popleft()[0], (), member.waits)
            self.port.reply(member.client, reply)

    def _answer_settled(self, member: _Membership) -> None:
        """Answer the requests whose rows are all answered."""
        left = []
        for settling in member.settling:
            if settling.open:
                left.append(settling)
            else:
                settled = RowsSettled(settling.request, tuple(sorted(settling.lost)))
                self.port.reply(member.client, settled)
        member.settling = left

    # -- at leaders ------------------------------------------------------------------------------

    def opening(self, session: _Session) -> Message:
        """As `Attachments`: name the leases that the member has."""
        member, leases, now = session.owner, session.part, self.port.now
        asked = member.command
        leases.expire(now)
        held = tuple((held.offset, lease) for lease, held in leases.held.items())
        return JoinGroup(
            session.shard,
            session.number,
            asked.group,
            member.name,
            member.token,
            leases.attachment,
            member.wanted,
            asked.credit,
            held,
            now,
        )

    def closing(self, session: _Session, is_over: bool) -> Message | None:
        """As `Attachments`: only a member that leaves for good returns its rows."""
        if not is_over:
            return None
        untouched = tuple(row.lease for row in session.part.rows)
        return LeaveGroup(session.shard, session.number, untouched)

    def keep(self, leader: Peer, shard: str, sessions: Sequence[_Session]) -> None:
        """Send the numbers of memberships that this node has."""
        for start in range(0, len(sessions), LISTED_MOST):
            some = tuple(session.number for session in sessions[start : start + LISTED_MOST])
            self.port.send(leader, KeepMembers(shard, self.port.now, some))

    def count_end(self, goes_on: bool) -> None:
        """Count a membership that moves to another leader, or fails."""
        self.port.count("memberships_moved" if goes_on else "memberships_failed")

    def looked_at(self, session: _Session, is_keeping: bool) -> None:
        """As `Attachments`: repeat acknowledgements, and extend leases."""
        if is_keeping:
            self._send_settled(session, session.part.unanswered(self.port.now))
        elif session.part.lease < 4 * pacing.KEEP_ALIVE:  # half of it may be over before the next
            self._send_settled(session, session.part.to_extend(self.port.now))

    def place(self, attachment: _Membership, entry: StreamEntry) -> Cause | None:
        """Add a session for each shard."""
        known = dict(enumerate(attachment.command.attachments))
        for place, shard in enumerate(entry.shards()):
            self.add_session(attachment, ShardLeases(place, known.get(place, (0, 0))), place, shard)
        return None

    def _send_settled(self, session: _Session, settled: list[Settlement]) -> None:
        if not session.is_open or session.leader is None:
            return
        for start in range(0, len(settled), LISTED_MOST):
            some = tuple(settled[start : start + LISTED_MOST])
            told = SettleLeases(session.shard, session.number, self.port.now, some)
            self.port.send(session.leader, told)

    def on_look(self, timer: LookAtMembers) -> None:
        """Open and keep sessions, and leave silent leaders."""
        self.look()

    # -- answers ---------------------------------------------------------------------------------

    def on_joined(self, sender: Peer, message: GroupJoined) -> None:
        """Take the answer that the program is a member, or that the group's options changed."""
        session = self.heard(sender, message.member)
        if session is None:
            return
        member, leases = session.owner, session.part
        if session.state is Phase.OPENING:
            self.answered(session)
            session.happens(Move.OPENED)
        leases.joined(message.attachment, message.options.lease, message.kept)
        self._send_settled(session, leases.unanswered(self.port.now))
        self.flows(member)
        if not member.is_ready and all(each.is_open for each in member.sessions):
            member.is_ready = True
            attachments = tuple(each.attachment for each in member.parts)
            options = message.options
            ready = GroupReady(member.command.request, attachments, options.selector, options.lease)
            self.port.reply(member.client, ready)
            self.serve(member)

    def on_rows(self, sender: Peer, message: LeasedRows) -> None:
        """Take rows for a program."""
        if session := self.heard(sender, message.member):
            member = session.owner
            if session.is_open:
                fault = session.part.take_in(message.rows, message.at, self.port.now)
                if fault:
                    self.protocol_error(session, fault)
            if member.is_ready:
                self.serve(member)

    def on_settled(self, sender: Peer, message: LeasesSettled) -> None:
        """Take the answers to acknowledgements: committed, extended, or too late."""
        if session := self.heard(sender, message.member):
            leases = session.part
            if fault := leases.extended(message.extended, message.at, self.port.now):
                self.protocol_error(session, fault)
                return
            leases.settled(message.done)
            leases.lost(message.lost)
            self._answer_settled(session.owner)

    def on_kept(self, sender: Peer, message: MembersKept) -> None:
        """Take the answer to a keep-alive. Members that the leader does not have join again."""
        for number in message.present:
            session = self.heard(sender, number)
            if session is not None:
                self.kept(session, message.cut_off)
        self.missed(sender, message.missing)

    def on_refused(self, sender: Peer, message: MemberRefused) -> None:
        """Move or fail a membership that the leader refuses."""
        self.refused(sender, message.member, message.code, message.reason)

    def on_moved(self, sender: Peer, message: MembersMoved) -> None:
        """Move memberships to another leader."""
        self.moved(sender, message.members, message.leader)
