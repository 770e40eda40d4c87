"""The groups of all shards that this node leads.

A `ShardGroups` is made when the first request comes for a shard that this node leads, and ended
when it leads no more, or under another epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from overlay.machine import Peer, Port, Timer
from streams.groups.messages import (
    MOVED,
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
from streams.replication.leading import Leading
from streams.replication.replica import Replica, ShardCommitted, ShardLed, ShardUnled
from streams.services.group.shard_groups import OperatorAsks, ShardGroups
from streams.services.led_shards import ReplicaOf, ShardServer, work

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


class GroupServer(ShardServer[ShardGroups]):
    """Serves members of groups at the shards that this node leads."""

    def __init__(
        self,
        port: Port,
        leading: ReplicaOf,
        replica: ReplicaOf,
        clock: Callable[[], int],
    ) -> None:
        """As of `ShardServer`."""
        super().__init__(port, leading, replica, clock)
        self._replica = replica
        self._led_at: dict[str, tuple[int, float]] = {}  # (epoch, since when)
        self._is_awake = False
        self._writes_at = float("inf")
        self._looks = 0

    @property
    def shards(self) -> Mapping[str, ShardGroups]:
        """By shard, those that have had a request."""
        return self._led.kept

    def shard(self, name: str) -> ShardGroups | None:
        """Of a shard that this node leads; None: it does not."""
        return self._led.get(name)

    def _made(self, replica: Replica, leading: Leading) -> ShardGroups:
        if not self._led.kept:
            self.port.set_timer(LOOK, LookAtLeases())
        epoch, led_at = self._led_at.get(replica.shard, (0, 0.0))
        return ShardGroups(
            *(self.port, replica, leading, self._clock),
            *(self._wake_writing, self._wake),
            led_at if epoch == leading.epoch else self.port.now,
        )

    def _ended(self, shard: str, known: ShardGroups, leader: Peer | None) -> None:
        known.end_all(leader)

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
        self.port.send(sender, MembersMoved(shard, members, self._led.leader(shard)))

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
            leader = self._led.leader(message.shard)
            reason = "this node does not lead the shard"
            refused = GroupRefused(message.ticket, message.place, MOVED, reason, leader)
            self.port.send(sender, refused)
        return found

    # -- leaders ---------------------------------------------------------------------------------

    def on_confirm_leader(self, sender: Peer, message: ConfirmLeader) -> None:
        """A leader asks whether it is one still."""
        replica = self._replica(message.shard)
        if replica is None or not replica.ready or replica.barred:
            return
        if (replica.hard_state.epoch, replica.hard_state.candidate) == (message.epoch, sender.id):
            confirmed = LeaderConfirmed(message.shard, message.epoch, message.ticket)
            self.port.send(sender, confirmed)

    def on_leader_confirmed(self, sender: Peer, message: LeaderConfirmed) -> None:
        """A replica follows this leader still."""
        shard = self.shard(message.shard)
        if shard is not None:
            shard.confirmed(sender, message)

    def on_led(self, event: ShardLed) -> None:
        """From now on leases of former leaders run out."""
        self._led_at[event.shard] = (event.epoch, self.port.now)

    def on_unled(self, event: ShardUnled) -> None:
        """This node leads a shard no more."""
        if self._leading(event.shard) is None:
            self._led_at.pop(event.shard, None)
            self._led.end(event.shard)

    # -- what goes on ----------------------------------------------------------------------------

    def on_committed(self, event: ShardCommitted) -> None:
        """More of a shard's log is committed."""
        known = self._led.present(event.shard)
        if known is not None:
            known.committed()

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self.port.set_timer(0.0, LookForRows())

    def on_look_for_rows(self, timer: LookForRows) -> None:
        """Do a turn's work, and go on in another one."""
        self._is_awake = False
        if work(self._led, BUDGET):
            self._wake()

    def on_look_at_leases(self, timer: LookAtLeases) -> None:
        """End leases, give what is due, and from time to time note floors."""
        self._looks += 1
        for known in self._led.each():
            known.look()
            if self._looks % LOOKS == 0:
                known.note_floors()
        if self._led.kept:
            self.port.set_timer(LOOK, timer)

    def _wake_writing(self, seconds: float) -> None:
        due = self.port.now + seconds
        if due < self._writes_at:
            self._writes_at = due
            self.port.set_timer(seconds, WriteGroups())

    def on_write_groups(self, timer: WriteGroups) -> None:
        """Write what groups are done with."""
        self._writes_at = float("inf")
        for known in self._led.each():
            known.flush()
