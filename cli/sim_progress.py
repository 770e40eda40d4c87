"""How far a simulation is, on standard error: a bar per stage on a terminal, plain lines elsewhere.

The bars show the clock of the simulated world beside the one on the wall, and the memory that this
process occupies: a large world takes minutes and gigabytes, and somebody waits for it.
"""

from __future__ import annotations

import time
from types import TracebackType

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

from sim.cost import resident

SHOW_EVERY = 1.0
"""Wall-clock seconds between two plain lines of one stage."""

REDRAW_EVERY = 0.1
"""Wall-clock seconds between two changes of a bar: a run tells of every node and event."""


class SimProgress:
    """A `sim.run.Progress`; a context manager around the run."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._fancy = self._console.is_terminal and not quiet
        self._quiet = quiet
        self._bars = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description:10}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            Elapsed(),
            console=self._console,
            disable=not self._fancy,
        )
        self._task: TaskID | None = None
        self._stage, self._shown_at = "", 0.0

    def __enter__(self) -> SimProgress:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._finish()
        self._bars.stop()

    def __call__(self, stage: str, at: float, share: float) -> None:
        """`stage` is `share` done (0 to 1) at virtual second `at`."""
        now = time.monotonic()
        pause = REDRAW_EVERY if self._fancy else SHOW_EVERY
        if self._quiet or (stage == self._stage and now - self._shown_at < pause):
            return
        if stage != self._stage and self._fancy:
            self._finish()
            self._task = self._bars.add_task(stage, total=1.0, facts="")
        self._stage, self._shown_at = stage, now
        if self._task is None:
            click.echo(f"{stage:10} {share:4.0%}  at {at:8.1f} s of virtual time", err=True)
        else:
            facts = f"{at:8.1f} s of virtual time, {resident() / 1e9:.1f} GB"
            self._bars.update(self._task, completed=share, facts=facts)

    def _finish(self) -> None:
        """The stage before is over."""
        if self._task is not None:
            self._bars.update(self._task, completed=1.0)
            self._task = None
