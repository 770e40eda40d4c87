"""A program that reads what others append to a contestant, in a process of its own.

    python -m bench.streams.contestants.receiving KIND WHERE [MORE]

Reads from now on, and prints `ready` when it does. For each line "RUN COUNT SECONDS" of its input
it waits until so many rows of that run have come (`stamped`), or for so long, and prints what came
as a line of JSON: `received`, `last` (when the last one came, by the monotonic clock, which all
processes of a machine share) and the time from sending to here, `p50_ms` and `p99_ms`.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import sys
import time
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import canopy

STAMP: Final = Struct("<4sId")
"""What a row begins with: MAGIC, the number of its run and when it was sent."""

MAGIC: Final = b"row:"

Note = Callable[[bytes], None]
"""Is told of each row that comes."""

Go = Callable[[], bool]
"""Whether to go on; called at least every second or so."""


def stamped(run: int, size: int) -> bytes:
    """A row of so many bytes that is sent now."""
    return STAMP.pack(MAGIC, run, time.monotonic()).ljust(size, b"x")


class Received:
    """The rows that have come, and what is waited for. It reads its input when it is asked whether
    to go on."""

    def __init__(self) -> None:
        self.run, self.count, self.until = -1, 0, 0.0
        self.latencies: list[float] = []
        self.last = 0.0
        self._came: dict[int, list[float]] = {}
        self._input = selectors.DefaultSelector()
        self._input.register(sys.stdin, selectors.EVENT_READ)
        os.set_blocking(sys.stdin.fileno(), False)
        self._rest = b""
        self._is_said = False

    def note(self, body: bytes) -> None:
        """A row has come."""
        if len(body) < STAMP.size or not body.startswith(MAGIC):
            return
        _, run, sent = STAMP.unpack_from(body)
        now = time.monotonic()
        if run != self.run:
            self._came.setdefault(run, []).append(now - sent)
            self.last = now
            return
        self.latencies.append(now - sent)
        self.last = now
        if len(self.latencies) >= self.count:
            self._answer()

    def goes_on(self) -> bool:
        """See `Go`."""
        if not self._is_said:
            self._is_said = True
            print("ready", flush=True)
        if self.run >= 0 and time.monotonic() > self.until:
            self._answer()
        if self._input.select(0):
            data = os.read(sys.stdin.fileno(), 1 << 16)
            if not data:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                run, count, seconds = line.split()
                self.run, self.count = int(run), int(count)
                self.until = time.monotonic() + float(seconds)
                self.latencies = self._came.pop(self.run, [])
                if len(self.latencies) >= self.count:
                    self._answer()
        return True

    def _answer(self) -> None:
        found = sorted(self.latencies)
        row: dict[str, Any] = {"received": len(found), "last": self.last}
        if found:
            row["p50_ms"] = round(1e3 * found[len(found) // 2], 1)
            row["p99_ms"] = round(1e3 * found[int(len(found) * 0.99)], 1)
        self.run, self.latencies = -1, []
        print(json.dumps(row), flush=True)


def read_canopy(note: Note, go: Go, where: str) -> None:
    """At a node."""
    with canopy.connect(where) as client, client.read("bench", start="new") as reading:
        reading.ahead = True
        while go():
            for event in reading.take(0.2):
                note(event.payload)


def read_redis(note: Note, go: Go, port: str) -> None:
    """With XREAD, 1,000 rows at a time."""
    import redis  # type: ignore[import-not-found, unused-ignore]

    server = redis.Redis(port=int(port))
    newest = server.xrevrange("bench", count=1)
    after = newest[0][0] if newest else b"0"
    while go():
        for _, rows in server.xread({"bench": after}, count=1_000, block=200) or ():
            for identity, fields in rows:
                after = identity
                note(fields[b"row"])


def read_jetstream(note: Note, go: Go, url: str) -> None:
    """As an ordered consumer, to which the servers push."""
    import nats  # type: ignore[import-not-found, unused-ignore]
    from nats.js.api import DeliverPolicy  # type: ignore[import-not-found, unused-ignore]

    async def read() -> None:
        client = await nats.connect(url)

        async def came(message: Any) -> None:
            note(message.data)

        await client.jetstream(timeout=30).subscribe(
            "bench",
            cb=came,
            ordered_consumer=True,
            deliver_policy=DeliverPolicy.NEW,
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
        )
        while go():
            await asyncio.sleep(0.05)
        await client.close()

    asyncio.run(read())


def read_rabbitmq(note: Note, go: Go, port: str, kind: str) -> None:
    """Over AMQP, with 2,000 rows that are not acknowledged at most; acknowledged in hundreds."""
    import pika  # type: ignore[import-not-found, import-untyped, unused-ignore]

    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(port))) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=2_000)
        arguments = {"x-stream-offset": "next"} if kind == "stream" else None
        came = 0
        for method, _, body in channel.consume(
            "bench", inactivity_timeout=0.1, arguments=arguments
        ):
            if method is not None:
                note(body)
                came += 1
                if came % 100 == 0:
                    channel.basic_ack(method.delivery_tag, multiple=True)
            if (method is None or came % 100 == 0) and not go():
                return


def read_rabbitmq_stream(note: Note, go: Go, port: str) -> None:
    """Over the protocol for streams."""
    from rstream import (  # type: ignore[import-not-found, unused-ignore]
        Consumer,
        ConsumerOffsetSpecification,
        OffsetType,
    )

    async def read() -> None:
        consumer = Consumer("127.0.0.1", int(port), username="guest", password="guest")
        await consumer.start()

        async def came(body: bytes, _: Any) -> None:
            note(bytes(body))

        await consumer.subscribe(
            "bench",
            came,
            decoder=lambda body: body,
            offset_specification=ConsumerOffsetSpecification(OffsetType.NEXT),
        )
        while go():
            await asyncio.sleep(0.05)
        await consumer.close()

    asyncio.run(read())


READERS: Final[dict[str, Callable[..., None]]] = {
    "canopy": read_canopy,
    "redis": read_redis,
    "jetstream": read_jetstream,
    "rabbitmq": read_rabbitmq,
    "rabbitmq-stream": read_rabbitmq_stream,
}


def main() -> None:
    """Read as the arguments say until the input ends."""
    received = Received()
    READERS[sys.argv[1]](received.note, received.goes_on, *sys.argv[2:])


if __name__ == "__main__":
    main()
