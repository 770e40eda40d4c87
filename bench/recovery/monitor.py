"""A node's terminal UI without a terminal, whose screens are left as pictures (SVG).

`python -m bench.recovery.monitor DATA` reads from its standard input a line for each picture, its
fields divided by tabs: seconds to wait, the tab of the overlay to show, the file, the title. It
prints the file's name when the picture is written, and ends with its input. `Monitor` is that
process as seen by who plays a failure (screens.py).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.lab.record import ROOT
from canopy.tui.app import CanopyApp
from canopy.tui.model.requester import Connector, connector

SIZE: Final = (132, 36)
"""Columns and lines of the screen."""

ANSWERED: Final = 1.0
"""Seconds for the node to answer what a tab shows, and for that to be drawn; ample."""

WRITTEN: Final = 60.0
"""Seconds for the last picture to be written, on a busy machine; ample."""


class Monitor:
    """The process with the terminal UI of the node in a data folder."""

    def __init__(self, data: Path, out: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.recovery.monitor", str(data)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.out = out
        self.pictures: list[str] = []
        """The names of the files that were asked for."""

    def picture(self, name: str, tab: str, title: str, after: float = 0.0) -> None:
        """Have the screen with this tab of the overlay written, `after` so many seconds. Returns at
        once; pictures are written in the order in which they are asked for, and `line` returns the
        next one that is."""
        assert self.process.stdin is not None
        file = f"{name}.svg"
        self.pictures.append(file)
        print(after, tab, self.out / file, title, sep="\t", file=self.process.stdin, flush=True)

    def line(self) -> str:
        """The name of the next picture that is written; empty if the process has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        """End it when all pictures are written."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(WRITTEN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


async def watch(connect: Connector, next_line: Callable[[], str]) -> None:
    """Show the overlay of the node that `connect` connects to, and write a picture for each line;
    an empty one is the end. `next_line` may block."""
    app = CanopyApp(connect)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2")
        while line := await asyncio.to_thread(next_line):
            after, tab, file, title = line.rstrip("\n").split("\t")
            await asyncio.sleep(float(after))
            app.screen.query_one("#tabs").active = tab  # type: ignore[attr-defined]
            await pilot.press("r")
            await asyncio.sleep(ANSWERED)
            await pilot.pause()
            Path(file).write_text(app.export_screenshot(title=title), encoding="utf-8")
            print(file, flush=True)


def main(args: Sequence[str] | None = None) -> int:
    """Watch the node whose data folder is named."""
    (data,) = sys.argv[1:] if args is None else args
    asyncio.run(watch(connector(data), sys.stdin.readline))
    return 0


if __name__ == "__main__":
    sys.exit(main())
