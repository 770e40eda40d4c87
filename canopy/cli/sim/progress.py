"""How far a simulation is, on standard error: a bar per stage on a terminal, plain lines elsewhere.

The bars show the clock of the simulated world beside the one on the wall, and the memory that this
process occupies: a large world takes minutes and gigabytes, and somebody waits for it.
"""

from __future__ import annotations

import time
from types import TracebackType

import click

from canopy.cli.bars import Bars
from canopy.sim.world.cost import resident

SHOW_EVERY = 1.0
"""Wall-clock seconds between two plain lines of one stage."""

REDRAW_EVERY = 0.1
"""Wall-clock seconds between two changes of a bar: a run tells of every node and event."""


class SimProgress(Bars):
    """A `canopy.sim.scenario.run.Progress`; a context manager around the run."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._stage, self._shown_at = "", 0.0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.fill()
        super().__exit__(kind, error, trace)

    def __call__(self, stage: str, at: float, share: float) -> None:
        """`stage` is `share` done (0 to 1) at virtual second `at`."""
        now = time.monotonic()
        pause = REDRAW_EVERY if self.fancy else SHOW_EVERY
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
