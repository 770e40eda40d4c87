"""The interfaces of the core of the library to a connection and to the runtime that waits for it
(no IO).

The core consists of coroutines that await a `Link`: `canopy.client.async_link` implements it for
trio and asyncio, `canopy.client.blocking` for threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from canopy.client.session import SessionPosition
from overlay.client import Command, Failed, Reply

B = TypeVar("B")
K = TypeVar("K")
R = TypeVar("R", bound=Reply)
T = TypeVar("T")


class Link(Protocol):
    """A connection to a node. Times are seconds."""

    @property
    def notices(self) -> deque[Failed]:
        """The received items that are not deliveries, at their places among the deliveries."""

    @property
    def position(self) -> SessionPosition | None:
        """The position at which another connection resumes the session; None if the node keeps
        none."""

    @property
    def taken(self) -> SessionPosition | None:
        """The position after the last item that the program has taken; None if the node keeps no
        session."""

    @property
    def complete_until(self) -> float:
        """The time up to which the received deliveries are complete, in seconds since 1970; 0:
        unknown."""

    def go_on(self, position: SessionPosition) -> None:
        """Resume the session at `position` on this connection. Called before the first request."""

    def end_session(self) -> None:
        """Note that the node no longer keeps a session."""

    async def request(self, command: Command, timeout: float) -> Reply:
        """Send `command` and wait for its reply."""

    async def ask_many(
        self, commands: Iterable[Command], kind: type[R], timeout: float, ahead: int
    ) -> list[R]:
        """Return the replies to all commands, in order. Up to `ahead` commands may be unanswered at
        a time."""

    async def begin(self, command: Command, timeout: float = 30.0) -> int:
        """Send a command without waiting for the reply. Returns the request's number, for
        `finish`."""

    async def is_answered(self, number: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the reply. Returns whether it is there, or cannot
        arrive."""

    async def finish(self, number: int, timeout: float) -> Reply:
        """Wait for the reply to the request `number`."""

    def abandon(self, number: int) -> None:
        """Ignore the reply to this request."""

    async def take(self, timeout: float) -> list[Any]:
        """Return the deliveries that have arrived, or on a connection that gathers the events; wait
        for the first, at most `timeout` seconds (inf: no limit)."""

    def close(self) -> None:
        """Close the connection to the node; the calls above then fail."""


class Signal(Protocol):
    """A flag that wakes all waiters: an `Event` of threading, trio or asyncio."""

    def set(self) -> object:
        """Set the flag, and wake all waiters."""

    def is_set(self) -> bool:
        """Whether the flag was set."""

    def wait(self) -> Any:
        """Wait until the event is set, or return an awaitable that does so."""


class Runtime(Protocol):
    """The interface by which the core waits: in a thread, in a trio task, or in an asyncio task."""

    def signal(self) -> Signal:
        """A new signal that is not set."""

    def lock(self) -> AbstractAsyncContextManager[object]:
        """A new lock, which is free."""

    async def pause(self, signal: Signal, seconds: float) -> bool:
        """Wait until `signal` is set, for up to `seconds`. Returns whether it is."""


async def pipelined(
    commands: Iterable[K],
    begin: Callable[[K], Awaitable[B]],
    finish: Callable[[B], Awaitable[T]],
    abandon: Callable[[B], None],
    ahead: int,
) -> list[T]:
    """Call `begin` for each command and `finish` for its result, in order, with at most `ahead`
    commands begun and not finished. After an error, `abandon` is called for those. Returns the
    results of `finish`."""
    answers: list[T] = []
    begun: deque[B] = deque()
    try:
        for command in commands:
            if len(begun) >= ahead:
                answers.append(await finish(begun.popleft()))
            begun.append(await begin(command))
        while begun:
            answers.append(await finish(begun.popleft()))
    finally:
        for one in begun:
            abandon(one)
    return answers
