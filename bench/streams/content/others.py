"""Programs with many consumers at what else there is: with filters, or sent everything."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.streams.contestants.contestant import FIRST
from bench.streams.contestants.jetstream import JetStream
from bench.streams.contestants.rabbitmq import RabbitMQ
from bench.streams.peers import BATCH
from overlay.client import Draft

AHEAD: Final = 4
PATIENCE: Final = 600.0
"""Seconds for 10,000 consumers to be attached, or for all rows to come; ample."""

TOGETHER: Final = 50
"""Consumers that are attached at a time."""


class _Asking:
    """Consumers in this program."""

    consumers: int
    received: Counter[str]
    loop: asyncio.AbstractEventLoop
    drafts: Sequence[Draft]

    def take_rows(self, drafts: Sequence[Draft]) -> None:
        """As MessagePack."""
        self.drafts = drafts
        self.rows = [msgspec.msgpack.encode(row) for row in drafts]

    def key(self, place: int) -> str:
        """That of a row."""
        return str(self.drafts[place % len(self.drafts)].attributes["key"])

    def append_rows(self, count: int) -> None:
        """In batches; what comes is taken meanwhile."""
        self.loop.run_until_complete(self._append_rows(count))

    async def _append_rows(self, count: int) -> None:
        under_way: list[list[asyncio.Future[Any]]] = []
        for place in range(0, count, BATCH):
            under_way.append(await self.send(place, BATCH))  # type: ignore[attr-defined]
            if len(under_way) >= AHEAD:
                await asyncio.gather(*under_way.pop(0))
        for each in under_way:
            await asyncio.gather(*each)

    def wait(self, there: Callable[[], bool]) -> None:
        """Until it is so."""
        self.loop.run_until_complete(self._until(there))

    async def _until(self, there: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not there():
            assert time.monotonic() < until, f"only {self.received.total()} rows have come"
            await asyncio.sleep(0.005)


class _Comparing(_Asking):
    """They are sent every row."""

    sent = 0
    """Rows that have come for all of them."""

    async def _append_rows(self, count: int) -> None:
        due = self.sent + count * self.consumers
        await super()._append_rows(count)
        await self._until(lambda: self.sent >= due)

    def compare(self, consumer: int, encoded: bytes) -> None:
        """A row has come for one of them."""
        self.sent += 1
        key = msgspec.msgpack.decode(encoded, type=Draft).attributes["key"]
        if key == f"k{consumer}":
            self.received[str(key)] += 1


class NatsAll(_Comparing, JetStream):
    """Push consumers without acknowledgements."""

    def __init__(self, folder: Path, stack: ExitStack, consumers: int) -> None:
        self.consumers, self.received = consumers, Counter()
        super().__init__(folder, stack, "always")
        self.loop.run_until_complete(self._attach())

    async def _attach(self) -> None:
        from nats.js.api import (  # type: ignore[import-not-found, unused-ignore]
            AckPolicy,
            ConsumerConfig,
            DeliverPolicy,
        )

        def taker(number: int) -> Callable[[Any], Awaitable[None]]:
            async def got(message: Any) -> None:  # its subject is that under which it was published
                self.compare(number, message.data)

            return got

        for number in range(self.consumers):
            subject = f"out.{number}"
            await self.client.subscribe(subject, cb=taker(number))
            config = ConsumerConfig(
                deliver_subject=subject,
                deliver_policy=DeliverPolicy.NEW,
                ack_policy=AckPolicy.NONE,
                mem_storage=True,
                num_replicas=1,
            )
            await self.stream.add_consumer("bench", config)


class RabbitAll(_Comparing, RabbitMQ):
    """Consumers of a stream, over AMQP."""

    def __init__(self, folder: Path, stack: ExitStack, consumers: int) -> None:
        self.consumers, self.received = consumers, Counter()
        super().__init__(folder, stack, "stream")
        attached = [self.loop.create_future() for _ in range(consumers)]
        for number, future in enumerate(attached):
            self._attach(number, future)
        for future in attached:
            self.loop.run_until_complete(asyncio.wait_for(future, PATIENCE))

    def _attach(self, number: int, attached: asyncio.Future[None]) -> None:
        seen = 0

        def got(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            nonlocal seen
            seen += 1
            self.compare(number, body)
            if seen % 100 == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)

        def opened(channel: Any) -> None:
            def ready(frame: Any) -> None:
                attached.set_result(None)

            begin = {"x-stream-offset": "next"}
            channel.basic_qos(prefetch_count=5_000)
            channel.basic_consume("bench", got, arguments=begin, callback=ready)

        self.connection.channel(on_open_callback=opened)


class NatsSubjects(_Asking, JetStream):
    """The key is in the subject, by which consumers filter."""

    subjects = ("bench", "key.*")
    consumers_most = 100_000

    def __init__(self, folder: Path, stack: ExitStack, consumers: int) -> None:
        self.consumers, self.received, self.drafts = consumers, Counter(), ()
        super().__init__(folder, stack, "always")
        self.loop.run_until_complete(self._attach())

    def subject(self, place: int) -> str:
        """With the row's key."""
        return f"key.{self.key(place)}" if self.drafts else "bench"

    async def _attach(self) -> None:
        async def got(message: Any) -> None:
            key = msgspec.msgpack.decode(message.data, type=Draft).attributes["key"]
            assert message.subject == f"key.{key}"
            self.received[str(key)] += 1

        from nats.js.api import (  # type: ignore[import-not-found, unused-ignore]
            AckPolicy,
            ConsumerConfig,
            DeliverPolicy,
        )

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

        for first in range(0, self.consumers, TOGETHER):
            some = range(first, min(first + TOGETHER, self.consumers))
            await asyncio.gather(*map(attach, some))


class RabbitHeaders(_Asking, RabbitMQ):
    """The key is a header, by which an exchange chooses queues."""

    def __init__(self, folder: Path, stack: ExitStack, consumers: int) -> None:
        self.consumers, self.received, self.drafts = consumers, Counter(), ()
        super().__init__(folder, stack, "quorum")
        self.durable = FIRST
        self.loop.run_until_complete(self._attach())

    def publish(self, place: int, row: bytes) -> None:
        """With the row's key as a header."""
        if not self.drafts:
            super().publish(place, row)
            return
        import pika  # type: ignore[import-not-found, import-untyped, unused-ignore]

        headers = pika.BasicProperties(delivery_mode=2, headers={"key": self.key(place)})
        self.channel.basic_publish("by-key", "", row, headers)

    async def _attach(self) -> None:
        def got(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            key = msgspec.msgpack.decode(body, type=Draft).attributes["key"]
            assert properties.headers["key"] == key
            self.received[str(key)] += 1

        async def done(begin: Callable[..., Any], *names: str, **more: Any) -> None:
            future = self.loop.create_future()
            begin(*names, callback=lambda _: future.set_result(None), **more)
            await asyncio.wait_for(future, PATIENCE)

        channel = self.channel
        await done(channel.exchange_declare, "by-key", exchange_type="headers", durable=True)

        async def attach(number: int) -> None:
            name, wanted = f"q{number}", {"x-match": "all", "key": f"k{number}"}
            await done(channel.queue_declare, name, durable=True)
            await done(channel.queue_bind, name, "by-key", arguments=wanted)
            await done(channel.basic_consume, name, on_message_callback=got, auto_ack=True)

        for number in range(self.consumers):  # a channel answers one declaration at a time
            await attach(number)
