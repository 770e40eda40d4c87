"""A shard's replicas with their group servers, in virtual time, and members by hand."""

from __future__ import annotations

from typing import Any

from canopy.wire.transport.codec import WireCodec, collect
from overlay.machine import LocalEvent, Peer
from streams.log.batches import BatchHead, EventBatch, Row, decode_rows
from streams.programs.group import messages as groups
from streams.programs.group.messages import (
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
from streams.services.group.shard_groups import GroupServer
from streams.shard import messages as replication
from streams.shard.replica import Replica
from tests.support.logs import SHARD
from tests.support.shards.producing_world import ProducingWorld

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
        chunk = leader.leader.append([batch], int(self.scheduler.now * 1e9))
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
