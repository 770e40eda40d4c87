"""How the TUI reaches its node: connections of the client library, opened by a `Connector`.

A connection is used by one thread. Each subscription has a connection of its own, so that a SUBACK
that is long in coming does not hold up the events of another, and ending the connection ends the
subscription at the node whatever happened to the TUI.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed, ControlError
from canopy.client.synchronous import Link
from overlay.client import Failed

LOST = (ControlError, OSError)
"""What a connection raises when the node is not there (any more); CommandFailed is caught first."""

CONNECT_TIMEOUT = 3.0
"""Seconds to connect. Not measured: a Unix socket answers in milliseconds."""

Connector: TypeAlias = Callable[[], Link]
"""Opens a connection to the node, or raises a ControlError that says what to do about it."""


def connector(where: str | None) -> Connector:
    """Connections to the node whose data folder is `where` (None: the default one)."""
    return lambda: ControlClient.connect(where, CONNECT_TIMEOUT)


def failure(error: CommandFailed) -> Failed:
    """A refusal as the reply that it was."""
    return Failed(0, error.code, error.reason)


def reason_of(error: BaseException) -> str:
    """The first line of an error's text."""
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
