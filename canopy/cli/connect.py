"""Options that commands share, and the connection to a node."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from canopy.cli.constants import FORMATS
from canopy.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from canopy.client.synchronous import Client

F = TypeVar("F", bound=Callable[..., Any])

ADDRESS: Final = re.compile(r"[^/\\]+:\d+")

format_option = click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="auto", help="The file's format."
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    help="Seconds to wait for the node's answer; exit code 5 if there is none.",
)


def connect_option(command: F) -> F:
    """Add `--connect FOLDER` (environment CANOPY_CONNECT) as the argument `connect`."""
    return click.option(
        "--connect",
        envvar="CANOPY_CONNECT",
        metavar="FOLDER",
        help="Data folder (or control socket) of the node. [env: CANOPY_CONNECT; default: the "
        "default data folder]",
    )(command)


def node_options(command: F) -> F:
    """Add the options of a command that asks a node: `--json`, `--timeout` and `--connect`."""
    return json_option(timeout_option(connect_option(command)))


def open_client(where: str | None, reconnect: float = 0.0) -> Client:
    """Connect to the node of the data folder `where`, or of the default one. `reconnect`: seconds
    for which a node that goes away is looked for.

    Raises CommandError for an address, UnreachableError if no node runs there.
    """
    from canopy.client.synchronous import connect

    if where is not None and ADDRESS.fullmatch(where) and not Path(where).exists():
        raise CommandError(
            f"{where} is an address, and the control socket over TCP needs TLS, which this "
            f"version does not have; give the node's data folder",
            USAGE,
        )
    return connect(where, reconnect=reconnect)
