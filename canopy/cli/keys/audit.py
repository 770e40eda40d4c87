"""`canopy audit`: the record of changes to keys, rights and policies at a node."""

from __future__ import annotations

from pathlib import Path

import click

from canopy.cli.connect import json_option
from canopy.cli.errors import FAILURE
from canopy.cli.hints import HintingGroup
from canopy.cli.keys.command import data_option
from canopy.cli.output import show


@click.group(cls=HintingGroup)
def audit() -> None:
    """Check the record of changes to keys, rights and policies at a node.

    \b
    canopy audit verify
    """


@audit.command()
@data_option
@click.option("--expect", default="", metavar="HASH", help="The last hash, as noted elsewhere.")
@json_option
def verify(data: Path | None, expect: str, as_json: bool) -> None:
    """Check that no line of the node's audit file was changed, removed or inserted.

    Each line has the hash of all lines before it. Note the last hash on another machine from time
    to time: with --expect it is looked for, which detects a file whose end was cut off.

    \b
    canopy audit verify
    canopy audit verify --expect 5be1…
    """
    from canopy.wire.audit import NAME
    from canopy.wire.audit import verify as check
    from canopy.wire.folder import default_folder

    folder = data or default_folder()
    try:
        found = check(folder)
        text = (folder / NAME).read_text("utf-8", "replace") if expect else ""
    except OSError as error:
        raise click.UsageError(f"{folder / NAME}: {error.strerror}") from None
    damage = found.damage
    if not damage and expect and f'"hash":"{expect}"' not in text:
        damage = f"no line has the hash {expect}: the end was cut off, or it is another node's"
    said = f"{found.lines} lines, whole; last hash {found.last}"
    said = f"{found.lines} lines are whole; {damage}" if damage else said
    show({"lines": found.lines, "last": found.last, "damage": damage}, as_json, said)
    if damage:
        raise SystemExit(FAILURE)
