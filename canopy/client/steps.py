"""What the blocking and the asynchronous faces do alike, written once (no IO).

Such a procedure is a generator of `Steps`: it yields a call of the face's own methods and is sent
what the call returned, or is thrown what it raised. The blocking face makes the calls as they are
(`canopy.client.blocking.carry_out`), the asynchronous ones await them
(`canopy.client.async_link.carry_out`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeAlias, TypeVar

B = TypeVar("B")
K = TypeVar("K")
T = TypeVar("T")

Steps: TypeAlias = Generator[Callable[[], Any], Any, T]
"""Calls to be made one after another, and a result of type T in the end."""


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


def step(call: Callable[[], Any]) -> Steps[Any]:
    """One call, as a procedure of its own: what it returned."""
    return (yield call)
