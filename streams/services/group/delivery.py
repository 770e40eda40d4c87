"""One group at one shard that this node leads: rows are found, leased to members, and settled.

The group's selector is matched with the log from the group's floor on; matching rows enter the
window of up to `WINDOW` rows, and are leased to members that have room. A member's answer counts
only while it has the lease. Done rows are gathered and written as runs; a row that was delivered
too often is written as a dead letter, in the same log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from matching import Value, compile_selector
from overlay.machine import NodeId, Peer, Timer
from streams.log.batches import decode_rows, encode_rows
from streams.log.chunk import NANOSECONDS
from streams.log.group_state import DeadRow, Group, GroupEntry, GroupOptions, RowsDone
from streams.programs.group.messages import (
    LISTED_MOST,
    Attachment,
    LeasedRow,
    LeasedRows,
    LeasesSettled,
    Settlement,
)
from streams.programs.reader.messages import Piece
from streams.services.group.window import Pending, Window, delay_of, pending, rank_of
from streams.services.read.history import HistoryScan
from streams.services.service import LedShard

WINDOW: Final = 10_000
"""The limit of rows in the window (leased, waiting or delayed), beside those of one chunk. At the
limit no further rows are matched. Guess."""

WINDOW_BYTES: Final = 16 * 1024 * 1024
"""The limit of the window in bytes of rows, roughly."""

AHEAD: Final = 1_000
"""Rows that are found ahead of the members' takes, in groups without a priority."""

DEAD_MOST: Final = 1_000
"""The limit of dead letters of a group at one shard. Beyond it rows are delivered again and again
until an operator ends some: none is dropped for want of room."""

JUMP: Final = 1_000
"""Consecutive done rows above which reading continues behind them."""

SENT_BYTES: Final = 256 * 1024
"""Bytes of rows in one message. A larger row has its own message."""


GATHER: Final = 0.05
"""Seconds in which acknowledgements are gathered before they are written: no more than twenty
chunks a second, however many members there are."""

BYTES_MOST: Final = 1024 * 1024
"""The limit of the bytes of a member's leased rows, unless one row has more."""

MemberKey = tuple[NodeId, int]
"""A member's node and number."""


class LookForRows(Timer, frozen=True):
    """Go on looking for rows, in a turn of its own."""


class WriteGroups(Timer, frozen=True):
    """Time to write what groups are done with."""


@dataclass(eq=False)
class GroupMember:
    """A program that is a member of a group, at one shard: its node, attachment and credit."""

    peer: Peer
    number: int
    name: str
    token: str
    """The token of its program."""
    attachment: Attachment
    credit: int
    """Rows that it may have at once."""
    at: float
    """The newest time in its messages, by its clock."""
    kept_at: float
    """When its node last kept it alive."""
    leases: dict[int, int] = field(default_factory=dict)
    """The offsets of its rows, by lease."""
    bytes: int = 0
    done: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    """Its leases that were settled, and those that it has not, without an answer so far."""

    @property
    def key(self) -> MemberKey:
        """The identity of the member at this shard."""
        return self.peer.id, self.number

    @property
    def place(self) -> int:
        """The leader's own number of this member."""
        return self.attachment[1]

    @property
    def has_room(self) -> bool:
        """Whether it may be sent another row."""
        return len(self.leases) < self.credit and (not self.leases or self.bytes < BYTES_MOST)


class GroupScan:
    """The way of one group through the log, which is matched with its selectors."""

    def __init__(self, led: LedShard, name: str) -> None:
        self._led, self._name = led, name
        self.position = self._group.done.floor
        """All rows below it have been matched."""
        self._history: HistoryScan | None = None
        self._selector = ""  # of the history

    @property
    def _group(self) -> Group:
        return self._led.replica.state.groups.groups[self._name]

    @property
    def is_behind(self) -> bool:
        """Whether there are rows to be matched now."""
        history = self._history
        if history is None:
            return True
        return not history.reader.waits and not history.is_at(self._led.replica.committed + 1)

    def step(self, budget: int) -> tuple[list[Piece], int]:
        """Match rows up to the end of the next chunk with a match, for `budget` rows' worth of
        work. Returns what matched, and the work done."""
        group, end = self._group, self._led.replica.committed + 1
        former = group.former_at(self.position)
        if former is not None and self._history is not None and self._history.is_at(former.chunk):
            self.position = former.below
            former = group.former_at(self.position)
        selector = group.selector_at(self.position)
        if self._history is None or self._selector != selector:
            self._history = self._begin(selector)
        history = self._history
        if history.reader.is_lost:
            self._pass_over()
            return [], 1
        pieces, work = history.step(end if former is None else min(end, former.chunk), budget, 1)
        self.position = max(self.position, history.position)
        end = group.done.end_of(self.position)
        if end - self.position > JUMP and end <= self._led.replica.log.next_offset:
            self.position = end
            self._history = None
        return pieces, work + 1

    def _begin(self, selector: str) -> HistoryScan:
        if self.position < self._led.first:
            self._pass_over()
            selector = self._group.selector_at(self.position)
        self._selector = selector
        number = self._led.replica.log.before_offset(self.position)[0]
        predicate = compile_selector(selector) if selector else None
        wake = partial(self._led.later, LookForRows)
        return HistoryScan(self._led, number, self.position, predicate, wake)

    def _pass_over(self) -> None:
        """Go on behind the rows that were removed."""
        if self._led.first > self.position:
            self._led.port.count("stream_group_rows_lost")
            self.position = self._led.first
        self._history = None


class GroupDelivery:
    """The soft state of one group at one shard, under one epoch."""

    def __init__(
        self, led: LedShard, name: str, options: GroupOptions, leases: Callable[[], int]
    ) -> None:
        """`options`: the committed ones; `leases` makes the numbers of leases."""
        self._led = led
        self.port = led.port
        self.replica = led.replica
        self.name = name
        self.number = self.group.number
        self.members: dict[MemberKey, GroupMember] = {}
        self.window = Window()
        self.options = options
        """The committed options. The log may have newer ones that are not committed."""
        self.changed_at = float("-inf")
        """The time of their last change under this leader."""
        self._leases = leases
        self._scan = GroupScan(led, name)
        self._by_place: dict[int, GroupMember] = {}
        self._settled: dict[int, None] = {}  # offsets that are to be written as done with
        self._dead: dict[int, tuple[DeadRow, Pending]] = {}  # to be written, with their rows
        self._turn = 0

    @property
    def scanned(self) -> int:
        """All rows below it have been matched."""
        return self._scan.position

    @property
    def group(self) -> Group:
        """The group's state in the log. (A new object after each segment's beginning.)"""
        return self.replica.state.groups.groups[self.name]

    @property
    def is_there(self) -> bool:
        """Whether the log still has the group with this number."""
        known = self.replica.state.groups.groups.get(self.name)
        return known is not None and known.number == self.number

    def change(self, options: GroupOptions) -> None:
        """Take changed options, which are committed. Present leases stay; waiting rows come in the
        new order, and rows that were never delivered with the new delay. (The log knows which
        selector applies to a row.)"""
        before, self.options = self.options, options
        self.changed_at = self.port.now
        if (before.priority, before.delay, before.delay_seconds) == (
            *(options.priority, options.delay, options.delay_seconds),
        ):
            return
        for row in self.window.rows.values():
            attributes = decode_rows(row.row, 1)[0].attributes
            row.rank = rank_of(options, row.offset, row.time, attributes)
            if not row.deliveries:
                row.due = self._due(attributes, row.time)
        self.window.arrange()

    # -- members ---------------------------------------------------------------------------------

    def join(self, member: GroupMember, held: dict[int, int]) -> tuple[int, ...]:
        """Add a member, which may return with rows that it has `held` (offset by lease). Returns
        the leases that continue."""
        for lease, offset in held.items():
            row = self.window.rows.get(offset)
            if row is not None and row.lease == lease:
                row.holder = member.place
                self._hold(member, row)
        self.members[member.key] = self._by_place[member.place] = member
        return tuple(member.leases)

    def succeed(self, former: GroupMember, member: GroupMember) -> None:
        """Replace the member `former` by `member`, of the same program. Rows that were on their way
        to `former` are leased again."""
        self._remove(former)
        for lease, offset in former.leases.items():
            row = self.window.rows.get(offset)
            if lease not in member.leases and row is not None and row.lease == lease:
                row.deliveries -= 1
                self.window.give_back(row)

    def leave(self, member: GroupMember, untouched: set[int], at_once: bool = True) -> None:
        """Remove a member. Its rows go to others at once, or when their leases end."""
        self._remove(member)
        if not at_once:
            return
        for lease, offset in member.leases.items():
            row = self.window.rows.get(offset)
            if row is not None and row.lease == lease:
                row.deliveries -= lease in untouched
                self._again(row, 0.0, "the member has gone")

    def _remove(self, member: GroupMember) -> None:
        if self.members.get(member.key) is member:
            del self.members[member.key]
        self._by_place.pop(member.place, None)

    def _hold(self, member: GroupMember, row: Pending) -> None:
        member.leases[row.lease] = row.offset
        member.bytes += len(row.row)

    def _let_go(self, row: Pending) -> None:
        """Take a row from its member."""
        member = self._by_place.get(row.holder)
        if member is not None and member.leases.pop(row.lease, None) is not None:
            member.bytes -= len(row.row)

    def holder(self, offset: int) -> str:
        """The name of the member that has a row; "": none has it, or the member has left."""
        row = self.window.rows.get(offset)
        member = None if row is None else self._by_place.get(row.holder)
        return "" if member is None else member.name

    # -- finding rows ----------------------------------------------------------------------------

    @property
    def wants_rows(self) -> bool:
        """Whether more rows are to be matched."""
        window = self.window
        if len(window) >= WINDOW or window.bytes >= WINDOW_BYTES or not self.members:
            return False
        if not self.options.priority and window.ready >= AHEAD:
            return False
        return self.is_there and self._scan.is_behind

    def scan(self, budget: int) -> int:
        """Match rows, for `budget` rows' worth of work; returns the work done."""
        work = 0
        while work < budget and self.wants_rows:
            pieces, more = self._scan.step(budget - work)
            work += more
            for piece in pieces:
                self._add(piece)
        return work

    def _add(self, piece: Piece) -> None:
        options, done = self.options, self.group.done
        rows = decode_rows(piece.rows, piece.count)
        places = (0, *piece.places) if piece.places else range(piece.count)
        for place, row in zip(places, rows, strict=True):
            offset = piece.first + place
            if offset in done or self.window.has(offset):
                continue
            found = pending(options, offset, piece.time, row.attributes, encode_rows((row,)))
            found.due = self._due(row.attributes, piece.time)
            self.window.add(found)

    def _due(self, attributes: dict[str, Value | None], time: int) -> float:
        """The time of delivery, by the node's clock, of a row appended at `time`; 0: now."""
        delay = delay_of(self.options, attributes)
        if not delay:
            return 0.0
        # A clock that was put back may be behind the times in the log, which never go back.
        clock = max(self._led.clock(), self.replica.log.time)
        left = delay - (clock - time) / NANOSECONDS
        return self.port.now + left if left > 0.0 else 0.0

    def fetched(self, offset: int, piece: Piece | None) -> None:
        """Add the row of a retried dead letter; None: the log has removed it."""
        if piece is None:
            self.window.done(offset)
            self._settled[offset] = None
            self._led.later(WriteGroups, GATHER)
            return
        (row,) = decode_rows(piece.rows, 1)
        self.window.add(pending(self.options, offset, piece.time, row.attributes, piece.rows))

    # -- giving rows to members ------------------------------------------------------------------

    def give(self) -> None:
        """Lease rows that wait to members that have room, one member after the other."""
        if not self.members:
            return
        every = list(self.members.values())
        self._turn %= len(every)
        free = [m for m in (*every[self._turn :], *every[: self._turn]) if m.has_room]
        given: dict[GroupMember, list[LeasedRow]] = {}
        now, lease, place = self.port.now, self.options.lease, 0
        while free and (row := self.window.next(now)) is not None:
            if self._is_over(row):
                self.port.count("stream_group_rows_expired")
                self._done(row)
                continue
            place %= len(free)
            member = free[place]
            number = self._leases()
            self.window.lease(row, number, member.place, now + lease)
            self._hold(member, row)
            leased = LeasedRow(row.offset, number, row.deliveries, row.time, row.row)
            given.setdefault(member, []).append(leased)
            self._turn += 1
            if member.has_room:
                place += 1
            else:
                del free[place]
        for member, rows in given.items():
            self._send(member, rows)

    def _is_over(self, row: Pending) -> bool:
        """Whether a waiting row is past its time."""
        if not self._led.has_lives:
            return self._led.is_over(row.time)
        return self._led.is_row_over(row.time, decode_rows(row.row, 1)[0].attributes)

    def _send(self, member: GroupMember, rows: list[LeasedRow]) -> None:
        self.port.count("stream_group_rows", len(rows))
        start = size = 0
        for place, row in enumerate(rows):
            if place > start and (size + len(row.row) > SENT_BYTES or place - start >= LISTED_MOST):
                self._send_some(member, rows[start:place])
                start, size = place, 0
            size += len(row.row)
        self._send_some(member, rows[start:])

    def _send_some(self, member: GroupMember, rows: list[LeasedRow]) -> None:
        shard = self.replica.shard
        self.port.send(member.peer, LeasedRows(shard, member.number, member.at, tuple(rows)))

    def expire(self) -> None:
        """Take back the rows whose leases have ended."""
        for row in self.window.take_expired(self.port.now):
            self.port.count("stream_leases_expired")
            self._again(row, 0.0, "the lease ran out")

    def _again(self, row: Pending, delay: float, reason: str) -> None:
        """Deliver a leased row again, or make it a dead letter if that was too often."""
        most = self.options.deliveries
        if row.deliveries >= most and self._has_room_for_dead():
            self._bury(row, reason)
            return
        if row.deliveries >= most:
            delay = max(delay, self.options.lease)
        row.reason = reason
        self._let_go(row)
        self.window.give_back(row, self.port.now + delay if delay > 0.0 else 0.0)

    def _has_room_for_dead(self) -> bool:
        return len(self.group.dead) + len(self._dead) < DEAD_MOST

    def _bury(self, row: Pending, reason: str) -> None:
        """Make a row a dead letter."""
        self.port.count("stream_dead_letters")
        about = (row.offset, row.deliveries, reason, self._led.clock())
        self._dead[row.offset] = (DeadRow(self.name, self.number, *about), row)
        self._done(row, is_certain=False)

    def _done(self, row: Pending, is_certain: bool = True) -> None:
        """Settle a row. While a dead letter is not committed, another leader may deliver its row
        again: the next row of its key waits."""
        self._let_go(row)
        self.window.settle(row, is_certain)
        self._settled[row.offset] = None
        self._led.later(WriteGroups, GATHER)

    # -- what members say ------------------------------------------------------------------------

    def settle(
        self, member: GroupMember, settled: tuple[Settlement, ...], may_extend: bool
    ) -> None:
        """Take a member's answers to its rows."""
        done, lost = member.done, member.lost
        extended = []
        for one in settled:
            row = self.window.rows.get(one.offset)
            if row is not None and row.lease == one.lease:
                if one.what != "extend":
                    self._carry_out(row, one)
                    done.append(one.lease)
                elif may_extend:
                    self.window.extend(row, self.port.now + self.options.lease)
                    extended.append(one.lease)
            elif one.what == "ack" and self._is_done(one.offset):
                done.append(one.lease)
            else:
                lost.append(one.lease)
        if extended:
            told = (self.replica.shard, member.number, member.at, (), tuple(extended), ())
            self.port.send(member.peer, LeasesSettled(*told))
        self._led.later(WriteGroups, GATHER)

    def _is_done(self, offset: int) -> bool:
        """Whether the row was acknowledged."""
        if offset in self._dead or offset in self.group.dead:
            return False
        return offset in self._settled or offset in self.group.done

    def _carry_out(self, row: Pending, one: Settlement) -> None:
        if one.what == "ack":
            self._done(row)
        elif one.what == "release":
            row.deliveries -= 1
            self._let_go(row)
            self.window.give_back(row)
        elif one.what == "reject" and self._has_room_for_dead():
            self._bury(row, one.reason or "rejected")
        else:
            self._again(row, one.delay, one.reason or "sent back")

    # -- the log ---------------------------------------------------------------------------------

    def flush(self) -> tuple[list[GroupEntry], list[Pending]]:
        """The entries to write now, and the rows of the dead letters among them: the caller calls
        `window.free` for these when they are committed."""
        entries: list[GroupEntry] = [dead for dead, _ in self._dead.values()]
        buried = [row for _, row in self._dead.values()]
        self._dead.clear()
        settled, self._settled = list(self._settled), {}
        for offset in settled:
            self.window.done(offset)
        runs = self.window.runs_around(settled, self.scanned)
        if runs:
            entries.append(RowsDone(self.name, self.number, tuple(runs)))
        return entries, buried

    def passed(self) -> list[GroupEntry]:
        """The entry, to be written now, by which the floor moves over rows without a match."""
        floor = self.window.floor(self.scanned)
        if self._settled or floor <= self.group.done.floor:
            return []
        return [RowsDone(self.name, self.number, ((0, floor),))]

    def take_answers(self) -> list[tuple[Peer, LeasesSettled]]:
        """The answers for members, to be sent when the log up to here is committed."""
        found = []
        for member in self.members.values():
            done, lost = member.done, member.lost
            for start in range(0, max(len(done), len(lost)), LISTED_MOST):
                some = slice(start, start + LISTED_MOST)
                told = LeasesSettled(
                    self.replica.shard,
                    member.number,
                    member.at,
                    tuple(done[some]),
                    (),
                    tuple(lost[some]),
                )
                found.append((member.peer, told))
            member.done, member.lost = [], []
        return found
