"""`canopy context`: names for the data folders of nodes.

The file of contexts (canopy/client/contexts.py) is replaced as a whole, under a lock, so that a
reader never sees half of it and two writers lose nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from canopy.cli.completion import context_names
from canopy.cli.connect import json_option
from canopy.cli.errors import USAGE, CommandError
from canopy.cli.hints import HintingGroup
from canopy.cli.output import TextTable, show
from canopy.client.contexts import Contexts, contexts_path, read_contexts
from canopy.wire.durable import PRIVATE, write_durably

NAME: Final = re.compile(r"[^\W_][\w.-]{0,63}")


class ChangedContexts(Contexts):
    """Contexts that are being changed."""

    def add(self, name: str, folder: Path) -> None:
        """Add a context for a folder, which may not exist yet. Raises CommandError if `name` is
        invalid or taken."""
        if not NAME.fullmatch(name):
            raise CommandError(
                f"{name!r} is no name of a context: letters, digits, _ . and -, at most 64", USAGE
            )
        if name in self.folders:
            raise CommandError(f"there is a context {name}, of {self.folders[name]}; rm it first")
        self.folders[name] = os.path.abspath(folder.expanduser())

    def use(self, name: str) -> None:
        """Make the context `name` the current one; "" for none. Raises UnknownContextError."""
        if name:
            self.folder(name)
        self.current = name

    def remove(self, name: str) -> None:
        """Remove the context; its folder stays. Raises UnknownContextError."""
        self.folder(name)
        del self.folders[name]
        if self.current == name:
            self.current = ""


@contextmanager
def changed_contexts() -> Iterator[ChangedContexts]:
    """Give the user's contexts to a block that changes them, and write them when it ends without an
    error. Raises the errors of `read_contexts`."""
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(path.parent / "contexts.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_contexts()
        found = ChangedContexts(before.folders, before.current)
        yield found
        text = json.dumps({"current": found.current, "folders": found.folders}, indent=2) + "\n"
        write_durably(path, text, PRIVATE)
    finally:
        os.close(lock)


name_argument = click.argument("name", shell_complete=context_names)


@click.group(cls=HintingGroup)
def context() -> None:
    """Name the data folders of nodes, for `--connect NAME`.

    The current context is the node that commands mean without --connect and CANOPY_CONNECT. Names
    are kept in ~/.config/canopy/contexts.json (or under $XDG_CONFIG_HOME).

    \b
    canopy context add lab /srv/canopy/lab --use
    canopy context ls
    canopy status                          # of lab
    canopy status --connect home           # of another one
    """


@context.command()
@name_argument
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--use", "is_used", is_flag=True, help="Make it the current context, too.")
@json_option
def add(name: str, folder: Path, is_used: bool, as_json: bool) -> None:
    """Name the data folder FOLDER, where a node may run later.

    \b
    canopy context add lab /srv/canopy/lab
    """
    with changed_contexts() as contexts:
        contexts.add(name, folder)
        if is_used:
            contexts.use(name)
    show(_shown(read_contexts(), name), as_json)


@context.command()
@click.argument("name", shell_complete=context_names, required=False, default="")
@click.option("--none", is_flag=True, help="Use none: the default data folder is meant again.")
@json_option
def use(name: str, none: bool, as_json: bool) -> None:
    """Make NAME the node that commands mean without --connect and CANOPY_CONNECT.

    \b
    canopy context use lab
    canopy context use --none
    """
    if none == bool(name):
        raise click.UsageError("give a name, or --none")
    with changed_contexts() as contexts:
        contexts.use(name)
    show(_shown(read_contexts(), name) if name else {"current": ""}, as_json)


@context.command()
@json_option
def ls(as_json: bool) -> None:
    """List the contexts; the current one has a star.

    \b
    canopy context ls --json | jq -r '.[] | select(.current) | .folder'
    """
    contexts = read_contexts()
    found: list[dict[str, Any]] = [_shown(contexts, name) for name in sorted(contexts.folders)]
    rows = TextTable("", "=name", "data folder").of(
        ("*" if one["current"] else "", one["name"], one["folder"]) for one in found
    )
    show(found, as_json, rows or "no contexts; canopy context add NAME FOLDER makes one")


@context.command()
@name_argument
@json_option
def rm(name: str, as_json: bool) -> None:
    """Forget the name NAME; the node and its data folder stay.

    \b
    canopy context rm lab
    """
    with changed_contexts() as contexts:
        contexts.remove(name)
    show({"removed": name}, as_json)


def _shown(contexts: Contexts, name: str) -> dict[str, Any]:
    """Return one context as an object of `--json`."""
    return {"name": name, "folder": contexts.folders[name], "current": name == contexts.current}
