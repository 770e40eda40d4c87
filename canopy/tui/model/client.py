"""Connections of the client library to the node, opened by a `Connector`.

Each thread has its own connection, and so each subscription: a slow SUBACK does not delay the
events of another, and the end of the connection ends the subscription at the node, however the TUI
ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from canopy.client.seals import open_seals
from canopy.tui.constants import CONNECT_TIMEOUT
from overlay.client import CREDIT

LOST = (ControlError, OSError)
"""The errors of a connection that fails; CommandFailed, a subclass, has to be caught before."""

Connector: TypeAlias = Callable[[], ControlClient]
"""Opens a connection to the node, or raises a ControlError with advice."""


def connector(where: str | None, seal: str | None = None) -> Connector:
    """Return a function that connects to the node of the data folder `where` (None: the default
    one). Payloads are sealed and opened with the seal file `seal`. Raises a ControlError."""
    sealer = open_seals(seal)
    return lambda: ControlClient.connect(where, CONNECT_TIMEOUT, CREDIT, sealer)


def reason_of(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class."""
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
