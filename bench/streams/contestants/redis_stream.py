"""A stream of a Redis server with `appendfsync always`, and two servers that follow it.

Redis answers when the row is on the first server's disk: followers get it later, so that a failover
may lose what was acknowledged. (`WAITAOF`, which waits for the disks of followers, came with 7.2,
and lets one row of a connection be under way.) A batch is a transaction (MULTI, EXEC).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.streams.contestants.asking import AskingProgram, free_ports, once_ready
from bench.streams.contestants.contestant import FIRST, Servers, encoded_rows

HEADS: Final = (b"XADD", b"bench", b"*", b"row")


class RedisStream(AskingProgram):
    """One that is written, two that follow."""

    durable = FIRST

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(stack)
        ports = free_ports(3)
        servers = Servers(stack)
        self.processes = servers.processes
        for number, port in enumerate(ports):
            data = folder / f"n{number}"
            data.mkdir(parents=True)
            command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1"]
            command += ["--dir", str(data), "--appendonly", "yes", "--appendfsync", "always"]
            command += ["--save", ""]
            if number:
                command += ["--replicaof", "127.0.0.1", str(ports[0])]
            servers.start(command, data / "log")
        self.commands = [request(*HEADS, row) for row in encoded_rows(4_096)]
        self.waiting: deque[asyncio.Future[Any]] = deque()
        self.ports = ports
        self.loop.run_until_complete(self._connect(ports[0]))
        stack.callback(self._close)
        time.sleep(2.0)  # until the others follow
        self.append(1, 1, 1.0)

    async def _connect(self, port: int) -> None:
        reader, self.writer = await once_ready(
            lambda: asyncio.open_connection("127.0.0.1", port), OSError
        )
        self.reading = self.loop.create_task(self._read(reader))

    def _close(self) -> None:
        self.reading.cancel()
        self.writer.close()
        self.loop.run_until_complete(asyncio.sleep(0))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Replies: a bulk string for each row; for a transaction a line, one for each of its rows,
        and an array."""
        while True:
            await self._reply(reader)
            self.waiting.popleft().set_result(None)

    async def _reply(self, reader: asyncio.StreamReader) -> None:
        line = await reader.readline()
        if not line or line.startswith(b"-"):
            raise RuntimeError(f"redis: {line.decode()}")
        if line.startswith(b"$"):
            await reader.readexactly(int(line[1:]) + 2)
        elif line.startswith(b"*"):
            for _ in range(int(line[1:])):
                await self._reply(reader)

    def reconnect(self) -> None:
        self.waiting = deque()
        self.loop.run_until_complete(self._connect(self.ports[0]))
        self.stack.callback(self._close)

    def carry(self, body: bytes) -> None:
        self.commands = [request(*HEADS, body)]

    def reader(self) -> tuple[str, ...]:
        return ("redis", str(self.ports[0]))

    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Write the commands; the last reply is the one to wait for."""
        taken = [self.commands[n % len(self.commands)] for n in range(place, place + count)]
        if count > 1:
            taken = [request(b"MULTI"), *taken, request(b"EXEC")]
        answers = [self.loop.create_future() for _ in taken]
        self.waiting += answers
        self.writer.write(b"".join(taken))
        await self.writer.drain()
        return answers[-1:]


def request(*words: bytes) -> bytes:
    """A command as Redis reads it."""
    pieces = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    return b"*%d\r\n%b" % (len(words), pieces)
