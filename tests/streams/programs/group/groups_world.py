"""A shard's replicas with their group servers, in virtual time: members by hand, and programs that
share rows through their nodes, with faults.

6. Of a group each row that its selector matches is acknowledged by a program or a dead letter, once
   in the log, and stays so; no other row is delivered. Of a group that is ordered by key no two
   programs have rows of one key at the same time, and a row is delivered only when those before it
   are done with. Where options change, a row goes by the selector that the group had when the row
   was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from canopy.wire.transport.codec import WireCodec, collect
from harness.logs import SHARD, EventBatch, WrongError, append_batches, chunks_of
from overlay.client import Failed
from overlay.machine import LocalEvent, NodeId, Peer
from overlay.stream_client import (
    AttachGroup,
    DetachGroup,
    GroupReady,
    GroupRow,
    RowSettled,
    RowsSettled,
    RowsTaken,
    SettleRows,
    TakeRows,
)
from streams.log import shard_log
from streams.log.batches import BatchHead, Row, decode_rows, rows_of
from streams.log.chunk import DEAD, EVENTS, POSITIONS, STATE
from streams.log.group_state import DeadRow, GroupEdited, GroupFounded, GroupKnown
from streams.log.state import ShardState, entries_of
from streams.programs.group import messages as groups
from streams.programs.group.members import Members
from streams.programs.group.messages import (
    ChangeGroup,
    GroupJoined,
    JoinGroup,
    KeepMembers,
    LeasedRow,
    LeasedRows,
    LeasesSettled,
    LeaveGroup,
    MemberRefused,
    SettleLeases,
    Settlement,
    Wanted,
)
from streams.programs.producer import messages as producing
from streams.programs.reader.messages import ReadFrom
from streams.services.group import shard_members
from streams.services.group.shard_groups import GroupServer
from streams.shard import kept_chunks
from streams.shard import messages as replication
from streams.shard.replica import Replica
from tests.support.shards.producing_world import STREAM, ProducingWorld, WorldLocator
from tests.support.shards.shard_world import constants

FIRST = ReadFrom("first")


class GroupsWorld(ProducingWorld):
    """Every node serves groups where it leads."""

    codec = WireCodec(list(collect([replication, producing, groups]).values()))

    def __init__(self, seed: int, nodes: int = 4, replicas: int = 3) -> None:
        self.group_servers: dict[str, GroupServer] = {}
        self.jumps: dict[str, float] = {}  # seconds by which a node's wall clock is wrong
        super().__init__(seed, nodes, replicas)

    def boot(self, node: str) -> None:
        self.group_servers[node] = GroupServer(self.leaderships(node), lambda shard: self.led(node))
        super().boot(node)

    def clock(self, node: str) -> int:
        return int((self.scheduler.now + self.jumps.get(node, 0.0)) * 1e9) + 10**13

    def machines(self, node: str) -> list[Any]:
        return [*super().machines(node), self.group_servers[node]]

    def committed(self, node: str, number: int) -> None:
        super().committed(node, number)
        port = self.ports[node]
        while port.events:
            self.scheduler.after(0.0, self._emitted, node, port.boot, port.events.popleft())

    def _emitted(self, node: str, boot: int, event: LocalEvent) -> None:
        if node in self.alive and self.ports[node].boot == boot:
            self.handle(node, event)

    def put(self, leader: Replica, *attributes: dict[str, Any]) -> list[int]:
        """Append a batch of rows, wait until it is committed, and return their offsets."""
        assert leader.leader is not None
        self._appends += 1
        batch = EventBatch(
            BatchHead("p", self._appends, 0, len(attributes)), tuple(map(Row, attributes))
        )
        chunk = append_batches(leader.leader, [batch], int(self.scheduler.now * 1e9))
        self.run(0.2)
        return list(range(chunk.first, chunk.next_offset))


class HandMember:
    """A member whose messages are sent by hand, from the world's last node."""

    def __init__(self, world: GroupsWorld, number: int, name: str = "", group: str = "g") -> None:
        self.world, self.number, self.group = world, number, group
        self.name = name or f"m{number}"
        self.node = world.peers[-1]
        self.token = f"program {number}"
        self.attachment = (0, 0)
        self.rows: list[LeasedRow] = []
        """In the order of coming, settled or not."""
        self.done: list[int] = []
        self.extended: list[int] = []
        self.lost: list[int] = []
        self.refused: list[str] = []

    def join(
        self, leader: Peer, credit: int = 100, held: tuple[LeasedRow, ...] = (), **wanted: Any
    ) -> HandMember:
        """Join, and take what comes within half a second."""
        asked = Wanted(wanted.pop("start", FIRST), **wanted)
        having = tuple((row.offset, row.lease) for row in held)
        about = (self.number, self.group, self.name, self.token, self.attachment)
        now = self.world.scheduler.now
        self.tell(leader, JoinGroup(SHARD, *about, asked, credit, having, now))
        return self

    def tell(self, leader: Peer, message: Any, seconds: float = 0.5) -> None:
        self.world.send(self.node, leader, message)
        self.look(seconds)

    def settle(self, leader: Peer, what: str, *rows: LeasedRow, **more: Any) -> None:
        settled = tuple(Settlement(row.offset, row.lease, what, **more) for row in rows)
        self.tell(leader, SettleLeases(SHARD, self.number, self.world.scheduler.now, settled))

    def leave(self, leader: Peer, untouched: tuple[LeasedRow, ...] = ()) -> None:
        self.tell(leader, LeaveGroup(SHARD, self.number, tuple(row.lease for row in untouched)))

    def keep(self, leader: Peer, seconds: float) -> None:
        """Stay for so long."""
        until = self.world.scheduler.now + seconds
        while self.world.scheduler.now < until:
            at = self.world.scheduler.now
            self.tell(leader, KeepMembers(SHARD, at, (self.number,)), 1.0)

    def look(self, seconds: float = 0.5) -> list[LeasedRow]:
        """Let time pass; returns the rows that have come."""
        self.world.run(seconds)
        before = len(self.rows)
        kept = []
        for message in self.world.answers.pop(self.node.id, []):
            if getattr(message, "member", self.number) != self.number:
                kept.append(message)
            elif isinstance(message, GroupJoined):
                self.attachment = message.attachment
            elif isinstance(message, LeasedRows):
                self.rows += message.rows
            elif isinstance(message, LeasesSettled):
                self.done += message.done
                self.extended += message.extended
                self.lost += message.lost
            elif isinstance(message, MemberRefused):
                self.refused.append(message.code)
        if kept:
            self.world.answers[self.node.id] = kept
        return self.rows[before:]

    def offsets(self) -> list[int]:
        return [row.offset for row in self.rows]


def attributes(row: LeasedRow) -> dict[str, Any]:
    (found,) = decode_rows(row.row, 1)
    return found.attributes


def led_world(seed: int = 1) -> tuple[GroupsWorld, Peer, Replica]:
    """A world whose first node leads; the last one, with the members, has no replica."""
    world = GroupsWorld(seed)
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    return world, world.peers[0], world.alive[world.peers[0].id]


def take_over(world: GroupsWorld, node: int = 1) -> tuple[Peer, Replica]:
    """The leader is lost, and another node leads."""
    world.crash(world.peers[0].id)
    world.elect(world.peers[node].id)
    world.run(1.0)
    peer = world.peers[node]
    assert world.led(peer.id) is not None
    return peer, world.alive[peer.id]


Attributes = Mapping[str, Any]


SELECTORS: dict[str, Callable[[Attributes], bool]] = {
    "": lambda row: True,
    "p <> 4": lambda row: row["p"] != 4,
    "p >= 3": lambda row: row["p"] >= 3,
    "p < 7": lambda row: row["p"] < 7,
}
"""What selectors mean, in Python."""

KINDS: dict[str, dict[str, Any]] = {
    "plain": {"selector": "", "lease": 1.5, "deliveries": 3},
    "keyed": {"selector": "p <> 4", "lease": 2.0, "deliveries": 4, "by": "key"},
    "late": {
        "selector": "p >= 3",
        "lease": 1.0,
        "deliveries": 3,
        "priority": "p",
        "delay": "wait",
    },
    "keyed and late": {
        "selector": "",
        "lease": 1.5,
        "deliveries": 50,
        "by": "key",
        "delay": "wait",
    },
}
"""The groups of the world, with the options that they are founded with."""

CHANGES: dict[str, tuple[Any, ...]] = {
    "selector": tuple(SELECTORS),
    "lease": (1.0, 1.5, 2.5),
    "deliveries": (3, 4, 50),
    "priority": ("", "p"),
    "delay": ("", "wait"),
}
"""What options are changed to."""


class Hold(NamedTuple):
    """A row that a program has."""

    row: GroupRow
    until: float


class Taken(NamedTuple):
    """A row was handed to a program."""

    at: float
    group: str
    offset: int


class SharingProgram:
    """A member, through one node. What it says of rows is drawn; after a crash of its node it
    attaches again, as itself or as another program under its name."""

    def __init__(
        self, world: MembershipWorld, client: int, node: NodeId, group: str, name: str
    ) -> None:
        self.world, self.client, self.node, self.group, self.name = world, client, node, group, name
        self.request = 0
        self.member = 0  # request of its AttachGroup; 0: it is none
        self.is_ready = self.is_fenced = False
        self.take = 0  # request of its TakeRows that is not answered
        self.attachments: tuple[tuple[int, int], ...] = ()
        self.holds: dict[int, Hold] = {}  # by lease
        self.said: dict[int, list[GroupRow]] = {}  # acknowledgements that are not answered
        self.names_options = True

    def ask(self, command: type[Any], *arguments: Any, **more: Any) -> int:
        self.request += 1
        machine = self.world.members[self.node]
        if self.node in self.world.alive:
            machine.commands()[command](self.client, command(self.request, *arguments, **more))
        return self.request

    def stop(self) -> None:
        """It is no member any more, and knows that."""
        self.member, self.is_ready, self.take = 0, False, 0
        self.holds.clear()
        self.said.clear()

    def attach(self) -> None:
        rng = self.world.rng
        known = self.attachments if rng.random() < 0.7 else ()
        self.member = self.request + 1
        options = {"start": "first", "credit": rng.choice((1, 3, 20))}
        options |= KINDS[self.group] if self.names_options else {}
        self.ask(AttachGroup, STREAM, self.group, self.name, attachments=known, **options)

    def work(self) -> None:
        rng, now, is_ending = self.world.rng, self.world.scheduler.now, self.world.is_ending
        for lease in [lease for lease, hold in self.holds.items() if hold.until <= now]:
            del self.holds[lease]
        if not self.member:
            if (is_ending or rng.random() < 0.3) and not self.is_fenced:
                self.attach()
            return
        if not self.is_ready:
            return
        if not is_ending and rng.random() < 0.01:
            member = self.member
            self.stop()
            self.ask(DetachGroup, member)
            return
        for hold in list(self.holds.values()):
            drawn = 0.0 if is_ending else rng.random()
            if drawn < 0.4:
                self.say("ack", hold)
            elif drawn < 0.5:
                self.say("nack", hold, rng.choice((0.0, 0.5, 2.0)))
            elif drawn < 0.53:
                self.say("reject", hold)
            elif drawn < 0.6:
                self.say("extend", hold)
        if self.is_ready and not self.take:
            self.take = self.request + 1
            self.ask(TakeRows, self.member, rng.choice((1, 10)))

    def say(self, what: Any, hold: Hold, delay: float = 0.0) -> None:
        row, world = hold.row, self.world
        if what != "extend":
            self.holds.pop(row.lease, None)  # unless it was told that it is no member any more
        if what == "ack":
            world.acked.setdefault((self.group, row.offset), world.scheduler.now)
            self.said[self.request + 1] = [row]
        if what == "reject":
            world.given_up.setdefault((self.group, row.offset), world.scheduler.now)
        one = RowSettled(row.shard, row.offset, row.lease, what, delay)
        self.ask(SettleRows, self.member, (one,))

    def answered(self, reply: Any) -> None:
        if isinstance(reply, GroupReady) and reply.request == self.member:
            self.is_ready, self.attachments = True, reply.attachments
        elif isinstance(reply, RowsTaken):
            assert reply.request == self.take
            self.take = 0
            for row in reply.rows:
                self.world.taken(self, row)
        elif isinstance(reply, RowsSettled):
            for row in self.said.pop(reply.request, []):
                if (row.shard, row.offset) not in reply.lost:
                    self.world.confirmed[self.group, row.offset] = None
        elif isinstance(reply, Failed) and reply.request in (self.take, self.member):
            if reply.code in ("options", "selector") and self.world.edits:
                self.names_options = False  # the group is there, and has others by now
            elif reply.code not in ("fenced", "time-out", "unknown"):
                raise WrongError(f"{self.group} is refused: {reply}")
            self.is_fenced = reply.code == "fenced" and self.world.is_ending
            self.stop()


class MembershipWorld(GroupsWorld):
    """Every node has members as well, and some of them programs; clocks of nodes jump."""

    def __init__(self, seed: int, nodes: int = 4, replicas: int = 3) -> None:
        self.members: dict[str, Members] = {}
        self.programs: dict[int, SharingProgram] = {}
        self.acked: dict[tuple[str, int], float] = {}  # when it was said first
        self.given_up: dict[tuple[str, int], float] = {}
        self.confirmed: dict[tuple[str, int], None] = {}
        self.takes: list[Taken] = []
        self.edits = 0  # changes of options that were asked for
        self.is_ending = False
        super().__init__(seed, nodes, replicas)

    def boot(self, node: str) -> None:
        port = self.ports[node]
        port.reply = self._replied
        self.members[node] = Members(port, port.boot, WorldLocator(self, node))
        super().boot(node)

    def machines(self, node: str) -> list[Any]:
        return [*super().machines(node), self.members[node]]

    def crash(self, node: str) -> None:
        was_alive = node in self.alive
        super().crash(node)
        for program in self.programs.values():
            if program.node == node:
                program.stop()
        if was_alive and self.rng.random() < 0.5:  # else the others notice by silence
            self.break_links(node)

    def batch(self, node: str, rows: int) -> EventBatch:
        made = []
        for place in range(rows):
            row: dict[str, Any] = {"n": 3 * self._appends + place, "p": self.rng.randrange(12)}
            if (key := self.rng.choice(("a", "b", 7, "absent"))) != "absent":
                row["key"] = key
            if (wait := self.rng.choice((0.0, 0.0, 0.5, 3.0))) > 0:
                row["wait"] = wait
            made.append(Row(row))
        return EventBatch(BatchHead(node, self._appends, 0, rows), tuple(made))

    def add(self, client: int, node: str, group: str, name: str) -> None:
        self.programs[client] = SharingProgram(self, client, node, group, name)

    def work(self) -> None:
        for program in self.programs.values():
            if program.node in self.alive:
                program.work()

    def edit(self, rng: Random) -> None:
        """An operator asks for another option of a group, of a node that leads or has led."""
        leaders = [node for node in sorted(self.alive) if self.alive[node].leader is not None]
        if leaders:
            self.edits += 1
            name = rng.choice(tuple(CHANGES))
            wanted = Wanted(ReadFrom("new"), **{name: rng.choice(CHANGES[name])})
            asked = ChangeGroup(self.edits, SHARD, 0, rng.choice(tuple(KINDS)), wanted)
            self.send(rng.choice(self.peers), self.ports[rng.choice(leaders)].me, asked)

    # -- checker 6 -------------------------------------------------------------------------------

    def taken(self, program: SharingProgram, row: GroupRow) -> None:
        """A row is handed to a program."""
        group, now = program.group, self.scheduler.now
        key = row.attributes.get(KINDS[group].get("by", ""))
        if key is not None:
            for other in self.programs.values():
                for hold in other.holds.values() if other.group == group else ():
                    if hold.row.attributes.get("key") == key and hold.until > now:
                        raise WrongError(
                            f"{group}: {key} is with {other.client}, by offset {hold.row.offset}, "
                            f"and with {program.client}, by offset {row.offset}"
                        )
        program.holds[row.lease] = Hold(row, now + row.left)
        self.takes.append(Taken(now, group, row.offset))

    def judge_groups(self, leader: Replica) -> int:
        """What is in the log at the end, when all is done with. Returns how many rows were."""
        rows: dict[int, Attributes] = {}
        state = ShardState()
        dead: dict[tuple[str, int], None] = {}
        selectors: dict[str, list[tuple[int, str]]] = {}  # with the first row that goes by each
        for chunk in chunks_of(self.bytes_of(leader.port.me.id)):
            if chunk.kind == EVENTS:
                rows.update(enumerate((row.attributes for row in rows_of(chunk)), chunk.first))
            if chunk.kind == DEAD:
                for one in entries_of(chunk):
                    assert isinstance(one, DeadRow)
                    if one.offset in state.groups.groups[one.group].done:
                        raise WrongError(f"{one.group} is done with {one.offset}, which dies")
                    dead[one.group, one.offset] = None
            for one in entries_of(chunk) if chunk.kind in (POSITIONS, STATE) else ():
                if isinstance(one, GroupFounded):
                    selectors.setdefault(one.name, [(0, one.options.selector)])
                elif isinstance(one, GroupKnown):  # where the log's beginning is no longer kept
                    ends = [former.below for former in one.former]
                    texts = [*(former.selector for former in one.former), one.options.selector]
                    selectors.setdefault(one.name, list(zip([0, *ends], texts, strict=True)))
                elif isinstance(one, GroupEdited):
                    selectors[one.group].append((chunk.first, one.options.selector))
            state.apply(chunk)
        for name, options in KINDS.items():
            group = state.groups.groups[name]
            wanted = _matching(rows, selectors[name])
            for taken in self.takes:
                if taken.group == name and taken.offset not in wanted:
                    raise WrongError(f"{name} gets {rows[taken.offset]}, at {taken.offset}")
            for offset in wanted:
                place = (name, offset)
                if offset not in group.done:
                    raise WrongError(f"{name} is not done with {offset}")
                if (place in dead) != (offset in group.dead):
                    raise WrongError(f"{name}: the dead letter {offset} is lost")
                if place not in self.acked and place not in dead:
                    raise WrongError(f"{name}: {offset} is neither acknowledged nor dead")
                if place in self.confirmed and place in dead:
                    raise WrongError(f"{name}: {offset} is acknowledged, and dead")
            if options.get("by"):
                self._judge_order(name, wanted, dead)
        return len(self.confirmed)

    def _judge_order(
        self,
        name: str,
        rows: Mapping[int, Attributes],
        dead: Mapping[tuple[str, int], None],
    ) -> None:
        by_key: dict[Any, list[int]] = {}
        for offset, row in sorted(rows.items()):
            if row.get("key") is not None:
                by_key.setdefault(row["key"], []).append(offset)
        for taken in self.takes:
            if taken.group != name or (key := rows[taken.offset].get("key")) is None:
                continue
            for before in by_key[key]:
                if before >= taken.offset:
                    break
                said = self.acked.get((name, before), float("inf"))
                if said > taken.at and (name, before) not in dead:
                    raise WrongError(f"{name}: {taken.offset} of {key} comes before {before}")


def _matching(
    rows: Mapping[int, Attributes], selectors: list[tuple[int, str]]
) -> dict[int, Attributes]:
    """The rows that a group is to get: `selectors` with the first row that goes by each."""
    found = {}
    for offset, row in sorted(rows.items()):
        selector = [text for first, text in selectors if first <= offset][-1]
        if SELECTORS[selector](row):
            found[offset] = row
    return found


def trial_of_groups(seed: int, rounds: int = 30, edits: float = 0.0) -> MembershipWorld:
    """A world with nine programs in four groups through faults, and judged. `edits`: with this
    probability an option of a group is changed after each pause. WrongError if a checker fails."""
    with constants(
        (shard_log, "SEGMENT_BYTES", 4_000),
        (kept_chunks, "RECENT_BYTES", 3_000),
        (shard_members, "FRESH", 1.0),
        (shard_members, "ROUND", 0.3),
    ):
        rng, operator = Random(seed), Random(f"operator {seed}")
        world = MembershipWorld(seed)
        names = [peer.id for peer in world.peers]
        for client, group in enumerate([*KINDS, *KINDS, "keyed"], 1):
            world.add(client, rng.choice(names), group, rng.choice(("", f"{group} worker")))
        world.run(0.1)
        world.elect()
        world.run(0.5)
        for _ in range(rounds):
            world.cause_trouble(1, damaged=0)
            for _ in range(rng.randrange(12)):
                world.work()
                world.run(rng.choice((0.02, 0.1, 0.3)))
                if operator.random() < edits:
                    world.edit(operator)
            if rng.random() < 0.2:
                world.jumps[rng.choice(names)] = rng.choice((-3_600.0, 0.0, 5.0, 3_600.0))
        world.jumps.clear()
        world.judge(settle(world))
    return world


PATIENT: Final = 600
"""Rounds for the groups to come to the end of the log: rows of one key follow on each other, each
of them after its repeats."""


def settle(world: MembershipWorld) -> Replica:
    """All faults end, and the groups come to the end of the log, or are found wrong."""
    leader = world.heal()
    world.is_ending = True
    for _ in range(PATIENT):
        world.work()
        world.run(0.25)
        groups = leader.state.groups.groups.values()
        end = leader.log.next_offset
        if len(groups) == len(KINDS) and all(group.done.floor == end for group in groups):
            break
    world.run(1.0)
    world.judge_groups(leader)
    return leader
