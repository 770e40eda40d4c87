"""Options and arguments that the commands of `canopy sync` share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from canopy.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from canopy.sync.definitions import Definition

F = TypeVar("F", bound=Callable[..., Any])


def _located(ctx: click.Context, option: click.Parameter, value: str | None) -> Path:
    from canopy.sync.definitions import definitions_path

    return definitions_path() if value is None else Path(value)


def config_option(command: F) -> F:
    """Add `--config FILE` as the argument `config`, a path."""
    return click.option(
        "--config",
        metavar="FILE",
        envvar="CANOPY_SYNCS",
        callback=_located,
        help="File that defines the syncs. [env: CANOPY_SYNCS; default: syncs.json beside the "
        "user's contexts]",
    )(command)


def _database(ctx: click.Context, option: click.Parameter, value: str) -> str:
    from canopy.cli.arguments import hide_secrets
    from canopy.sync.databases import PASSWORD
    from canopy.wire.private_file import PrivateFileError, secret_in

    if PASSWORD.search(value):
        name, secret = option.opts[0], re.compile(PASSWORD.pattern.encode())
        hide_secrets(secret, f"{name} URL", f"use {name} @FILE, a private file that has the URL")
    try:
        return secret_in(value)
    except PrivateFileError as error:
        raise click.BadParameter(str(error)) from None


def database_option(name: str, parameter: str, help_: str) -> Callable[[F], F]:
    """Add an option with the URL of a database as the argument `parameter`."""
    help_ += "  @FILE: a private file that has the URL."
    return click.option(name, parameter, default="", callback=_database, metavar="URL", help=help_)


def chosen(config: Path, names: tuple[str, ...]) -> list[Definition]:
    """Return the definitions of these names, or all if there are no names. Raises CommandError."""
    from canopy.sync.definitions import read_definitions

    known = read_definitions(config)
    for name in names:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise CommandError(f"there is no sync {name} in {config}; there are: {there}", USAGE)
    return [known[name] for name in names] if names else list(known.values())


def by_table(
    ctx: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Parse `TABLE: TEXT` options to a dictionary. Raises BadParameter."""
    found = {}
    for value in values:
        table, colon, text = value.partition(":")
        if not (colon and text.strip()):
            raise click.BadParameter(f"{value!r}: give TABLE: {option.metavar or ''}".rstrip())
        found[table.strip()] = text.strip()
    return found
