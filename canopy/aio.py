"""The client library for asyncio: the objects of `canopy`, to be awaited.

>>> import canopy.aio
>>> async def main():
...     async with canopy.aio.connect() as client:
...         async with client.subscribe("mag >= 4.5") as quakes:
...             await client.publish({"mag": 5.1, "place": "Nome, Alaska"})
...             async for event in quakes:
...                 print(event.attributes["place"])

Cancelling a task loses no event and no reply of another task. A call that is cancelled while it
sends ends its connection, which the next call opens again.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TypeVar

from canopy.client.async_link import AsyncRuntime, SocketStream
from canopy.client.client import AsyncClient, Connector
from canopy.client.consumer import AsyncGathering, AsyncSubscription
from canopy.client.link import Signal
from canopy.client.streams.membership import AsyncMember
from canopy.client.streams.reading import AsyncReading

__all__ = [
    "AsyncClient",
    "AsyncGathering",
    "AsyncMember",
    "AsyncReading",
    "AsyncSubscription",
    "connect",
]

T = TypeVar("T")


class _Stream:
    """A pair of asyncio streams, which buffer what the socket does not take."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send_all(self, data: bytes) -> None:
        if self._is_ended:
            raise OSError("it closed the connection")
        self._writer.write(data)
        await self._writer.drain()

    async def receive_some(self, size: int) -> bytes:
        return await self._reader.read(size)

    def send_now(self, data: bytes) -> int:
        if self._is_ended:
            raise OSError("it closed the connection")
        self._writer.write(data)
        return len(data)

    def close(self) -> None:
        self._writer.transport.abort()

    @property
    def _is_ended(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()


class _Runtime(AsyncRuntime):
    """The library's interface to asyncio."""

    async def open(self, path: str) -> SocketStream:
        return _Stream(*await asyncio.open_unix_connection(path))

    async def adopt(self, connect: Callable[[], socket.socket]) -> SocketStream:
        made = await asyncio.to_thread(connect)
        return _Stream(*await asyncio.open_unix_connection(sock=made))

    def signal(self) -> Signal:
        return asyncio.Event()

    def lock(self) -> AbstractAsyncContextManager[object]:
        return asyncio.Lock()

    async def within(self, seconds: float, job: Callable[[], Awaitable[object]]) -> bool:
        scope = asyncio.timeout(None if math.isinf(seconds) else max(0.0, seconds))
        try:
            async with scope:
                await job()
        except TimeoutError:
            if not scope.expired():
                raise
            return False
        return True

    async def in_thread(self, job: Callable[[], T]) -> T:
        running = asyncio.get_running_loop().run_in_executor(None, job)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # asked for, else the loop says that it was lost
            raise


connect = Connector(_Runtime()).connect
