"""The progress of a simulation on standard error: a bar per stage, or lines without a terminal.

A bar shows virtual time beside wall-clock time, and this process's memory: a large world takes
minutes and gigabytes.
"""

from __future__ import annotations

import time

import click

from canopy.cli.bars import Bars
from canopy.cli.constants import LINE_INTERVAL, REDRAW_INTERVAL
from canopy.sim.world.cost import resident


class SimProgress(Bars):
    """Implements `canopy.sim.scenario.run.Progress`. A context manager."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._stage, self._shown_at = "", 0.0

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.fill()
        super().__exit__(*exc)

    def __call__(self, stage: str, at: float, share: float) -> None:
        """Show that `stage` is `share` done (0 to 1) at virtual second `at`."""
        now = time.monotonic()
        pause = REDRAW_INTERVAL if self.fancy else LINE_INTERVAL
        if self.quiet or (stage == self._stage and now - self._shown_at < pause):
            return
        if stage != self._stage and self.fancy:
            self.fill()
            self.begin(stage, 1.0)
        self._stage, self._shown_at = stage, now
        if self.fancy:
            self.show(share, facts=f"{at:8.1f} s of virtual time, {resident() / 1e9:.1f} GB")
        else:
            click.echo(f"{stage:10} {share:4.0%}  at {at:8.1f} s of virtual time", err=True)
