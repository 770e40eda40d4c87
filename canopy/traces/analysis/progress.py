"""Progress of an analysis: a callback of (stage, done, total), and one that draws it with rich."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

OnProgress = Callable[[str, int, int], None]
"""Called with the stage that begins, how many are done and how many there are; at the end with
done = total."""

STAGES: Final = (
    "starting Spark",
    "reading the traces",
    "working out what was expected",
    "comparing with what was delivered",
    "following the walks and trees",
    "weighing the load",
    "tracing the slowest events",
    "drawing the report",
)
"""In their order."""


def silent(stage: str, done: int, total: int) -> None:
    """Say nothing."""


class RichProgress:
    """A callback that draws a bar on a terminal, and prints nothing elsewhere.

    A context manager: ``with RichProgress() as progress: analyze(…, progress=progress)``.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            Elapsed(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(STAGES[0], total=len(STAGES))

    def __enter__(self) -> RichProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `stage` begins, after `done` of `total`."""
        self._bar.update(self._task, description=stage, completed=done, total=total)
