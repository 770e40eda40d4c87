"""The memberships of a node's programs: each at the leaders of its stream's shards.

A membership goes on when a shard's leader changes, is silent, or is out of reach: its session
(`streams.access.session`) joins the new one, under the number of its attachment, and hears that
what it had is lost if the leader has changed. What a program says of rows is repeated until it is
answered. Leases of rows that wait here for the program are extended; those of rows that it has
taken are its own affair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

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
from streams.access import pacing, reasons
from streams.access.attachments import Attached, Attachments
from streams.access.locator import StreamLocated
from streams.access.reasons import Cause
from streams.access.session import Move, Phase, Session
from streams.directory.entry import StreamEntry
from streams.programs.group.founding import fault_of
from streams.programs.group.messages import (
    LISTED_MOST,
    MOVED,
    GroupJoined,
    JoinGroup,
    KeepMembers,
    LeasedRows,
    LeasesSettled,
    LeaveGroup,
    MemberRefused,
    MembersKept,
    MembersMoved,
    SettleLeases,
    Settlement,
    Wanted,
)
from streams.programs.group.seat import Seat, Settling
from streams.programs.reader.messages import ReadFrom

TAKEN_BYTES: Final = 192 * 1024
"""Bytes of rows in one answer to a program, unless one row has more."""

OPTIONS: Final = ("selector", "lease", "deliveries", "by", "priority", "delay", "delay_seconds")


class LookAtMembers(Timer, frozen=True):
    """Time to look at what was not answered."""


class _Membership(Attached[AttachGroup, Seat]):
    """A program's membership: a seat at each shard."""

    def __init__(self, client: int, command: AttachGroup, token: str) -> None:
        super().__init__(client, command)
        self.wanted = _wanted(command)
        self.name = command.name or token
        self.token = token
        self.takes: deque[tuple[int, int]] = deque()  # (request, most)
        self.settling: list[Settling] = []


_Session = Session[_Membership, Seat]


class Members(Attachments[_Membership, Seat]):
    """What this node's programs are members of."""

    noun = "membership"
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
        token = f"{self.port.me.id}.{self.incarnation}.{self.sessions.next_number()}"
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
        settling = Settling(command.request)
        by_seat: dict[int, list[Settlement]] = {}
        for row in command.rows:
            if not 0 <= row.shard < len(member.sessions):
                reason = ("usage", f"there is no shard {row.shard}")
                self.fail(client, command.request, reason)
                return
            one = Settlement(row.offset, row.lease, row.what, row.delay, row.reason)
            by_seat.setdefault(row.shard, []).append(one)
        for place, settled in by_seat.items():
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
        for seat in member.parts:
            seat.expire(now)
        while member.takes and any(seat.rows for seat in member.parts):
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
                        self.sessions.protocol_error(session, fault)
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
        """As `SessionUser`: with the rows that the member has."""
        member, seat, now = session.owner, session.part, self.port.now
        asked = member.command
        seat.expire(now)
        held = tuple((held.offset, lease) for lease, held in seat.held.items())
        return JoinGroup(
            *(session.shard, session.number, asked.group, member.name, member.token),
            *(seat.attachment, member.wanted, asked.credit, held, now),
        )

    def closing(self, session: _Session, is_over: bool) -> Message | None:
        """As `SessionUser`: only a member that goes for good gives back its rows."""
        if not is_over:
            return None
        untouched = tuple(row.lease for row in session.part.rows)
        return LeaveGroup(session.shard, session.number, untouched)

    def keep(self, leader: Peer, shard: str, sessions: Sequence[_Session]) -> None:
        """As `SessionUser`."""
        for start in range(0, len(sessions), LISTED_MOST):
            some = tuple(session.number for session in sessions[start : start + LISTED_MOST])
            self.port.send(leader, KeepMembers(shard, self.port.now, some))

    def count_lost(self) -> None:
        """As `SessionUser`."""
        self.port.count("memberships_moved")

    def count_failed(self) -> None:
        """As `Attachments`."""
        self.port.count("memberships_failed")

    def looked_at(self, session: _Session, is_keeping: bool) -> None:
        """As `SessionUser`: say again what was not answered, and extend what waits here."""
        if is_keeping:
            self._repeat(session)
        elif session.part.lease < pacing.SHORT_LEASE:
            self._send_settled(session, session.part.to_extend(self.port.now))

    def place(self, attachment: _Membership, entry: StreamEntry) -> Cause | None:
        """As `Attachments`."""
        known = dict(enumerate(attachment.command.attachments))
        for place, shard in enumerate(entry.shards()):
            self.add_session(attachment, Seat(place, known.get(place, (0, 0))), place, shard)
        return None

    def stuck(self, located: StreamLocated, place: int) -> Cause | None:
        """As `Attachments`: a leader without a majority takes no member in."""
        return reasons.no_majority(located, place)

    def goes_on(self, attachment: _Membership) -> bool:
        """As `Attachments`."""
        return bool(attachment.command.attachments)

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
        session = self.sessions.heard(sender, message.member)
        if session is None:
            return
        member, seat = session.owner, session.part
        if session.state is Phase.OPENING:
            self.sessions.answered(session)
            session.happens(Move.OPENED)
        seat.joined(message.attachment, message.options.lease, message.kept)
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
        if session := self.sessions.heard(sender, message.member):
            member = session.owner
            if session.is_open:
                fault = session.part.take_in(message.rows, message.at, self.port.now)
                if fault:
                    self.sessions.protocol_error(session, fault)
            if member.is_ready:
                self.serve(member)

    def on_settled(self, sender: Peer, message: LeasesSettled) -> None:
        """What was said of rows has happened, or came too late."""
        if session := self.sessions.heard(sender, message.member):
            seat = session.part
            if fault := seat.extended(message.extended, message.at, self.port.now):
                self.sessions.protocol_error(session, fault)
                return
            seat.settled(message.done)
            seat.lost(message.lost)
            self._answer_settled(session.owner)

    def on_kept(self, sender: Peer, message: MembersKept) -> None:
        """The leader is there; members that it has not join again."""
        for number in message.present:
            session = self.sessions.heard(sender, number)
            if session is not None and (session.is_cut_off or message.cut_off):
                self.kept(session, message.cut_off)
        self.sessions.missed(sender, message.missing)

    def on_refused(self, sender: Peer, message: MemberRefused) -> None:
        """The program is no member, or none any more."""
        if session := self.sessions.heard(sender, message.member):
            if message.code == MOVED:
                session.happens(Move.MOVED)
            else:
                self.sessions.refused(session, message.code, message.reason)

    def on_moved(self, sender: Peer, message: MembersMoved) -> None:
        """Another node leads."""
        self.sessions.moved(sender, message.members, message.leader)


def _wanted(command: AttachGroup) -> Wanted:
    """What the program asks of the group."""
    start = ReadFrom(command.start, command.at)
    return Wanted(start, **{name: getattr(command, name) for name in OPTIONS})


def _fault(command: AttachGroup) -> tuple[str, str] | None:
    """(code, reason) why a membership cannot begin."""
    if fault := fault_of(_wanted(command)):
        return fault
    if not (command.group.isprintable() and command.name.isprintable()):
        return "usage", "names of groups and members have printable characters only"
    return None
