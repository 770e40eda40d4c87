"""`canopy access`: programs on other machines that may use a node; and the options and listings
that their tokens share with those of a gateway."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from canopy.cli.connect import json_option
from canopy.cli.hints import HintingGroup
from canopy.cli.keys.command import data_option, key_folder
from canopy.cli.output import TextTable, show, when
from canopy.cli.parameters import parse_period

if TYPE_CHECKING:
    from canopy.wire.token_file import TokenFile


class TokenRights(NamedTuple):
    """What a new token allows."""

    scopes: tuple[Any, ...]
    subscribe: str
    publish: str
    streams: tuple[str, ...]
    lifetime: float | None
    """In seconds; None: for ever."""

    def give(self, tokens: TokenFile, name: str) -> tuple[str, float]:
        """Make the token `name`. Returns its secret, and when it expires in seconds since 1970 (0:
        never). Raises SelectorError."""
        from matching import compile_selector

        for selector in filter(None, (self.subscribe, self.publish)):
            compile_selector(selector)
        lifetime = self.lifetime or 0.0
        secret = tokens.add(name, self.scopes, self.publish, self.subscribe, lifetime, self.streams)
        return secret, time.time() + lifetime if lifetime else 0.0


def rights_options(*scopes: str, **scope: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that adds the options of new tokens to a command, as one parameter
    `rights`. `scopes`: the permissions to choose from; `scope`: more of the option for them."""

    def decorated(command: Callable[..., Any]) -> Any:
        @wraps(command)
        def called(*arguments: Any, **given: Any) -> Any:
            kept = [given.pop(name) for name in TokenRights._fields]
            kept[0] = tuple(dict.fromkeys(kept[0]))
            return command(*arguments, rights=TokenRights(*kept), **given)

        for option in (
            click.option(
                "--for",
                "lifetime",
                callback=parse_period,
                metavar="PERIOD",
                help="How long: 1h, 30d. [default: for ever]",
            ),
            click.option(
                "--stream",
                "streams",
                multiple=True,
                metavar="STREAM",
                help="Append to this stream, or those of a pattern (logs_*); repeatable. "
                "[default: none]",
            ),
            click.option(
                "--publishes",
                "publish",
                metavar="SELECTOR",
                default="",
                help="Limit publications to this selector.",
            ),
            click.option(
                "--where",
                "subscribe",
                metavar="SELECTOR",
                default="",
                help="Limit subscriptions to this selector.",
            ),
            click.option("--scope", "scopes", type=click.Choice(scopes), multiple=True, **scope),
        ):
            called = option(called)
        return called

    return decorated


SHOWN = ("name", "scopes", "publish", "subscribe", "streams", "created", "expires")
"""The fields of a token in JSON: all but its hash."""


def show_tokens(tokens: TokenFile, as_json: bool, command: str) -> None:
    """Print the tokens in a file, as JSON or as a table. `command` makes one."""
    rows = TextTable("=name", "scopes", "subscribes", "publishes", "appends to", "until")
    for one in tokens.all():
        until = when(one.expires) if one.expires else "for ever"
        rows.add(
            *(one.name, ", ".join(one.scopes), one.subscribe or "any", one.publish or "any"),
            ", ".join(one.streams) or "no stream",
            "expired" if one.is_expired(time.time()) else until,
        )
    found = [{name: getattr(one, name) for name in SHOWN} for one in tokens.all()]
    show(found, as_json, rows or f"no tokens; {command} add NAME makes one")


@click.group(cls=HintingGroup)
def access() -> None:
    """Let programs on other machines use a node, each with a token of its own.

    The node serves them at `clients.listen`, over TLS. A token allows its scopes and nothing else:
    publish, subscribe, observe (status, peers, events, subscriptions), admin (drain, reload,
    streams). It is written into an access file, which programs and commands accept in place of a
    data folder.

    \b
    canopy access add laptop --scope subscribe --address node.example:4471 --out laptop.access
    canopy sub --connect laptop.access "mag >= 4.5"        # on the other machine
    canopy access rm laptop                                # closes its connections, in seconds
    """


@access.command()
@click.argument("name")
@click.option(
    "--address", required=True, metavar="HOST:PORT", help="Where programs reach this node."
)
@rights_options(
    "publish",
    "subscribe",
    "observe",
    "admin",
    required=True,
    help="Permission that it gives (repeatable).",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the access file there, readable for you alone. [default: NAME.access]",
)
@data_option
@json_option
def add(
    name: str,
    address: str,
    rights: TokenRights,
    out: Path | None,
    data: Path | None,
    as_json: bool,
) -> None:
    """Make the token NAME, and write the access file for its program.

    Treat the file as a password; the node keeps only a hash of the secret. With --where the program
    receives the events that match its own selector AND that one. With --where or --publishes it may
    not use streams, nor observe or administer the node.

    \b
    canopy access add sensor --scope publish --publishes "type = 'sensor'" --address a.example:4471
    """
    from canopy.client.remote import AccessFile, write_access
    from canopy.wire.addresses import split_address
    from canopy.wire.control.remote import token_file

    try:
        split_address(address)
    except ValueError as error:
        raise click.UsageError(f"--address: {error}") from None
    if (rights.subscribe or rights.publish) and {"observe", "admin"} & set(rights.scopes):
        raise click.UsageError(
            "--where and --publishes confine nobody who may observe or administer the node"
        )
    folder = key_folder(data)
    own = folder.certificate() if folder.exists else None
    if own is None:
        raise click.UsageError(
            f"the node in {folder.path.parent} has no keys, and programs are served in TLS: "
            f"canopy keys init, or canopy node --join @FILE, makes them"
        )
    path = out or Path(f"{name}.access")
    if path.exists():
        raise click.UsageError(f"there is a file {path} already; choose another with --out")
    secret, until = rights.give(token_file(folder.path.parent), name)
    write_access(path, AccessFile(1, address, own.principal.id, secret))
    folder.note("access given", token=name, scopes=rights.scopes, until=until)
    about = {"name": name, "file": str(path), "address": address}
    said = f"{path} lets its program in at {address}; send it as you would a password"
    show({**about, "scopes": rights.scopes, "expires": until}, as_json, said)


@access.command()
@json_option
@data_option
def ls(as_json: bool, data: Path | None) -> None:
    """List the tokens, their rights, and when they expire."""
    from canopy.wire.control.remote import token_file

    show_tokens(token_file(key_folder(data).path.parent), as_json, "canopy access")


@access.command()
@click.argument("name")
@data_option
@json_option
def rm(name: str, data: Path | None, as_json: bool) -> None:
    """Remove the token NAME. Connections that use it are closed within seconds."""
    from canopy.wire.control.remote import token_file

    folder = key_folder(data)
    token_file(folder.path.parent).remove(name)
    folder.note("access taken", token=name)
    show({"removed": name}, as_json)
