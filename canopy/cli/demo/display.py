"""What a demo shows while it runs: bars on a terminal, plain lines elsewhere; on standard error."""

from __future__ import annotations

import sys
import time
from typing import Final

from rich.markup import escape

from canopy.cli.bars import Bars

PLAIN_EVERY: Final = 5.0
"""Seconds between two plain lines of one step, so that a log stays short."""


class Display(Bars):
    """Steps of a demo, one after another. A context manager."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._text = ""
        self._said = 0.0

    def step(self, text: str, total: float | None = None) -> None:
        """A new step begins; the one before is over."""
        self.done()
        self._text, self._said = text, time.monotonic()
        if self.fancy:
            self.begin(text, total)
        else:
            self._line(f"{text} …")

    def update(self, done: float, total: float | None = None, count: str = "") -> None:
        """How far the step is; `count` says it in words."""
        if self.fancy:
            self.show(done, total, count)
        elif done != total and time.monotonic() - self._said >= PLAIN_EVERY:
            self._said = time.monotonic()
            self._line(f"  {count or f'{done:g} of {total:g}' if total else f'{done:g}'}")

    def done(self, count: str = "") -> None:
        """The step is over; `count` says with what."""
        if self.fancy:
            self.fill(count)
        elif count and self._text:
            self._line(f"  {count}")
        self._text = ""

    def note(self, text: str) -> None:
        """Something that the user should know, beside the steps; also when quiet."""
        if self.fancy:
            self.console.print(f"[yellow]![/] {escape(text)}")
        else:
            print(f"! {text}", file=sys.stderr, flush=True)

    def _line(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)
