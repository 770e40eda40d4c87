"""`canopy sync demo`: a shop and its copy, while the process that keeps them in sync is killed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from random import Random
from typing import Final

import click

from canopy.cli.connect import json_option, open_client
from canopy.cli.display import Bars
from canopy.cli.errors import FAILURE, OK
from canopy.cli.output import print_json
from canopy.cli.parameters import Number
from canopy.cli.sync.manage import lag_picture

WHERE: Final = "total > 100"
PAUSE: Final = 0.01
"""Seconds between two transactions of the shop."""


@click.command()
@click.option("--duration", type=Number(min=1), default=20.0, help="Seconds of business.")
@click.option("--to", "target", default="", metavar="URL", help="The copy; default: a SQLite file.")
@json_option
@click.pass_context
def demo(ctx: click.Context, duration: float, target: str, as_json: bool) -> None:
    """Copy the larger orders of a small shop in SQLite through a node, while rows change and
    `canopy sync run` is killed twice, and compare both sides at the end. All files are in a folder
    that is removed at the end. Exit code 0: identical.

    \b
    canopy sync demo
    canopy sync demo --to postgresql://localhost/test
    """
    folder = Path(tempfile.mkdtemp(prefix="canopy-sync-demo-"))
    try:
        with ExitStack() as stack:
            copy = target or f"sqlite:{folder / 'copy.db'}"
            code = _Demo(folder, duration, copy, stack, as_json).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ctx.exit(code)


class _Demo:
    def __init__(
        self, folder: Path, duration: float, target: str, stack: ExitStack, as_json: bool
    ) -> None:
        self._as_json = as_json
        self._env = os.environ | {
            "CANOPY_CONNECT": str(folder / "node"),
            "CANOPY_SYNCS": str(folder / "syncs.json"),
        }
        self._folder = folder
        self._duration = duration
        self._target = target
        self._stack = stack
        self._rng = Random(1)
        self._lags: list[float | None] = []
        self._counts: dict[str, int] = {}

    def run(self) -> int:
        """Run the demo, and return the exit code."""
        self._started("node", "--data", str(self._folder / "node"), "--listen", "127.0.0.1:0")
        with open_client(str(self._folder / "node"), wait=30.0):
            pass
        shop = self._shop()
        source = f"sqlite:{self._folder / 'shop.db'}"
        self._done("stream", "add", "shop", "--replicas", "1")
        where = ("--where", f"orders: {WHERE}")
        self._done(
            "sync",
            "add",
            "demo",
            "--stream",
            "shop",
            "--from",
            source,
            *where,
            "--to",
            self._target,
        )
        self._business(shop)
        said = self._done("sync", "verify", "demo", check=False)
        if self._as_json:
            is_same = said.returncode == 0
            print_json({**self._counts, "identical": is_same, "lags": self._lags})
        else:
            self._say(said.stdout.strip())
        if not self._target.startswith("sqlite:"):
            self._done("sync", "rm", "demo")
        return OK if said.returncode == 0 else FAILURE

    def _say(self, verdict: str) -> None:
        click.echo(
            "{changes:,} changes; canopy sync run was killed {killed} times".format(**self._counts)
        )
        click.echo(verdict)
        unknown = " (?: before its first rows, or not known)" if None in self._lags else ""
        click.echo(f"lag of the copy, at most {lag_picture(self._lags)}{unknown}")

    def _business(self, shop: sqlite3.Connection) -> None:
        """Change rows all the time, and kill `canopy sync run` after a third and two thirds of the
        duration."""
        process = self._started("sync", "run")
        began, killed, changes = time.monotonic(), 0, 0
        with Bars() as bars:
            bars.begin("orders come, change and go", self._duration)
            while (passed := time.monotonic() - began) < self._duration:
                if passed > (killed + 1) * self._duration / 3 and killed < 2:
                    process.kill()
                    process.wait()
                    killed += 1
                    process = self._started("sync", "run")
                changes += self._change(shop)
                bars.show(passed, self._duration, f"{changes:,} changes, {killed} kills")
                if len(self._lags) < int(60 * passed / self._duration):
                    self._lags.append(self._lag())
                time.sleep(PAUSE)
        self._counts = {"changes": changes, "killed": killed}

    def _change(self, shop: sqlite3.Connection) -> int:
        shop.execute("BEGIN")
        for _ in range(5):
            total = self._rng.randint(1, 200)
            shop.execute("INSERT INTO orders (item, total) VALUES ('book', ?)", (total,))
        shop.execute("UPDATE orders SET total = 200 - total WHERE id % 50 = ?", (total % 50,))
        shop.execute("DELETE FROM orders WHERE id % 97 = ?", (total % 97,))
        shop.execute("COMMIT")
        return 7

    def _lag(self) -> float | None:
        """Return by how many seconds the copy is behind; None if unknown."""
        from canopy.sync.databases import open_destination

        with suppress(Exception), closing(open_destination("demo", self._target)) as copy:
            commit = copy.progress().commit
            if commit is not None and commit.time:
                return max(0.0, time.time() - float(commit.time))
        return None

    def _shop(self) -> sqlite3.Connection:
        path = self._folder / "shop.db"
        shop = self._stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
        shop.execute("PRAGMA journal_mode = WAL")
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, total INTEGER)")
        return shop

    def _started(self, *args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "canopy", *args]
        process = subprocess.Popen(
            command, env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        return process

    def _done(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "canopy", *args]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, check=check)
