"""The node as the TUI sees it: the blocking client of canopy/wire/, behind a small Protocol.

Only this file names canopy/wire/. A connection is used by one thread; each subscription has its own
connection, so that a SUBACK that is long in coming never holds up the events of another, and
ending the connection ends the subscription at the node whatever happened to the TUI.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from canopy.client.blocking import ControlClient
from canopy.client.errors import (
    CommandFailed,
    CommandTimeoutError,
    ControlError,
    DeniedError,
    UnreachableError,
)
from overlay.client import Command, Delivery, Failed, Reply

__all__ = [
    "LOST",
    "Client",
    "CommandFailed",
    "CommandTimeoutError",
    "Connector",
    "ControlError",
    "DeniedError",
    "UnreachableError",
    "connector",
    "failure",
    "reason_of",
]

LOST = (ControlError, OSError)
"""What a client raises when the node is not there (any more); CommandFailed is caught before."""

CONNECT_TIMEOUT = 3.0  # seconds; a Unix socket answers in milliseconds; wild guess


class Client(Protocol):
    """What is used of `canopy.client.blocking.ControlClient`."""

    notices: deque[Failed]

    def request(self, command: Command, timeout: float = ...) -> Reply:
        """The answer; raises CommandFailed if the node refused, or another ControlError."""

    def deliveries(self, timeout: float | None = ...) -> list[Delivery]:
        """The events that came, [] after `timeout` seconds without any; raises UnreachableError."""

    def close(self) -> None:
        """End the connection, and with it the subscriptions made on it."""


Connector: TypeAlias = Callable[[], Client]
"""Opens a connection to the node, or raises a ControlError that says what to do about it."""


def connector(where: str | None) -> Connector:
    """Connections to the node whose data folder or address is `where` (None: the default one)."""
    return lambda: ControlClient.connect(where, CONNECT_TIMEOUT)


def failure(error: CommandFailed) -> Failed:
    """A refusal as the reply that it was."""
    return Failed(0, error.code, error.reason)


def reason_of(error: BaseException) -> str:
    """One line for people."""
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
