"""`canopy sub --stream`: the rows that a stream has kept, and then new ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from canopy.cli.connect import NodeOptions
from canopy.cli.errors import OK, TIME_OUT
from canopy.cli.output import on_reader_gone, print_json
from canopy.feeds.objects import stream_object

if TYPE_CHECKING:
    from canopy.cli.subscribe.delivery import Show
    from canopy.client.streams.positions import Positions
    from canopy.client.streams.reading import Reading, Start
    from overlay.client import StreamEvent
    from overlay.stream_client import GroupRow


# --- what `canopy sub --stream` prints, and until when, whether events are read or shared ---

LOOK: Final = 0.5
"""Seconds between two checks whether the reader of standard output is still there."""

Item = TypeVar("Item", "StreamEvent", "GroupRow")


class FollowOptions(NamedTuple):
    """The options of `canopy sub --stream`."""

    stream: str
    selector: str | None
    start: str | None
    durable: str
    most: int | None  # events
    seconds: float | None
    node: NodeOptions

    @property
    def patience(self) -> float:
        """Seconds to wait for a leader's answer: the time-out, or the duration of the command if
        that is shorter."""
        most = self.node.timeout
        return most if self.seconds is None else min(most, self.seconds)


class Following:
    """Prints events until enough were printed, the time is over, or the reader has gone."""

    def __init__(self, wanted: FollowOptions, show: Show) -> None:
        self._stream = wanted.stream
        self._show = show
        self._as_json = wanted.node.as_json
        self._until = None if wanted.seconds is None else time.monotonic() + wanted.seconds
        self._gone = threading.Event()
        on_reader_gone(self._gone.set)
        self.left = wanted.most
        """The number of events still to print; None: without a bound."""
        self._waits = ""

    @property
    def is_gone(self) -> bool:
        """Whether the reader of standard output has gone."""
        return self._gone.is_set()

    def rest(self) -> float:
        """Seconds to wait for events until the next call; 0: the command ends."""
        if self.is_gone or (self.left is not None and self.left <= 0):
            return 0.0
        return LOOK if self._until is None else max(0.0, min(LOOK, self._until - time.monotonic()))

    def show(self, events: Sequence[Item], as_object: Callable[[str, Item], Any]) -> Sequence[Item]:
        """Print events, as JSON with `as_object`. Returns those beyond the bound, which are not
        printed."""
        printed = events if self.left is None else events[: self.left]
        for event in printed:
            if self._as_json:
                print_json(as_object(self._stream, event))
            else:
                self._show(delivery_of(self._stream, event))
        if self.left is not None:
            self.left -= len(printed)
        return events[len(printed) :]

    def say(self, waits: str) -> None:
        """Print on standard error why no rows can arrive, or ("") that they can again."""
        if waits != self._waits:
            self._waits = waits
            click.echo(f"{waits}; waiting" if waits else f"{self._stream} is read again", err=True)

    @property
    def code(self) -> int:
        """The exit code: `TIME_OUT` if fewer events arrived than were asked for, else `OK`."""
        return TIME_OUT if self.left else OK


def delivery_of(stream: str, event: StreamEvent | GroupRow) -> Any:
    """Return the event as a delivery, for the functions that print deliveries. Its identity is
    STREAM.SHARD.OFFSET."""
    from canopy.client.seals import labelled, seal_of
    from overlay.client import Delivery, Event

    whole = Event(
        stream,
        event.shard,
        event.offset,
        event.time,
        event.attributes,
        event.payload,
        event.payload_type,
    )
    return Delivery(stream, labelled(whole, seal_of(event)), "", "", "", 0)


def place_of(text: str | None) -> tuple[Start | int, int]:
    """Return `start` and `at` of `Client.read` for the value of --from. Raises UsageError."""
    from canopy.client.streams.reading import parse_start

    try:
        return parse_start(text or "new")
    except ValueError as error:
        raise click.UsageError(f"--from: {error}") from None


def positions_of(text: str | None) -> Positions:
    """Return the positions and the stream id in the value of --from; empty positions if it is
    something else. Raises UsageError."""
    from canopy.client.streams.positions import Positions

    try:
        return Positions.parse(text) if text and "@" in text else Positions()
    except ValueError as error:
        raise click.UsageError(f"--from: {error}") from None


def read_stream(wanted: FollowOptions, show: Show) -> int:
    """Print a stream's rows; without a stream, those of the stream that has the newest events of
    the selector. Returns the exit code. Raises UsageError."""
    from canopy.client.streams.management import newest_stream
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
        client = open_ones.enter_context(wanted.node.open(reconnect=wanted.patience))
        if not wanted.stream:
            name = newest_stream(client.streams(wanted.patience), wanted.selector or "TRUE")
            wanted = wanted._replace(stream=name)
        following = Following(wanted, show)
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
    """Print rows as they arrive; for a durable consumer, commit the position of the printed
    rows."""
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
