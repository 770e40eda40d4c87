"""What `canopy sub --stream` prints, and until when, whether events are read or shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from canopy.cli.errors import OK, TIME_OUT
from canopy.cli.output import on_reader_gone, print_json

if TYPE_CHECKING:
    from canopy.cli.delivery.lines import Show
    from overlay.client import StreamEvent
    from overlay.stream_client import GroupRow

LOOK: Final = 0.5
"""Seconds between two looks whether there is still somebody who reads what is printed."""

Item = TypeVar("Item", "StreamEvent", "GroupRow")


class FollowOptions(NamedTuple):
    """The options of the command."""

    stream: str
    selector: str | None
    start: str | None
    durable: str
    most: int | None  # events
    seconds: float | None
    timeout: float

    @property
    def patience(self) -> float:
        """Seconds for which a leader's answer is waited for: no longer than all of it may take."""
        return self.timeout if self.seconds is None else min(self.timeout, self.seconds)


class Following:
    """Prints events until there were as many as wanted, the time is over or the reader has gone."""

    def __init__(self, wanted: FollowOptions, show: Show, as_json: bool) -> None:
        self._stream = wanted.stream
        self._show = show
        self._as_json = as_json
        self._until = None if wanted.seconds is None else time.monotonic() + wanted.seconds
        self._gone = threading.Event()
        on_reader_gone(self._gone.set)
        self.left = wanted.most
        """How many are to come still; None: without a bound."""
        self._waits = ""

    @property
    def is_gone(self) -> bool:
        """Whether nobody reads what is printed."""
        return self._gone.is_set()

    def rest(self) -> float:
        """Seconds to wait for events until the next call; 0: it is over."""
        if self.is_gone or (self.left is not None and self.left <= 0):
            return 0.0
        return LOOK if self._until is None else max(0.0, min(LOOK, self._until - time.monotonic()))

    def show(self, events: Sequence[Item], as_object: Callable[[str, Item], Any]) -> Sequence[Item]:
        """Print events, as JSON by `as_object`. Returns those that were too many, and are not
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
        """Say on standard error why nothing can come, and when it can again ("")."""
        if waits != self._waits:
            self._waits = waits
            click.echo(f"{waits}; waiting" if waits else f"{self._stream} is read again", err=True)

    @property
    def code(self) -> int:
        """The exit code: `TIME_OUT` if fewer events came than were asked for, else `OK`."""
        return TIME_OUT if self.left else OK


def delivery_of(stream: str, event: StreamEvent | GroupRow) -> Any:
    """The event as what prints deliveries takes it: its identity is STREAM.SHARD.OFFSET."""
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
