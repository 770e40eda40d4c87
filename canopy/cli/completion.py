"""Completion of words in the shell (click calls these functions)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

import click

from canopy.cli.constants import COMPLETION_TIMEOUT

if TYPE_CHECKING:
    from overlay.client import Command, Reply

R = TypeVar("R", bound="Reply")


def context_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of the user's contexts that begin with `incomplete`, for the shell."""
    from canopy.client.contexts import read_contexts

    return [name for name in sorted(read_contexts().folders) if name.startswith(incomplete)]


def attribute_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the attributes that the node has seen lately and that begin with `incomplete`; none
    without a node."""
    from overlay.client import Attributes, GetAttributes

    found = _asked(ctx, GetAttributes(0), Attributes)
    return _beginning(found.names if found else (), incomplete)


def stream_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the streams of the overlay whose names begin with `incomplete`; none without a
    node."""
    from overlay.client import GetStreams, Streams

    found = _asked(ctx, GetStreams(0), Streams)
    return _beginning(sorted(one.name for one in found.streams) if found else (), incomplete)


def place_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the attributes and streams whose names begin with `incomplete`."""
    return [
        *attribute_names(ctx, parameter, incomplete),
        *stream_names(ctx, parameter, incomplete),
    ]


def _asked(ctx: click.Context, question: Command, kind: type[R]) -> R | None:
    """Return the node's answer; None if it does not answer within `COMPLETION_TIMEOUT`."""
    from canopy.client.client import connect
    from canopy.client.errors import ControlError

    try:
        where = ctx.params.get("connect")
        with connect(where, timeout=COMPLETION_TIMEOUT, reconnect=0.0) as client:
            return client.ask(question, kind, COMPLETION_TIMEOUT)
    except ControlError:
        return None


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
