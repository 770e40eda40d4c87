"""`canopy tui`: the Textual terminal UI on a node."""

from __future__ import annotations

import click

from canopy.cli.connect import connect_option


@click.command()
@connect_option
def tui(connect: str | None) -> int:
    """Subscribe, watch matching events, see the overlay, and ask why an event came.

    Works on any terminal of 80x24 and more. F1 shows the keys, Ctrl-P all actions.

    \b
    canopy tui
    canopy tui --connect /tmp/b
    """
    from canopy.tui.app import run

    return run(connect)
