"""`canopy gateway token`: who may use the gateway."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from canopy.cli.connect import json_option
from canopy.cli.hints import HintingGroup
from canopy.cli.keys.command import publishes_option, seconds_of, streams_option, term_option
from canopy.cli.output import console, print_json, table


def _given(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """The file; that of `canopy gateway --tokens FILE token …`, if none is given here."""
    above = ctx.find_object(Path)
    return value or above


file_option = click.option(
    "--tokens",
    "--file",
    "path",
    type=click.Path(path_type=Path),
    callback=_given,
    metavar="FILE",
    help="The file of tokens. [default: gateway-tokens.json in the user's configuration folder]",
)


@click.group(cls=HintingGroup)
def token() -> None:
    """Make, list and remove the tokens of the gateway.

    \b
    canopy gateway token add phone --scope subscribe --where "region = 'eu'" --for 30d
    canopy gateway --tokens ~/.config/canopy/gateway-tokens.json
    """


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["publish", "subscribe", "observe"]),
    multiple=True,
    help="What it allows (repeatable); observe: what the node knows, in the console and under "
    "/api/. [default: publish and subscribe]",
)
@click.option(
    "--where", "subscribe", metavar="SELECTOR", default="", help="Follow no more than this."
)
@publishes_option
@streams_option
@term_option
@file_option
@json_option
def add(
    name: str,
    scopes: tuple[Any, ...],
    subscribe: str,
    publish: str,
    streams: tuple[str, ...],
    term: str,
    path: Path | None,
    as_json: bool,
) -> None:
    """Make the token NAME and print it: it is shown this once.

    What somebody follows with it is what they ask for AND --where, so that the broadest selector
    shows no more. It appends to no stream but those of --stream.

    \b
    canopy gateway token add phone --scope subscribe --where "region = 'eu' AND secret = FALSE"
    """
    from canopy.wire.token_file import TokenFile
    from matching import compile_selector

    for selector in filter(None, (subscribe, publish)):
        compile_selector(selector)
    file = TokenFile(path or default_path())
    lifetime = seconds_of(term) if term else 0.0
    kept = tuple(dict.fromkeys(scopes)) or ("publish", "subscribe")
    secret = file.add(name, kept, publish, subscribe, lifetime, streams)
    if as_json:
        until = time.time() + lifetime if term else 0
        about = {"name": name, "token": secret, "scopes": kept, "expires": until}
        print_json({**about, "file": str(file.path)})
        return
    click.echo(secret)
    click.echo(f"kept (as a hash) in {file.path}", err=True)


@token.command()
@json_option
@file_option
def ls(as_json: bool, path: Path | None) -> None:
    """List the tokens: what each allows, and until when."""
    from canopy.wire.token_file import TokenFile

    found = TokenFile(path or default_path()).all()
    if as_json:
        for one in found:
            kept = ("name", "scopes", "publish", "subscribe", "streams", "created", "expires")
            print_json({name: getattr(one, name) for name in kept})
        return
    shown = table("=name", "scopes", "follows", "publishes", "appends to", "until")
    now = time.time()
    for one in found:
        ends = datetime.fromtimestamp(one.expires, UTC).strftime("%Y-%m-%d %H:%M UTC")
        until = "expired" if one.is_expired(now) else ends if one.expires else "for ever"
        shown.add_row(
            one.name,
            ", ".join(one.scopes),
            one.subscribe or "any",
            one.publish or "any",
            ", ".join(one.streams) or "no stream",
            until,
        )
    console().print(shown if found else "no tokens")


@token.command()
@click.argument("name")
@file_option
@json_option
def rm(name: str, path: Path | None, as_json: bool) -> None:
    """Remove the token NAME; what it has opened ends within seconds."""
    from canopy.wire.token_file import TokenFile

    TokenFile(path or default_path()).remove(name)
    if as_json:
        print_json({"removed": name})


def default_path() -> Path:
    """Where the user's file of tokens is, beside the contexts."""
    from canopy.client.contexts import contexts_path

    return contexts_path().with_name("gateway-tokens.json")
