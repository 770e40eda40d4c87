"""What the shell offers while a command is typed (click asks for it)."""

from __future__ import annotations

import click

from canopy.cli.constants import COMPLETION_TIMEOUT


def context_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of the user's contexts that begin with `incomplete`, for the shell."""
    from canopy.client.contexts import read_contexts

    return [name for name in sorted(read_contexts().folders) if name.startswith(incomplete)]


def attribute_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The attributes that the node has seen lately and that begin so; none without a node."""
    from canopy.client.client import connect
    from canopy.client.errors import ControlError
    from overlay.client import Attributes, GetAttributes

    where = ctx.params.get("connect")
    try:
        with connect(where, timeout=COMPLETION_TIMEOUT, reconnect=0.0) as client:
            names = client.ask(GetAttributes(0), Attributes, COMPLETION_TIMEOUT).names
    except ControlError:
        return []
    return [name for name in names if name.startswith(incomplete)]
