"""The memberships of a node's programs: each at the leaders of its stream's shards.

A membership goes on when a shard's leader changes, is silent, or is out of reach: the program joins
the new one, under the number of its attachment, and hears that what it had is lost if the leader
has changed. What a program says of rows is repeated until it is answered. Leases of rows that wait
here for the program are extended; those of rows that it has taken are its own affair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from overlay.bounded import BoundedDict
from overlay.client import NO_MAJORITY, Command, Done, Failed
from overlay.links.events import LinkDown
from overlay.machine import Machine, Peer, Port, Timer
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
from streams.consuming.messages import ReadFrom
from streams.consuming.readers import first_number
from streams.directory.entry import StreamEntry
from streams.directory.locator import Locator, StreamLocated, StreamMissing
from streams.groups.founding import fault_of
from streams.groups.messages import (
    LISTED_MOST,
    MALFORMED,
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
from streams.groups.seat import Seat, Settling

LOOK: Final = 0.25
"""Seconds between two looks at what was not answered, and after which another leader is tried."""

KEEP: Final = 4
"""Looks between two words to each leader, and after which what was not answered is repeated."""

SHORT: Final = 4.0
"""Seconds of leases that are extended, while their rows wait for the program, at each look: half of
a shorter one may be over before the next word."""

ANSWER_WITHIN: Final = 2.0
"""Seconds without an answer after which another leader is looked for."""

SILENT: Final = 3.0
"""Seconds without a word of a leader after which another one is looked for."""

TAKEN_BYTES: Final = 192 * 1024
"""Bytes of rows in one answer to a program, unless one row has more."""

OPTIONS: Final = ("selector", "lease", "deliveries", "by", "priority", "delay", "delay_seconds")


class LookAtMembers(Timer, frozen=True):
    """Time to look at what was not answered."""


MISLED_MOST: Final = 40
"""Answers of a shard's leaders that cannot be, without a row that could be handed over, after which
a membership fails: as `streams.consuming.readers.MISLED_MOST`."""

ENDED_KEPT: Final = 1_000
"""Memberships that have failed of which is kept why, for commands that programs still send."""


class _Membership:
    """A program's membership. It has no seats until its stream is located."""

    def __init__(self, client: int, command: AttachGroup, token: str) -> None:
        self.client = client
        self.command = command
        self.wanted = _wanted(command)
        self.name = command.name or token
        self.token = token
        self.entry: StreamEntry | None = None
        self.seats: list[Seat] = []
        self.is_ready = False
        self.takes: deque[tuple[int, int]] = deque()  # (request, most)
        self.settling: list[Settling] = []
        self.failed: tuple[str, str] | None = None
        self.turn = 0  # the shard that is served first


class Members(Machine):
    """What this node's programs are members of."""

    def __init__(self, port: Port, incarnation: int, locator: Locator) -> None:
        """`incarnation` grows with each start of the node."""
        super().__init__(port)
        self._locator = locator
        self._incarnation = incarnation
        self._members: dict[tuple[int, int], _Membership] = {}  # by client and request
        self._ended: BoundedDict[tuple[int, int], tuple[str, str]] = BoundedDict(ENDED_KEPT)
        self._by_number: dict[int, tuple[_Membership, Seat]] = {}
        self._number = first_number(incarnation)
        self._looks = 0
        self._is_looking = False

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
            self._fail(client, command.request, *fault)
            return
        self._number += 1
        token = f"{self.port.me.id}.{self._incarnation}.{self._number}"
        self._members[client, command.request] = _Membership(client, command, token)
        self._locator.locate(command.stream)
        if not self._is_looking:
            self._is_looking = True
            self.port.set_timer(LOOK, LookAtMembers())

    def take(self, client: int, command: TakeRows) -> None:
        """Hand over rows, at once or when they come."""
        member = self._member(client, command, command.member)
        if member is not None:
            member.takes.append((command.request, command.most))
            self._serve(member)

    def settle(self, client: int, command: SettleRows) -> None:
        """Say what becomes of rows."""
        member = self._member(client, command, command.member)
        if member is None:
            return
        settling = Settling(command.request)
        by_seat: dict[int, list[Settlement]] = {}
        for row in command.rows:
            if not 0 <= row.shard < len(member.seats):
                self._fail(client, command.request, "usage", f"there is no shard {row.shard}")
                return
            one = Settlement(row.offset, row.lease, row.what, row.delay, row.reason)
            by_seat.setdefault(row.shard, []).append(one)
        for place, settled in by_seat.items():
            seat = member.seats[place]
            for one in settled:
                settling.open.add((place, one.lease))
                table = seat.extending if one.what == "extend" else seat.settling
                table.setdefault(one.lease, (one, []))[1].append(settling)
            self._send_settled(seat, settled)
        member.settling.append(settling)
        self._answer_settled(member)

    def detach(self, client: int, command: DetachGroup) -> None:
        """End a membership."""
        member = self._members.pop((client, command.member), None)
        if member is None:
            if self._ended.pop((client, command.member), None) is None:
                self._fail(client, command.request, "unknown", "there is no such membership")
            else:
                self.port.reply(client, Done(command.request))
            return
        self._drop(member, "ended", "the membership was ended")
        self.port.reply(client, Done(command.request))

    def client_gone(self, client: int) -> None:
        """A program has gone."""
        for key in [key for key in self._ended if key[0] == client]:
            del self._ended[key]
        for key in [key for key in self._members if key[0] == client]:
            member = self._members.pop(key)
            member.takes.clear()
            member.settling.clear()
            self._drop(member, "ended", "")

    def _member(self, client: int, command: Command, number: int) -> _Membership | None:
        member = self._members.get((client, number))
        if member is None:
            why = self._ended.get((client, number), ("unknown", "there is no such membership"))
            self._fail(client, command.request, *why)
        return member

    def _fail(self, client: int, request: int, code: str, reason: str) -> None:
        self.port.reply(client, Failed(request, code, reason))

    def _end(self, member: _Membership, code: str, reason: str) -> None:
        """A membership has failed."""
        if member.failed is not None:
            return
        self.port.count("memberships_failed")
        key = member.client, member.command.request
        del self._members[key]
        if member.is_ready:
            self._ended[key] = (code, reason)
        else:
            self._fail(member.client, member.command.request, code, reason)
        self._drop(member, code, reason)

    def _drop(self, member: _Membership, code: str, reason: str) -> None:
        """It is a member at no leader any more."""
        member.failed = (code, reason)
        for seat in member.seats:
            self._close(seat)
        for request, _ in member.takes:
            self._fail(member.client, request, code, reason)
        for settling in member.settling:
            self._fail(member.client, settling.request, code, reason)
        member.takes.clear()
        member.settling.clear()

    def _serve(self, member: _Membership) -> None:
        """Answer who waits for rows, if there are some."""
        seats, now = member.seats, self.port.now
        for seat in seats:
            seat.expire(now)
        while member.takes and any(seat.rows for seat in seats):
            request, most = member.takes.popleft()
            rows: list[GroupRow] = []
            size = 0
            member.turn = (member.turn + 1) % len(seats)
            for seat in (*seats[member.turn :], *seats[: member.turn]):
                if len(rows) < most and size < TAKEN_BYTES:
                    found, taken, fault = seat.take(most - len(rows), TAKEN_BYTES - size, now)
                    rows += found
                    size += taken
                    if fault:
                        self._misled(member, seat, fault)
            if not rows and not member.failed:
                member.takes.appendleft((request, most))
                continue
            self.port.count("stream_group_rows_taken", len(rows))
            self.port.reply(member.client, RowsTaken(request, tuple(rows)))

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

    def _open(self, member: _Membership, seat: Seat) -> None:
        """Join at the leader of a shard, if that is known."""
        asked = member.command
        leader = seat.hint or self._locator.leader(asked.stream, seat.place)
        if leader is None:
            return
        now = self.port.now
        self._number += 1
        self._by_number[self._number] = (member, seat)
        seat.open(leader, self._number, now)
        seat.expire(now)
        held = tuple((held.offset, lease) for lease, held in seat.held.items())
        self.port.send(
            leader,
            JoinGroup(
                *(seat.shard, self._number, asked.group, member.name, member.token),
                *(seat.attachment, member.wanted, asked.credit, held, now),
            ),
        )

    def _close(self, seat: Seat) -> None:
        """The program has gone, or is no member any more."""
        if seat.number:
            self._by_number.pop(seat.number, None)
            if seat.leader is not None:
                untouched = tuple(row.lease for row in seat.rows)
                self.port.send(seat.leader, LeaveGroup(seat.shard, seat.number, untouched))
        seat.close()

    def _lost(self, member: _Membership, seat: Seat, is_mistaken: bool = True) -> None:
        """The leader is out of reach, or is none: another is joined at the next look."""
        leader = seat.leader
        self._by_number.pop(seat.number, None)
        seat.close()
        self.port.count("memberships_moved")
        if leader is not None and is_mistaken and member.entry is not None:
            self._locator.mistaken(member.entry.name, seat.place, leader.id)

    def _misled(self, member: _Membership, seat: Seat, why: str) -> None:
        """A leader has said what cannot be: that is not taken, and it is joined anew, or another
        one. The membership fails if no leader does better."""
        self.port.count("stream_answers_refused")
        seat.misled += 1
        if seat.misled < MISLED_MOST:
            self._lost(member, seat)
            return
        node = "" if seat.leader is None else f", {seat.leader.id},"
        reason = f"the leader of shard {seat.place}{node} answers what cannot be: {why}"
        self._end(member, MALFORMED, reason)

    def _send_settled(self, seat: Seat, settled: list[Settlement]) -> None:
        if not seat.has_joined or seat.leader is None:
            return
        for start in range(0, len(settled), LISTED_MOST):
            some = tuple(settled[start : start + LISTED_MOST])
            told = SettleLeases(seat.shard, seat.number, self.port.now, some)
            self.port.send(seat.leader, told)

    def _repeat(self, seat: Seat) -> None:
        """Say again what was not answered, and extend what waits for the program."""
        waiting = (*seat.settling.values(), *seat.extending.values())
        unanswered = [settlement for settlement, _ in waiting]
        unanswered += seat.to_extend(self.port.now)
        if unanswered:
            self._send_settled(seat, unanswered)

    def _all(self) -> Iterator[tuple[_Membership, Seat]]:
        for member in list(self._members.values()):
            if member.failed is None:
                for seat in member.seats:
                    yield member, seat

    def on_look(self, timer: LookAtMembers) -> None:
        """Join where it is no member, leave leaders that are silent, and speak to the others."""
        self._looks += 1
        now = self.port.now
        sought = dict.fromkeys(
            m.command.stream for m in self._members.values() if m.entry is None and not m.failed
        )
        kept: dict[tuple[Peer, str], list[int]] = {}
        for member, seat in self._all():
            wait = SILENT if seat.has_joined else ANSWER_WITHIN
            if seat.number and now - seat.heard_at > wait:
                self._lost(member, seat)
            if not seat.number:
                self._open(member, seat)
                if not seat.number:
                    sought[member.command.stream] = None
            elif seat.has_joined and seat.leader is not None:
                kept.setdefault((seat.leader, seat.shard), []).append(seat.number)
                if self._looks % KEEP == 0:
                    self._repeat(seat)
                elif seat.lease < SHORT and (waiting := seat.to_extend(now)):
                    self._send_settled(seat, waiting)
        if self._looks % KEEP == 0:
            for (leader, shard), numbers in kept.items():
                for start in range(0, len(numbers), LISTED_MOST):
                    some = tuple(numbers[start : start + LISTED_MOST])
                    self.port.send(leader, KeepMembers(shard, now, some))
        for stream in sought:
            self._locator.locate(stream)
        self._is_looking = bool(self._members)
        if self._members:
            self.port.set_timer(LOOK, timer)

    # -- answers ---------------------------------------------------------------------------------

    def _find(self, sender: Peer, number: int) -> tuple[_Membership, Seat] | None:
        found = self._by_number.get(number)
        if found is None or found[1].leader is None or found[1].leader.id != sender.id:
            return None
        found[1].heard_at = self.port.now
        return found

    def on_joined(self, sender: Peer, message: GroupJoined) -> None:
        """A leader has taken the program in."""
        found = self._find(sender, message.member)
        if found is None:
            return
        member, seat = found
        seat.joined(message.attachment, message.options.lease, message.kept)
        self._repeat(seat)
        if not member.is_ready and all(each.has_joined for each in member.seats):
            member.is_ready = True
            attachments = tuple(each.attachment for each in member.seats)
            options = message.options
            ready = GroupReady(
                *(member.command.request, attachments, options.selector, options.lease)
            )
            self.port.reply(member.client, ready)
            self._serve(member)

    def on_rows(self, sender: Peer, message: LeasedRows) -> None:
        """Rows for a program."""
        if found := self._find(sender, message.member):
            member, seat = found
            fault = ""
            if seat.has_joined:
                fault = seat.take_in(message.rows, message.at, self.port.now)
            if fault:
                self._misled(member, seat, fault)
            if member.is_ready:
                self._serve(member)

    def on_settled(self, sender: Peer, message: LeasesSettled) -> None:
        """What was said of rows has happened, or came too late."""
        if found := self._find(sender, message.member):
            member, seat = found
            if fault := seat.extended(message.extended, message.at, self.port.now):
                self._misled(member, seat, fault)
                return
            seat.settled(message.done)
            seat.lost(message.lost)
            self._answer_settled(member)

    def on_kept(self, sender: Peer, message: MembersKept) -> None:
        """The leader is there; members that it has not join again."""
        for number in message.present:
            self._find(sender, number)
        for number in message.missing:
            if found := self._find(sender, number):
                self._lost(*found, is_mistaken=False)

    def on_refused(self, sender: Peer, message: MemberRefused) -> None:
        """The program is no member, or none any more."""
        if found := self._find(sender, message.member):
            if message.code == MOVED:
                self._lost(*found)
            else:
                self._by_number.pop(message.member, None)
                found[1].close()
                self._end(found[0], message.code, message.reason)

    def on_moved(self, sender: Peer, message: MembersMoved) -> None:
        """Another node leads."""
        for number in message.members:
            if found := self._find(sender, number):
                member, seat = found
                self._lost(member, seat)
                seat.hint = message.leader

    def on_link_down(self, event: LinkDown) -> None:
        """A leader is out of reach, and what it sent may be lost."""
        for member, seat in self._all():
            if seat.leader is not None and seat.leader.id == event.peer.id:
                self._lost(member, seat)

    def on_located(self, event: StreamLocated) -> None:
        """A stream is found, or its leaders are others."""
        entry = event.entry
        for member in list(self._members.values()):
            if member.command.stream != event.name or member.failed is not None:
                continue
            if member.entry is not None and member.entry.id != entry.id:
                self._end(member, "unknown", "the stream was removed, and there is another one")
                continue
            if member.entry is None:
                member.entry = entry
                member.seats = [Seat(place, shard) for place, shard in enumerate(entry.shards())]
                known = member.command.attachments
                for seat, attachment in zip(member.seats, known, strict=False):
                    seat.attachment = attachment
            if not member.is_ready and not member.command.attachments:
                wanting = (event.no_majority(seat.place) for seat in member.seats)
                if reason := next(filter(None, wanting), ""):
                    self._end(member, NO_MAJORITY, reason)
                    continue
            for seat in member.seats:
                if not seat.number:
                    self._open(member, seat)

    def on_missing(self, event: StreamMissing) -> None:
        """There is no such stream, or nobody knows."""
        for member in list(self._members.values()):
            if member.command.stream == event.name and (
                event.code == "unknown" or member.entry is None
            ):
                self._end(member, event.code, event.reason)


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
