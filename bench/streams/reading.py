"""How fast a shard's leader hands out rows: its path alone, without sockets and disks.

    python -m bench.streams.reading                 # all workloads
    python -m bench.streams.reading --profile       # and what takes the time

One leader in one process, whose log is in memory as a disk would answer; the last 4 MiB are kept by
the replica itself, everything before is read. Every message is encoded. So the figures are the
leader's processor time, in rows that were looked at in a second of one processor:

* `history, all rows`: a reader without a selector, from the first row on.
* `history, clustered`: one row in a million matches, and matching values stand together, so that
  zone maps exclude nearly all chunks. `history, scattered`: a selector which zone maps cannot
  exclude anywhere, and that one row in a million matches.
* `tail`: rows are appended while many readers with selectors of their own read at the end; each row
  matches two of them, or one row in a hundred does. The appending itself is not counted.

Prints a JSON list with an object for each workload.
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

from canopy.wire.process.machine_load import freeze_heap
from canopy.wire.transport.codec import WireCodec, collect
from matching import compile_selector
from matching.warmup import warm
from overlay.machine import LocalEvent, Message, Peer, Timer
from streams.disk import Opened, ReadDone, Written
from streams.log.batches import BatchHead, EventBatch, Row
from streams.log.recovery import recover
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
from streams.services.read.shard_readings import ReadServer
from streams.services.service import Leaderships
from streams.shard import messages as replication
from streams.shard.replica import Replica

SHARD = "bench/0"
CHUNK_ROWS = 1_000
CREDIT = 64 << 20


class MemoryDisk:
    """Keeps segments in memory, and answers when it is asked."""

    def __init__(self) -> None:
        self.ticket = 0
        self.files: dict[str, bytearray] = {}
        self.answers: deque[LocalEvent] = deque()

    def shards(self) -> list[str]:
        return []

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


class Leader:
    """A port, the shard's only replica and its read server; what it says to readers is decoded."""

    def __init__(self) -> None:
        self.me = Peer("a" * 16, "a")
        self.reader = Peer("b" * 16, "b")
        self.rng, self.now, self.processors = Random(0), 0.0, 1
        self.codec = WireCodec(list(collect([replication, consuming]).values()))
        self.disk = MemoryDisk()
        port: Any = self
        disk: Any = self.disk
        self.replica = Replica(port, disk, SHARD, (self.me,))
        leaderships = Leaderships(port, lambda s: self.replica, time.time_ns)
        self.server = ReadServer(leaderships, lambda s: self.replica)
        self.handlers: dict[Any, list[Any]] = {}
        for machine in (self.replica, leaderships, self.server):
            for kind, handler in machine.handlers().items():
                self.handlers.setdefault(kind, []).append(handler)
        self.events: deque[LocalEvent] = deque()
        self.due: dict[Timer, None] = {}
        self.out: list[Message] = []
        self.rows = self.bytes = 0
        self.position: dict[int, int] = {}
        self.credit: dict[int, int] = {}
        self.replica.start()
        self.run()
        self.replica.lead(1)
        self.run()

    def send(self, peer: Peer, message: Message) -> None:
        if peer.id == self.reader.id:
            self.out.append(message)

    def set_timer(self, delay: float, timer: Timer) -> None:
        if not delay:
            self.due[timer] = None

    def emit(self, event: LocalEvent) -> None:
        self.events.append(event)

    def count(self, name: str, amount: int = 1) -> None:
        pass

    def run(self) -> None:
        """Turns until there is nothing to do."""
        while self.events or self.due or self.disk.answers:
            for queue in (self.disk.answers, self.events):
                while queue:
                    event = queue.popleft()
                    for handler in self.handlers.get(type(event), ()):
                        handler(event)
            due, self.due = self.due, {}
            for timer in due:
                self.handlers[type(timer)][0](timer)
            self.deliver()

    def deliver(self) -> None:
        """What was said in a turn, encoded as for a link, and noted."""
        out, self.out = self.out, []
        for message in out:
            self.codec.encode_one(message)
            if isinstance(message, ReadingBegan):
                self.position[message.reading] = message.position
            elif isinstance(message, StreamRows):
                for number, _ in message.readings:
                    self.position[number] = message.position
                    self.rows += sum(piece.count for piece in message.pieces)
                    self.bytes += sum(len(piece.rows) for piece in message.pieces)
            elif isinstance(message, SharedRows):
                sizes = [len(row) for chunk in message.chunks for row in chunk.rows]
                for share in message.shares:
                    for number, _ in share.readings:
                        self.position[number] = message.position
                        self.rows += len(share.rows)
                        self.bytes += sum([sizes[row] for row in share.rows])
            elif isinstance(message, ReadingsScanned):
                for number, _, position in message.marks:
                    self.position[number] = position

    def read(self, number: int, selector: str, start: str = "first") -> None:
        """Begin a reading with a selector from `start`."""
        self.credit[number] = CREDIT
        begin = ReadShard(
            *(SHARD, number, ReadFrom(start), selector, CREDIT),  # type: ignore[arg-type]
            shares=True,
        )
        self.server.handlers()[ReadShard](self.reader, begin)

    def grant(self, number: int) -> None:
        """Let a reading go on."""
        self.credit[number] += CREDIT
        kept = KeepReadings(SHARD, ((number, self.credit[number]),))
        self.server.handlers()[KeepReadings](self.reader, kept)

    def append(self, rows: list[Row]) -> None:
        """Append rows as one chunk at the leader."""
        assert self.replica.leader is not None
        batch = EventBatch(BatchHead("", 0, 0, len(rows)), tuple(rows))
        self.replica.leader.append([batch], time.time_ns())


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


def history(rows: int, profile: bool) -> list[dict[str, object]]:
    """Read a log of so many rows."""
    found: list[dict[str, object]] = []
    world = Leader()
    for number in range(rows // CHUNK_ROWS):
        world.append(rows_of(number, CHUNK_ROWS, 1_000_000))
        world.run()
    workloads = {
        "history, all rows": "",
        "history, clustered": "id = 500",
        "history, scattered": "code = 'c500000x'",
    }
    for number, (name, selector) in enumerate(workloads.items()):
        world.rows = world.bytes = 0
        compile_selector(selector or "id = 0")  # the parser is made when it is used first

        def read(number: int = number, selector: str = selector) -> None:
            world.read(number, selector)
            world.run()
            while world.position.get(number, 0) < rows and world.rows < rows:
                before = world.rows
                world.grant(number)
                world.run()
                if world.rows == before:
                    break

        seconds = timed(profile, read)
        expected = rows if not selector else -(-rows // 1_000_000)
        assert world.rows == expected, f"{name}: {world.rows} rows, not {expected}"
        found.append(
            {
                "workload": name,
                "readers": 1,
                "scanned": rows,
                "delivered": world.rows,
                "cpu_seconds": round(seconds, 3),
                "rows_per_cpu_second": round(rows / seconds),
            }
        )
    return found


def tail(readers: int, rows: int, one_in: int, profile: bool) -> dict[str, object]:
    """Append rows while so many readers with selectors of their own are at the end; of `one_in`
    rows one matches, two readers each."""
    world = Leader()
    for number in range(readers):
        world.read(number, f"group = {number // 2} AND mag >= 0", "new")
    world.run()
    warm()  # as a node does, in another thread
    freeze_heap()
    seconds = 0.0
    for number in range(rows // CHUNK_ROWS):
        world.append(rows_of(number, CHUNK_ROWS, 1_000_000, readers // 2 * one_in))
        if number == 3:
            seconds, world.rows = 0.0, 0
        seconds += timed(profile and number == 10, world.run)
    counted = rows - 3 * CHUNK_ROWS
    assert abs(world.rows * one_in / counted - 2) < 0.5, world.rows
    return {
        "workload": f"tail, one row in {one_in} matches" if one_in > 1 else "tail",
        "readers": readers,
        "scanned": counted,
        "delivered": world.rows,
        "cpu_seconds": round(seconds, 3),
        "rows_per_cpu_second": round(counted / seconds),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=500_000, help="of the log that is read")
    parser.add_argument("--readers", type=int, default=10_000, help="with selectors, at the end")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    found = history(arguments.rows, arguments.profile)
    for one_in in (1, 100):
        found.append(tail(arguments.readers, arguments.rows // 10, one_in, arguments.profile))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
