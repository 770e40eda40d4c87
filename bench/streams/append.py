"""How fast a shard's leader takes rows: three replicas in one process, without sockets and disks.

    python -m bench.streams.append                 # batches of 256 rows, and of one
    python -m bench.streams.append --profile       # and what takes the time

Every message goes through the codec, as between nodes; the disks answer at once. So the figures are
the CPU time of the code path of one leader and two followers, in rows a second of one processor.
Prints a JSON list with an object for each size of batch.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections import deque
from random import Random
from typing import Any

from canopy.wire.transport.codec import WireCodec, collect
from overlay.machine import LocalEvent, Message, Peer, Timer
from streams.disk import Opened, Written
from streams.log.batches import Row, encode_rows
from streams.log.recovery import recover
from streams.programs.producer import messages as producing
from streams.programs.producer.messages import AppendRows, OpenProducer, RowBatch
from streams.services.append.appender import AppendServer
from streams.services.service import Leaderships
from streams.shard import messages as replication
from streams.shard.replica import Replica

SHARD = "bench/0"
WINDOW = 64
"""Requests under way."""


class InstantDisk:
    """Takes everything, keeps nothing, and answers when it is asked."""

    def __init__(self) -> None:
        self.ticket = 0
        self.answers: deque[LocalEvent] = deque()
        self.bytes = 0

    def open(self, shard: str) -> int:
        self.ticket += 1
        found = recover(shard, [], lambda name: b"")
        self.answers.append(Opened(shard, self.ticket, found, None, False))
        return self.ticket

    def write(self, shard: str, segment: str, at: int, data: bytes) -> int:
        self.bytes += len(data)
        return self.put(shard, data)

    def put(self, shard: str, data: bytes) -> int:
        self.ticket += 1
        self.answers.append(Written(shard, self.ticket))
        return self.ticket

    def drop(self, shard: str, segment: str) -> int:
        return self.put(shard, b"")

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


class Node:
    """A port, a replica and an append server."""

    def __init__(self, world: World, me: Peer, founders: tuple[Peer, ...]) -> None:
        self.world, self.me, self.rng, self.now, self.processors = world, me, Random(0), 0.0, 1
        self.disk: Any = InstantDisk()
        port: Any = self
        self.replica = Replica(port, self.disk, SHARD, founders)
        self.leaderships = Leaderships(port, lambda shard: self.replica, time.time_ns)
        self.server = AppendServer(self.leaderships, self._led)
        self.handlers: dict[Any, list[Any]] = {}
        for machine in (self.replica, self.leaderships, self.server):
            for kind, handler in machine.handlers().items():
                self.handlers.setdefault(kind, []).append(handler)
        self.events: deque[LocalEvent] = deque()
        self.due: dict[Timer, None] = {}
        self.out: dict[str, list[Message]] = {}
        self.answers: list[Message] = []

    def _led(self, shard: str) -> Replica | None:
        leading = self.replica.leader
        served = leading is not None and self.replica.committed >= leading.first
        return self.replica if served else None

    def send(self, peer: Peer, message: Message) -> None:
        self.out.setdefault(peer.id, []).append(message)

    def set_timer(self, delay: float, timer: Timer) -> None:
        if not delay:
            self.due[timer] = None

    def emit(self, event: LocalEvent) -> None:
        self.events.append(event)

    def count(self, name: str, amount: int = 1) -> None:
        pass

    def turn(self, sender: Peer | None = None, body: bytes = b"") -> None:
        """Handle what came, then all that follows, and send the answers in one batch each."""
        if sender is not None:
            for message in self.world.codec.decode(body):
                if type(message) in self.handlers:
                    self.handlers[type(message)][0](sender, message)
                else:
                    self.answers.append(message)
        while self.events or self.due or self.disk.answers:
            for queue in (self.events, self.disk.answers):
                while queue:
                    event = queue.popleft()
                    for handler in self.handlers.get(type(event), ()):
                        handler(event)
            due, self.due = self.due, {}
            for timer in due:
                self.handlers[type(timer)][0](timer)
        out, self.out = self.out, {}
        for node, messages in out.items():
            self.world.frames.append((self.me, node, self.world.codec.encode(messages)))


class World:
    """Three replicas, and a producer at a fourth node."""

    def __init__(self) -> None:
        self.codec = WireCodec(list(collect([replication, producing]).values()))
        self.frames: deque[tuple[Peer, str, bytes]] = deque()
        peers = tuple(Peer(f"{n:016x}", f"n{n}") for n in range(4))
        self.nodes = {peer.id: Node(self, peer, peers[:3]) for peer in peers}
        self.leader, self.producer = self.nodes[peers[0].id], self.nodes[peers[3].id]
        for node in self.nodes.values():
            node.replica.start()
            node.turn()
        self.leader.replica.lead(1)
        self.settle(self.leader)

    def settle(self, *nodes: Node) -> None:
        """Deliver frames until there are no more."""
        for node in nodes:
            node.turn()
        while self.frames:
            sender, node_id, body = self.frames.popleft()
            self.nodes[node_id].turn(sender, body)


def row(rng: Random, number: int) -> Row:
    """As an earthquake in the feeds: ten attributes, 160 bytes."""
    attributes: dict[str, Any] = {
        "id": f"e{number}",
        "type": "quake",
        "mag": rng.random() * 9,
        "depth": rng.random() * 600,
        "place": rng.choice("abcdefgh") * 12,
        "latitude": rng.random() * 90,
        "longitude": rng.random() * 180,
        "time": 1_700_000_000 + number,
        "net": rng.choice(["us", "ci", "nc"]),
        "sig": rng.randrange(1_000),
    }
    return Row(attributes, b"x" * 40)


def measure(size: int, rows: int, profile: bool) -> dict[str, object]:
    """Append `rows` rows in batches of `size`; the figures."""
    world, rng = World(), Random(1)
    batches = [
        RowBatch(size, encode_rows([row(rng, n * size + i) for i in range(size)]))
        for n in range(min(200, rows // size))
    ]
    world.producer.send(world.leader.me, OpenProducer(SHARD, 0, "p", "t"))
    world.settle(world.producer)
    session = world.producer.answers.pop().session  # type: ignore[attr-defined]
    sequence = done = request = 0
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    began, leader_chunks = time.process_time(), world.leader.replica.log.end.number
    per_turn = WINDOW if size == 1 else 4
    while sequence < rows:
        for _ in range(per_turn):
            one = batches[request % len(batches)]
            request += 1
            append = AppendRows(SHARD, request, "p", session, sequence, (one,))
            world.producer.send(world.leader.me, append)
            sequence += size
        world.settle(world.producer)
        done += len(world.producer.answers)
        world.producer.answers.clear()
    seconds = time.process_time() - began
    if profile:
        profiler.disable()
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(25)
    assert done == request, f"{done} of {request} answered"
    return {
        "batch": size,
        "rows": sequence,
        "cpu_seconds": round(seconds, 3),
        "rows_per_cpu_second": round(sequence / seconds),
        "chunks": world.leader.replica.log.end.number - leader_chunks,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=200_000, help="in batches of 256")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    sizes = ((256, arguments.rows), (1, arguments.rows // 10))
    print(json.dumps([measure(size, rows, arguments.profile) for size, rows in sizes]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
