"""What the core of the library needs of a connection to a node and of the runtime that waits for it
(no IO).

The core consists of coroutines that await a `Link`. `canopy.client.async_link` has the one of trio
and asyncio, `canopy.client.blocking` the one that blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from canopy.client.frames import OpaqueEvent
from canopy.client.session import SessionPosition
from overlay.client import Command, Delivery, Failed, Reply

B = TypeVar("B")
K = TypeVar("K")
R = TypeVar("R", bound=Reply)
T = TypeVar("T")


class Link(Protocol):
    """A connection to a node. Times are seconds."""

    @property
    def notices(self) -> deque[Failed]:
        """The received items that are no deliveries, at their places among the deliveries."""

    @property
    def position(self) -> SessionPosition | None:
        """From where another connection goes on with the session that the node keeps."""

    @property
    def taken(self) -> SessionPosition | None:
        """As `position`, of what the program has taken."""

    @property
    def complete_until(self) -> float:
        """Up to when the deliveries are complete that have come; 0: the node has not said."""

    def go_on(self, position: SessionPosition) -> None:
        """Before the first request: this connection is to resume that session."""

    def end_session(self) -> None:
        """The node keeps no session (any more)."""

    async def request(self, command: Command, timeout: float) -> Reply:
        """Send `command` and wait for its reply."""

    async def ask_many(
        self, commands: Iterable[Command], kind: type[R], timeout: float, ahead: int
    ) -> list[R]:
        """Return the replies to all commands, in order. Up to `ahead` commands may be unanswered at
        a time."""

    async def begin(self, command: Command, timeout: float = 30.0) -> int:
        """Send a command and do not wait: the number to `finish` it with."""

    async def is_answered(self, number: int, timeout: float) -> bool:
        """Whether there is a reply to this request, or will be none, waiting so long for it."""

    async def finish(self, number: int, timeout: float) -> Reply:
        """The reply to the request that was sent under this number."""

    def abandon(self, number: int) -> None:
        """Ignore the reply to this request."""

    async def deliveries(self, timeout: float) -> list[Delivery]:
        """The deliveries that have come, waiting for the first; inf: for ever."""

    async def gathered(self, timeout: float) -> list[OpaqueEvent]:
        """The gathered events that have come, waiting for the first; inf: for ever."""

    def close(self) -> None:
        """Close the connection to the node; the calls above then fail."""


class Signal(Protocol):
    """A flag that wakes who waits for it: an `Event` of threading, trio or asyncio."""

    def set(self) -> object:
        """Set the flag, and wake all who wait for it."""

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
    """`begin` each command and `finish` it, in order, with at most `ahead` begun and not finished;
    what an error leaves begun is abandoned. Returns what `finish` returned."""
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
