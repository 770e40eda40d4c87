"""Many consumers of one stream, each of which wants one row in ten thousand, by its content.

    python -m bench.streams.content --json
    python -m bench.streams.content --only canopy --consumers 1000

Rows have an attribute `key` with one of `--consumers` (10,000) values, and each consumer wants one
value, so that each row is wanted by one. A program appends batches of 256 rows, four under way, and
another thread or task of it takes what consumers get. Measured from the first row until every row
was at its consumer: rows a second, and processor seconds of the servers and the program per million
rows (consumers and their servers are started before).

* `canopy`: three nodes; consumers read at another node than the program appends at. `where`:
  selectors, at the leader of the stream.
* `jetstream, subjects`: three servers, `sync_interval: always`; the key is part of the subject, and
  each consumer filters by it: content that the publisher has put into the subject, and nothing else
  of the row.
* `jetstream` and `rabbitmq, stream`: whatever else is to be filtered is filtered by the consumers,
  each of which is sent every row. So there are only `--few` (16) of them: what they cost grows with
  their number, and 10,000 would be sent 10,000 times the rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import msgspec
import psutil

from bench.streams.contestants.canopy_stream import CanopyStream
from bench.streams.contestants.contestant import PAYLOAD
from bench.streams.contestants.jetstream import JetStream
from bench.streams.contestants.rabbitmq import RabbitMQ
from bench.streams.peers import absent
from canopy.client.locating import find_socket
from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from overlay.client import (
    BeginReading,
    Draft,
    EventsTaken,
    ReadingReady,
    Reply,
    TakeEvents,
)

BATCH: Final = 256
AHEAD: Final = 4
READINGS: Final = 500
"""Of one connection."""

PATIENCE: Final = 120.0


class Run(Protocol):
    """A contestant with its consumers."""

    where: str
    """Where a row is compared with what a consumer wants."""

    def processes(self) -> list[psutil.Process]:
        """The servers."""

    def run(self, seconds: float) -> int:
        """Append for so long, and wait until all is there; returns the rows."""


def keyed(count: int, keys: int) -> list[Draft]:
    """Rows of five attributes, one of them a key."""
    rng = Random(2)
    return [
        Draft(
            {
                "id": f"e{n}",
                "key": f"k{rng.randrange(keys)}",
                "value": rng.random(),
                "level": n % 7,
            },
            b"x" * PAYLOAD,
        )
        for n in range(count)
    ]


class Connection:
    """Readings of one connection to a node."""

    def __init__(self, where: Path, keys: Sequence[int]) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(where))
        self.reader = FrameReader(REPLY_FRAMES)
        self.readings: dict[int, int] = {}  # by the request that takes from it: the reading
        self.number = len(keys)
        self.rows = 0
        begins = [BeginReading(n + 1, "bench", f"key = 'k{key}'") for n, key in enumerate(keys)]
        self.socket.sendall(b"".join(map(COMMAND_FRAMES.encode, begins)))
        ready: list[int] = []
        while len(ready) < len(keys):
            for reply in self.replies():
                assert isinstance(reply, ReadingReady), reply
                ready.append(reply.request)
        self.take(ready)

    def replies(self) -> list[Reply]:
        """Those of one read."""
        data = self.socket.recv(1 << 18)
        assert data, "the node has ended the connection"
        found = self.reader.feed(data)
        assert self.reader.error is None, self.reader.error
        return found

    def take(self, readings: Sequence[int]) -> None:
        """Ask for what comes for these."""
        asked = []
        for reading in readings:
            self.number += 1
            self.readings[self.number] = reading
            asked.append(COMMAND_FRAMES.encode(TakeEvents(self.number, reading)))
        self.socket.sendall(b"".join(asked))

    def on_readable(self) -> None:
        """Count what has come, and ask for more."""
        again = []
        for reply in self.replies():
            assert isinstance(reply, EventsTaken), reply
            self.rows += len(reply.events)
            again.append(self.readings.pop(reply.request))
        self.take(again)


class Canopy(CanopyStream):
    """Selectors at the leader."""

    where = "leader"

    def __init__(self, folder: Path, stack: ExitStack, consumers: int) -> None:
        super().__init__(folder, stack)
        self.rows = keyed(4_096, consumers)
        data = find_socket(self.overlay.nodes[1].data)
        self.connections = [
            Connection(data, range(first, min(first + READINGS, consumers)))
            for first in range(0, consumers, READINGS)
        ]
        self.ends = False
        thread = threading.Thread(target=self._read, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(lambda: setattr(self, "ends", True))

    def _read(self) -> None:
        with selectors.DefaultSelector() as waiting:
            for each in self.connections:
                waiting.register(each.socket, selectors.EVENT_READ, each)
            while not self.ends:
                for key, _ in waiting.select(0.2):
                    key.data.on_readable()

    @property
    def delivered(self) -> int:
        """Rows that consumers have got."""
        return sum(each.rows for each in self.connections)

    def run(self, seconds: float) -> int:
        """Append, and wait."""
        before = self.delivered
        done = self.append(BATCH, AHEAD, seconds)
        until = time.monotonic() + PATIENCE
        while self.delivered < before + done:
            assert time.monotonic() < until, f"{self.delivered - before} of {done}"
            time.sleep(0.005)
        return done


class Subjects(JetStream):
    """The key is in the subject, by which servers filter."""

    where = "servers, by subject"

    def __init__(self, folder: Path, stack: ExitStack, consumers: int) -> None:
        super().__init__(folder, stack, "always")
        self.drafts = keyed(4_096, consumers)
        self.rows = [msgspec.msgpack.encode(row) for row in self.drafts]
        self.delivered = 0
        self.loop.run_until_complete(self._consume(consumers))

    async def _consume(self, consumers: int) -> None:
        from nats.js.api import (  # type: ignore[import-not-found, unused-ignore]
            AckPolicy,
            ConsumerConfig,
            DeliverPolicy,
            StreamConfig,
        )

        config = StreamConfig(
            name="content", subjects=["content.*"], num_replicas=3, max_consumers=-1
        )
        await self.stream.add_stream(config)
        await self.client.subscribe("out.*", cb=self._got)
        for first in range(0, consumers, 64):
            made = [
                self.stream.add_consumer(
                    "content",
                    ConsumerConfig(
                        filter_subject=self.filter(key),
                        deliver_subject=f"out.{key}",
                        deliver_policy=DeliverPolicy.NEW,
                        ack_policy=AckPolicy.NONE,
                        inactive_threshold=600.0,
                        mem_storage=True,
                        num_replicas=1,
                    ),
                )
                for key in range(first, min(first + 64, consumers))
            ]
            await asyncio.gather(*made)

    def filter(self, key: int) -> str | None:
        """What a consumer has its server filter by."""
        return f"content.k{key}"

    async def _got(self, message: Any) -> None:
        self.delivered += 1

    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Publish each row."""
        if not hasattr(self, "drafts"):
            return await super().send(place, count)
        found = []
        for n in range(place, place + count):
            n %= len(self.rows)
            subject = f"content.{self.drafts[n].attributes['key']}"
            found.append(await self.stream.publish_async(subject, self.rows[n]))
        return found

    def wanted(self, rows: int) -> int:
        """How many deliveries so many rows are."""
        return rows

    def run(self, seconds: float) -> int:
        """Append, and wait."""
        before = self.delivered
        done = self.append(BATCH, AHEAD, seconds)
        self.loop.run_until_complete(self._until(before + self.wanted(done)))
        return done

    async def _until(self, delivered: int) -> None:
        until = time.monotonic() + PATIENCE
        while self.delivered < delivered:
            assert time.monotonic() < until, f"{delivered - self.delivered} are missing"
            await asyncio.sleep(0.005)


class Everything(Subjects):
    """Each consumer is sent every row, and compares it."""

    where = "consumers"

    def __init__(self, folder: Path, stack: ExitStack, consumers: int) -> None:
        self.consumers = consumers
        self.matched = 0
        super().__init__(folder, stack, consumers)

    def filter(self, key: int) -> str | None:
        """Nothing."""
        return None

    async def _got(self, message: Any) -> None:
        self.delivered += 1
        row = msgspec.msgpack.decode(message.data, type=Draft)
        self.matched += row.attributes["key"] == f"k{message.subject[4:]}"

    def wanted(self, rows: int) -> int:
        """Each row at each consumer."""
        return rows * self.consumers


class RabbitStream(RabbitMQ):
    """Each consumer is sent every row, and compares it."""

    where = "consumers"

    def __init__(self, folder: Path, stack: ExitStack, consumers: int) -> None:
        super().__init__(folder, stack, "stream")
        self.consumers = consumers
        self.rows = [msgspec.msgpack.encode(row) for row in keyed(4_096, consumers)]
        self.delivered = self.matched = 0
        for key in range(consumers):
            self.connection.channel(on_open_callback=self._consumer(f"k{key}"))
        self.loop.run_until_complete(asyncio.sleep(2.0))

    def _consumer(self, key: str) -> Callable[[Any], None]:
        def got(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self.delivered += 1
            self.matched += msgspec.msgpack.decode(body, type=Draft).attributes["key"] == key
            if self.delivered % 100 == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)

        def opened(channel: Any) -> None:
            channel.basic_qos(prefetch_count=5_000)
            channel.basic_consume("bench", got, arguments={"x-stream-offset": "next"})

        return opened

    def run(self, seconds: float) -> int:
        """Append, and wait."""
        before = self.delivered
        done = self.append(BATCH, AHEAD, seconds)
        self.loop.run_until_complete(self._until(before + done * self.consumers))
        return done

    async def _until(self, delivered: int) -> None:
        until = time.monotonic() + PATIENCE
        while self.delivered < delivered:
            assert time.monotonic() < until, f"{delivered - self.delivered} are missing"
            await asyncio.sleep(0.005)


CONTESTANTS: Final[dict[str, tuple[Callable[[Path, ExitStack, int], Run], bool, str]]] = {
    "canopy": (Canopy, True, "canopy"),
    "jetstream, subjects": (Subjects, True, "jetstream"),
    "jetstream": (Everything, False, "jetstream"),
    "rabbitmq, stream": (RabbitStream, False, "rabbitmq, stream"),
}
"""How each is made, whether it has all consumers, and what it needs."""


def measure(name: str, consumers: int, seconds: float) -> dict[str, Any]:
    """One turn of one contestant, from its start to its end."""
    with ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-")))
        began = time.monotonic()
        contestant = CONTESTANTS[name][0](out / "data", stack, consumers)
        print(f"  ready after {time.monotonic() - began:.0f} s", file=sys.stderr)
        before, began = processor_seconds(contestant), time.monotonic()
        done = contestant.run(seconds)
        took, spent = time.monotonic() - began, processor_seconds(contestant) - before
        return {
            "contestant": name,
            "filtered": contestant.where,
            "consumers": consumers,
            "rows": done,
            "rows_per_second": round(done / took),
            "cpu_s": round(spent / done * 1e6, 1),
        }


def processor_seconds(contestant: Run) -> float:
    """Of its servers and of this program so far."""
    times = [one.cpu_times() for one in (*contestant.processes(), psutil.Process())]
    return sum(one.user + one.system for one in times)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.streams.content` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.streams.content",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--seconds", type=float, default=8.0, help="of appending (8)")
    parser.add_argument("--turns", type=int, default=3, help="of each contestant (3)")
    parser.add_argument("--consumers", type=int, default=10_000)
    parser.add_argument(
        "--few", type=int, default=16, help="consumers that compare rows themselves"
    )
    parser.add_argument("--only", nargs="+", help="contestants whose name has one of these words")
    options = parser.parse_args(args)
    wanted = [n for n in CONTESTANTS if any(word in n for word in options.only or [""])]
    found: dict[str, list[dict[str, Any]]] = {}
    for turn in range(options.turns):
        for name in wanted:
            _, has_all, needs = CONTESTANTS[name]
            if how := absent(needs):
                print(f"{name} is not installed: {how}", file=sys.stderr)
                continue
            print(f"turn {turn + 1} of {options.turns}: {name}", file=sys.stderr)
            count = options.consumers if has_all else options.few
            found.setdefault(name, []).append(measure(name, count, options.seconds))
    keys = ("rows", "rows_per_second", "cpu_s")
    result = [
        {**rows[0], **{key: statistics.median(row[key] for row in rows) for key in keys}}
        for rows in found.values()
    ]
    print(json.dumps(result, indent=2) if options.json else "\n".join(map(str, result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
