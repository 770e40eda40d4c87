"""The groups of all shards that this node leads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from overlay.machine import Peer, Port, Timer
from streams.access.reasons import MOVED
from streams.programs.group.messages import (
    AskGroups,
    ChangeGroup,
    ConfirmLeader,
    EndDeadLetters,
    ForgetGroup,
    GroupRefused,
    JoinGroup,
    KeepMembers,
    LeaderConfirmed,
    LeaveGroup,
    MembersMoved,
    SettleLeases,
)
from streams.services.group.shard_groups import GroupWakes, OperatorAsks, ShardGroups
from streams.services.service import Agenda, Leaderships, ReplicaOf, ShardService
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

BUDGET: Final = 2_000
"""Rows' worth of work in a turn, as `streams.services.read.read_server.BUDGET`."""

LOOK: Final = 0.25
"""Seconds between two looks at leases and delays."""

LOOKS: Final = 4
"""Looks between two words of the log on floors that have moved on without acknowledgements."""


class LookForRows(Timer, frozen=True):
    """Go on looking for rows, in a turn of its own."""


class LookAtLeases(Timer, frozen=True):
    """Time to look at leases and delays."""


class WriteGroups(Timer, frozen=True):
    """Time to write what groups are done with."""


class GroupServer(ShardService[ShardGroups]):
    """Serves members of groups at the shards that this node leads."""

    def __init__(
        self,
        port: Port,
        leaderships: Leaderships,
        leading: ReplicaOf,
        replica: ReplicaOf,
        clock: Callable[[], int],
    ) -> None:
        """`replica`: a shard's replica if this node has one; the others: as of `ShardService`."""
        super().__init__(port, leaderships, leading, clock)
        self._replica = replica
        self._led_at: dict[str, tuple[int, float]] = {}  # (epoch, since when)
        self._scans = Agenda(port, LookForRows(), 0.0)
        self._looks = Agenda(port, LookAtLeases(), LOOK)
        self._writes = Agenda(port, WriteGroups(), 0.0)
        self._rounds = 0  # of looks

    def make(self, replica: Replica, leader: ShardLeader) -> ShardGroups:
        """Take requests of members and operators."""
        shard = replica.shard
        epoch, led_at = self._led_at.get(shard, (0, 0.0))
        return ShardGroups(
            self.port,
            replica,
            leader,
            self._clock,
            GroupWakes(
                partial(self._scans.add, shard),
                partial(self._looks.add, shard),
                partial(self._writes.add, shard),
            ),
            led_at if epoch == leader.epoch else self.port.now,
        )

    def holder(self, shard: str, group: str, offset: int) -> str:
        """The name of the member of a group that has a row; "": none has."""
        known = self.shard(shard)
        return "" if known is None else known.holder(group, offset)

    # -- members ---------------------------------------------------------------------------------

    def on_join_group(self, sender: Peer, message: JoinGroup) -> None:
        """A program becomes a member."""
        shard = self.shard(message.shard)
        if shard is None:
            self._refuse(sender, message.shard, message.member)
        else:
            shard.join(sender, message)

    def on_settle_leases(self, sender: Peer, message: SettleLeases) -> None:
        """What becomes of rows."""
        shard = self.shard(message.shard)
        if shard is None or not shard.settle(sender, message):
            self._refuse(sender, message.shard, message.member)

    def on_keep_members(self, sender: Peer, message: KeepMembers) -> None:
        """Members that are there."""
        shard = self.shard(message.shard)
        if shard is None:
            self._refuse(sender, message.shard, *message.members)
        else:
            shard.keep(sender, message)

    def on_leave_group(self, sender: Peer, message: LeaveGroup) -> None:
        """A program has gone."""
        shard = self.shard(message.shard)
        if shard is not None:
            shard.leave(sender, message)

    def _refuse(self, sender: Peer, shard: str, *members: int) -> None:
        self.port.send(sender, MembersMoved(shard, members, self.leader(shard)))

    # -- operators -------------------------------------------------------------------------------

    def on_ask_groups(self, sender: Peer, message: AskGroups) -> None:
        """Describe the shard's groups to an operator."""
        if shard := self._operated(sender, message):
            shard.report(sender, message)

    def on_end_dead_letters(self, sender: Peer, message: EndDeadLetters) -> None:
        """Dead letters are to be delivered again, or dropped."""
        if shard := self._operated(sender, message):
            shard.end_dead(sender, message)

    def on_forget_group(self, sender: Peer, message: ForgetGroup) -> None:
        """A group is to be forgotten."""
        if shard := self._operated(sender, message):
            shard.forget(sender, message)

    def on_change_group(self, sender: Peer, message: ChangeGroup) -> None:
        """A group is to have other options."""
        if shard := self._operated(sender, message):
            shard.change(sender, message)

    def _operated(self, sender: Peer, message: OperatorAsks) -> ShardGroups | None:
        found = self.shard(message.shard)
        if found is None:
            leader = self.leader(message.shard)
            reason = "this node does not lead the shard"
            refused = GroupRefused(message.ticket, message.place, MOVED, reason, leader)
            self.port.send(sender, refused)
        return found

    # -- leaders ---------------------------------------------------------------------------------

    def on_confirm_leader(self, sender: Peer, message: ConfirmLeader) -> None:
        """A leader asks whether it is one still."""
        replica = self._replica(message.shard)
        if replica is None or not replica.takes_part:
            return
        if replica.follows(sender.id, message.epoch):
            confirmed = LeaderConfirmed(message.shard, message.epoch, message.ticket)
            self.port.send(sender, confirmed)

    def on_leader_confirmed(self, sender: Peer, message: LeaderConfirmed) -> None:
        """A replica follows this leader still."""
        shard = self.shard(message.shard)
        if shard is not None:
            shard.confirmed(sender, message)

    def led(self, shard: str, epoch: int) -> None:
        """From now on leases of former leaders run out."""
        self._led_at[shard] = (epoch, self.port.now)

    # -- what goes on ----------------------------------------------------------------------------

    def on_look_for_rows(self, timer: LookForRows) -> None:
        """Do a turn's work, and go on in another one."""
        self.work(self._scans, BUDGET)

    def on_look_at_leases(self, timer: LookAtLeases) -> None:
        """End leases, give what is due, and from time to time note floors."""
        self._rounds += 1
        for shard, known in self.due(self._looks):
            known.look()
            if self._rounds % LOOKS == 0:
                known.note_floors()
            if known.groups:
                self._looks.add(shard)

    def on_write_groups(self, timer: WriteGroups) -> None:
        """Write what groups are done with."""
        for _, known in self.due(self._writes):
            known.flush()
