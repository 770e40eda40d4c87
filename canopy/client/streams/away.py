"""A node that is away, for a program that reads or shares a stream: how long it is looked for, over
calls that each end in time (no IO)."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from canopy.client.errors import ControlError
from canopy.client.steps import Steps

PAUSE: Final = 0.2
"""Seconds between two looks for a node that is away."""


class AwayNode:
    """The node of one reading or membership."""

    def __init__(
        self, begin: Callable[[Any, float], Any], pause: Callable[[float], Any], patience: float
    ) -> None:
        """`begin` sends a command within a time: its connection and number; `pause` waits so long,
        and says whether the client was closed; `patience`: how long a lost node is looked for."""
        self.begin = begin
        self._pause = pause
        self._patience = patience
        self._until = 0.0  # until when it is looked for; 0: it is there

    def lost(self) -> None:
        """The connection was lost, or is still."""
        self._until = self._until or time.monotonic() + self._patience

    def found(self) -> None:
        """It is there again."""
        self._until = 0.0

    def waiting(self, error: ControlError, by: float) -> Steps[bool]:
        """Wait until it is looked for again. Returns False where that would be behind `by`. Raises
        `error` if it was looked for long enough, or the client was closed."""
        now = time.monotonic()
        if now > self._until:
            self._until = 0.0
            raise error
        if now >= by:
            return False
        if (yield partial(self._pause, min(PAUSE, by - now))):
            raise error
        return True
