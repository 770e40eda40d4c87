"""The group `canopy stream`, with its subcommands."""

from __future__ import annotations

import click

from canopy.cli.hints import HintingGroup
from canopy.cli.streams.change import edit, edit_group
from canopy.cli.streams.check import check, verify
from canopy.cli.streams.dead import dead, forget
from canopy.cli.streams.export import export, get
from canopy.cli.streams.manage import add, info, ls, rm


@click.group(cls=HintingGroup)
def stream() -> None:
    """Durable streams: events that are kept in order on several nodes.

    \b
    canopy stream add alarms
    canopy stream ls
    canopy stream info alarms
    """


for part in (add, ls, info, edit, edit_group, rm, get, dead, forget, export, check, verify):
    stream.add_command(part)
