"""A shard's replicas with their read servers, in virtual time with faults: readings by hand,
programs that read through their nodes, and an oracle for what is read.

4. What a reading delivers is its selector over the committed log: no gap, no repeat, nothing that
   is not committed; a position never passes a row that matches and was not delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from random import Random
from types import ModuleType
from typing import Any

from canopy.wire.transport.codec import WireCodec, collect
from harness.logs import SHARD, EventBatch, WrongError, chunks_of
from overlay.client import (
    BeginReading,
    CommitReading,
    Done,
    EventsTaken,
    Failed,
    PackedEvents,
    ReadingReady,
    StreamEvent,
    TakeEvents,
)
from overlay.machine import Peer
from streams.access import attachments
from streams.log import shard_log
from streams.log.batches import BatchHead, Row, decode_rows, rows_of
from streams.log.chunk import EVENTS
from streams.programs.producer import messages as producing
from streams.programs.reader import messages as consuming
from streams.programs.reader import readers
from streams.programs.reader.cursor import Shared
from streams.programs.reader.messages import (
    Durable,
    KeepReadings,
    Piece,
    ReadFrom,
    ReadingBegan,
    ReadingsScanned,
    ReadShard,
    SharedRows,
    StreamRows,
    cost,
)
from streams.programs.reader.readers import Readers
from streams.services.read import shard_readings
from streams.services.read.shard_readings import ReadServer
from streams.services.table import ShardTable
from streams.shard import kept_chunks
from streams.shard import messages as replication
from streams.shard.replica import Replica
from tests.support.shards.producing_world import STREAM, ProducingWorld, WorldLocator
from tests.support.shards.shard_world import constants

Attributes = Mapping[str, Any]

SELECTORS: dict[str, Callable[[Attributes], bool]] = {
    "": lambda row: True,
    "n >= 0": lambda row: True,
    "k = 3": lambda row: _is_number(row.get("k")) and row["k"] == 3,
    "k = 'three'": lambda row: row.get("k") == "three",
    "k IS NULL": lambda row: row.get("k") is None,
    "k < 2 OR flag = TRUE": lambda row: (
        (_is_number(row.get("k")) and row["k"] < 2) or row.get("flag") is True
    ),
    "n < 0": lambda row: False,
}
"""Selectors, and what they mean, in Python."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Client:
    """One reading, opened by hand at a node that leads, and checked as it comes."""

    def __init__(self, world: ConsumingWorld, node: Peer, number: int, selector: str = "") -> None:
        self.world, self.node, self.number, self.selector = world, node, number, selector
        self.position = -1
        self.attachment = 0
        self.rows: dict[int, Row] = {}
        self.messages: list[Any] = []
        self.granted = 0
        self.shares = number % 2 > 0  # else as a node from before there were shared rows

    def open(
        self,
        leader: Peer,
        start: ReadFrom,
        credit: int = 1 << 20,
        durable: Durable | None = None,
    ) -> None:
        self.granted = credit
        self.world.clients[self.node.id, self.number] = self
        asked = ReadShard(
            SHARD, self.number, start, self.selector, credit, durable, shares=self.shares
        )
        self.world.send(self.node, leader, asked)

    def grant(self, leader: Peer, more: int) -> None:
        self.granted += more
        kept = KeepReadings(SHARD, ((self.number, self.granted),))
        self.world.send(self.node, leader, kept)

    def take(self, message: Any) -> None:
        if isinstance(message, SharedRows):
            self._take_shared(message)
            return
        self.messages.append(message)
        if isinstance(message, ReadingBegan):
            self.position, self.attachment = message.position, message.attachment
        elif isinstance(message, StreamRows):
            self._move(dict(message.readings)[self.number], message.position)
            for piece in message.pieces:
                for offset, row in rows_of_piece(piece).items():
                    if offset in self.rows or offset < max(self.rows, default=-1):
                        raise WrongError(f"offset {offset} came again, or late")
                    if offset >= message.position:
                        raise WrongError(f"offset {offset} is beyond the position")
                    self.rows[offset] = row
        elif isinstance(message, ReadingsScanned):
            for number, since, position in message.marks:
                if number == self.number:
                    self._move(since, position)

    def _take_shared(self, message: SharedRows) -> None:
        if not self.shares:
            raise WrongError("shared rows were not asked for")
        mine = [each for each in message.shares if self.number in dict(each.readings)]
        if len(mine) != 1:
            raise WrongError(f"{len(mine)} shares of one message are for the same reading")
        pieces = Shared(message).pieces(mine[0].rows)
        self.take(StreamRows(message.shard, mine[0].readings, message.position, pieces))

    def _move(self, since: int, position: int) -> None:
        if since != self.position or position < since:
            raise WrongError(f"from {self.position} to {since}, {position}")
        self.position = position

    def spent(self) -> int:
        pieces = [p for m in self.messages if isinstance(m, StreamRows) for p in m.pieces]
        return sum(map(cost, pieces))


def rows_of_piece(piece: Piece) -> dict[int, Row]:
    rows = decode_rows(piece.rows, piece.count)
    places = (0, *piece.places) if piece.places else range(piece.count)
    return {piece.first + at: row for at, row in zip(places, rows, strict=True)}


class ConsumingWorld(ProducingWorld):
    """Every node serves readers where it leads; rows have attributes of mixed types, or none."""

    codec = WireCodec(list(collect([replication, producing, consuming]).values()))

    def __init__(self, seed: int, nodes: int = 3, replicas: int = 3) -> None:
        self.readers: dict[str, ReadServer] = {}
        self.clients: dict[tuple[str, int], Client] = {}
        super().__init__(seed, nodes, replicas)

    def boot(self, node: str) -> None:
        self.readers[node] = ReadServer(
            self.leaderships(node), lambda shard: self.led(node), lambda shard: self.table(node)
        )
        super().boot(node)
        self.readers[node].start()

    def table(self, node: str) -> ShardTable | None:
        """The newest rows at a leader, where the stream has a key."""
        return None

    def machines(self, node: str) -> list[Any]:
        return [*super().machines(node), self.readers[node]]

    def batch(self, node: str, rows: int) -> EventBatch:
        made = []
        for place in range(rows):
            attributes: dict[str, Any] = {"n": self._appends + place}
            attributes["flag"] = self.rng.random() < 0.2
            if (k := self.rng.choice((None, 1, 3, 3.5, "three", True, "absent"))) != "absent":
                attributes["k"] = k
            made.append(Row(attributes, b"x" * self.rng.randrange(60)))
        return EventBatch(BatchHead(node, self._appends, 0, rows), tuple(made))

    def _arrived(self, way: tuple[str, str], sender: Peer, message: Any) -> None:
        if way not in self.cut and way[1] in self.alive:
            for number in _readings_of(message):
                if client := self.clients.get((way[1], number)):
                    client.take(message)
        super()._arrived(way, sender, message)

    # -- the oracle ------------------------------------------------------------------------------

    def log_rows(self, node: str) -> dict[int, Attributes]:
        """All rows of a node's log on disk, by offset."""
        found: dict[int, Attributes] = {}
        for chunk in chunks_of(self.bytes_of(node)):
            if chunk.kind == EVENTS:
                rows = enumerate(rows_of(chunk), chunk.first)
                found.update({offset: row.attributes for offset, row in rows})
        return found

    def judge_reading(self, client: Client, leader: Peer, start: int) -> None:
        """Checker 4 for a reading that began at `start`."""
        log = self.log_rows(leader.id)
        wanted = SELECTORS[client.selector]
        expected = {
            offset: attributes
            for offset, attributes in log.items()
            if start <= offset < client.position and wanted(attributes)
        }
        found = {offset: row.attributes for offset, row in client.rows.items()}
        if found != expected:
            missing = sorted(set(expected) - set(found))
            surplus = sorted(set(found) - set(expected))
            raise WrongError(f"{client.selector!r}: missing {missing}, surplus {surplus}")


def _readings_of(message: Any) -> list[int]:
    if isinstance(message, StreamRows):
        return [number for number, _ in message.readings]
    if isinstance(message, SharedRows):
        return [number for each in message.shares for number, _ in each.readings]
    if isinstance(message, ReadingsScanned):
        return [number for number, _, _ in message.marks]
    return [message.reading] if hasattr(message, "reading") else []


def led_world(
    nodes: int = 4, replicas: int = 3, seed: int = 1
) -> tuple[ConsumingWorld, Peer, Replica]:
    """A world whose first node leads; the last node has no replica."""
    world = ConsumingWorld(seed, nodes, replicas)
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    return world, world.peers[0], world.alive[world.peers[0].id]


def unpacked(packed: PackedEvents) -> Iterator[StreamEvent]:
    """The events one by one."""
    places = (0, *packed.places) if packed.places else range(packed.count)
    rows = decode_rows(packed.rows, packed.count)
    for place, row in zip(places, rows, strict=True):
        yield StreamEvent(packed.shard, packed.first + place, packed.time / 1e9, row.attributes)


class Life:
    """What a program was given between two beginnings."""

    def __init__(self, start: int) -> None:
        self.start = self.position = start
        self.rows: dict[int, Any] = {}


class AskingProgram:
    """Asks the readers of its node."""

    def __init__(self, world: ReadingWorld, client: int, node: str, selector: str) -> None:
        self.world, self.client, self.node, self.selector = world, client, node, selector
        self.request = 0
        self.reading = 0  # request of its BeginReading; 0: it has none
        self.is_ready = self.takes = False
        self.failures: list[str] = []

    def ask(self, command: type[Any], *arguments: Any, **more: Any) -> int:
        self.request += 1
        machine = self.world.machines_of_programs[self.node]
        if self.node in self.world.alive:
            machine.commands()[command](self.client, command(self.request, *arguments, **more))
        return self.request


class ReadingProgram(AskingProgram):
    """Reads through one node, and checks what comes. After a crash of its node it begins again at
    its position; a durable one with its token, or as another program at what was committed."""

    def __init__(
        self, world: ReadingWorld, client: int, node: str, selector: str, durable: str
    ) -> None:
        super().__init__(world, client, node, selector)
        self.durable = durable
        self.packed = not durable and client % 2 == 0
        self.lives: list[Life] = []
        self.resumes = False
        self.token = ""
        self.commits: dict[int, int] = {}

    def begin(self) -> None:
        self.is_ready = self.takes = False
        self.commits.clear()
        positions = ((0, self.lives[-1].position),) if self.lives else ()
        self.resumes = bool(self.lives and self.token) and self.world.rng.random() < 0.5
        if self.durable and not self.resumes:
            positions, self.token = (), f"token {self.client} {self.request}"
        number = self.request + 1
        self.reading = number
        self.ask(
            *(BeginReading, STREAM, self.selector, "first", 0, positions),
            *(self.durable, self.token, self.resumes),
            packed=self.packed,
        )

    def work(self) -> None:
        again = self.failures and not self.world.is_ending and self.world.rng.random() < 0.1
        if not self.reading or again:
            self.failures.clear()
            self.begin()
        elif self.is_ready and not self.takes:
            self.takes = True
            self.ask(TakeEvents, self.reading)
        elif self.durable and self.is_ready and self.world.rng.random() < 0.3:
            position = self.lives[-1].position
            wanted = self.world.wanted
            wanted[self.durable] = max(wanted.get(self.durable, 0), position)
            self.commits[self.request + 1] = position
            self.ask(CommitReading, self.reading, ((0, position),))

    def answered(self, reply: Any) -> None:
        if isinstance(reply, ReadingReady):
            if reply.request != self.reading:
                return
            ((start, _),) = reply.shards
            confirmed = self.world.confirmed.get(self.durable, 0)
            if self.durable and not self.resumes:
                if not confirmed <= start <= self.world.wanted.get(self.durable, 0):
                    raise WrongError(f"{self.durable} begins at {start}, committed: {confirmed}")
            elif start != (self.lives[-1].position if self.lives else 0):
                raise WrongError(f"program {self.client} goes on at {start}")
            self.lives.append(Life(start))
            self.is_ready = True
        elif isinstance(reply, EventsTaken):
            self.takes = False
            self._take(self.lives[-1], reply)
        elif isinstance(reply, Done):
            position = self.commits.pop(reply.request)
            confirmed = self.world.confirmed
            confirmed[self.durable] = max(confirmed.get(self.durable, 0), position)
        else:
            assert isinstance(reply, Failed), reply
            self.failures.append(reply.code)
            self.takes = self.is_ready = False
            self.commits.pop(reply.request, None)

    def _take(self, life: Life, taken: EventsTaken) -> None:
        if taken.events if self.packed else taken.packed:
            raise WrongError("rows are packed that should not be, or are not")
        for event in (*taken.events, *chain.from_iterable(map(unpacked, taken.packed))):
            if event.offset < max(life.position, max(life.rows, default=-1) + 1):
                raise WrongError(f"offset {event.offset} came again, or late")
            life.rows[event.offset] = event.attributes
        ((_, position),) = taken.positions
        if position < life.position or position <= max(life.rows, default=-1):
            raise WrongError(f"the position goes from {life.position} to {position}")
        life.position = position


class ReadingWorld(ConsumingWorld):
    """Every node has readers as well, and some of them programs that read."""

    def __init__(self, seed: int, nodes: int = 4, replicas: int = 3) -> None:
        self.machines_of_programs: dict[str, Readers] = {}
        self.programs: dict[int, ReadingProgram] = {}
        self.confirmed: dict[str, int] = {}  # by durable consumer
        self.wanted: dict[str, int] = {}
        self.is_ending = False
        super().__init__(seed, nodes, replicas)

    def boot(self, node: str) -> None:
        port = self.ports[node]
        port.reply = self._replied
        self.machines_of_programs[node] = Readers(port, port.boot, WorldLocator(self, node))
        super().boot(node)
        for program in self.programs.values():
            if program.node == node:
                program.reading = 0

    def machines(self, node: str) -> list[Any]:
        return [*super().machines(node), self.machines_of_programs[node]]

    def crash(self, node: str) -> None:
        was_alive = node in self.alive
        super().crash(node)
        if was_alive and self.rng.random() < 0.5:  # else the others notice by silence
            self.break_links(node)

    def append(self) -> None:
        super().append()
        self.work()

    def add(self, client: int, node: str, selector: str, durable: str = "") -> ReadingProgram:
        program = self.programs[client] = ReadingProgram(self, client, node, selector, durable)
        return program

    def work(self) -> None:
        for program in self.programs.values():
            if program.node in self.alive:
                program.work()

    def judge_programs(self, leader: Replica) -> int:
        """Checker 4 for each life of each program; all are at the end of the log. Returns how many
        rows were delivered."""
        log = self.log_rows(leader.port.me.id)
        end = leader.log.next_offset
        delivered = 0
        for program in self.programs.values():
            wanted = SELECTORS[program.selector]
            for life in program.lives:
                between = range(life.start, life.position)
                expected = {n: log[n] for n in between if n in log and wanted(log[n])}
                if life.rows != expected:
                    missing = sorted(set(expected) - set(life.rows))
                    surplus = sorted(set(life.rows) - set(expected))
                    raise WrongError(
                        f"program {program.client}, {program.selector!r}, from {life.start} to "
                        f"{life.position}: missing {missing}, surplus {surplus}"
                    )
                delivered += len(expected)
            if not program.failures and program.lives[-1].position != end:
                raise WrongError(
                    f"program {program.client} is at {program.lives[-1].position}, not at {end}"
                )
        return delivered


def trial_of_readings(seed: int, rounds: int = 25) -> ReadingWorld:
    """A world with eight programs through faults, and judged. WrongError if a checker fails. In
    every other one few readings at a time are begun, and told how far was scanned, and few rows at
    a time are handed over."""
    changed: list[tuple[ModuleType, str, int]] = [
        (shard_log, "SEGMENT_BYTES", 4_000),
        (kept_chunks, "RECENT_BYTES", 3_000),
    ]
    if seed % 2:
        changed += [
            (readers, "PASSED_MOST", 1),
            (attachments, "OPENING_MOST", 2),
            (shard_readings, "MARKED_MOST", 3),
            (readers, "TAKEN_BYTES", 200),
        ]
    with constants(*changed):
        rng = Random(seed)
        world = ReadingWorld(seed)
        names = [peer.id for peer in world.peers]
        for client, durable in enumerate(("", "", "", "", "a", "b", "both", "both"), 1):
            selector = "k = 3" if durable == "both" else rng.choice(list(SELECTORS))
            world.add(client, rng.choice(names), selector, durable)
        world.run(0.1)
        world.elect()
        world.run(0.5)
        world.cause_trouble(rounds, damaged=1)
        leader = world.heal()
        for place in range(30):
            world.is_ending = place > 10
            world.work()
            world.run(0.5)
        world.judge(leader)
        world.judge_programs(leader)
    return world
