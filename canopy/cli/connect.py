"""Options that commands share, and the connection to a node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from canopy.cli.completion import context_names
from canopy.cli.constants import WAIT, WAIT_INTERVAL, WAIT_SILENTLY
from canopy.cli.parameters import Number
from canopy.feeds.constants import FORMATS

if TYPE_CHECKING:
    from canopy.client.client import Client
    from overlay.client import Command, Reply

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound="Reply")

format_option = click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="auto", help="The file's format."
)

SEAL: Final = "canopy.seal"
"""The key of the seal file in the context of a command."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")

quiet_option = click.option("--quiet", is_flag=True, help="No progress on standard error.")


def resolve_folder(where: str | None) -> str | None:
    """Return the data folder that `--connect` names.

    That is the folder of the context `where`, or else `where` itself. A path with a slash is never
    a context. None gives the folder of the current context; without one it gives None, the default
    folder. Raises ContextError; raises UnknownContextError if there are contexts and `where` is
    neither one of them nor a file.
    """
    from canopy.client.contexts import read_contexts

    if where is None:
        return read_contexts().current_folder()
    if "/" in where or ":" in where:
        return where
    contexts = read_contexts()
    if contexts.folders and where not in contexts.folders and not os.path.exists(where):
        return contexts.folder(where)  # raises with the names that there are
    return contexts.folders.get(where, where)


def _located(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return resolve_folder(value)


def connect_option(command: F) -> F:
    """Add `--connect NODE` (environment CANOPY_CONNECT) and `--wait` (CANOPY_WAIT) to a command.

    NODE is a data folder or the name of a context; the command gets the folder as its argument
    `connect`, and the seconds as `wait`.
    """
    waiting = click.option(
        "--wait",
        envvar="CANOPY_WAIT",
        type=Number(min=0),
        default=WAIT,
        metavar="SECONDS",
        help="Seconds to wait for a node that is starting. [env: CANOPY_WAIT]",
    )
    return click.option(
        "--connect",
        envvar="CANOPY_CONNECT",
        metavar="NODE",
        callback=_located,
        shell_complete=context_names,
        help="Data folder (or control socket) of the node, an access file (`canopy access`), or "
        "the name of a context. "
        "[env: CANOPY_CONNECT; default: the current context, else the default data folder]",
    )(waiting(command))


def _keep_seal(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    ctx.meta[SEAL] = value


def seal_option(command: F) -> F:
    """Add `--seal FILE` (environment CANOPY_SEAL), which `open_client` takes into account."""
    return click.option(
        "--seal",
        envvar="CANOPY_SEAL",
        metavar="FILE",
        callback=_keep_seal,
        expose_value=False,
        help="Seal payloads that leave, and open those that come, with the keys of this file "
        "(`canopy keys seal`). [env: CANOPY_SEAL]",
    )(command)


def seal_file() -> str | None:
    """Return the seal file of the running command; None if it has none."""
    ctx = click.get_current_context(silent=True)
    found: str | None = None if ctx is None else ctx.meta.get(SEAL)
    return found


@dataclass(frozen=True)
class NodeOptions:
    """The options of a command that asks a node."""

    where: str | None
    """The data folder, the socket or the access file; None: the default folder."""
    wait: float
    """Seconds to wait for a node that is starting."""
    timeout: float
    """Seconds to wait for an answer."""
    as_json: bool

    def open(self, reconnect: float = 0.0) -> Client:
        """Connect to the node, as `open_client`."""
        return open_client(self.where, self.wait, reconnect)

    def ask(self, command: Command, kind: type[R]) -> R:
        """Connect, ask the node one command, and return its reply. Raises as `open_client` and
        `Client.ask`."""
        with self.open() as client:
            return client.ask(command, kind, self.timeout)


def node_options_within(timeout: float, text: str) -> Callable[[Callable[..., Any]], Any]:
    """Return `node_options` with another default of `--timeout`, in seconds, and with this help."""

    def decorated(command: Callable[..., Any]) -> Any:
        @wraps(command)
        def called(
            *args: Any, connect: str | None, wait: float, timeout: float, as_json: bool, **more: Any
        ) -> Any:
            return command(*args, node=NodeOptions(connect, wait, timeout, as_json), **more)

        seconds = Number(min=0, min_open=True)
        option = click.option("--timeout", type=seconds, default=timeout, help=text)
        return json_option(option(connect_option(called)))

    return decorated


node_options = node_options_within(
    30.0, "Seconds to wait for the node's answer; exit code 5 if there is none."
)
"""Adds the options of commands that ask a node: `--json`, `--timeout`, and those of
`connect_option`. The command gets them as its argument `node`."""


def open_client(where: str | None, wait: float, reconnect: float = 0.0) -> Client:
    """Connect to the node of the data folder `where`, or of the default folder.

    `wait`: how long to wait for a node that does not run yet, in seconds; a long wait is reported
    on standard error. `reconnect`: how long to look for a node that has gone away, in seconds.
    Raises AddressError if `where` is an address, UnreachableError if no node runs there.
    """
    from canopy.client.client import connect
    from canopy.client.errors import UnreachableError

    began, is_silent = time.monotonic(), True
    while True:
        try:
            return connect(where, reconnect=reconnect, seal=seal_file())
        except UnreachableError as error:
            waited = time.monotonic() - began
            if waited >= wait:
                raise
            if is_silent and waited >= WAIT_SILENTLY:
                is_silent = False
                click.echo(f"waiting {wait:g} s for a node: {error}", err=True)
            time.sleep(WAIT_INTERVAL)
