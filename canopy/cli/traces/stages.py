"""The stages of a Spark job on standard error, and how many tasks of what runs are done."""

from __future__ import annotations

import time

from canopy.cli.display import Display


class Stages(Display):
    """Shows a stage after another: a bar each on a terminal, else a line each, and one of every
    some seconds within it. A context manager."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._began = 0.0
        self._before = self._done = 0  # tasks

    def stage(self, text: str, done: int, total: int) -> None:
        """`canopy.traces.analysis.OnProgress`."""
        if self.fancy:
            self.fill(" ")  # not the tasks of the last look, which are fewer than there were
        if done == total:
            self.done()
            return
        self._began, self._before = time.monotonic(), self._done
        self.step(f"{done + 1} of {total}: {text}", 1)

    def tasks(self, done: int, total: int) -> None:
        """`canopy.traces.analysis.OnTasks`; called in another thread."""
        self._done = done
        done, total = done - self._before, total - self._before
        seconds = time.monotonic() - self._began
        self.update(done, total, f"{done:,} of {total:,} tasks done, {seconds:.0f} s")
