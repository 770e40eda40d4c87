"""Clients inside of the node: machines that use what programs use.

A machine that subscribes, appends or reads as a program does is a client with a negative number:
its replies become local events, which it hears after the handler that made them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overlay.machine import LocalEvent


class InnerReply(LocalEvent, frozen=True):
    """A reply (overlay/client.py) to a client inside of the node."""

    client: int
    reply: Any


def divided(
    outside: Callable[[int, Any], None], emit: Callable[[LocalEvent], None]
) -> Callable[[int, Any], None]:
    """`Port.reply` for both kinds of clients: `outside` for programs."""

    def reply(client: int, answer: Any) -> None:
        if client < 0:
            emit(InnerReply(client, answer))
        else:
            outside(client, answer)

    return reply
