"""`canopy sync run`: capture and apply, until it is stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from canopy.cli.connect import connect_option, json_option, open_client
from canopy.cli.errors import FAILURE, INTERRUPTED, OK, CommandError
from canopy.cli.output import Markup, TextTable, plain, print_json
from canopy.cli.sync.manage import status_file
from canopy.cli.sync.options import chosen, config_option

if TYPE_CHECKING:
    from canopy.client.client import Client
    from canopy.sync.definitions import Definition
    from canopy.sync.runner import Runner, SideStatus

LOOK: Final = 0.25
"""Seconds between two checks of the sides."""
SAY_EVERY: Final = 10.0
"""Seconds between two lines of output without a terminal."""


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--snapshot", is_flag=True, help="Have the sources of NAME... send all of their rows again."
)
@click.option("--once", is_flag=True, help="End when everything that is committed by now is done.")
@json_option
@config_option
@connect_option
@click.pass_context
def run(
    ctx: click.Context,
    names: tuple[str, ...],
    snapshot: bool,
    once: bool,
    as_json: bool,
    config: Path,
    connect: str | None,
    wait: float,
) -> None:
    """Keep the syncs NAME (default: all) until interrupted: capture what their sources commit, and
    apply it at their destinations. Only the sides that are defined on this machine run.

    The command may be killed at any moment; the next run goes on where it was. It waits for a
    database or node that is away. An error that needs a person (a slot that is gone, a value that
    does not fit) ends that side; when no side is left, the exit code is 1. With --once it is 130 if
    it was interrupted before all was done.

    \b
    canopy sync run
    canopy sync run shop --once
    """
    from canopy.sync.runner import Runner

    definitions = chosen(config, names)
    if not definitions:
        raise CommandError(f"there are no syncs in {config}: canopy sync add")
    if snapshot and not names:
        raise click.UsageError("--snapshot needs the names of the syncs")

    def client(one: Definition) -> Client:
        return open_client(one.connect or connect, wait, reconnect=60.0)

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    snapshots = names if snapshot else ()
    view = _View(config, quiet=as_json)
    is_done = True
    with Runner(definitions, client, snapshots) as runner, view:
        try:
            if once:
                is_done = runner.settle(LOOK, lambda: view.show(runner), stop)
            while not once and runner.is_alive() and not stop.wait(LOOK):
                view.show(runner)
        except KeyboardInterrupt:
            is_done = not once
    view.end(runner)
    statuses = runner.statuses()
    if as_json:
        print_json([plain(status) for status in statuses])
    failed = [status for status in statuses if status.state == "failed"]
    for status in failed:
        click.echo(f"Error: {status.name}, {status.side}: {status.error}", err=True)
    ctx.exit(FAILURE if failed else OK if is_done else INTERRUPTED)


class _View:
    """Shows the sides on a terminal, or prints changes as lines; writes the status file."""

    def __init__(self, config: Path, quiet: bool) -> None:
        self._config = config
        self._quiet = quiet
        self._live: Any = None
        self._said = 0.0
        self._states: dict[tuple[str, str], str] = {}

    def __enter__(self) -> _View:
        if sys.stderr.isatty() and not self._quiet:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, runner: Runner) -> None:
        """Show the present state of all sides."""
        statuses = runner.statuses()
        self._write(statuses)
        if self._live is not None:
            self._live.update(_shown(statuses), refresh=True)
            return
        due = time.monotonic() - self._said >= SAY_EVERY
        for one in statuses:
            changed = self._states.get((one.name, one.side)) != one.state
            self._states[one.name, one.side] = one.state
            if (changed or due) and not self._quiet:
                click.echo(_line(one), err=True)
        if due:
            self._said = time.monotonic()

    def end(self, runner: Runner) -> None:
        """Print how each side has ended, and keep the errors for `canopy sync ls`."""
        statuses = runner.statuses()
        failed = [one for one in statuses if one.state == "failed"]
        self._write(failed)  # for `canopy sync ls`
        for name in {one.name for one in statuses} - {one.name for one in failed}:
            status_file(self._config, name).unlink(missing_ok=True)
        if not self._quiet:
            for one in statuses:
                click.echo(_line(one), err=True)

    def _write(self, statuses: list[SideStatus]) -> None:
        for name in sorted({one.name for one in statuses}):
            sides = [plain(one) for one in statuses if one.name == name]
            path = status_file(self._config, name)
            text = json.dumps({"pid": os.getpid(), "time": time.time(), "sides": sides})
            path.with_suffix(".new").write_text(text, encoding="utf-8")
            path.with_suffix(".new").replace(path)


def _line(one: SideStatus) -> str:
    lag = "" if one.lag is None else f", lag {one.lag * 1000:,.0f} ms"
    error = f": {one.error}" if one.error else ""
    conflicts = f", {one.conflicts:,} conflicts" if one.conflicts else ""
    foreign = f", {one.foreign:,} events passed over" if one.foreign else ""
    rate = f", {one.rate:,.0f}/s" if one.state == "running" else ""
    return (
        f"{one.name} {one.side} {one.state}{error}, {one.changes:,} changes{rate}{lag}{conflicts}"
        f"{foreign}"
    )


def _shown(statuses: list[SideStatus]) -> TextTable:
    colours = {"running": "green", "failed": "red", "waiting": "yellow"}
    columns = ("name", "side", "state", ">changes", ">a second", ">lag", ">conflicts", "error")
    return TextTable(*columns).of(
        (
            *(one.name, one.side),
            Markup(f"[{colours.get(one.state, 'default')}]{one.state}[/]"),
            *(one.changes, f"{one.rate:,.0f}"),
            None if one.lag is None else f"{one.lag * 1000:,.0f} ms",
            *(one.conflicts or None, one.error),
        )
        for one in statuses
    )
