"""A stream of three RabbitMQ servers, by the protocol for streams instead of AMQP.

The rows of a batch go in one frame, as messages with a confirmation for each; with sub-entries they
are one entry of the log with one confirmation for all, which is stored as a whole. Single rows that
are sent together share a frame.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.streams.contestants.rabbitmq import RabbitMQ


class RabbitStream(RabbitMQ):
    """A program that uses `rstream`."""

    plugins = "rabbitmq_stream"

    def __init__(self, folder: Path, stack: ExitStack, sub_entries: bool) -> None:
        self.sub_entries = sub_entries
        self.closing: list[asyncio.Task[None]] = []
        """Of all programs that were made of this one."""
        super().__init__(folder, stack, "stream")

    def settings(self, number: int) -> str:
        """Where a server listens for the protocol, and what it says of that to programs."""
        port = self.stream_ports[number]
        return (
            f"stream.listeners.tcp.1 = 127.0.0.1:{port}\n"
            f"stream.advertised_host = 127.0.0.1\nstream.advertised_port = {port}\n"
        )

    async def _open(self, port: int) -> None:
        from rstream import Producer  # type: ignore[import-not-found, unused-ignore]

        where = {"host": "127.0.0.1", "port": self.stream_ports[0]}
        self.producer = Producer(**where, username="guest", password="guest")
        await self.producer.start()
        # At all servers of the cluster, unless another program has done so.
        await self.producer.create_stream("bench", exists_ok=True)

    def _begin_close(self) -> None:
        self.closing.append(self.loop.create_task(self.producer.close()))

    def _close(self) -> None:
        self.loop.run_until_complete(self._all_closed())

    async def _all_closed(self) -> None:
        """Close this program and wait for the others, in the loop that all of them use."""
        await asyncio.gather(self.producer.close(), *self.closing)

    def reader(self) -> tuple[str, ...]:
        return ("rabbitmq-stream", str(self.stream_ports[1]))

    def _stored(self, status: Any) -> None:
        """Take a confirmation: of a message, or of an entry."""
        one = self.waiting.pop(status.message_id)
        if status.is_confirmed:
            one.set_result(None)
        else:
            one.set_exception(RuntimeError(f"refused with code {status.response_code}"))

    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Publish the rows in one frame, or as one entry."""
        if not self.sub_entries or count == 1:
            return await self.send_each(place, count)
        self.number += count  # an entry has the number of its last row
        one = self.waiting[self.number] = self.loop.create_future()
        rows = self._rows(place, count)
        await self.producer.send_sub_entry("bench", rows, on_publish_confirm=self._stored)
        # The client sends what it was given every half second.
        await self.producer._publish_buffered_messages("bench")
        return [one]

    async def send_each(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Publish the rows in one frame, with a confirmation for each."""
        found = []
        for _ in range(count):
            self.number += 1
            one = self.waiting[self.number] = self.loop.create_future()
            found.append(one)
        rows = self._rows(place, count)
        await self.producer.send_batch("bench", rows, on_publish_confirm=self._stored)
        return found

    def _rows(self, place: int, count: int) -> list[bytes]:
        return [self.rows[n % len(self.rows)] for n in range(place, place + count)]
