"""Progress bars, one after another, on standard error if that is a terminal.

Without a terminal nothing is shown; `display` then prints lines for the steps of a command.
"""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed


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
