"""The steps of a command on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from rich.markup import escape

from canopy.cli.bars import Bars
from canopy.cli.constants import PROGRESS_INTERVAL
from canopy.cli.output import console

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live


class Display(Bars):
    """Shows the steps of a command one after another. A context manager."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._text = ""
        self._printed_at = 0.0

    def step(self, text: str, total: float | None = None) -> None:
        """Begin a step, after ending the one before; `total` is None if unknown."""
        self.done()
        self._text, self._printed_at = text, time.monotonic()
        if self.fancy:
            self.begin(text, total)
        else:
            self._line(f"{text} …")

    def update(self, done: float, total: float | None = None, count: str = "") -> None:
        """Show how far the step is; `count` is the same as text."""
        if self.fancy:
            self.show(done, total, count)
        elif done != total and time.monotonic() - self._printed_at >= PROGRESS_INTERVAL:
            self._printed_at = time.monotonic()
            self._line(f"  {count or f'{done:g} of {total:g}' if total else f'{done:g}'}")

    def done(self, count: str = "") -> None:
        """End the step; `count` is its result as text."""
        if self.fancy:
            self.fill(count)
        elif count and self._text:
            self._line(f"  {count}")
        self._text = ""

    def say(self, text: str) -> None:
        """Print a sentence below the step."""
        if self.fancy:
            self.console.print(f"  [dim]{escape(text)}[/]")
        else:
            self._line(f"  {text}")

    def note(self, text: str) -> None:
        """Print a warning, also when quiet."""
        if self.fancy:
            self.console.print(f"[yellow]![/] {escape(text)}")
        else:
            self._print(f"! {text}")

    def _line(self, text: str) -> None:
        if not self.quiet:
            self._print(text)

    @staticmethod
    def _print(text: str) -> None:
        """Print a line. A closed standard error is ignored: the work goes on, and its result
        counts."""
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


# --- looks at intervals, each drawn in the place of the one before (`--watch`, `canopy top`) ---


def paced(interval: float, count: int | None) -> Iterator[int]:
    """Yield numbers from 0, `interval` seconds apart, `count` of them (None: without an end). A
    turn that takes longer delays all later ones."""
    due = time.monotonic()
    number = 0
    while count is None or number < count:
        yield number
        number += 1
        if number != count:
            due = max(due + interval, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))


class Screen:
    """A view that is redrawn in place on a terminal; elsewhere each view is printed below the
    last."""

    def __init__(self) -> None:
        self._out = console()
        self._live: Live | None = None

    @property
    def is_live(self) -> bool:
        """Whether standard output is a terminal."""
        return self._out.is_terminal

    @property
    def width(self) -> int:
        """The width of standard output, in characters."""
        return self._out.width

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, view: RenderableType) -> None:
        """Draw a view in place of the last one; without a terminal, print it."""
        if not self.is_live:
            self._out.print(view)
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._out, auto_refresh=False, vertical_overflow="crop")
            self._live.start()
        self._live.update(view, refresh=True)
