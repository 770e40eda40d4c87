"""Reading a stream over a blocking connection: from a place on, by content, as long as wanted."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Final, Literal

from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError, UnreachableError
from canopy.client.session import expected
from overlay.client import (
    BeginReading,
    Command,
    CommitReading,
    Done,
    EndReading,
    EventsTaken,
    ReadingReady,
    StreamEvent,
    TakeEvents,
)

Start = Literal["first", "new", "offset", "time"]

PAUSE: Final = 0.2
"""Seconds between two looks for a node that is away."""


class Reading:
    """The events of a stream that a selector matches, in the order of each shard's offsets.

    A context manager, and an iterator of `StreamEvent` that waits for more. One thread reads. While
    the node is away it is looked for, and the reading goes on where it was: no event is passed
    over, and none comes twice. A *durable* reading has a name, and its position is kept by the
    stream: `commit` says that everything handed out so far is done with, and whoever reads under
    that name next begins behind it.
    """

    def __init__(
        self,
        begin: Callable[[Command, float], tuple[ControlClient, int]],
        reconnect: float,
        wanted: BeginReading,
        timeout: float,
    ) -> None:
        """`begin` sends a command over the program's connection, and opens one if there is none;
        `reconnect`: seconds for which a node that goes away is looked for."""
        self._begin = begin
        self._reconnect = reconnect
        self._wanted = wanted
        self._timeout = timeout
        self._token = secrets.token_hex(8) if wanted.durable else ""
        self._link: ControlClient | None = None
        self._number = 0  # of the reading, on this connection
        self._take: int | None = None  # the question that is open
        self._known = False  # the reading has begun once
        self._is_closed = False
        self.positions: dict[int, int] = {}
        """By shard: the offset behind everything that was handed out or passed over."""
        self.ends: dict[int, int] = {}
        """By shard: the offset that its next event had when the reading began."""

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        while not self._is_closed:
            yield from self.take()

    def open(self) -> None:
        """Begin, or go on behind what was handed out. Raises CommandFailed (unknown, selector,
        offset-out-of-range, fenced, expired), and as `Client.ask`."""
        wanted = self._wanted
        positions = tuple(sorted(self.positions.items()))
        command = BeginReading(
            *(0, wanted.stream, wanted.selector, wanted.start, wanted.at, positions),
            *(wanted.durable, self._token, self._known, wanted.expire_after),
        )
        link, number = self._begin(command, self._timeout)
        ready = expected(link.finish(number, self._timeout), ReadingReady)
        self._link, self._number, self._take = link, number, None
        if not self._known:
            self.positions = {shard: first for shard, (first, _) in enumerate(ready.shards)}
            self.ends = {shard: end for shard, (_, end) in enumerate(ready.shards)}
        self._known = True

    def take(self, timeout: float | None = None) -> list[StreamEvent]:
        """The next events; none when none came within `timeout` seconds, or where others were
        passed over. Raises CommandFailed when the reading was ended (fenced: another program reads
        under this name), UnreachableError when the node does not come back in time."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                if self._link is None:
                    self.open()
                assert self._link is not None
                if self._take is None:
                    self._take = self._link.begin(TakeEvents(0, self._number), self._timeout)
                if not self._link.is_answered(self._take, max(0.0, until - time.monotonic())):
                    return []
                taken = expected(self._link.finish(self._take, self._timeout), EventsTaken)
            except UnreachableError:
                self._away()
                continue
            self._take = None
            self.positions.update(taken.positions)
            return list(taken.events)

    def commit(self) -> None:
        """Everything handed out so far is done with; returns when the stream has that."""
        if self._link is None:
            self.open()
        assert self._link is not None
        positions = tuple(sorted(self.positions.items()))
        reply = self._link.request(CommitReading(0, self._number, positions), self._timeout)
        expected(reply, Done)

    def close(self) -> None:
        """End the reading."""
        self._is_closed = True
        link, self._link = self._link, None
        if link is not None:
            with contextlib.suppress(ControlError):  # the node is away, and has ended it
                link.request(EndReading(0, self._number), self._timeout)

    def _away(self) -> None:
        """Wait for the node to come back."""
        self._link = self._take = None
        until = time.monotonic() + self._reconnect
        while True:
            try:
                self.open()
                return
            except UnreachableError:
                if time.monotonic() > until:
                    raise
                time.sleep(PAUSE)
