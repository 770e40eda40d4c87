"""`canopy tui`: the terminal UI (Textual) of a node."""

from __future__ import annotations

import click

from canopy.cli.connect import connect_option, open_client, seal_file, seal_option
from canopy.cli.extras import require


@click.command()
@click.option("--fresh", is_flag=True, help="Start without the subscriptions of the last time.")
@seal_option
@connect_option
def tui(fresh: bool, connect: str | None, wait: float) -> int:
    """Subscribe, watch matching events and the overlay, and ask why an event was delivered.

    Needs a terminal of at least 80x24 characters. F1 shows the keys, Ctrl-P all actions.
    Subscriptions are saved per node and made again at the next start.

    \b
    canopy tui
    canopy tui --connect /tmp/b
    canopy tui --fresh
    """
    require("tui")
    from canopy.tui.app import run

    open_client(connect, wait).close()
    return run(connect, fresh, seal_file())
