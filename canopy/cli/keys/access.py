"""`canopy access`: programs on other machines that may use a node; and the options and listings
that their tokens share with those of a gateway."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from canopy.cli.connect import json_option
from canopy.cli.hints import HintingGroup
from canopy.cli.keys.command import data_option, key_folder, seconds_of, when
from canopy.cli.output import console, print_json, table

if TYPE_CHECKING:
    from canopy.wire.token_file import ProgramToken


where_option = click.option(
    "--where",
    "subscribe",
    metavar="SELECTOR",
    default="",
    help="Limit subscriptions to this selector.",
)
publishes_option = click.option(
    "--publishes",
    "publish",
    metavar="SELECTOR",
    default="",
    help="Limit publications to this selector.",
)
streams_option = click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="STREAM",
    help="Append to this stream, or those of a pattern (logs_*); repeatable. [default: none]",
)
term_option = click.option(
    "--for", "term", metavar="TIME", default="", help="How long: 1h, 30d. [default: for ever]"
)

SHOWN = ("name", "scopes", "publish", "subscribe", "streams", "created", "expires")
"""The fields of a token in JSON: all but its hash."""


def as_fields(token: ProgramToken) -> dict[str, Any]:
    """Return a token's fields for JSON, without its hash."""
    return {name: getattr(token, name) for name in SHOWN}


def print_tokens(tokens: Sequence[ProgramToken], without: str) -> None:
    """Print a table of tokens, or the text `without` if there are none."""
    shown = table("=name", "scopes", "subscribes", "publishes", "appends to", "until")
    now = time.time()
    for one in tokens:
        until = when(one.expires) if one.expires else "for ever"
        shown.add_row(
            one.name,
            ", ".join(one.scopes),
            one.subscribe or "any",
            one.publish or "any",
            ", ".join(one.streams) or "no stream",
            "expired" if one.is_expired(now) else until,
        )
    console().print(shown if tokens else without)


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
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["publish", "subscribe", "observe", "admin"]),
    multiple=True,
    required=True,
    help="Permission that it gives (repeatable).",
)
@where_option
@publishes_option
@term_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the access file there, readable for you alone. [default: NAME.access]",
)
@streams_option
@data_option
@json_option
def add(
    name: str,
    address: str,
    scopes: tuple[Any, ...],
    subscribe: str,
    publish: str,
    streams: tuple[str, ...],
    term: str,
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
    from matching import compile_selector

    try:
        split_address(address)
    except ValueError as error:
        raise click.UsageError(f"--address: {error}") from None
    for selector in filter(None, (subscribe, publish)):
        compile_selector(selector)
    if (subscribe or publish) and {"observe", "admin"} & set(scopes):
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
    tokens = token_file(folder.path.parent)
    kept = tuple(dict.fromkeys(scopes))
    lifetime = seconds_of(term) if term else 0.0
    secret = tokens.add(name, kept, publish, subscribe, lifetime, streams)
    write_access(path, AccessFile(1, address, own.principal.id, secret))
    until = time.time() + lifetime if term else 0
    folder.note("access given", token=name, scopes=kept, until=until)
    if as_json:
        about = {"name": name, "file": str(path), "address": address}
        print_json({**about, "scopes": kept, "expires": until})
        return
    click.echo(f"{path} lets its program in at {address}; send it as you would a password")


@access.command()
@json_option
@data_option
def ls(as_json: bool, data: Path | None) -> None:
    """List the tokens, their rights, and when they expire."""
    from canopy.wire.control.remote import token_file

    found = token_file(key_folder(data).path.parent).all()
    if as_json:
        print_json([as_fields(one) for one in found])
    else:
        print_tokens(found, "no tokens; canopy access add NAME makes one")


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
    if as_json:
        print_json({"removed": name})
