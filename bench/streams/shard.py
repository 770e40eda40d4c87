"""How fast a shard's leader takes and hands out rows: its code path alone, without sockets and
disks.

    python -m bench.streams.shard                          # all workloads
    python -m bench.streams.shard --only tail --profile    # and what takes the time

Replicas in one process, whose logs are in memory as disks would answer; of the newest rows a
replica keeps 4 MiB itself. Every message is encoded as between nodes. So the figures are processor
time, in rows a second of one processor:

* `append`: a leader and two followers take batches of 256 rows, or of one.
* `history, all rows`: a reader without a selector, from the first row on.
* `history, clustered`: one row in a million matches, and matching values stand together, so that
  zone maps exclude nearly all chunks. `history, scattered`: a selector which zone maps cannot
  exclude anywhere, and that one row in a million matches.
* `tail`: rows are appended while many readers with selectors of their own read at the end; each row
  matches two of them, or one row in a hundred does. The appending itself is not counted.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from argparse import Namespace
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

from bench.command import parser, show
from canopy.wire.process.machine_load import freeze_heap
from canopy.wire.transport.codec import WireCodec, collect
from harness.logs import EventBatch, append_batches
from matching import compile_selector
from matching.warmup import warm
from overlay.machine import LocalEvent, Message, Peer, Timer
from streams.disk import Opened, ReadDone, Written
from streams.log.batches import BatchHead, Row, encode_rows
from streams.log.recovery import recover
from streams.programs.producer import messages as producing
from streams.programs.producer.messages import AppendRows, OpenProducer, ProducerIsOpen, RowBatch
from streams.programs.reader import messages as consuming
from streams.programs.reader.messages import (
    KeepReadings,
    ReadFrom,
    ReadingBegan,
    ReadingsScanned,
    ReadShard,
    SharedRows,
    StreamRows,
)
from streams.services.append.appender import AppendServer
from streams.services.read.shard_readings import ReadServer
from streams.services.service import Leaderships
from streams.shard import messages as replication
from streams.shard.replica import Replica

SHARD = "bench/0"
CHUNK_ROWS = 1_000
CREDIT = 64 << 20
WINDOW = {256: 4, 1: 64}
"""Requests under way, by the rows of each."""

CODEC = WireCodec(list(collect([replication, producing, consuming]).values()))


class MemoryDisk:
    """Keeps segments in memory, and answers when it is asked."""

    def __init__(self) -> None:
        self.ticket = 0
        self.files: dict[str, bytearray] = {}
        self.answers: deque[LocalEvent] = deque()

    def open(self, shard: str) -> int:
        self.ticket += 1
        found = recover(shard, [], lambda name: b"")
        self.answers.append(Opened(shard, self.ticket, found, None, False))
        return self.ticket

    def write(self, shard: str, segment: str, at: int, data: bytes) -> int:
        self.files.setdefault(segment, bytearray())[at:] = data
        return self.put(shard, data)

    def put(self, shard: str, data: bytes) -> int:
        self.ticket += 1
        self.answers.append(Written(shard, self.ticket))
        return self.ticket

    def read(self, shard: str, segment: str, at: int, size: int) -> int:
        self.ticket += 1
        data = bytes(self.files[segment][at : at + size])
        self.answers.append(ReadDone(shard, self.ticket, data))
        return self.ticket


class Node:
    """A port, a replica, and what serves the shard's programs where it leads."""

    def __init__(self, me: Peer, founders: tuple[Peer, ...]) -> None:
        self.me, self.rng, self.now, self.processors = me, Random(0), 0.0, 1
        self.disk = MemoryDisk()
        port: Any = self
        disk: Any = self.disk
        self.replica = Replica(port, disk, SHARD, founders)
        leaderships = Leaderships(port, lambda shard: self.replica, time.time_ns)
        self.reads = ReadServer(leaderships, lambda shard: self.replica)
        appends = AppendServer(leaderships, self._led)
        self.handlers: dict[Any, list[Any]] = {}
        for machine in (self.replica, leaderships, appends, self.reads):
            for kind, handler in machine.handlers().items():
                self.handlers.setdefault(kind, []).append(handler)
        self.events: deque[LocalEvent] = deque()
        self.due: dict[Timer, None] = {}
        self.out: dict[str, list[Message]] = {}
        self.replica.start()

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

    def take(self, sender: Peer, body: bytes) -> None:
        """Handle a batch of messages."""
        for message in CODEC.decode(body):
            self.handlers[type(message)][0](sender, message)

    def turn(self) -> bool:
        """Handle what the disk has answered, what was emitted, and timers; False: nothing."""
        if not (self.events or self.due or self.disk.answers):
            return False
        for queue in (self.disk.answers, self.events):
            while queue:
                event = queue.popleft()
                for handler in self.handlers.get(type(event), ()):
                    handler(event)
        due, self.due = self.due, {}
        for timer in due:
            self.handlers[type(timer)][0](timer)
        return True


class World:
    """Some replicas, of which the first leads, and a program at another node."""

    def __init__(self, replicas: int) -> None:
        *peers, self.program = (Peer(f"{n:016x}", f"n{n}") for n in range(replicas + 1))
        self.nodes = {peer.id: Node(peer, tuple(peers)) for peer in peers}
        self.leader = self.nodes[peers[0].id]
        self.answers: list[Message] = []
        """What the program was told."""
        self.settle()
        self.leader.replica.lead(1)
        self.settle()

    def settle(self, *messages: Message) -> None:
        """Send the program's messages to the leader, and run until there is nothing to do."""
        if messages:
            self.leader.take(self.program, CODEC.encode(messages))
        goes_on = True
        while goes_on:
            turned = [node.turn() for node in self.nodes.values()]
            goes_on = self._deliver() or any(turned)

    def _deliver(self) -> bool:
        """Deliver what nodes have said; False: nothing."""
        sent = [(node, *one) for node in self.nodes.values() for one in node.out.items()]
        for node in self.nodes.values():
            node.out = {}
        for node, to, told in sent:
            if to == self.program.id:
                for message in told:
                    CODEC.encode_one(message)
                    self.told(message)
            else:
                self.nodes[to].take(node.me, CODEC.encode(told))
        return bool(sent)

    def told(self, message: Message) -> None:
        """The program is told something."""
        self.answers.append(message)


def timed(profile: bool, work: Any) -> float:
    """Seconds of processor time of `work()`."""
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    began = time.process_time()
    work()
    seconds = time.process_time() - began
    if profile:
        profiler.disable()
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(15)
    return seconds


def rated(workload: str, rows: int, seconds: float, **more: object) -> dict[str, object]:
    """A row of the result: `rows` are those that were looked at."""
    figures = {"cpu_seconds": round(seconds, 3), "rows_per_cpu_second": round(rows / seconds)}
    return {"workload": workload, "rows": rows, **more, **figures}


def quake(rng: Random, number: int) -> Row:
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


def append(options: Namespace) -> Iterator[dict[str, object]]:
    """Append rows in batches of 256, and single ones."""
    for size, rows in ((256, options.rows // 2), (1, options.rows // 20)):
        world, rng = World(3), Random(1)
        batches = [
            RowBatch(size, encode_rows([quake(rng, n * size + i) for i in range(size)]))
            for n in range(200)
        ]
        world.settle(OpenProducer(SHARD, 0, "p", "t"))
        (opened,) = world.answers
        assert isinstance(opened, ProducerIsOpen)
        first = world.leader.replica.log.end.number
        sent = [
            AppendRows(SHARD, n + 1, "p", opened.session, n * size, (batches[n % len(batches)],))
            for n in range(-(-rows // size))
        ]
        seconds = timed(options.profile, partial(exchange, world, sent, WINDOW[size]))
        chunks = world.leader.replica.log.end.number - first
        yield rated(f"append, {size} rows a batch", len(sent) * size, seconds, chunks=chunks)


def exchange(world: World, requests: Sequence[Message], together: int) -> None:
    """Send requests, so many at a time, each of which is answered."""
    for begin in range(0, len(requests), together):
        some = requests[begin : begin + together]
        world.answers.clear()
        world.settle(*some)
        assert len(world.answers) == len(some), world.answers


class Reading(World):
    """The only replica, and readers; what it says to them is encoded and noted."""

    def __init__(self) -> None:
        self.rows = 0
        self.position: dict[int, int] = {}
        self.credit: dict[int, int] = {}
        super().__init__(1)

    def told(self, message: Message) -> None:
        if isinstance(message, ReadingBegan):
            self.position[message.reading] = message.position
        elif isinstance(message, StreamRows):
            for number, _ in message.readings:
                self.position[number] = message.position
                self.rows += sum(piece.count for piece in message.pieces)
        elif isinstance(message, SharedRows):
            for share in message.shares:
                for number, _ in share.readings:
                    self.position[number] = message.position
                    self.rows += len(share.rows)
        elif isinstance(message, ReadingsScanned):
            for number, _, position in message.marks:
                self.position[number] = position

    def read(self, number: int, selector: str, start: Any = "first") -> None:
        """Begin a reading with a selector from `start`."""
        self.credit[number] = CREDIT
        begin = ReadShard(SHARD, number, ReadFrom(start), selector, CREDIT, shares=True)
        self.leader.reads.handlers()[ReadShard](self.program, begin)

    def grant(self, number: int) -> None:
        """Let a reading go on."""
        self.credit[number] += CREDIT
        kept = KeepReadings(SHARD, ((number, self.credit[number]),))
        self.leader.reads.handlers()[KeepReadings](self.program, kept)

    def append(self, rows: list[Row]) -> None:
        """Append rows as one chunk at the leader."""
        assert self.leader.replica.leader is not None
        batch = EventBatch(BatchHead("", 0, 0, len(rows)), tuple(rows))
        append_batches(self.leader.replica.leader, [batch], time.time_ns())


def rows_of(number: int, count: int, million: int, groups: int = 5_000) -> list[Row]:
    """Rows of eight attributes and 40 opaque bytes. `day` rises from chunk to chunk; `code` is one
    of a million texts at random; of `million` rows one has the code that is looked for."""
    rng = Random(number)
    first = number * count
    return [
        Row(
            {
                "id": n,
                "day": n // million,
                "code": f"c{rng.randrange(1_000_000):06d}" if n % million else "c500000x",
                "region": rng.choice("abcdefgh"),
                "mag": rng.random() * 9,
                "depth": rng.random() * 600,
                "place": rng.choice("abcdefgh") * 12,
                "group": rng.randrange(groups),
            },
            b"x" * 40,
        )
        for n in range(first, first + count)
    ]


def history(options: Namespace) -> Iterator[dict[str, object]]:
    """Read a log of so many rows."""
    world, rows = Reading(), options.rows
    for number in range(rows // CHUNK_ROWS):
        world.append(rows_of(number, CHUNK_ROWS, 1_000_000))
        world.settle()
    workloads = {
        "history, all rows": "",
        "history, clustered": "id = 500",
        "history, scattered": "code = 'c500000x'",
    }
    for number, (name, selector) in enumerate(workloads.items()):
        world.rows = 0
        compile_selector(selector or "id = 0")  # the parser is made when it is used first

        def read(number: int = number, selector: str = selector) -> None:
            world.read(number, selector)
            world.settle()
            while world.position.get(number, 0) < rows and world.rows < rows:
                before = world.rows
                world.grant(number)
                world.settle()
                if world.rows == before:
                    break

        seconds = timed(options.profile, read)
        expected = rows if not selector else -(-rows // 1_000_000)
        assert world.rows == expected, f"{name}: {world.rows} rows, not {expected}"
        yield rated(name, rows, seconds, readers=1, delivered=world.rows)


def tail(options: Namespace) -> Iterator[dict[str, object]]:
    """Append rows while readers with selectors of their own are at the end; each row, or one in a
    hundred, matches two of them."""
    for one_in in (1, 100):
        world, readers, rows = Reading(), options.readers, options.rows // 10
        for number in range(readers):
            world.read(number, f"group = {number // 2} AND mag >= 0", "new")
        world.settle()
        warm()  # as a node does, in another thread
        freeze_heap()
        seconds = 0.0
        for number in range(rows // CHUNK_ROWS):
            world.append(rows_of(number, CHUNK_ROWS, 1_000_000, readers // 2 * one_in))
            if number == 3:
                seconds, world.rows = 0.0, 0
            seconds += timed(options.profile and number == 10, world.settle)
        counted = rows - 3 * CHUNK_ROWS
        assert abs(world.rows * one_in / counted - 2) < 0.5, world.rows
        name = f"tail, one row in {one_in} matches" if one_in > 1 else "tail"
        yield rated(name, counted, seconds, readers=readers, delivered=world.rows)


WORKLOADS = {"append": append, "history": history, "tail": tail}


def main() -> int:
    """Run the command `python -m bench.streams.shard`."""
    asked = parser(
        __doc__,
        rows=(500_000, "of the log that is read"),
        readers=(10_000, "with selectors, at the end"),
        profile=(False, "print what takes the time"),
    )
    asked.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    options = asked.parse_args()
    show([row for name in options.only for row in WORKLOADS[name](options)], options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
