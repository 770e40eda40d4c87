"""The progress of a command on standard error: bars on a terminal; plain lines for its steps
elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

from canopy.cli.constants import PROGRESS_INTERVAL
from canopy.cli.output import console

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live


class Bars:
    """The bars of one command. A context manager."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.fancy = self.console.is_terminal and not quiet
        """Whether bars are shown; if not, plain lines may take their place."""
        self.quiet = quiet
        self._bars = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description:10}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            Elapsed(),
            console=self.console,
            disable=not self.fancy,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bars.stop()

    def begin(self, text: str, total: float | None = None) -> None:
        """Begin a bar with the description `text`; `total` is None if unknown."""
        self._task = self._bars.add_task(escape(text), total=total, facts="")

    def show(self, done: float, total: float | None = None, facts: str = "") -> None:
        """Set how far the bar is, and the text beside it."""
        if self._task is not None:
            self._bars.update(self._task, completed=done, total=total, facts=escape(facts))

    def fill(self, facts: str = "") -> None:
        """End the bar as full, with the text `facts`, or the last one if that is empty."""
        if self._task is not None:
            task = self._bars.tasks[self._task]
            whole = task.total or 1
            text = escape(facts) if facts else task.fields["facts"]
            self._bars.update(self._task, total=whole, completed=whole, facts=text)
            self._task = None


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
