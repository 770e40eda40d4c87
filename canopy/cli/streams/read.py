"""`canopy sub --stream`: what a stream has kept, and what comes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from canopy.cli.connect import open_client
from canopy.cli.streams.following import Following, FollowOptions
from canopy.feeds.objects import stream_object

if TYPE_CHECKING:
    from canopy.cli.delivery.lines import Show
    from canopy.client.streams.positions import Positions
    from canopy.client.streams.reading import Reading, Start


def place_of(text: str | None) -> tuple[Start | int, int]:
    """`start` and `at` of `Client.read` for the value of --from. Raises UsageError."""
    from canopy.client.streams.reading import parse_start

    try:
        return parse_start(text or "new")
    except ValueError as error:
        raise click.UsageError(f"--from: {error}") from None


def positions_of(text: str | None) -> Positions:
    """The positions with their stream's id that --from names; none if it names something else.
    Raises UsageError."""
    from canopy.client.streams.positions import Positions

    try:
        return Positions.parse(text) if text and "@" in text else Positions()
    except ValueError as error:
        raise click.UsageError(f"--from: {error}") from None


def read_stream(
    wanted: FollowOptions, show: Show, as_json: bool, connect: str | None, wait: float
) -> int:
    """Print what the stream has; without one, what has the newest events of the selector. Returns
    the exit code. Raises UsageError."""
    from canopy.client.streams.newest import newest_stream
    from matching import compile_selector

    if not wanted.stream and wanted.start != "last":
        raise click.UsageError("--from and --durable need --stream")
    positions = positions_of(wanted.start)
    named = "keys" if wanted.start == "last" else wanted.start
    start, at = place_of("first" if positions else named)
    if start == "keys" and wanted.durable:
        raise click.UsageError("--from keys goes without --durable: that begins in the history")
    if wanted.selector:
        compile_selector(wanted.selector)
    with ExitStack() as open_ones:
        client = open_ones.enter_context(open_client(connect, wait, reconnect=wanted.patience))
        if not wanted.stream:
            name = newest_stream(client.streams(wanted.patience), wanted.selector or "TRUE")
            wanted = wanted._replace(stream=name)
        following = Following(wanted, show, as_json)
        reading = client.read(
            wanted.stream,
            wanted.selector or "",
            start=start,
            at=at,
            positions=positions,
            durable=wanted.durable,
            timeout=wanted.patience,
        )
        open_ones.enter_context(reading)
        begins = ", ".join(f"{shard}: {first}" for shard, first in reading.positions.items())
        where = begins.removeprefix("0: ") if len(reading.positions) == 1 else f"shards {begins}"
        where = "the newest row of each key on" if start == "keys" else f"offset {where}"
        click.echo(f"reading {wanted.stream} from {where}", err=True)
        try:
            _follow(reading, wanted.durable, following)
        finally:
            if not wanted.durable and reading.positions != reading.begins:
                click.echo(f"go on with --from {reading.positions}", err=True)
    return following.code


def _follow(reading: Reading, durable: str, following: Following) -> None:
    """Print what comes, and commit it for a durable consumer."""
    was_in_table = reading.in_table
    while rest := following.rest():
        events = reading.take(rest)
        following.say(reading.waits)
        for event in reversed(following.show(events, stream_object)):  # is not done with
            reading.positions[event.shard] = event.offset
        if was_in_table and not reading.in_table:
            was_in_table = False
            click.echo("all newest rows are there; what follows are later ones", err=True)
        if events and durable:
            reading.commit()
