"""A shard's replicas with their append servers, in virtual time (tests/support/shard_world.py)."""

from __future__ import annotations

from typing import Any

from canopy.wire.transport.codec import WireCodec, collect
from overlay.machine import LocalEvent, Message, Peer, Timer
from streams.log.batches import Row, encode_rows
from streams.producing import messages as producing
from streams.producing.append_server import AppendServer
from streams.producing.messages import (
    AppendRefused,
    AppendRows,
    OpenProducer,
    ProducerIsOpen,
    RowBatch,
    RowsAppended,
)
from streams.replication import messages as replication
from streams.replication.replica import Replica, ShardCommitted
from tests.support.logs import SHARD
from tests.support.shard_world import ShardWorld


def row_batch(number: int, rows: int = 1, size: int = 3) -> RowBatch:
    return RowBatch(rows, encode_rows([Row({"n": number + i}, b"x" * size) for i in range(rows)]))


class ProducingWorld(ShardWorld):
    """Every node serves producers where it leads; `answers` are those to requests of a node that
    no machine has asked."""

    codec = WireCodec(list(collect([replication, producing]).values()))

    def __init__(self, seed: int, nodes: int = 3, replicas: int = 3) -> None:
        self.servers: dict[str, AppendServer] = {}
        self.answers: dict[str, list[Any]] = {}
        super().__init__(seed, nodes, replicas)

    def boot(self, node: str) -> None:
        port = self.ports[node]
        self.servers[node] = AppendServer(
            port,
            lambda shard: self.led(node),
            lambda shard: self.alive.get(node),
            lambda: int(self.scheduler.now * 1e9),
        )
        super().boot(node)
        self.servers[node].start()

    def led(self, node: str) -> Replica | None:
        replica = self.alive.get(node)
        if replica is None or replica.leading is None or not replica.ready:
            return None
        return replica if replica.committed >= replica.leading.first else None

    def machines(self, node: str) -> list[Any]:
        return [self.alive[node], self.servers[node]]

    def handle(self, node: str, event: LocalEvent | Timer) -> None:
        if node in self.alive:
            for machine in self.machines(node):
                handler = machine.handlers().get(type(event))
                if handler is not None:
                    handler(event)

    def _arrived(self, way: tuple[str, str], sender: Peer, message: Message) -> None:
        if way in self.cut or way[1] not in self.alive:
            return
        for machine in self.machines(way[1]):
            handler = machine.handlers().get(type(message))
            if handler is not None:
                handler(sender, message)
                return
        self.answers.setdefault(way[1], []).append(message)

    def committed(self, node: str, number: int) -> None:
        super().committed(node, number)
        boot = self.ports[node].boot
        self.scheduler.after(0.0, self._tell, node, boot, ShardCommitted(SHARD, number))

    def _tell(self, node: str, boot: int, event: ShardCommitted) -> None:
        if node in self.alive and self.ports[node].boot == boot:
            self.servers[node].on_committed(event)

    # -- requests by hand ------------------------------------------------------------------------

    def ask(self, sender: Peer, leader: Peer, *messages: Message) -> list[Any]:
        """Send messages, and return the answers of the next second."""
        for message in messages:
            self.send(sender, leader, message)
        self.run(1.0)
        return self.answers.pop(sender.id, [])

    def opened(self, leader: Peer, producer: str = "p", token: str = "t") -> ProducerIsOpen:
        asked = OpenProducer(SHARD, 0, producer, token, False)
        (answer,) = self.ask(self.peers[-1], leader, asked)
        assert isinstance(answer, ProducerIsOpen)
        return answer

    def appended(
        self, leader: Peer, session: int, sequence: int, *batches: RowBatch, producer: str = "p"
    ) -> RowsAppended | AppendRefused:
        asked = AppendRows(SHARD, 1, producer, session, sequence, batches)
        (answer,) = self.ask(self.peers[-1], leader, asked)
        assert isinstance(answer, RowsAppended | AppendRefused)
        return answer


def led(nodes: int = 4, replicas: int = 3, seed: int = 1) -> tuple[ProducingWorld, Peer, Replica]:
    """A world whose first node leads; the last node has no replica."""
    world = ProducingWorld(seed, nodes, replicas)
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    return world, world.peers[0], world.alive[world.peers[0].id]
