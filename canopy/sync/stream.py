"""The stream of a sync, as its two sides see it: appended to by one producer, read from an offset.

The source side keeps no position of its own: the last event that closes a transaction has it. So
whoever takes over begins the producer first, which ends every earlier session, and then reads the
stream's end: what is there is all that there will ever be of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from canopy.client.client import Client
from canopy.client.errors import CommandFailed
from canopy.client.streams.positions import Positions
from canopy.client.streams.producer import Producer, ProducerStart
from canopy.client.streams.reading import Reading
from canopy.sync.changes import PAYLOAD_TYPE, SNAPSHOT, Change, Commit, Table, change_of
from canopy.sync.errors import FencedError, MalformedError, OpenStreamError, SyncError
from overlay.client import Draft, GetStreams, StreamEvent, Streams
from overlay.stream_client import EditStream

TIMEOUT: Final = 60.0
"""Seconds for the answer to a request, while nodes come and go."""
LOOK_BACK: Final = 64
"""Events that are read first when the last position is looked for; twice as many each time."""


AHEAD: Final = 3
"""Batches that are under way while the next one is made."""


class StreamEvents(Protocol):
    """Events of a stream in order of their offsets, each once."""

    def take(self, timeout: float | None = None) -> list[StreamEvent]:
        """The next ones; [] when none came within `timeout` seconds."""

    def close(self) -> None:
        """End the reading at the node."""


class Stream(Protocol):
    """A stream with one shard, as capturing and applying use it."""

    id: str
    """Its founding id."""
    name: str

    @property
    def losses(self) -> int:
        """The number of times that the log has lost rows at its end, as known from the last
        reading."""

    def begin(self) -> None:
        """Append from here on, as nobody else can any more. Raises FencedError when another has
        begun since this one did."""

    def append(self, events: Sequence[Draft]) -> int:
        """Append all of the events or none, each once. Return how many of the last calls, including
        this one, are still under way; a later call reports their results. Raises FencedError when
        another program has begun."""

    def settle(self) -> None:
        """Wait until nothing is under way. Raises as `append`."""

    def read(self, offset: int, losses: int = -1) -> StreamEvents:
        """Read the present and coming events from `offset` on. `losses`: the stream's count when
        the offset was reported, -1: unknown."""

    def schemas(self) -> list[StreamEvent]:
        """The events of now that begin a snapshot or give a table a shape, in their order."""

    def ends(self) -> tuple[int, int]:
        """The first offset that is kept, and the one that comes next."""


class ClientStream:
    """A stream that is reached through a node."""

    def __init__(
        self,
        client: Client,
        name: str,
        producer: str = "",
        start: ProducerStart | None = None,
    ) -> None:
        """`producer`: as whom it is appended to, `start`: as which start of its program, so that
        one that was replaced does not come back. Raises ControlError, and SyncError for a stream of
        several shards, which have no common order."""
        found = client.ask(GetStreams(0, name), Streams, TIMEOUT).streams[0]
        if len(found.shards) != 1:
            raise SyncError(f"stream {name} has {len(found.shards)} shards; a sync needs one order")
        self.id = found.id
        self.writers = found.writers
        if found.mirror and not found.writers:  # it has the rows of its origin, and no others
            origin = client.ask(GetStreams(0, found.mirror), Streams, TIMEOUT).streams[0]
            self.writers = origin.writers
        """The producers that may append; (): anybody, which nobody has asked for."""
        self.name = name
        self._client = client
        self._name = producer
        self._start = start
        self._reading: Reading | None = None
        self._producer: Producer | None = None

    def begin(self) -> None:
        """Begin the producer. Close the stream to other writers if it has none of its own."""
        with self._fencing():
            if not self.writers:
                self.writers = (f"producer:{self._name}",)
                self._client.ask(EditStream(0, self.name, writers=self.writers), Streams, TIMEOUT)
            self._producer = self._client.producer(
                self.name, self._name, start=self._start, timeout=TIMEOUT
            )

    def check_closed(self) -> None:
        """Raises OpenStreamError when anybody may append, who could write into databases so."""
        if not self.writers:
            raise OpenStreamError(
                f"waiting for the source's canopy sync run to close stream {self.name} to others, "
                f"who could write into this database by it (or say who may append: canopy stream "
                f"edit {self.name} --writer producer:sync.NAME, by the sync's name there)"
            )

    def append(self, events: Sequence[Draft]) -> int:
        """Append a batch. Wait if `AHEAD` batches are under way."""
        return self._append(events, AHEAD)

    def settle(self) -> None:
        """Wait for all batches under way."""
        self._append((), 0)

    def _append(self, events: Sequence[Draft], ahead: int) -> int:
        assert self._producer is not None
        with self._fencing():
            self._producer.append(events, atomic=True, timeout=TIMEOUT, ahead=ahead)
        return self._producer.pending

    @contextmanager
    def _fencing(self) -> Iterator[None]:
        try:
            yield
        except CommandFailed as error:
            if error.code == "fenced":
                raise FencedError(f"another process captures for {self._name}") from None
            if error.code == "policy":
                raise SyncError(
                    f"{error}: canopy stream edit {self.name} --writer producer:{self._name}, by "
                    f"the operators, lets this sync append (of a tenant's node "
                    f"producer:TENANT/{self._name}, and its policy names the stream)"
                ) from None
            raise

    @property
    def losses(self) -> int:
        """The count of the stream's losses that the last reading has reported."""
        return 0 if self._reading is None else self._reading.positions.losses.get(0, 0)

    def read(self, offset: int, losses: int = -1) -> Reading:
        """See `Stream`. Raises SyncError if retention or damage has removed the requested
        events."""
        known = {0: losses} if losses >= 0 else {}
        places = Positions({0: offset}, self.id, known)
        try:
            reading = self._client.read(self.name, positions=places, timeout=TIMEOUT)
            reading.ahead = True
            self._reading = reading
            return reading
        except CommandFailed as error:
            if error.code not in ("offset-out-of-range", "position-lost"):
                raise
            raise SyncError(
                f"stream {self.name} has no offset {offset} any more ({error}): the destination "
                f"needs a new snapshot (canopy sync run --snapshot at the source)"
            ) from None

    def schemas(self) -> list[StreamEvent]:
        """Read the events that begin a snapshot or give a table a shape."""
        found: list[StreamEvent] = []
        wanted = "_op = 'schema' OR _op = 'snapshot'"
        with self._client.read(self.name, wanted, start="first", timeout=TIMEOUT) as reading:
            end = reading.ends[0]
            while reading.positions[0] < end:
                found += reading.take(TIMEOUT)
        return [event for event in found if event.offset < end]

    def ends(self) -> tuple[int, int]:
        """Read the stream's first offset and its end."""
        reading = self._client.read(self.name, start="first", timeout=TIMEOUT)
        reading.close()
        return reading.positions[0], reading.ends[0]


def last_commit(
    stream: Stream, passed_over: Callable[[int], object] = lambda offset: None
) -> tuple[Commit | None, int, int]:
    """Return up to which commit the source was read (None: unknown), the operation with which a
    following unfinished transaction begins (0: there is none), and the offset after the commit."""
    first, end = stream.ends()
    size = LOOK_BACK
    while True:
        begin = max(first, end - size)
        found = _read(stream, begin, end, passed_over)
        for place in range(len(found) - 1, -1, -1):
            offset, change = found[place]
            if change.commit is not None:
                unfinished = found[place + 1][1].op if place < len(found) - 1 else 0
                return change.commit, unfinished, offset + 1
        if begin == first:
            return None, 0, first
        size *= 4


def shapes(stream: Stream, end: int) -> dict[str, Table]:
    """By name, the tables as the stream has them below the offset `end`; one whose shape retention
    has removed is not among them."""
    found: dict[str, Table] = {}
    for event in stream.schemas():
        if event.offset >= end:
            break
        change = change_in(event)
        if change is None:
            continue
        if change.op == SNAPSHOT:
            found.clear()
        elif change.schema is not None:
            found[change.table] = change.schema
    return found


def change_in(event: StreamEvent) -> Change | None:
    """The change that an event carries; None: it is none, and is passed over."""
    if event.payload_type != PAYLOAD_TYPE:
        return None
    try:
        return change_of(event.payload)
    except MalformedError:
        return None


def _read(
    stream: Stream, begin: int, end: int, passed_over: Callable[[int], object]
) -> list[tuple[int, Change]]:
    """Return the changes between two offsets, each with its own offset. `passed_over` is called for
    events that are no changes."""
    found: list[tuple[int, Change]] = []
    at = begin
    events = stream.read(begin)
    try:
        while at < end:
            for event in events.take(TIMEOUT):
                at = event.offset + 1
                change = change_in(event)
                if at > end:
                    break
                if change is None:
                    passed_over(event.offset)
                else:
                    found.append((event.offset, change))
    finally:
        events.close()
    return found
