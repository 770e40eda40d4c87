"""The groups of one shard that this node leads: their members, leases and entries in the log.

Joining a group that is not known founds it, which is an entry of the log. Whatever is answered from
the log is answered when the log up to here is committed, as in `streams.services.read.durable`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from overlay.consensus import has_majority
from overlay.machine import Message, NodeId, Peer, Timer
from streams.access.reasons import FENCED, FULL, LOST, OUT_OF_RANGE, UNKNOWN_GROUP, Cause
from streams.log.chunk import DEAD, POSITIONS
from streams.log.group_state import (
    DeadRow,
    Group,
    GroupEdited,
    GroupEntry,
    GroupFounded,
    GroupOptions,
)
from streams.log.lost_rows import set_back_reason
from streams.programs.group.messages import (
    LISTED_MOST,
    ConfirmLeader,
    GroupJoined,
    JoinGroup,
    KeepMembers,
    LeaderConfirmed,
    LeaveGroup,
    MemberRefused,
    MembersKept,
    MembersMoved,
    SettleLeases,
)
from streams.programs.group.options import fault_in, fault_of_selector, obstacle, options_of
from streams.services.group.delivery import (
    GroupDelivery,
    GroupMember,
    LookForRows,
    MemberKey,
    WriteGroups,
)
from streams.services.group.window import Pending
from streams.services.read.positions import find_start
from streams.services.service import KEPT, LedShard, ShardService, by_peer
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

# --- the confirmation of a leader by a majority of the shard's replicas ---
#
# A replaced leader that does not know of its successor commits nothing, but it could go on leasing
# rows of a key, of which its successor leases others. So rows of groups with a key are leased only
# within `FRESH` seconds of the beginning of a round in which a majority has confirmed that it voted
# in no higher epoch. A new leader, whose majority has a replica in common with every such round,
# waits for `FRESH` seconds and the length of a lease before it leases any.

FRESH: Final = 4.0
"""Seconds for which a round counts: some rounds may fail before leases stop. Guess."""

ROUND: Final = 1.0
"""Seconds between two rounds."""


class Confirmation:
    """The rounds of one leader."""

    def __init__(self, led: LedShard) -> None:
        self.port, self.replica, self.leader = led.port, led.replica, led.leader
        self._ticket = 0
        self._began = float("-inf")
        self._confirmed = float("-inf")
        self._heard: set[NodeId] = set()

    @property
    def is_fresh(self) -> bool:
        """Whether a majority has confirmed this leader within the last `FRESH` seconds, so that no
        other leader can have leased rows."""
        return self.port.now <= self._confirmed + FRESH

    def ask(self) -> None:
        """Begin a round, unless the last one began less than `ROUND` seconds ago."""
        if self.port.now < self._began + ROUND:
            return
        self._ticket += 1
        self._began = self.port.now
        self._heard = {self.port.me.id}
        for peer in self.replica.replicas:
            if peer.id != self.port.me.id:
                asked = ConfirmLeader(self.replica.shard, self.leader.epoch, self._ticket)
                self.port.send(peer, asked)
        self._count()

    def heard(self, node: NodeId, message: LeaderConfirmed) -> bool:
        """Take a replica's answer. Returns whether it completes the round."""
        if (message.epoch, message.ticket) != (self.leader.epoch, self._ticket):
            return False
        before = self._confirmed
        self._heard.add(node)
        self._count()
        return self._confirmed > before

    def _count(self) -> None:
        if has_majority(self.replica.replicas, self._heard):
            self._confirmed = max(self._confirmed, self._began)


LOOK: Final = 0.25
"""Seconds between two looks at leases and delays."""

LOOKS: Final = 4
"""Looks between two words of the log on floors that have moved on without acknowledgements."""

GROUPS_MOST: Final = 1_000
"""Groups of a shard at most. Guess: each looks at all rows for itself."""

MEMBERS_MOST: Final = 1_000
"""Members of a group at most. Guess."""


class LookAtLeases(Timer, frozen=True):
    """Time to look at leases and delays."""


class ShardMembers(LedShard):
    """The groups of one shard, under one epoch of this node's."""

    def __init__(self, service: ShardService[Any], replica: Replica, leader: ShardLeader) -> None:
        super().__init__(service, replica, leader)
        self.confirmation = Confirmation(self)
        self.groups: dict[str, GroupDelivery] = {}
        self._looks = 0
        self._where: dict[MemberKey, GroupDelivery] = {}
        self._entries: list[GroupEntry] = []  # to be written, beside those of the groups
        self._then: list[Callable[[], None]] = []  # when what is to be written is committed
        self._founding: dict[str, GroupFounded] = {}
        self._committed: dict[str, GroupOptions] = {}  # of groups whose newest ones are not
        self._places = 0
        self._leases = 0

    @classmethod
    def moved(cls, message: Any, leader: Peer | None) -> Message | None:
        """The members of a message go on elsewhere."""
        if isinstance(message, LeaveGroup | LeaderConfirmed):
            return None
        members = message.members if isinstance(message, KeepMembers) else (message.member,)
        return MembersMoved(message.shard, members, leader)

    # -- members come and go ---------------------------------------------------------------------

    def on_join_group(self, sender: Peer, message: JoinGroup) -> None:
        """A program becomes a member, of a group that is there or is founded."""
        name = message.group
        if self._group(name) is not None or name in self._founding:
            self._when_written(lambda: self._joined(sender, message))
            return
        options = options_of(message.wanted)
        refused = fault_in(options)
        if refused is None and message.attachment != (0, 0):
            refused = Cause(UNKNOWN_GROUP, f"the group {name} is no longer known")
        count = len(self.replica.state.groups.groups) + len(self._founding)
        if refused is None and count >= GROUPS_MOST:
            refused = Cause(FULL, f"the shard has {GROUPS_MOST} groups")
        if refused is not None:
            final = refused
            self.when_committed(lambda: self._refuse(sender, message.member, final))
            return

        def found(position: int) -> None:
            assert not isinstance(options, Cause)
            if not self.leader.leads:
                return
            if not self.first <= position <= self.end:
                there = f"{self.first} to {self.end - 1}"
                reason = f"offset {position} is not there: the shard has {there}"
                self._refuse(sender, message.member, Cause(OUT_OF_RANGE, reason))
                return
            self._founding.setdefault(name, GroupFounded(name, options, position))
            self._when_written(lambda: self._joined(sender, message))

        find_start(self, message.wanted.start, found)

    def _group(self, name: str) -> Group | None:
        """Return the state of a group in the log, committed or not."""
        return self.replica.state.groups.groups.get(name)

    def _joined(self, sender: Peer, message: JoinGroup) -> None:
        """The group is in the log for good."""
        group = self._group(message.group)
        refusal: Cause | None
        if group is None:
            refusal = Cause(UNKNOWN_GROUP, f"the group {message.group} was forgotten")
        else:
            selectors = (group.options.selector, *(one.selector for one in group.former))
            refusal = next(filter(None, map(fault_of_selector, selectors)), None)
            if message.attachment == (0, 0):  # else it is a member, whatever the group has now
                refusal = obstacle(self._options(group), message.wanted) or refusal
        if group is not None and refusal is None and (group.was_at or group.dropped):
            refusal = self._lost(group, message.token)
        if group is None or refusal is not None:
            assert refusal is not None
            self._refuse(sender, message.member, refusal)
            return
        delivery = self._delivery(group)
        former = next((m for m in delivery.members.values() if m.name == message.name), None)
        is_other = former is not None and former.token != message.token
        if former is not None and is_other and (0, 0) < message.attachment < former.attachment:
            reason = f"another program is the member {message.name} now"
            self._refuse(sender, message.member, Cause(FENCED, reason))
            return
        if former is None and len(delivery.members) >= MEMBERS_MOST:
            reason = f"the group has {MEMBERS_MOST} members"
            self._refuse(sender, message.member, Cause(FULL, reason))
            return
        self._attach(sender, message, delivery, former)

    def _lost(self, group: Group, token: str) -> Cause | None:
        """Return the cause for the first program to join a group whose floor was beyond lost rows,
        or that had not finished rows that were released; None: another program has been told."""
        if not group.told:
            told = GroupEdited(group.name, group.number, group.options, group.longest, token)
            self._write([told])
        elif group.told != token:
            return None
        if not group.was_at:
            return Cause(
                LOST,
                f"retention has let go of {group.dropped} rows that the group {group.name} was not "
                "done with, as the stream's options say. Come again to go on without them",
            )
        who, lost = f"the group {group.name}", self.replica.state.lost
        return Cause(LOST, set_back_reason(who, group.was_at, group.done.floor, lost))

    def _attach(
        self, sender: Peer, message: JoinGroup, delivery: GroupDelivery, former: GroupMember | None
    ) -> None:
        self._places += 1
        attachment = (self.leader.epoch, self._places)
        about = (message.name, message.token, attachment, message.credit, message.at)
        member = GroupMember(sender, message.member, *about, kept_at=self.port.now)
        is_same = former is not None and (
            message.token == former.token or message.attachment == former.attachment
        )
        if former is not None:
            self._where.pop(former.key, None)
            if not is_same:
                self._fence(delivery, former)
        held = {lease: offset for offset, lease in message.held}
        kept = delivery.join(member, held)
        if former is not None and is_same:
            delivery.succeed(former, member)
        self._where[member.key] = delivery
        self._tell_options(delivery, member, kept)
        self.port.count("stream_members")
        self._give(delivery)

    def _tell_options(
        self, delivery: GroupDelivery, member: GroupMember, kept: tuple[int, ...]
    ) -> None:
        about = (member.number, member.attachment, delivery.options, kept)
        self.port.send(member.peer, GroupJoined(self.replica.shard, *about))

    def _fence(self, delivery: GroupDelivery, former: GroupMember) -> None:
        """Another program is this member: what the former one has goes to others, at once unless a
        key must not be with two."""
        delivery.leave(former, set(), at_once=not delivery.options.by)
        reason = f"another program is the member {former.name} now"
        self._refuse(former.peer, former.number, Cause(FENCED, reason))

    def _delivery(self, group: Group) -> GroupDelivery:
        known = self.groups.get(group.name)
        if known is not None and known.number != group.number:
            self._drop(known)
            known = None
        if known is None:
            options = self._options(group)
            known = GroupDelivery(self, group.name, options, self._next_lease)
            self.groups[group.name] = known
            self.later(LookAtLeases, LOOK)
        return known

    def _options(self, group: Group) -> GroupOptions:
        """Return the committed options of a group."""
        return self._committed.get(group.name, group.options)

    def _next_lease(self) -> int:
        """The number of a lease: no other one of the shard has it, under this leader or another of
        the last million. At most 2**52."""
        self._leases += 1
        return ((self.leader.epoch & 0xFFFFF) << 32) + self._leases

    def _drop(self, delivery: GroupDelivery) -> None:
        """End a group that was forgotten, and refuse its members."""
        del self.groups[delivery.name]
        for member in delivery.members.values():
            self._where.pop(member.key, None)
            reason = f"the group {delivery.name} was forgotten"
            self._refuse(member.peer, member.number, Cause(UNKNOWN_GROUP, reason))

    def on_leave_group(self, sender: Peer, message: LeaveGroup) -> None:
        """Remove a member whose program has gone, and give its rows to others."""
        delivery = self._where.pop((sender.id, message.member), None)
        if delivery is not None:
            member = delivery.members[sender.id, message.member]
            delivery.leave(member, set(message.untouched))
            self._give(delivery)

    def on_keep_members(self, sender: Peer, message: KeepMembers) -> None:
        """A node has these members."""
        present, missing = [], []
        for number in message.members:
            delivery = self._where.get((sender.id, number))
            if delivery is None:
                missing.append(number)
            else:
                present.append(number)
                member = delivery.members[sender.id, number]
                member.kept_at = self.port.now
                member.at = max(member.at, message.at)
        cut_off = self.replica.lacks_majority()
        kept = MembersKept(self.replica.shard, tuple(present), tuple(missing), cut_off)
        self.port.send(sender, kept)

    def _refuse(self, sender: Peer, number: int, refusal: Cause) -> None:
        self.port.count("stream_members_refused")
        refused = MemberRefused(self.replica.shard, number, refusal.code, refusal.text[:500])
        self.port.send(sender, refused)

    def stop(self, leader: Peer | None) -> None:
        """End all memberships, because this node no longer leads the shard."""
        members = [m for delivery in self.groups.values() for m in delivery.members.values()]
        for peer, some in by_peer([(one.peer, one.number) for one in members], LISTED_MOST):
            self.port.send(peer, MembersMoved(self.replica.shard, some, leader))
        self.groups.clear()
        self._where.clear()

    # -- rows ------------------------------------------------------------------------------------

    def on_settle_leases(self, sender: Peer, message: SettleLeases) -> None:
        """Take the answers of a member to its rows."""
        delivery = self._where.get((sender.id, message.member))
        if delivery is None:
            self.service.refuse(sender, message)
            return
        member = delivery.members[sender.id, message.member]
        member.at = max(member.at, message.at)
        delivery.settle(member, message.settled, self._may_lease(delivery))
        self._give(delivery)

    def _may_lease(self, delivery: GroupDelivery) -> bool:
        """Whether rows may be given to members: of a group that is ordered by key only when no
        other leader can have given rows of the same key."""
        if not delivery.options.by:
            return True
        waits = self.leader.since + FRESH + delivery.group.longest
        if delivery.number < self.leader.first and self.port.now < waits:
            return False
        self.confirmation.ask()
        return self.confirmation.is_fresh

    def _give(self, delivery: GroupDelivery) -> None:
        if delivery.members and delivery.is_there and self._may_lease(delivery):
            delivery.give()
        if delivery.wants_rows:
            self.later(LookForRows)

    def on_leader_confirmed(self, sender: Peer, message: LeaderConfirmed) -> None:
        """A replica follows this leader still."""
        if self.confirmation.heard(sender.id, message):
            for delivery in self.groups.values():
                if delivery.options.by:
                    self._give(delivery)

    def committed(self) -> None:
        """More of the log is committed."""
        super().committed()
        if any(delivery.wants_rows for delivery in self.groups.values()):
            self.later(LookForRows)

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return any(delivery.wants_rows for delivery in self.groups.values())

    def step(self, budget: int) -> int:
        """Look for rows, for `budget` rows' worth of work; returns the work done."""
        work = 0
        for name in list(self.groups):
            delivery = self.groups[name]
            if delivery.wants_rows and work < budget:
                work += delivery.scan(budget - work)
                self._give(delivery)
                self.groups[name] = self.groups.pop(name)  # it comes last next time
        return work

    def on_look_at_leases(self, timer: LookAtLeases) -> None:
        """End expired leases, and members that no node has kept; give rows that are due, and from
        time to time note floors."""
        before = self.port.now - KEPT
        for delivery in list(self.groups.values()):
            if not delivery.is_there:
                self._drop(delivery)
                continue
            for member in [m for m in delivery.members.values() if m.kept_at < before]:
                del self._where[member.key]
                delivery.leave(member, set(), at_once=False)
            delivery.expire()
            self._give(delivery)
        self._looks += 1
        if self._looks % LOOKS == 0:
            self._note_floors()
        if self.groups:
            self.later(LookAtLeases, LOOK)

    def _note_floors(self) -> None:
        """Write how far floors have moved on without acknowledgements, and which leases are over
        that were longer than those of now."""
        for delivery in self.groups.values():
            if delivery.is_there:
                self._entries += delivery.passed()
                self._entries += self._shortened(delivery)
        if self._entries:
            self.flush()

    def _shortened(self, delivery: GroupDelivery) -> list[GroupEntry]:
        """Return an entry which states that the longest lease is that of the options, if all longer
        ones have certainly expired: this leader's own and those of former leaders."""
        group = delivery.group
        if group.longest == group.options.lease or delivery.name in self._committed:
            return []
        began = max(self.leader.since + FRESH, delivery.changed_at)
        if self.port.now <= began + group.longest:
            return []
        return [GroupEdited(group.name, group.number, group.options, group.options.lease)]

    # -- the log ---------------------------------------------------------------------------------

    def _when_written(self, then: Callable[[], None]) -> None:
        self._then.append(then)
        self.later(WriteGroups)

    def on_write_groups(self, timer: WriteGroups) -> None:
        """Write what groups are done with."""
        self.flush()

    def flush(self) -> None:
        """Write the pending entries, and answer when they are committed."""
        if not self.leader.leads:
            return
        entries, self._entries = [*self._founding.values(), *self._entries], []
        self._founding.clear()
        answers = []
        buried: list[tuple[GroupDelivery, Pending]] = []
        for delivery in self.groups.values():
            if delivery.is_there:
                done, dead = delivery.flush()
                entries += done
                answers += delivery.take_answers()
                buried += [(delivery, row) for row in dead]
        thens, self._then = self._then, []
        if entries:
            self._write(entries)
        for peer, answer in answers:
            self.when_committed(partial(self.port.send, peer, answer))
        for then in thens:
            self.when_committed(then)
        if buried:
            self.when_committed(lambda: self._free(buried))

    def _write(self, entries: list[GroupEntry]) -> None:
        """Append entries, dead letters first: a run of done rows may contain them, and must not be
        in the log without them."""
        dead = [entry for entry in entries if isinstance(entry, DeadRow)]
        others = [entry for entry in entries if not isinstance(entry, DeadRow)]
        for kind, some in ((DEAD, dead), (POSITIONS, others)):
            if some:
                self.append_entries(kind, some)
                self.port.count("stream_group_chunks")

    def _free(self, buried: list[tuple[GroupDelivery, Pending]]) -> None:
        """Rows are dead letters for good: what comes behind them may go."""
        for delivery, row in buried:
            if self.groups.get(delivery.name) is delivery:
                delivery.window.free(row)
                self._give(delivery)
