"""Looks at intervals, each drawn in the place of the one before (`--watch`, `canopy top`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from canopy.cli.output import console

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live


def paced(interval: float, count: int | None) -> Iterator[int]:
    """Numbers from 0, `interval` seconds apart, `count` of them (None: without an end). What takes
    longer is not caught up with."""
    due = time.monotonic()
    number = 0
    while count is None or number < count:
        yield number
        number += 1
        if number != count:
            due = max(due + interval, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))


class Screen:
    """A view that is drawn again in its place on a terminal, and one below the other elsewhere."""

    def __init__(self) -> None:
        self._out = console()
        self._live: Live | None = None

    @property
    def is_live(self) -> bool:
        """Whether standard output is a terminal."""
        return self._out.is_terminal

    @property
    def width(self) -> int:
        """Characters in a line of it."""
        return self._out.width

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, view: RenderableType) -> None:
        """Draw a view in the place of the last one; print it where nothing is watched."""
        if not self.is_live:
            self._out.print(view)
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._out, auto_refresh=False, vertical_overflow="crop")
            self._live.start()
        self._live.update(view, refresh=True)
