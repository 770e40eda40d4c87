"""Phoenix's figures 4 to 7: failures as a monitor shows them, played in real processes.

    python -m bench.recovery.screens --out build/phoenix
    python -m bench.recovery.screens --out build/phoenix --kill primary cluster --json

For each failure an overlay of real processes is started, and events are published; the link, the
primary, a match broker or a whole cluster is lost as in `bench.recovery.measure`. The terminal UI
(`canopy tui`) of the publisher's node, which is in no cluster, is the monitor. Its screens are left
as SVG: the ring before the loss and after it, and what the node saw of it (its incidents; for a
link its neighbours). A line per failure says how long deliveries took to flow again.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.command import parser, show
from bench.recovery.monitor import Monitor
from bench.recovery.trial import ProcessTrial, Say
from canopy.cli.demo.plan import DemoError
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from harness.recovery.plan import TrialError

FIGURES: Final = {"link": 4, "broker": 5, "primary": 6, "cluster": 7}
"""The figure of the paper for each failure. The captions cannot be read in the copy that there is;
this is the order of its text."""

RATE: Final = 200.0
"""Events per second: the pictures are about the overlay, which should not have to share its
processors with their load."""

NOTICED: Final = 1.0
"""Seconds from the loss to the picture of it: its peers have noticed, and have not done all."""


class WatchedTrial(ProcessTrial):
    """A trial that a monitor at the publisher's node watches."""

    def __init__(self, kill: str, out: Path, pictures: Path, say: Say) -> None:
        super().__init__(kill, RATE, out, 0.0, say)
        self._pictures = pictures
        self._named = f"figure-{FIGURES[kill]}-{kill}"
        self.monitor: Monitor | None = None

    def _kill(self, victims: tuple[str, ...]) -> float:
        """As a trial does, with pictures before it and soon after."""
        self.monitor = Monitor(self.source.data, self._pictures)
        self.stack.callback(self.monitor.close)
        self._take("before", "ring", "before the loss")
        self.monitor.line()  # it takes a while to start
        killed_at = super()._kill(victims)
        where = "node" if self.kill == "link" else "incidents"
        self._take("lost", where, f"{NOTICED:g} s after the loss", NOTICED)
        return killed_at

    def _quiet(self, client: ControlClient) -> None:
        """As a trial does, with pictures of what came of it."""
        self._take("after", "ring", "after the recovery")
        self._take("incidents", "incidents", "what the node saw")
        super()._quiet(client)

    def _take(self, moment: str, tab: str, words: str, after: float = 0.0) -> None:
        assert self.monitor is not None
        title = f"Phoenix, figure {FIGURES[self.kill]}: loss of the {self.kill}, {words}"
        self.monitor.picture(f"{self._named}-{moment}", tab, title, after)


def play(kill: str, pictures: Path, say: Say) -> dict[str, Any]:
    """One failure; its row. Raises TrialError, DemoError or ControlError where nothing is shown."""
    with tempfile.TemporaryDirectory(prefix="canopy-bench-") as work:
        trial = WatchedTrial(kill, Path(work), pictures, say)
        row = trial.run()
    assert trial.monitor is not None
    written = [name for name in trial.monitor.pictures if (pictures / name).exists()]
    return {"figure": FIGURES[kill], "kill": kill, "pictures": written, **row}


def main(args: Sequence[str] | None = None) -> int:
    """Play the failures that are named, and write their pictures."""
    made = parser(__doc__)
    made.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    made.add_argument("--kill", nargs="+", choices=tuple(FIGURES), default=list(FIGURES))
    given = made.parse_args(args)
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for kill in given.kill:
        try:
            row = play(kill, given.out, lambda text: None)
        except (TrialError, DemoError, ControlError) as error:
            print(f"{kill}: not shown: {error}", file=sys.stderr)
            continue
        rows.append(row)
    show(rows, given)
    return 0 if len(rows) == len(given.kill) and all(row["recovered"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
