"""All groups at the shards that this node leads, and what operators ask of them and change."""

from __future__ import annotations

from typing import Any, Final

from overlay.machine import Message, Peer
from streams.access.reasons import FULL, MOVED, NOT_DEAD, OUT_OF_RANGE, UNKNOWN_GROUP, Cause
from streams.log.group_state import (
    DeadLetterEnded,
    DeadRow,
    Group,
    GroupEdited,
    GroupForgotten,
    GroupOptions,
)
from streams.programs.group.messages import (
    AskGroups,
    ChangeGroup,
    ConfirmLeader,
    DeadReport,
    EndDeadLetters,
    ForgetGroup,
    GroupChanged,
    GroupRefused,
    GroupReport,
    GroupsReport,
    LeaderConfirmed,
)
from streams.programs.group.options import edited, fault_in
from streams.programs.reader.messages import Piece
from streams.services.group.delivery import GroupDelivery, LookForRows
from streams.services.group.shard_members import ShardMembers
from streams.services.read.positions import find_row
from streams.services.service import ShardService

OperatorAsks = AskGroups | EndDeadLetters | ForgetGroup | ChangeGroup

BUDGET: Final = 2_000
"""Rows' worth of work in a turn, as `streams.services.read.shard_readings.BUDGET`."""

SHOWN_DEAD: Final = 200
"""Dead letters in one report: 200 rows of 1 KiB fit into one frame between nodes. Larger rows leave
without what is in them."""

SHOWN_BYTES: Final = 512 * 1024
"""Bytes of their rows."""


class ShardGroups(ShardMembers):
    """The groups of one shard with what operators ask, under one epoch of this node's."""

    @classmethod
    def moved(cls, message: Any, leader: Peer | None) -> Message | None:
        """As `ShardMembers`. An operator is told to ask elsewhere."""
        if isinstance(message, OperatorAsks):
            reason = "this node does not lead the shard"
            return GroupRefused(message.ticket, message.place, MOVED, reason, leader)
        return super().moved(message, leader)

    def on_ask_groups(self, sender: Peer, message: AskGroups) -> None:
        """Describe all groups, or one with its dead letters."""
        name = message.group
        if name and self._asked_group(sender, message) is None:
            return
        names = [name] if name else sorted(self.replica.state.groups.groups)
        reports = tuple(self._report(self.replica.state.groups.groups[each]) for each in names)
        dead: list[DeadReport] = []
        waiting = sorted(self.replica.state.groups.groups[name].dead) if name else []

        def go_on() -> None:
            if waiting and len(dead) < SHOWN_DEAD and self.leader.leads:
                group = self._group(name)  # it may have been forgotten since a row was asked for
                letter = None if group is None else group.dead.get(waiting[0])
                del waiting[0]
                if letter is None:
                    go_on()
                else:
                    find_row(self, letter.offset, lambda piece: found(letter, piece))
                return
            shard, end = self.replica.shard, self.end
            self.port.send(sender, GroupsReport(message.ticket, shard, end, reports, tuple(dead)))

        def found(letter: DeadRow, piece: Piece | None) -> None:
            size = sum(len(each.row) for each in dead)
            row = b"" if piece is None or size + len(piece.rows) > SHOWN_BYTES else piece.rows
            about = (letter.offset, letter.deliveries, letter.reason, letter.time)
            dead.append(DeadReport(*about, row))
            go_on()

        go_on()

    def _asked_group(self, sender: Peer, message: OperatorAsks) -> Group | None:
        """The group that an operator means; None: there is none, which was said."""
        group = self._group(message.group)
        if group is None:
            reason = f"there is no group {message.group}"
            self._refuse_operator(sender, message, UNKNOWN_GROUP, reason)
        return group

    def _report(self, group: Group) -> GroupReport:
        delivery = self.groups.get(group.name)
        counts = (0, 0, 0, 0)
        members: tuple[str, ...] = ()
        if delivery is not None and delivery.number == group.number:
            window = delivery.window
            counts = (delivery.scanned, len(window), window.leased, window.delayed())
            members = tuple(sorted(member.name for member in delivery.members.values()))
        floor = group.done.floor
        former = tuple((one.below, one.selector) for one in group.former if floor < one.below)
        about = (group.name, group.options, floor, *counts, len(group.dead), members)
        return GroupReport(*about, former)

    def on_end_dead_letters(self, sender: Peer, message: EndDeadLetters) -> None:
        """Have dead letters delivered again, or drop them."""
        group = self._asked_group(sender, message)
        if group is None:
            return
        offsets = message.offsets or tuple(group.dead)
        for offset in offsets:
            if offset not in group.dead:
                reason = f"{message.group} has no dead letter at offset {offset}"
                self._refuse_operator(sender, message, NOT_DEAD, reason)
                return
            if message.retry and offset < self.first:
                if message.offsets:
                    reason = f"offset {offset} is no longer kept"
                    self._refuse_operator(sender, message, OUT_OF_RANGE, reason)
                    return
                offsets = tuple(each for each in offsets if each != offset)
        for offset in offsets:
            ended = DeadLetterEnded(group.name, group.number, offset, message.retry)
            self._entries.append(ended)
        delivery = self.groups.get(group.name)
        if message.retry and delivery is not None and delivery.number == group.number:
            for offset in offsets:
                self._fetch(delivery, offset)
        changed = GroupChanged(message.ticket, message.place, len(offsets))
        self._when_written(lambda: self.port.send(sender, changed))
        self.flush()

    def _fetch(self, delivery: GroupDelivery, offset: int) -> None:
        delivery.window.expect(offset)

        def found(piece: Piece | None) -> None:
            if self.groups.get(delivery.name) is delivery:
                delivery.fetched(offset, piece)
                self._give(delivery)

        find_row(self, offset, found)

    def on_change_group(self, sender: Peer, message: ChangeGroup) -> None:
        """Give a group other options, as an operator asks: they hold when they are committed."""
        group = self._asked_group(sender, message)
        if group is None:
            return
        options = edited(group.options, message.wanted)
        refused = fault_in(options)
        if isinstance(options, Cause) or refused is not None:
            assert refused is not None
            self._refuse_operator(sender, message, refused.code, refused.text)
            return
        if options.selector != group.options.selector and not group.has_room_for_selector:
            reason = (
                f"rows or dead letters of {group.name} go by {len(group.former)} former selectors: "
                "change it again when it is done with some"
            )
            self._refuse_operator(sender, message, FULL, reason)
            return
        changed, new = GroupChanged(message.ticket, message.place), options
        if options != group.options:
            self._committed.setdefault(group.name, group.options)
            longest = max(group.longest, options.lease)
            self._entries.append(GroupEdited(group.name, group.number, options, longest))

        def committed() -> None:
            self._changed(message.group, group.number, new)
            self.port.send(sender, changed)

        self._when_written(committed)
        self.flush()

    def _changed(self, name: str, number: int, options: GroupOptions) -> None:
        """A group's options are committed: from now on they hold."""
        group = self._group(name)
        if group is None or group.number != number:
            self._committed.pop(name, None)
            return
        if self._options(group) == options:
            return
        self._committed[name] = options
        if options == group.options:
            del self._committed[name]
        self.port.count("stream_groups_changed")
        delivery = self.groups.get(name)
        if delivery is not None and delivery.number == number:
            delivery.change(options)
            for member in delivery.members.values():
                self._tell_options(delivery, member, tuple(member.leases))
            self._give(delivery)

    def on_forget_group(self, sender: Peer, message: ForgetGroup) -> None:
        """Forget a group with its positions, as an operator asks; refused if there is none."""
        if self._asked_group(sender, message) is None:
            return
        self._entries.append(GroupForgotten(message.group))
        changed = GroupChanged(message.ticket, message.place)
        self._when_written(lambda: self.port.send(sender, changed))
        self.flush()
        delivery = self.groups.get(message.group)
        if delivery is not None:
            self._drop(delivery)

    def _refuse_operator(self, sender: Peer, message: OperatorAsks, code: str, reason: str) -> None:
        refused = GroupRefused(message.ticket, message.place, code, reason[:500])
        self.port.send(sender, refused)


class GroupServer(ShardService[ShardGroups]):
    """Serves members of groups, and operators, at the shards that this node leads."""

    kind = ShardGroups

    def holder(self, shard: str, group: str, offset: int) -> str:
        """The name of the member of a group that has a row; "": none has."""
        groups = self.shard(shard)
        delivery = None if groups is None else groups.groups.get(group)
        return "" if delivery is None else delivery.holder(offset)

    def on_confirm_leader(self, sender: Peer, message: ConfirmLeader) -> None:
        """A leader asks whether it is one still."""
        replica = self._leaderships.replica(message.shard)
        if replica is None or not replica.takes_part:
            return
        if replica.follows(sender.id, message.epoch):
            confirmed = LeaderConfirmed(message.shard, message.epoch, message.ticket)
            self.port.send(sender, confirmed)

    def on_look_for_rows(self, timer: LookForRows) -> None:
        """Do a turn's work, and go on in another one."""
        self.work(timer, BUDGET)
