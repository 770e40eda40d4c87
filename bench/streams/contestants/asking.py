"""A contestant: some servers, and a program over asyncio that appends to them."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from copy import copy
from functools import partial
from random import Random
from typing import Any, Self, TypeVar

import psutil

from bench.processes.nodes import free_port
from bench.streams.contestants.contestant import PATIENCE

T = TypeVar("T")


def free_ports(count: int) -> list[int]:
    """So many ports that are not in use."""
    rng = Random()
    return [free_port(rng) for _ in range(count)]


async def once_ready(
    attempt: Callable[[], Awaitable[T]],
    error: type[Exception] | tuple[type[Exception], ...] = Exception,
    seconds: float = PATIENCE,
) -> T:
    """Return what `attempt` does, which is repeated while it raises `error`, for so long: servers
    are starting, or elect their leaders."""
    until = time.monotonic() + seconds
    while True:
        try:
            return await attempt()
        except error:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.3)


class AskingProgram(ABC):
    """Appends by `send`, which returns at once, and what it returns is awaited."""

    durable: str
    """When a row is acknowledged: MAJORITY, FIRST or LAZY."""

    processes: Callable[[], list[psutil.Process]]
    """Returns those of the servers."""

    def __init__(self, stack: ExitStack) -> None:
        self.loop = asyncio.new_event_loop()
        self.stack = stack
        stack.callback(self.loop.close)

    @abstractmethod
    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Send `count` rows from `place` on; the acknowledgements to wait for."""

    def again(self) -> Self:
        """Another program over a connection of its own, on the same loop."""
        made = copy(self)
        made.reconnect()
        return made

    def reconnect(self) -> None:
        """Leave the connection to the program that this one was copied from, and open another."""
        raise NotImplementedError(f"{type(self).__name__} has one program")

    def carry(self, body: bytes) -> None:
        """From now on every row is this."""
        raise NotImplementedError(f"{type(self).__name__} has rows of its own")

    def reader(self) -> tuple[str, ...]:
        """What `receiving` is told of how to read the rows, and where."""
        raise NotImplementedError(f"{type(self).__name__} has no reader")

    async def send_each(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Send `count` rows from `place` on, each by itself; an acknowledgement for each."""
        return [one for n in range(count) for one in await self.send(place + n, 1)]

    def append(self, batch: int, ahead: int, seconds: float) -> int:
        """Append for so long, with `ahead` batches under way. As many as were answered together are
        sent together."""
        return self.loop.run_until_complete(self._append(batch, ahead, seconds))

    async def _append(self, batch: int, ahead: int, seconds: float) -> int:
        waiting: deque[list[asyncio.Future[Any]]] = deque()
        done = place = 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            free = ahead - len(waiting)
            if batch == 1:
                waiting += [[one] for one in await self.send_each(place, free)]
            else:
                waiting += [await self.send(place + n * batch, batch) for n in range(free)]
            place += free * batch
            await _all(waiting.popleft())
            done += batch
            while waiting and all(one.done() for one in waiting[0]):
                await _all(waiting.popleft())
                done += batch
        for each in waiting:
            await _all(each)
        return done + batch * len(waiting)

    def pace(self, rate: float, seconds: float) -> list[float]:
        """One row at a time, each when it is due."""
        return self.loop.run_until_complete(self._pace(rate, seconds))

    async def _pace(self, rate: float, seconds: float) -> list[float]:
        took: list[float] = []
        waiting: list[Awaitable[Any]] = []
        began = time.monotonic()
        for place in range(round(rate * seconds)):
            due = began + place / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            for one in await self.send(place, 1):
                one.add_done_callback(partial(_note, took, due))
                waiting.append(one)
        for each in waiting:
            await each
        return took


def _note(took: list[float], due: float, answer: asyncio.Future[Any]) -> None:
    took.append(time.monotonic() - due)


async def _all(waiting: list[asyncio.Future[Any]]) -> None:
    for one in waiting:
        await one
