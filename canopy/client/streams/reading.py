"""A program's reading of a stream, across connections and restarts of its node (no IO)."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias, cast, get_args

from msgspec.structs import replace

from canopy.client.errors import (
    CommandTimeoutError,
    ControlError,
    NoMajorityError,
    UnreachableError,
)
from canopy.client.faces import (
    AsynchronousContext,
    BlockingContext,
    Context,
    Items,
    operation,
    run,
)
from canopy.client.link import Link
from canopy.client.node import AwayNode, ClientNode
from canopy.client.session import expected
from canopy.client.streams.positions import Positions, identity_of
from overlay.client import (
    BeginReading,
    CommitReading,
    Done,
    EndReading,
    EventsTaken,
    PackedEvents,
    ReadingReady,
    StreamEvent,
    TakeEvents,
)

Start = Literal["first", "new", "offset", "time", "keys"]

Begin: TypeAlias = Start | int | str | datetime
"""The type of `start` of `Client.read`: a word, an offset, or a time."""

WANTED: Final = "first, new, keys, an offset, or a time such as 2026-11-23T08:00"

CONFIRM: Final = 1.0
"""Seconds between two confirmations of rows that have taken effect elsewhere. They are only needed
for retention."""

EXPIRY_MOST: Final = 2**31
"""The most seconds after which a reading is forgotten."""

NONE_TAKEN: Final = EventsTaken(0, (), ())


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def nanoseconds(time: datetime) -> int:
    """Return the nanoseconds since 1970 of a time, of this machine's zone if it names none; the
    first, or the last, at which rows may be for a time outside of 1970 to 2262."""
    try:
        since = time.astimezone(UTC) - EPOCH
    except (OverflowError, ValueError):  # in UTC it is before year 1, or after 9999
        since = time.replace(tzinfo=UTC) - EPOCH
    whole = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return min(max(0, whole * 1_000), 2**63 - 1)


def parse_start(text: str) -> tuple[Start | int, int]:
    """Return `start` and `at` of `Client.read` for the texts first, new, keys, an offset, or a time
    such as 2026-11-23T08:00. ValueError for others."""
    if text == "new":
        return "new", 0
    if text == "first":
        return "first", 0
    if text == "keys":
        return "keys", 0
    if text.isascii() and text.isdigit():
        return int(text), 0
    try:
        return "time", nanoseconds(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(f"{WANTED} is wanted, not {text}") from None


def started(start: Begin, at: int) -> tuple[Start, int]:
    """Return the place at which a reading begins, for `start` and `at` of `Client.read`. Raises
    ValueError for an invalid `start`."""
    if isinstance(start, datetime):
        return "time", nanoseconds(start)
    if isinstance(start, str) and start not in get_args(Start):
        start, at = parse_start(start)
    if isinstance(start, str):
        return cast(Start, start), at
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise ValueError(f"{WANTED} or a datetime is wanted as start, not {start!r}")
    return "offset", start


def wanted_reading(
    stream: str,
    selector: str,
    start: Begin,
    at: int,
    positions: Mapping[int, int],
    durable: str,
    expire_after: float,
    shard: int = -1,
    packed: bool = False,
) -> BeginReading:
    """Return the command for the arguments of `Client.read`."""
    kind, place = started(start, at)
    stream_id, losses = identity_of(positions)
    tables = positions.open_tables(positions) if isinstance(positions, Positions) else ()
    if not 0 <= expire_after <= EXPIRY_MOST:
        raise ValueError(f"expire_after: seconds, from 0 (never) to 2^31, not {expire_after}")
    return BeginReading(
        0,
        stream,
        selector,
        kind,
        place,
        tuple(sorted(positions.items())),
        durable,
        expire_after=math.ceil(expire_after),
        shard=shard,
        tables=tables,
        packed=packed,
        stream_id=stream_id,
        losses=losses,
    )


class ReadingCore(Context):
    """The rows of a stream that a selector matches. Times are seconds."""

    def __init__(self, node: ClientNode, wanted: BeginReading, timeout: float) -> None:
        """`timeout`: seconds for an answer of the node."""
        self._node = AwayNode(node)
        self._wanted = replace(wanted, token=secrets.token_hex(8)) if wanted.durable else wanted
        self._timeout = timeout
        self._link: Link | None = None  # on which the reading has begun
        self._number = 0  # of the reading, on this connection
        self._beginning: tuple[Link, int, float] | None = None
        # A BeginReading that is not answered, and until when it is waited for.
        self._take: int | None = None  # the question that is open
        self._is_closed = False
        self._scanned: dict[int, int] = {}  # by shard: behind everything that has come here
        self._confirmed: dict[int, int] = {}  # positions that the stream is to hear of
        self._confirmed_at = 0.0
        self._rest: deque[StreamEvent] = deque()  # has come, and is not handed out
        self._tables: dict[int, int] = {}  # by shard: below it are the newest rows
        self.ahead = False
        """Whether the next rows are requested while the program works on the last ones. For threads
        only: a task that is cancelled meanwhile would lose rows."""
        self.stream = wanted.stream
        """The stream's name."""
        self.stream_id = ""
        """The founding id of the stream, which differs from that of another stream of the same
        name."""
        self.selector = wanted.selector
        """The selector of the rows; "": all rows."""
        self.waits = ""
        """Why no rows can arrive at present, such as "no majority: 1 of 3 replicas of quakes
        answer"; the reading continues by itself. "": they can, as far as is known."""
        self.begins: dict[int, int] = {}
        """By shard: the offset at which the reading began."""
        self.positions = Positions()
        """By shard: the offset after the last row that was handed out or skipped. Their text
        (`str`) can be stored, and given to a later reading (`Positions.parse`)."""
        self.ends: dict[int, int] = {}
        """By shard: the offset that the next appended event had when the reading began."""

    @operation
    async def open(self) -> None:
        """Begin now. Raises as `Client.read`."""
        await self._open()

    @operation
    async def close(self) -> None:
        """End the reading. The node stops sending rows."""
        await self._leave(False)

    async def _open(self, until: float = math.inf) -> bool:
        """Begin the reading, or continue it after the last row handed out. Returns whether it has
        begun by `until`; if not, the next call continues to wait. Raises CommandFailed (unknown,
        selector, offset-out-of-range, fenced, expired), and as `Client.ask`."""
        if self._beginning is None:
            command = self._wanted
            if self.begins:
                stream_id, losses = identity_of(self.positions)
                command = replace(
                    command,
                    positions=tuple(sorted(self._scanned.items())),
                    resume=bool(command.durable),
                    tables=self.positions.open_tables(self._scanned),
                    stream_id=stream_id,
                    losses=losses,
                )
            within = min(self._timeout, max(0.0, until - time.monotonic()))
            begun = await self._node.begin(command, within)
            self._beginning = (*begun, time.monotonic() + self._timeout)
        assert self._beginning is not None
        link, number, give_up = self._beginning
        left = max(0.0, min(give_up, until) - time.monotonic())
        is_answered = await link.is_answered(number, left)
        if not is_answered and time.monotonic() < give_up:
            return False
        self._beginning = None  # not when this is cancelled: then the next call goes on waiting
        if not is_answered:
            link.abandon(number)
            link.abandon(await link.begin(EndReading(0, number)))
            waited = f"within {self._timeout:g} s"
            raise CommandTimeoutError(f"no leader of {self.stream} has answered {waited}")
        ready = expected(await link.finish(number, 0.0), ReadingReady)
        if (self.stream_id or self._wanted.stream_id) not in ("", ready.stream):  # an older node
            raise ControlError(f"the stream {self.stream} was removed, and there is another one")
        self._link, self._number, self._take = link, number, None
        self._node.found()
        self.waits = ""
        if not self.begins:
            shards = dict(enumerate(ready.shards, max(self._wanted.shard, 0)))
            self.begins = {shard: first for shard, (first, _) in shards.items()}
            self.ends = {shard: end for shard, (_, end) in shards.items()}
            is_new = self._wanted.start == "keys"
            self._tables = dict(self.ends if is_new else self._wanted.tables)
            self.positions = Positions(self.begins, ready.stream, tables=self._tables)
            self._scanned = dict(self.begins)
        self.stream_id = ready.stream
        first = max(self._wanted.shard, 0)
        self.positions.losses.update(enumerate(ready.losses, first))
        return True

    @property
    def in_table(self) -> bool:
        """Whether some newest rows have not been handed out yet, in a reading that begins with
        `keys`. When this is False, what came so far has the newest row of each key."""
        return any(self.positions[shard] < end for shard, end in self._tables.items())

    async def _fetch(self, timeout: float, packed: bool = False) -> EventsTaken:
        """Return the next rows; none if none arrived in time, or only rows without a match were
        scanned. ValueError if the reading was not begun for rows of this form."""
        if packed != self._wanted.packed:
            raise ValueError("a reading is taken with take_packed if it was begun with packed=True")
        until = time.monotonic() + timeout
        while True:
            try:
                if self._link is None and not await self._open(until):
                    return NONE_TAKEN
                link = self._link
                assert link is not None
                if self._confirmed and time.monotonic() > self._confirmed_at + CONFIRM:
                    self._confirmed_at = time.monotonic()
                    places, self._confirmed = tuple(sorted(self._confirmed.items())), {}
                    command = CommitReading(0, self._number, places)
                    link.abandon(await link.begin(command))
                if self._take is None:
                    self._take = await link.begin(TakeEvents(0, self._number))
                assert self._take is not None
                left = max(0.0, until - time.monotonic())
                if not await link.is_answered(self._take, left):
                    return NONE_TAKEN
                number, self._take = self._take, None
                taken = expected(await link.finish(number, 0.0), EventsTaken)
            except UnreachableError:
                if not await self._come_back(until):
                    return NONE_TAKEN
                continue
            waited, self.waits = self.waits, taken.waits
            if not taken.positions and self.waits != waited:
                continue  # nothing but why nothing comes, or that something may again
            self._scanned.update(taken.positions)
            self.positions.losses.update(taken.losses)
            self._tables.update(taken.tables)
            if self.ahead and (taken.events or taken.packed):
                with contextlib.suppress(UnreachableError):
                    self._take = await link.begin(TakeEvents(0, self._number))
            return taken

    async def _leave(self, failed: bool) -> None:
        """End the reading at the node, which stops sending rows."""
        self._is_closed = True
        link, self._link = self._link, None
        if link is not None:
            with contextlib.suppress(ControlError):  # the node is away, and has ended it
                await link.request(EndReading(0, self._number), self._timeout)

    async def _come_back(self, until: float) -> bool:
        """Wait for the node to come back. Returns whether it is back by the time `until`; if not,
        the next call continues to wait."""
        self._link = self._take = self._beginning = None
        self._node.lost()
        while True:
            try:
                has_begun = await self._open(until)
            except (UnreachableError, NoMajorityError) as error:
                self._beginning = None
                if not await self._node.wait(error, until):
                    return False
            else:
                return has_begun

    @operation
    async def take(self, timeout: float | None = None) -> list[StreamEvent]:
        """Return the next events. The list is empty if none came within `timeout` seconds (None:
        for ever), or if only rows without a match were scanned. Raises CommandFailed when the
        reading was ended (fenced: another program reads under this name), and UnreachableError when
        the node does not come back in time."""
        events = list(self._rest) or list((await self._fetch(patient(timeout))).events)
        self._rest.clear()
        self.positions.update(self._scanned)
        return events

    @operation
    async def take_packed(self, timeout: float | None = None) -> list[PackedEvents]:
        """Return the next rows of a packed reading as the stream's log has them, and otherwise as
        `take`. ControlError if the node does not know packed rows."""
        taken = await self._fetch(patient(timeout), packed=True)
        if taken.events:
            raise ControlError("the node is of an older version, which does not know packed rows")
        self.positions.update(self._scanned)
        return list(taken.packed)

    @operation
    async def commit(self) -> None:
        """Commit the position of all rows returned so far; returns when the stream has stored
        it."""
        if self._link is None:
            await self._open()
        assert self._link is not None
        command = CommitReading(0, self._number, tuple(sorted(self.positions.items())))
        expected(await self._link.request(command, self._timeout), Done)

    def confirm(self) -> None:
        """Note that all rows handed out so far have taken effect outside the stream. A durable
        reading reports it to the stream with a later `take`; this call does not wait."""
        if self._wanted.durable:
            self._confirmed = dict(self.positions)

    async def _next(self) -> StreamEvent | None:
        """Return the next event, or None when the reading is closed. `positions` covers only the
        events handed out."""
        while not self._rest and not self._is_closed:
            self.positions.update(self._scanned)
            self._rest.extend((await self._fetch(math.inf)).events)
        if self._is_closed:
            return None
        event = self._rest.popleft()
        self.positions[event.shard] = event.offset + 1
        return event


class Reading(ReadingCore, BlockingContext):
    """The events of a stream that a selector matches, in the order of each shard's offsets.

    A context manager, and an iterator of `StreamEvent` that waits for more. One thread reads. If
    the node goes away, the reading looks for it and continues at its position: no event is skipped,
    and none is handed out twice. A *durable* reading has a name, and the stream keeps its position:
    `commit` stores the position after all events handed out so far, and the next reading under that
    name begins there. `canopy.sinks` keeps the position in a database instead.
    """

    def __iter__(self) -> Iterator[StreamEvent]:
        while (event := run(self._next())) is not None:
            yield event


class AsyncReading(ReadingCore, AsynchronousContext):
    """The events of a stream, as `canopy.Reading`: an asynchronous iterable, and context manager
    that ends the reading. One task reads; a call that is cancelled loses no event."""

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return Items(self._next)


def patient(timeout: float | None) -> float:
    """Return the time-out in seconds, infinity for None."""
    return math.inf if timeout is None else timeout
