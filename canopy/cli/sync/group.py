"""The group `canopy sync`, with its subcommands."""

from __future__ import annotations

import click

from canopy.cli.hints import HintingGroup
from canopy.cli.sync.demo import demo
from canopy.cli.sync.manage import add, ls, rm
from canopy.cli.sync.run import run
from canopy.cli.sync.verify import verify


@click.group(cls=HintingGroup)
def sync() -> None:
    """Keep databases consistent over streams.

    \b
    canopy stream add shop
    canopy sync add shop --stream shop --from sqlite:shop.db --to postgresql://localhost/copy
    canopy sync run
    canopy sync verify shop
    """


for part in (add, run, ls, verify, rm, demo):
    sync.add_command(part)
