"""The memberships of a node's programs: each at the leaders of its stream's shards.

A membership goes on when a shard's leader changes, is silent, or is out of reach: its session
(`streams.access.session`) joins the new one, under the number of its attachment, and hears that
what it had is lost if the leader has changed. What a program says of rows is repeated until it is
answered. Leases of rows that wait here for the program are extended; those of rows that it has
taken are its own affair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import isnan
from typing import Final, NamedTuple

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

NANOSECONDS: Final = 1e9

TAKEN_BYTES: Final = 192 * 1024
"""Bytes of rows in one answer to a program, unless one row has more."""


class LookAtMembers(Timer, frozen=True):
    """Time to look at what was not answered."""


class Lease(NamedTuple):
    """A row that the member has, until some time by the node's clock."""

    offset: int
    until: float


class SettleRequest:
    """What a program has said of rows, of one shard or several, and that is not answered."""

    def __init__(self, request: int) -> None:
        self.request = request
        self.open: set[tuple[int, int]] = set()  # (shard, lease)
        self.lost: list[tuple[int, int]] = []  # (shard, offset)


class ShardLeases:
    """The leases of one member at one shard: of rows that wait for the program, or that it has, or
    has settled."""

    def __init__(self, place: int, attachment: Attachment = (0, 0)) -> None:
        """`attachment`: as which the program was a member before."""
        self.place = place
        """The shard's number in its stream."""
        self.attachment = attachment
        self.lease = 0.0
        self.rows: deque[LeasedRow] = deque()
        """Rows that the program has not taken."""
        self.held: dict[int, Lease] = {}
        """By lease, with those that the program has not taken."""
        self.settling: dict[int, tuple[Settlement, list[SettleRequest]]] = {}
        """What the program has said of rows, by lease, and who waits for the answer."""
        self.extending: dict[int, tuple[Settlement, list[SettleRequest]]] = {}
        """The same of leases that are to be extended."""

    def settle(self, settled: Iterable[Settlement], by: SettleRequest) -> None:
        """The program says what becomes of rows; `by` waits for the answers."""
        for one in settled:
            by.open.add((self.place, one.lease))
            table = self.extending if one.what == "extend" else self.settling
            table.setdefault(one.lease, (one, []))[1].append(by)

    def joined(self, attachment: Attachment, lease: float, kept: Iterable[int]) -> None:
        """It is a member; of its leases those in `kept` go on."""
        self.attachment, self.lease = attachment, lease
        there = set(kept)
        self.held = {lease: held for lease, held in self.held.items() if lease in there}
        self._forget_others()

    def _forget_others(self) -> None:
        self.rows = deque(row for row in self.rows if row.lease in self.held)

    def take_in(self, rows: Iterable[LeasedRow], at: float, now: float) -> str:
        """Rows have come, whose leases began when it was `at`, or later. Returns why that cannot
        be; "": it can. What the member has already is not taken twice."""
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
        """Forget what the leader takes back about now."""
        over = [lease for lease, held in self.held.items() if held.until <= now]
        for lease in over:
            del self.held[lease]
        if over:
            self._forget_others()

    def to_extend(self, now: float) -> list[Settlement]:
        """The leases of rows that wait here for the program, and are half over."""
        waiting = [row for row in self.rows if self.held[row.lease].until - now < self.lease / 2]
        return [Settlement(row.offset, row.lease, "extend") for row in waiting]

    def unanswered(self, now: float) -> list[Settlement]:
        """What the program has said and the leader has not answered, and what is to be extended."""
        said = (*self.settling.values(), *self.extending.values())
        return [settlement for settlement, _ in said] + self.to_extend(now)

    def extended(self, leases: Iterable[int], at: float, now: float) -> str:
        """Leases began anew when it was `at`. Returns why that cannot be; "": it can."""
        if leases and (isnan(at) or at > now):
            return f"leases began anew at {at}, which has not come"
        for lease in leases:
            held = self.held.get(lease)
            if held is not None:
                self.held[lease] = Lease(held.offset, max(held.until, at + self.lease))
            if lease in self.extending:
                self._answer(self.extending.pop(lease)[1], lease)
        return ""

    def settled(self, leases: Iterable[int]) -> None:
        """What was said of rows is in the log."""
        for lease in leases:
            self.held.pop(lease, None)
            if lease in self.settling:
                self._answer(self.settling.pop(lease)[1], lease)

    def lost(self, leases: Iterable[int]) -> None:
        """Leases were over before."""
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
        """At most `most` rows of some `size` bytes; returns them, their bytes, and why the next
        one cannot be handed over ("": it can). Its lease runs out."""
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
                    *(self.place, leased.offset, leased.lease, leased.deliveries, left),
                    *(leased.time / NANOSECONDS, row.attributes, row.payload, row.payload_type),
                )
            )
        return found, taken, ""


class _Membership(Attached[AttachGroup, ShardLeases]):
    """A program's membership: with leases at each shard."""

    def __init__(self, client: int, command: AttachGroup, token: str) -> None:
        super().__init__(client, command, goes_on=bool(command.attachments))
        self.wanted = wanted_by(command)
        self.name = command.name or token
        self.token = token
        self.takes: deque[tuple[int, int]] = deque()  # (request, most)
        self.settling: list[SettleRequest] = []


_Session = Session[_Membership, ShardLeases]


class Members(Attachments[_Membership, ShardLeases]):
    """What this node's programs are members of."""

    noun = "membership"
    needs_majority = True  # without one a leader takes no member in
    look_timer = LookAtMembers()

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {
            AttachGroup: self.attach,
            TakeRows: self.take,
            SettleRows: self.settle,
            DetachGroup: self.detach,
        }

    # -- programs --------------------------------------------------------------------------------

    def attach(self, client: int, command: AttachGroup) -> None:
        """Begin a membership."""
        if fault := _fault(command):
            self.fail(client, command.request, fault)
            return
        token = f"{self.port.me.id}.{self.incarnation}.{self.next_number()}"
        self.begin_attachment(_Membership(client, command, token))

    def take(self, client: int, command: TakeRows) -> None:
        """Hand over rows, at once or when they come."""
        member = self.get(client, command, command.member)
        if member is not None:
            member.takes.append((command.request, command.most))
            self.serve(member)

    def settle(self, client: int, command: SettleRows) -> None:
        """Say what becomes of rows."""
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
        """End a membership."""
        self.end_attachment(client, command, command.member)

    def abandoned(self, attachment: _Membership) -> None:
        """As `Attachments`."""
        attachment.takes.clear()
        attachment.settling.clear()

    def dropped(self, attachment: _Membership, reason: Cause) -> None:
        """As `Attachments`: rows that were not taken are others'."""
        for request, _ in attachment.takes:
            self.fail(attachment.client, request, reason)
        for settling in attachment.settling:
            self.fail(attachment.client, settling.request, reason)
        self.abandoned(attachment)

    def serve(self, attachment: _Membership) -> None:
        """Answer who waits for rows, if there are some."""
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
        """Answer what is known of all rows that were meant."""
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
        """As `Attachments`: with the rows that the member has."""
        member, leases, now = session.owner, session.part, self.port.now
        asked = member.command
        leases.expire(now)
        held = tuple((held.offset, lease) for lease, held in leases.held.items())
        return JoinGroup(
            *(session.shard, session.number, asked.group, member.name, member.token),
            *(leases.attachment, member.wanted, asked.credit, held, now),
        )

    def closing(self, session: _Session, is_over: bool) -> Message | None:
        """As `Attachments`: only a member that goes for good gives back its rows."""
        if not is_over:
            return None
        untouched = tuple(row.lease for row in session.part.rows)
        return LeaveGroup(session.shard, session.number, untouched)

    def keep(self, leader: Peer, shard: str, sessions: Sequence[_Session]) -> None:
        """As `Attachments`."""
        for start in range(0, len(sessions), LISTED_MOST):
            some = tuple(session.number for session in sessions[start : start + LISTED_MOST])
            self.port.send(leader, KeepMembers(shard, self.port.now, some))

    def count_end(self, goes_on: bool) -> None:
        """As `Attachments`."""
        self.port.count("memberships_moved" if goes_on else "memberships_failed")

    def looked_at(self, session: _Session, is_keeping: bool) -> None:
        """As `Attachments`: say again what was not answered, and extend what waits here."""
        if is_keeping:
            self._repeat(session)
        elif session.part.lease < 4 * pacing.KEEP_ALIVE:  # half of it may be over before the next
            self._send_settled(session, session.part.to_extend(self.port.now))

    def place(self, attachment: _Membership, entry: StreamEntry) -> Cause | None:
        """As `Attachments`."""
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

    def _repeat(self, session: _Session) -> None:
        """Say again what was not answered, and extend what waits for the program."""
        self._send_settled(session, session.part.unanswered(self.port.now))

    def on_look(self, timer: LookAtMembers) -> None:
        """Look after sessions."""
        self.look()

    # -- answers ---------------------------------------------------------------------------------

    def on_joined(self, sender: Peer, message: GroupJoined) -> None:
        """A leader has taken the program in, or the group has other options now."""
        session = self.heard(sender, message.member)
        if session is None:
            return
        member, leases = session.owner, session.part
        if session.state is Phase.OPENING:
            self.answered(session)
            session.happens(Move.OPENED)
        leases.joined(message.attachment, message.options.lease, message.kept)
        self._repeat(session)
        self.flows(member)
        if not member.is_ready and all(each.is_open for each in member.sessions):
            member.is_ready = True
            attachments = tuple(each.attachment for each in member.parts)
            options = message.options
            ready = GroupReady(
                *(member.command.request, attachments, options.selector, options.lease)
            )
            self.port.reply(member.client, ready)
            self.serve(member)

    def on_rows(self, sender: Peer, message: LeasedRows) -> None:
        """Rows for a program."""
        if session := self.heard(sender, message.member):
            member = session.owner
            if session.is_open:
                fault = session.part.take_in(message.rows, message.at, self.port.now)
                if fault:
                    self.protocol_error(session, fault)
            if member.is_ready:
                self.serve(member)

    def on_settled(self, sender: Peer, message: LeasesSettled) -> None:
        """What was said of rows has happened, or came too late."""
        if session := self.heard(sender, message.member):
            leases = session.part
            if fault := leases.extended(message.extended, message.at, self.port.now):
                self.protocol_error(session, fault)
                return
            leases.settled(message.done)
            leases.lost(message.lost)
            self._answer_settled(session.owner)

    def on_kept(self, sender: Peer, message: MembersKept) -> None:
        """The leader is there; members that it has not join again."""
        for number in message.present:
            session = self.heard(sender, number)
            if session is not None:
                self.kept(session, message.cut_off)
        self.missed(sender, message.missing)

    def on_refused(self, sender: Peer, message: MemberRefused) -> None:
        """The program is no member, or none any more."""
        self.refused(sender, message.member, message.code, message.reason)

    def on_moved(self, sender: Peer, message: MembersMoved) -> None:
        """Another node leads."""
        self.moved(sender, message.members, message.leader)


def _fault(command: AttachGroup) -> tuple[str, str] | None:
    """(code, reason) why a membership cannot begin."""
    if fault := fault_of(wanted_by(command)):
        return fault
    if not (command.group.isprintable() and command.name.isprintable()):
        return "usage", "names of groups and members have printable characters only"
    return None
