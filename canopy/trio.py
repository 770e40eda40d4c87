"""The client library for trio: the objects of `canopy`, to be awaited.

>>> import canopy.trio
>>> async def main():
...     async with canopy.trio.connect() as client:
...         async with client.subscribe("mag >= 4.5") as quakes:
...             await client.publish({"mag": 5.1, "place": "Nome, Alaska"})
...             async for event in quakes:
...                 print(event.attributes["place"])

Cancelling a task loses no event and no reply of another task. A call that is cancelled while it
sends ends its connection, which the next call opens again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import trio

from canopy.client.async_link import AsyncRuntime, SocketStream
from canopy.client.client import AsyncClient, Connector
from canopy.client.consumer import AsyncGathering, AsyncSubscription
from canopy.client.link import Signal
from canopy.client.streams.membership import AsyncMember
from canopy.client.streams.reading import AsyncReading
from canopy.wire.transport.inlet import Inlet

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
    """A socket of trio, whose ends are OSErrors."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._inlet = Inlet(stream)

    async def send_all(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise OSError(str(error) or "it was closed") from error

    async def receive_some(self, size: int) -> bytes:
        if self._stream.socket.fileno() < 0:
            raise OSError("it was closed")
        try:
            return bytes(await self._inlet.read(size))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise OSError(str(error) or "it was closed") from error

    def send_now(self, data: bytes) -> int:
        try:
            return os.write(self._stream.socket.fileno(), data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self._stream.socket.close()


class _Runtime(AsyncRuntime):
    """The library's interface to trio."""

    async def open(self, path: str) -> SocketStream:
        return _Stream(await trio.open_unix_socket(path))

    async def adopt(self, connect: Callable[[], socket.socket]) -> SocketStream:
        made = await trio.to_thread.run_sync(connect)
        return _Stream(trio.SocketStream(trio.socket.from_stdlib_socket(made)))

    def signal(self) -> Signal:
        return trio.Event()

    def lock(self) -> AbstractAsyncContextManager[object]:
        return trio.Lock()

    async def within(self, seconds: float, job: Callable[[], Awaitable[object]]) -> bool:
        with trio.move_on_after(max(0.0, seconds)) as scope:
            await job()
        return not scope.cancelled_caught

    async def in_thread(self, job: Callable[[], T]) -> T:
        with trio.CancelScope(shield=True):
            found = await trio.to_thread.run_sync(job)
        return found  # noqa: RET504  (a type checker takes scopes for what may end a job)


connect = Connector(_Runtime()).connect
