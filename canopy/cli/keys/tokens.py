"""The options and listings that tokens for programs share: those of a gateway, and of a node."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from canopy.cli.keys.command import when
from canopy.cli.output import console, table

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
