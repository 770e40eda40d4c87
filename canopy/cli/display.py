"""The steps of a command on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from rich.markup import escape

from canopy.cli.bars import Bars
from canopy.cli.constants import PROGRESS_INTERVAL


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
        """Print a line, unless its reader has gone: the work goes on, and its result counts."""
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)
