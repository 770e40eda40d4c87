"""The pictures of README and guides: the terminal UI, and the report of an analysis.

    python -m bench.lab.pictures                    # into docs/pictures
    python -m bench.lab.pictures --out build/pictures

Three nodes are started as processes; `canopy sample earthquakes` is published at one, and the
terminal UI of another subscribes and is left as SVG. Then the nodes' traces are analysed, and the
head of the report is left as PNG, if there is a Chromium (`chromium` or `google-chrome`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final

from textual.widgets import Input

from bench.lab.record import ROOT
from canopy.tui.app import CanopyApp
from canopy.tui.model.requester import connector
from canopy.tui.widgets.selector_input import SelectorInput

SELECTORS: Final = {
    "alaska": "mag >= 4 AND place LIKE '%Alaska'",
    "large": "mag > 5",
    "asia": "place LIKE '%Japan' OR place LIKE '%Nepal'",
}
SIZE: Final = (118, 32)
"""Columns and lines of the terminal."""

PATIENCE: Final = 120.0
"""Seconds for anything to happen, on a busy machine; ample."""

FIRST_PORT: Final = 4480


async def terminal(data: Path, picture: Path, publish: Callable[[], None]) -> None:
    """Subscribe in the terminal UI of a node, publish, and leave its screen as `picture`."""
    app = CanopyApp(connector(str(data)))
    async with app.run_test(size=SIZE) as pilot:

        async def until(holds: Callable[[], object]) -> None:
            async with asyncio.timeout(PATIENCE):
                while not holds():
                    await pilot.pause(0.05)

        await until(lambda: app.attachment.up)

        def more_than(count: int) -> bool:
            return len(app.attachment.subscriptions) > count

        for there, (name, selector) in enumerate(SELECTORS.items()):
            await pilot.press("a")
            await until(lambda: app.screen.query("SelectorInput Input"))
            app.screen.query_one(SelectorInput).query_one(Input).value = selector
            app.screen.query_one("#name", Input).value = name
            await until(lambda: not app.screen.query_one("#ok").disabled)
            await pilot.press("enter")
            await until(partial(more_than, there))
        await pilot.pause(2.0)  # until all are acknowledged
        await asyncio.to_thread(publish)
        await pilot.pause(2.0)  # until the events are there and drawn
        picture.write_text(app.export_screenshot(title="canopy tui"), encoding="utf-8")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.lab.pictures` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.lab.pictures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures", metavar="DIR")
    out: Path = parser.parse_args(args).out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="canopy-pictures-") as folder:
        home = Path(folder)
        os.environ["XDG_STATE_HOME"] = folder  # where the terminal UI keeps its subscriptions
        nodes = [home / f"node{number}" for number in range(3)]
        for place, data in enumerate(nodes):
            options = ["--listen", f"127.0.0.1:{FIRST_PORT + place}", "--data", str(data)]
            options += ["--peer", f"127.0.0.1:{FIRST_PORT}"] if place else []
            log = (home / f"{data.name}.log").open("wb")
            canopy("node", *options, "--trace-dir", str(home / "traces"), output=log)
            canopy("status", "--connect", str(data), "--wait", str(PATIENCE)).wait()

        def publish() -> None:
            sample = canopy("sample", "earthquakes", "--events", "60", output=subprocess.PIPE)
            canopy("pub", "-", "--connect", str(nodes[1]), source=sample.stdout).wait()

        asyncio.run(terminal(nodes[2], out / "tui.svg", publish))
        print(f"{out / 'tui.svg'}")
        for data in nodes:
            canopy("stop", "--connect", str(data)).wait()
        canopy("trace", "analyze", str(home / "traces"), "--out", str(home / "report")).wait()
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        if browser is None:
            print("no Chromium here: the report is not pictured", file=sys.stderr)
            return 1
        page = (home / "report" / "report.html").as_uri()
        shot = [f"--screenshot={out / 'report.png'}", "--window-size=1180,1000", page]
        subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *shot],
            check=True,
            capture_output=True,
        )
        print(f"{out / 'report.png'}")
    return 0


def canopy(
    *words: str,
    output: int | IO[bytes] = subprocess.DEVNULL,
    source: int | IO[bytes] | None = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """A command of ours, as a process."""
    command = [sys.executable, "-m", "canopy", *words]
    silent = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=ROOT, stdin=source, stdout=output, stderr=silent)


if __name__ == "__main__":
    sys.exit(main())
