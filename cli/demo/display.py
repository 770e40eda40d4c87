"""What a demo shows while it runs: bars on a terminal, plain lines elsewhere; on standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

PLAIN_EVERY: Final = 5.0
"""Seconds between two plain lines of one step, so that a log stays short."""


class Display:
    """Steps of a demo, one after another. A context manager."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.fancy = self.console.is_terminal and not quiet
        self._quiet = quiet
        self._bars = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}"),
            Elapsed(),
            console=self.console,
            disable=not self.fancy,
        )
        self._task: TaskID | None = None
        self._text = ""
        self._said = 0.0

    def __enter__(self) -> Display:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def step(self, text: str, total: float | None = None) -> None:
        """A new step begins; the one before is over."""
        self.done()
        self._text, self._said = text, time.monotonic()
        if self.fancy:
            self._task = self._bars.add_task(escape(text), total=total, count="")
        else:
            self._line(f"{text} …")

    def update(self, done: float, total: float | None = None, count: str = "") -> None:
        """How far the step is; `count` says it in words."""
        if self.fancy and self._task is not None:
            self._bars.update(self._task, completed=done, total=total, count=escape(count))
        elif not self.fancy and done != total and time.monotonic() - self._said >= PLAIN_EVERY:
            self._said = time.monotonic()
            self._line(f"  {count or f'{done:g} of {total:g}' if total else f'{done:g}'}")

    def done(self, count: str = "") -> None:
        """The step is over; `count` says with what."""
        if self.fancy and self._task is not None:
            task = self._bars.tasks[self._task]
            whole = task.total or 1
            text = escape(count) if count else task.fields["count"]
            self._bars.update(self._task, total=whole, completed=whole, count=text)
        elif count and self._text:
            self._line(f"  {count}")
        self._task, self._text = None, ""

    def note(self, text: str) -> None:
        """Something that the user should know, beside the steps; also when quiet."""
        if self.fancy:
            self.console.print(f"[yellow]![/] {escape(text)}")
        else:
            print(f"! {text}", file=sys.stderr, flush=True)

    def _line(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)
