"""What the blocking and the asynchronous faces do alike, written once (no IO).

Such a procedure is a generator of `Steps`: it yields a call of the face's own methods and is sent
what the call returned, or is thrown what it raised. The blocking face makes the calls as they are
(`canopy.client.blocking.carry_out`), the asynchronous ones await them
(`canopy.client.async_link.carry_out`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from canopy.client.session import SessionPosition
from overlay.client import Command, Failed, Reply

B = TypeVar("B")
K = TypeVar("K")
T = TypeVar("T")

Steps: TypeAlias = Generator[Callable[[], Any], Any, T]
"""Calls to be made one after another, and a result of type T in the end."""


class Link(Protocol):
    """A connection to a node, of either face: `ControlClient` or `AsyncLink`. What is Any is a
    result, or has to be awaited for one. Times are seconds."""

    notices: deque[Failed]

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

    def request(self, command: Command, timeout: float) -> Any:
        """The reply to `command`."""

    def ask_many(
        self, commands: Iterable[Command], kind: type[Reply], timeout: float, ahead: int
    ) -> Any:
        """The replies to all commands, in order, of which `ahead` may be unanswered."""

    def begin(self, command: Command) -> Any:
        """Send a command and do not wait: the number to `finish` it with."""

    def is_answered(self, number: int, timeout: float) -> Any:
        """Whether there is a reply to this request, or will be none, waiting so long for it."""

    def finish(self, number: int, timeout: float) -> Any:
        """The reply to the request that was sent under this number."""

    def abandon(self, number: int) -> None:
        """Ignore the reply to this request."""

    def deliveries(self, timeout: float) -> Any:
        """The deliveries that have come, waiting for the first."""

    def gathered(self, timeout: float) -> Any:
        """The gathered events that have come, waiting for the first."""

    def close(self) -> None:
        """Close the connection to the node; the calls above then fail."""


def pipelined(
    commands: Iterable[K],
    begin: Callable[[K], Steps[B]],
    finish: Callable[[B], Steps[T]],
    abandon: Callable[[B], None],
    ahead: int,
) -> Steps[list[T]]:
    """`begin` each command and `finish` it, in order, with at most `ahead` begun and not finished;
    what an error leaves begun is abandoned. Returns what `finish` returned."""
    answers: list[T] = []
    begun: deque[B] = deque()
    try:
        for command in commands:
            if len(begun) >= ahead:
                answers.append((yield from finish(begun.popleft())))
            begun.append((yield from begin(command)))
        while begun:
            answers.append((yield from finish(begun.popleft())))
    finally:
        for one in begun:
            abandon(one)
    return answers


def asked(
    commands: Iterable[Command],
    begin: Callable[[Command], Any],
    finish: Callable[[int], Any],
    abandon: Callable[[int], None],
    ahead: int,
) -> Steps[list[Any]]:
    """`pipelined` for single calls: `begin` sends a command and returns its number, with which
    `finish` returns its reply."""
    return pipelined(
        commands,
        lambda command: _call(partial(begin, command)),
        lambda number: _call(partial(finish, number)),
        abandon,
        ahead,
    )


def _call(call: Callable[[], Any]) -> Steps[Any]:
    return (yield call)
