"""The stages of an analysis, and a callback that shows them with rich."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

OnProgress = Callable[[str, int, int], None]
"""Called with (stage that begins, number of stages done, number of stages); at the end done =
total."""

STAGES: Final = (
    "starting Spark",
    "reading the traces",
    "computing expected deliveries",
    "comparing with the deliveries",
    "counting walks and tree hops",
    "adding up the load of nodes",
    "collecting details and slow paths",
    "writing the report",
)
"""The stages, in order."""


def silent(stage: str, done: int, total: int) -> None:
    """A callback that ignores the progress."""


class RichProgress:
    """A callback that shows a bar on a terminal, and nothing elsewhere.

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

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `stage` begins, after `done` of `total`."""
        self._bar.update(self._task, description=stage, completed=done, total=total)
