"""The node of a client, over a connection that is reopened when it is lost (no IO)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from canopy.client.errors import ControlError, NodeLeavingError, UnreachableError
from canopy.client.link import Link, Runtime
from canopy.client.resubscription import Backoff
from canopy.client.session import expected
from overlay.client import CREDIT, Command, Reply

R = TypeVar("R", bound=Reply)

PAUSE: Final = 0.2
"""Seconds between two attempts of a reading or a membership to reach a node that is away."""


class Closable(Protocol):
    """An object that is closed with its client."""

    def close(self) -> None:
        """Close it, and wake its waiters."""


class ClientNode:
    """The node of a client. Threads, or tasks, may share it. All times are seconds."""

    def __init__(
        self,
        runtime: Runtime,
        connect: Callable[[int], Awaitable[Link]],
        patience: float,
    ) -> None:
        """`connect` opens a connection with its credit in bytes; `patience`: how long a lost node
        is looked for."""
        self.runtime = runtime
        self.connect = connect
        self.patience = patience
        self.link: Link | None = None
        """The connection for requests; None: the next request opens it."""
        self.consumers: dict[int, Closable] = {}
        """Subscriptions that end with the client, by `id`."""
        self._opening = runtime.lock()
        self._closed = runtime.signal()

    async def open(self) -> None:
        """Connect now instead of with the first request. Raises as `canopy.connect`."""
        async with self._opening:
            if self.link is None:
                self.link = await self.connect(CREDIT)

    def close(self) -> None:
        """End the connection and the subscriptions."""
        self._closed.set()
        for consumer in list(self.consumers.values()):
            consumer.close()
        if self.link is not None:
            self.link.close()

    async def pause(self, seconds: float) -> bool:
        """Wait `seconds`, or until this is closed. Returns whether it is closed."""
        return await self.runtime.pause(self._closed, seconds)

    async def begin(self, command: Command, timeout: float) -> tuple[Link, int]:
        """Send a command, on a new connection if the last one was lost. Returns the connection and
        the request's number on it. A command that was not sent completely was not carried out, so
        it is sent again."""
        until = time.monotonic() + min(timeout, self.patience)
        backoff = Backoff()
        while True:
            link = self.link
            try:
                if self._closed.is_set():
                    raise UnreachableError("this client is closed")
                if link is None:
                    await self.open()
                    continue
                return link, await link.begin(command, timeout)
            except UnreachableError:
                async with self._opening:
                    if link is not None and self.link is link:
                        link.close()
                        self.link = None if self.patience > 0 else link
                delay = backoff.next() if link is None else 0.0
                if time.monotonic() + delay >= until or self._closed.is_set():
                    raise
                await self.pause(delay)

    async def request(self, command: Command, timeout: float) -> Reply:
        """Send a command and wait for its reply. Raises a ControlError."""
        link, number = await self.begin(command, timeout)
        return await link.finish(number, timeout)

    async def ask(self, command: Command, kind: type[R], timeout: float) -> R:
        """Send a command as `request`, and return its reply of the type `kind`; ControlError for
        another type."""
        return expected(await self.request(command, timeout), kind)

    async def ask_until(self, command: Command, kind: type[R], timeout: float) -> R:
        """Send a command that may be repeated, as `ask`. If the node goes away or leaves before it
        answers, the command is sent again within `timeout`."""
        until = time.monotonic() + timeout
        patience = time.monotonic() + min(timeout, self.patience)
        backoff = Backoff()
        while True:
            try:
                link, number = await self.begin(command, timeout)
                left = max(0.0, until - time.monotonic())
                return expected(await link.finish(number, left), kind)
            except (UnreachableError, NodeLeavingError):
                delay = backoff.next()
                if time.monotonic() + delay >= patience or await self.pause(delay):
                    raise


class AwayNode:
    """Measures how long the node of one reading or membership has been away, over several calls
    with time-outs of their own."""

    def __init__(self, node: ClientNode) -> None:
        self.begin = node.begin
        self._node = node
        self._until = 0.0  # until when it is looked for; 0: it is there

    def lost(self) -> None:
        """Note that there is no connection. The time away begins with the first call."""
        self._until = self._until or time.monotonic() + self._node.patience

    def found(self) -> None:
        """Note that the node has answered."""
        self._until = 0.0

    async def wait(self, error: ControlError, by: float) -> bool:
        """Wait before the next attempt to reach the node. Returns False if that would be after
        `by`. Raises `error` if the node was away for too long, or the client was closed."""
        now = time.monotonic()
        if now > self._until:
            self._until = 0.0
            raise error
        if now >= by:
            return False
        if await self._node.pause(min(PAUSE, by - now)):
            raise error
        return True
