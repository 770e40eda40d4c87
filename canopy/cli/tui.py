"""`canopy tui`: the terminal UI (Textual) of a node."""

from __future__ import annotations

import click

from canopy.cli.connect import connect_option, open_client
from canopy.cli.extras import require


@click.command()
@connect_option
def tui(connect: str | None, wait: float) -> int:
    """Subscribe, watch matching events and the overlay, and ask why an event was delivered.

    Needs a terminal of at least 80x24 characters. F1 shows the keys, Ctrl-P all actions.

    \b
    canopy tui
    canopy tui --connect /tmp/b
    """
    require("tui")
    from canopy.tui.app import run

    open_client(connect, wait).close()
    return run(connect)
