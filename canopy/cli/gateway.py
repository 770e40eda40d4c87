"""`canopy gateway`, and `canopy gateway token`, which decides who may use it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from canopy.cli.connect import connect_option, json_option, open_client
from canopy.cli.errors import CommandError
from canopy.cli.extras import require
from canopy.cli.hints import HintingGroup
from canopy.cli.keys.access import TokenRights, rights_options, show_tokens
from canopy.cli.output import show

file = click.Path(path_type=Path)


@click.group(cls=HintingGroup, invoke_without_command=True)
@click.option(
    "--http",
    metavar="HOST:PORT",
    default="127.0.0.1:8470",
    help="Where to serve HTTP and WebSockets; port 0: any free port; '': not at all.",
)
@click.option(
    "--mqtt", metavar="HOST:PORT", default="", help="Where to serve MQTT 5, as 127.0.0.1:1883."
)
@click.option(
    "--tokens", type=file, metavar="FILE", help="Require tokens: `canopy gateway token` makes them."
)
@click.option(
    "--certificate", type=file, metavar="FILE", help="A certificate chain (PEM), for TLS."
)
@click.option("--key", type=file, metavar="FILE", help="The certificate's private key (PEM).")
@click.option(
    "--origin", "origins", multiple=True, metavar="URL", help="Origin of pages that may use it."
)
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Another name of this machine."
)
@click.option(
    "--connections", type=click.IntRange(1, 100_000), default=1_000, help="At a time, at most."
)
@click.option(
    "--insecure", is_flag=True, help="Allow addresses beyond loopback without tokens or TLS."
)
@click.option(
    "--log", "level", default="info", metavar="LEVEL", help="debug, info, warning or error."
)
@json_option
@connect_option
@click.pass_context
def gateway(
    ctx: click.Context,
    http: str,
    mqtt: str,
    tokens: Path | None,
    certificate: Path | None,
    key: Path | None,
    origins: tuple[str, ...],
    hosts: tuple[str, ...],
    connections: int,
    insecure: bool,
    level: str,
    as_json: bool,
    connect: str | None,
    wait: float,
) -> None:
    """Serve HTTP, WebSockets and MQTT 5 for programs without Canopy's library, until Ctrl-C.

    POST /events publishes: CloudEvents (binary, structured, batch), JSON objects, JSON lines. GET
    /events?where=SELECTOR follows, as server-sent events or as a WebSocket; with
    stream=NAME&from=first it follows a stream. GET / is a console for browsers, which uses /api/.
    Over MQTT, user properties and fields of JSON payloads are attributes, and the topic
    $where/SELECTOR subscribes by content.

    The gateway uses the node like any program. On loopback anybody may use it; elsewhere it needs
    tokens and TLS.

    \b
    canopy gateway                                   # then open http://127.0.0.1:8470/
    curl -N 'http://127.0.0.1:8470/events?where=mag>=4.5'
    curl http://127.0.0.1:8470/events -H 'Content-Type: application/json' -d '{"mag": 5.1}'
    canopy gateway --mqtt 127.0.0.1:1883
    mosquitto_sub -V 5 -t '$where/mag >= 4.5'
    canopy gateway token add phone --scope subscribe --where "region = 'eu'"
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = tokens
        return
    require("gateway")
    from canopy.gateway.server import Options, run
    from canopy.wire.log import LEVELS, Log
    from canopy.wire.process.listener import StartError

    if level not in LEVELS:
        raise click.UsageError(f"--log: {', '.join(LEVELS)} is wanted, not {level}")
    with open_client(connect, wait):  # a node that starts is waited for, and one must run
        pass
    options = Options(
        connect, http, mqtt, tokens, certificate, key, origins, hosts, connections, insecure
    )

    def ready(doors: dict[str, str]) -> None:
        scheme = {
            "http": "https" if certificate else "http",
            "mqtt": "mqtts" if certificate else "mqtt",
        }
        urls = {name: f"{scheme[name]}://{address}/" for name, address in doors.items()}
        text = json.dumps(urls) if as_json else "\n".join(f"serving {url}" for url in urls.values())
        print(text, flush=True)

    try:
        run(options, Log(level, sys.stderr), ready)
    except StartError as error:
        raise CommandError(str(error)) from None


# --- `canopy gateway token`: who may use the gateway ---


def _given(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """Return the file of this option, or that of `canopy gateway --tokens FILE token …`."""
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


@gateway.group(cls=HintingGroup)
def token() -> None:
    """Make, list and remove the tokens of the gateway.

    \b
    canopy gateway token add phone --scope subscribe --where "region = 'eu'" --for 30d
    canopy gateway --tokens ~/.config/canopy/gateway-tokens.json
    """


@token.command()
@click.argument("name")
@rights_options(
    "publish",
    "subscribe",
    "observe",
    default=("publish", "subscribe"),
    show_default=False,
    help="Permission (repeatable); observe: what the node knows, in the console and under "
    "/api/. [default: publish and subscribe]",
)
@file_option
@json_option
def add(name: str, rights: TokenRights, path: Path | None, as_json: bool) -> None:
    """Make the token NAME and print it. It is not shown again.

    A program that follows with this token receives the events that match its own selector AND
    --where. It can append only to the streams of --stream.

    \b
    canopy gateway token add phone --scope subscribe --where "region = 'eu' AND secret = FALSE"
    """
    from canopy.wire.token_file import TokenFile

    file = TokenFile(path or default_path())
    secret, until = rights.give(file, name)
    about = {"name": name, "token": secret, "scopes": rights.scopes, "expires": until}
    show({**about, "file": str(file.path)}, as_json, secret)
    click.echo(f"kept (as a hash) in {file.path}", err=True)


@token.command()
@json_option
@file_option
def ls(as_json: bool, path: Path | None) -> None:
    """List the tokens, their rights, and when they expire."""
    from canopy.wire.token_file import TokenFile

    show_tokens(TokenFile(path or default_path()), as_json, "canopy gateway token")


@token.command()
@click.argument("name")
@file_option
@json_option
def rm(name: str, path: Path | None, as_json: bool) -> None:
    """Remove the token NAME. Connections that use it are closed within seconds."""
    from canopy.wire.token_file import TokenFile

    TokenFile(path or default_path()).remove(name)
    show({"removed": name}, as_json)


def default_path() -> Path:
    """Return the path of the user's token file, beside the contexts."""
    from canopy.client.contexts import contexts_path

    return contexts_path().with_name("gateway-tokens.json")
