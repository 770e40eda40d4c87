"""`canopy sub --stream`: what a stream has kept, and what comes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from canopy.cli.connect import open_client
from canopy.cli.errors import OK, TIME_OUT
from canopy.cli.output import on_reader_gone, print_json
from canopy.feeds.objects import stream_object

if TYPE_CHECKING:
    from canopy.cli.delivery.lines import Show
    from canopy.client.streams.reading import Start
    from canopy.client.synchronous import Reading
    from overlay.client import StreamEvent
    from overlay.stream_client import GroupRow

LOOK = 0.5  # seconds between two looks whether there is still somebody who reads what is printed


class Wanted(NamedTuple):
    """The options of the command."""

    stream: str
    selector: str | None
    start: str | None
    durable: str
    most: int | None  # events
    seconds: float | None
    timeout: float


def place_of(text: str | None) -> tuple[Start | int, int]:
    """`start` and `at` of `Client.read` for the value of --from. Raises UsageError."""
    from canopy.client.streams.reading import parse_start

    try:
        return parse_start(text or "new")
    except ValueError as error:
        raise click.UsageError(f"--from: {error}") from None


def read_stream(wanted: Wanted, show: Show, as_json: bool, connect: str | None, wait: float) -> int:
    """Print what the stream has. Returns the exit code. Raises UsageError."""
    from matching import compile_selector

    if not wanted.stream:
        raise click.UsageError("--from and --durable need --stream")
    start, at = place_of(wanted.start)
    if start == "keys" and wanted.durable:
        raise click.UsageError("--from keys goes without --durable: that begins in the history")
    if wanted.selector:
        compile_selector(wanted.selector)
    until = None if wanted.seconds is None else time.monotonic() + wanted.seconds
    gone = threading.Event()
    on_reader_gone(gone.set)
    with (
        open_client(connect, wait, reconnect=wanted.timeout) as client,
        client.read(
            *(wanted.stream, wanted.selector or ""),
            start=start,
            at=at,
            durable=wanted.durable,
            timeout=wanted.timeout,
        ) as reading,
    ):
        begins = ", ".join(f"{shard}: {first}" for shard, first in reading.positions.items())
        where = begins.removeprefix("0: ") if len(reading.positions) == 1 else f"shards {begins}"
        where = "the newest row of each key on" if start == "keys" else f"offset {where}"
        click.echo(f"reading {wanted.stream} from {where}", err=True)
        left = _follow(reading, wanted, until, gone, show, as_json)
    return TIME_OUT if left else OK


def _follow(
    reading: Reading,
    wanted: Wanted,
    until: float | None,
    gone: threading.Event,
    show: Show,
    as_json: bool,
) -> int:
    """Print until there were as many as wanted, the time is over or the reader has gone. Returns
    how many are missing."""
    left = wanted.most
    was_in_table = reading.in_table
    while (left is None or left > 0) and not gone.is_set():
        rest = LOOK if until is None else min(LOOK, until - time.monotonic())
        if rest <= 0:
            break
        events = reading.take(rest)
        for event in events if left is None else events[:left]:
            if as_json:
                print_json(stream_object(wanted.stream, event))
            else:
                show(delivery_of(wanted.stream, event))
        if was_in_table and not reading.in_table:
            was_in_table = False
            click.echo("all newest rows are there; what follows are later ones", err=True)
        if left is not None:
            for event in reversed(events[left:]):  # what was not printed is not done with
                reading.positions[event.shard] = event.offset
            left -= min(left, len(events))
        if events and wanted.durable:
            reading.commit()
    return left or 0


def delivery_of(stream: str, event: StreamEvent | GroupRow) -> Any:
    """The event as what prints deliveries takes it: its identity is STREAM.SHARD.OFFSET."""
    from overlay.client import Delivery, Event

    whole = Event(
        *(stream, event.shard, event.offset, event.time, event.attributes),
        *(event.payload, event.payload_type),
    )
    return Delivery(stream, whole, "", "", "", 0)
