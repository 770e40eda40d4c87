"""A shard's replicas with their read servers, in virtual time, and an oracle for what is read.

4. What a reading delivers is its selector over the committed log: no gap, no repeat, nothing that
   is not committed; a position never passes a row that matches and was not delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from canopy.wire.transport.codec import WireCodec, collect
from overlay.machine import Peer
from streams.log.batches import BatchHead, EventBatch, Row, decode_rows, rows_of
from streams.log.chunk import EVENTS, read
from streams.programs.producer import messages as producing
from streams.programs.reader import messages as consuming
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
from streams.services.read.shard_readings import ReadServer
from streams.services.table import ShardTable
from streams.shard import messages as replication
from streams.shard.replica import Replica
from tests.support.logs import SHARD
from tests.support.shards.producing_world import ProducingWorld
from tests.support.shards.shard_world import WrongError

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
        data, at, found = self.bytes_of(node), 0, {}
        while (chunk := read(data, at)) is not None:
            if chunk.kind == EVENTS:
                rows = enumerate(rows_of(chunk), chunk.first)
                found.update({offset: row.attributes for offset, row in rows})
            at += len(chunk.data)
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
