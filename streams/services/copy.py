"""Streams that copy others: from sources they take matching rows; a mirror has all rows of another.

*Promises*: each row of an origin that matches the selector is appended once, in the order of its
shard, through changes of leaders on both sides; a mirror's rows have the offsets of its origin
(docs/design/streams.md#sources-and-mirrors).

*Called by*: `streams.machines`, which builds `Copies` in every node.

An origin's shard is read as a program reads (`streams.programs.reader.readers`), from the offset on
that the own log says; that goes on where it was when the origin's leader changes or is out of
reach. A new leader of the own shard begins again, from its log.

A batch's head names the origin's shard and the offsets there, so that the rows and how far the
origin was copied are in one chunk: whoever leads next goes on behind the last one. Rows below that
were copied already, and are passed over. While nothing matches, the leader writes to the log from
time to time how far it has scanned, so that a new leader does not scan all of that again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from overlay.client import (
    BeginReading,
    Command,
    EventsTaken,
    Failed,
    ReadingReady,
    StreamEvent,
    TakeEvents,
)
from overlay.incidents import Alarmed
from overlay.info import IntakeInfo, OriginInfo
from overlay.machine import InnerReply, Peer, Timer
from streams.access import pacing
from streams.access.locator import StreamLocated, StreamLocator
from streams.access.reasons import OUT_OF_RANGE
from streams.directory.entry import StreamEntry, StreamSource
from streams.directory.questions import CircleSearch, OwnerQuestions, said
from streams.log.batches import BatchHead, Row, encode_rows
from streams.log.chunk import CHUNK_TARGET, CUT, PRODUCERS
from streams.log.origins import COPIED, OriginScanned
from streams.log.state import Entry, Floor, encode_entries
from streams.programs.producer.producers import shard_of
from streams.services.service import Leaderships, LedShard, ShardService
from streams.shard.hosting.shard_hosts import ShardHosts, StreamDescribed
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

FIRST_CLIENT: Final = -1_000_000_000
"""Clients of this machine have numbers below it, those of captures above it."""

NOTE_AFTER: Final = 5.0
"""Period, in seconds, at which a leader logs how far it has scanned without finding a row …"""

NOTE_ROWS: Final = 100_000
"""… or offsets: what a new leader scans again in a second. Guess."""

SKIP_MOST: Final = 2**32 - 1
"""Offsets of one chunk at most."""

GAP_MOST: Final = 2**40
"""Offsets that a mirror leaves out at once, at most: more than an origin has removed."""


class LookAtCopies(Timer, frozen=True):
    """Fires when the copies are to be checked."""


@dataclass(eq=False)
class OriginReading:
    """The reading of one shard of an origin, for one shard that this node leads."""

    stream: str
    id: str
    """The founding id of the origin."""
    number: int
    """The origin's shard."""
    client: int = 0
    """The client number under which it reads; 0: it does not read."""
    retry_at: float = 0.0
    """When it is tried again after it has failed."""
    from_first: bool = False
    """Retention has removed rows behind the copied ones: begin with the oldest."""
    has_begun: bool = False
    taken: EventsTaken | None = None
    """Events that wait to be appended."""
    scanned: int = 0
    """All rows below it are in the log, or are not wanted."""
    losses: int = 0
    """Number of times that the origin's log has lost rows."""
    noted_at: float = 0.0
    """When `scanned` was last written to the log without a row."""
    fault: str = ""
    """Why it is not read."""

    @property
    def name(self) -> str:
        """Its name in the log."""
        return f"{COPIED}{self.id}/{self.number}"


class ShardCopy(LedShard):
    """The copying into one shard, under one epoch of this node."""

    def __init__(self, service: Copies, replica: Replica, leader: ShardLeader) -> None:
        super().__init__(service, replica, leader)
        self.copies = service
        id_, _, number = replica.shard.rpartition("/")
        self.entry, self.number = service.hosts.entries[id_], int(number)
        self.origins: dict[tuple[str, int], OriginReading] = {}  # by name of the stream, and shard
        self.gaps = 0
        self.circle: tuple[str, ...] = ()
        """The streams by which it copies itself; (): it does not, as far as is known."""
        self.later(LookAtCopies, pacing.LOOK)

    @classmethod
    def is_wanted(cls, replica: Replica) -> bool:
        """Origins are read from the beginning of a leadership on."""
        return True

    def sources(self) -> tuple[StreamSource, ...]:
        """The sources that are copied into the shard."""
        options = self.entry.options
        return (StreamSource(options.mirror),) if options.mirror else options.sources

    def stop(self, leader: Peer | None) -> None:
        """Another node copies from now on."""
        for origin in self.origins.values():
            self.copies.stop(origin)

    def committed(self) -> None:
        """More of the log is committed: append what waits, if there is room."""
        if self.has_room:
            for origin in list(self.origins.values()):
                self.copies.append(self, origin)

    def on_look(self, timer: LookAtCopies) -> None:
        """Tell the log how far was scanned; try again what failed."""
        for origin in self.origins.values():
            self.note(origin)
        for name in sorted({source.stream for source in self.sources()}):
            known = [o for (stream, _), o in self.origins.items() if stream == name]
            if not known or any(not o.client and self.port.now >= o.retry_at for o in known):
                self.copies.locator.locate(name)
        self.committed()
        self.later(LookAtCopies, pacing.LOOK)

    @property
    def has_room(self) -> bool:
        """Whether more may be appended."""
        return self.leader.has_room and self.leader.leads and not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether the shard has as much as it may have, so that its origins wait."""
        return bool(self.leader.retention.full(0, 1))

    def floor(self, origin: OriginReading) -> int:
        """Return up to which offset of an origin's shard the log has the rows."""
        return self.replica.state.origins.floor(origin.name)

    def begin(self, origin: OriginReading, position: int) -> str:
        """The origin is read from `position` on. Returns why it must not be; "": it may."""
        floor = self.floor(origin)
        if position < floor:
            return f"the origin has no row {floor - 1}, which was copied: it has lost rows"
        if self.entry.options.mirror and position > self.replica.log.next_offset + GAP_MOST:
            return f"the origin cannot begin at offset {position}"
        if position > floor and (floor or self.entry.options.mirror):
            if floor:
                self.gaps += 1
                self.port.count("copies_gaps")
            if self.entry.options.mirror:
                self._skip_to(position)
        origin.scanned = position
        return ""

    def _skip_to(self, position: int) -> None:
        """Leave out the offsets that the origin has removed."""
        while (missing := position - self.replica.log.next_offset) > 0:
            floor: list[Entry] = []
            if self.replica.log.next_offset == self.replica.state.floor:
                floor = [Floor(min(position, self.replica.log.next_offset + SKIP_MOST))]
            offsets = min(missing, SKIP_MOST)
            encoded = encode_entries(floor)
            self.leader.append_chunk(CUT, encoded, offsets, time=self.clock())

    def take(self, origin: OriginReading) -> str:
        """Append the rows that have come from an origin's shard. Return why they cannot be taken;
        "" if they were."""
        taken, origin.taken = origin.taken, None
        assert taken is not None
        options = self.entry.options
        floor = self.floor(origin)
        events = [event for event in taken.events if event.offset >= floor]
        if options.mirror and events:
            first, last, following = (
                events[0].offset,
                events[-1].offset,
                self.replica.log.next_offset,
            )
            if first < following or last > following + GAP_MOST:
                return f"the rows {first} to {last} of the origin do not follow on {following}"
        if options.shards > 1 and not options.mirror:
            by, count = options.by, options.shards
            events = [e for e in events if shard_of(e.attributes.get(by), count) == self.number]
        self._append_rows(origin, events)
        for _, position in taken.positions:
            origin.scanned = max(origin.scanned, position)
        self.note(origin)
        return ""

    def note(self, origin: OriginReading) -> None:
        """Tell the log how far was scanned, if that is long ago."""
        floor = self.floor(origin)
        if origin.scanned <= floor:
            origin.noted_at = self.port.now
        elif self.port.now - origin.noted_at > NOTE_AFTER or origin.scanned - floor > NOTE_ROWS:
            origin.noted_at = self.port.now
            entry = OriginScanned(origin.name, origin.scanned, origin.losses)
            self.append_entries(PRODUCERS, [entry])

    def _append_rows(self, origin: OriginReading, events: list[StreamEvent]) -> None:
        heads: list[BatchHead] = []
        rows: list[Row] = []
        encoded: list[bytes] = []
        size = 0
        for event in events:
            row = Row(event.attributes, event.payload, event.payload_type)
            data = encode_rows((row,))
            last = heads[-1] if heads else None
            follows = last is not None and event.offset == last.sequence + last.count
            is_apart = self.entry.options.mirror and not follows
            if rows and (is_apart or size + len(data) > CHUNK_TARGET):
                self._append_events(heads, rows, encoded)
                heads, rows, encoded, size = [], [], [], 0
                last = None
            if last is not None and follows:
                heads[-1] = replace(last, count=last.count + 1)
            else:
                heads.append(BatchHead(origin.name, origin.losses, event.offset, 1))
            rows.append(row)
            encoded.append(data)
            size += len(data)
        if rows:
            self._append_events(heads, rows, encoded)

    def _append_events(self, heads: list[BatchHead], rows: list[Row], encoded: list[bytes]) -> None:
        if self.entry.options.mirror:
            self._skip_to(heads[0].sequence)
            assert self.replica.log.next_offset == heads[0].sequence, (
                "a mirror has no rows of its own"
            )
        self.leader.append_rows(heads, encoded, rows, self.clock())
        self.port.count("copied", len(rows))


class Copies(ShardService[ShardCopy]):
    """Copies rows into the shards that this node leads, for streams that have origins."""

    kind = ShardCopy

    def __init__(
        self,
        leaderships: Leaderships,
        hosts: ShardHosts,
        locator: StreamLocator,
        questions: OwnerQuestions,
        ask: Callable[[int, Command], None],
        close: Callable[[int], None],
    ) -> None:
        """`ask` carries out a client's command, `close` ends a client's readings."""
        super().__init__(leaderships, self._copying)
        self.hosts = hosts
        self.locator = locator
        self._ask, self._close = ask, close
        self._questions = questions
        self._by_client: dict[int, tuple[ShardCopy, OriginReading]] = {}
        self._client = FIRST_CLIENT

    def status(self, shard: str) -> IntakeInfo | None:
        """Return the progress of copying into a shard; None: this node copies nothing into it."""
        copy = self._kept.get(shard)
        if copy is None:
            return None
        readings = copy.origins.values()
        is_fine = bool(readings) and all(origin.has_begun for origin in readings)
        origins = tuple(
            OriginInfo(origin.stream, origin.number, copy.floor(origin), origin.fault)
            for origin in readings
        )
        state = "full" if copy.is_full else "copies" if is_fine else "waits"
        return IntakeInfo(state, "", 0, copy.gaps, origins)

    # -- which shards ----------------------------------------------------------------------------

    def _copying(self, shard: str) -> Replica | None:
        """The replica of a shard that this node leads and that has origins."""
        entry = self.hosts.entries.get(shard.rpartition("/")[0])
        if shard not in self._kept and (entry is None or entry.removed or not _copies(entry)):
            return None
        return self.hosts.leading(shard)

    def make(self, replica: Replica, leader: ShardLeader) -> ShardCopy:
        """Begin to copy; stop if the stream copies itself."""
        copy = super().make(replica, leader)

        def looked(circle: tuple[str, ...]) -> None:
            copy.circle = circle
            if circle:
                self.port.count("copies_refused")
                for origin in copy.origins.values():
                    self.stop(origin, said(circle))

        CircleSearch(self._questions, copy.entry.name, copy.entry.options, looked).start()
        return copy

    def on_described(self, event: StreamDescribed) -> None:
        """Look for origins of a stream of which this node may lead a shard."""
        entry = self.hosts.entries[event.id]
        if _copies(entry):
            for shard in entry.shards():
                self.shard(shard)

    # -- origins ---------------------------------------------------------------------------------

    def on_located(self, event: StreamLocated) -> None:
        """A stream is found: read it where it is an origin."""
        for copy in list(self._kept.values()):
            for source in copy.sources():
                if source.stream == event.name:
                    for number in range(len(event.entry.places)):
                        if not copy.entry.options.mirror or number == copy.number:
                            self._read(copy, source, event.entry.id, number)

    def _read(self, copy: ShardCopy, source: StreamSource, id_: str, number: int) -> None:
        """Read one shard of an origin, unless that is done."""
        origin = copy.origins.get((source.stream, number))
        if origin is None or origin.id != id_:
            if origin is not None:
                self.stop(origin)
                copy.gaps += 1
                self.port.count("copies_of_other_origins")
                into, other = copy.entry.name, f"{source.stream} ({id_})"
                text = f"{into} copies another stream {other}: the one before was removed"
                self.port.emit(Alarmed("origin replaced", text))
            origin = OriginReading(source.stream, id_, number)
            copy.origins[source.stream, number] = origin
        if origin.client or self.port.now < origin.retry_at:
            return
        if copy.circle:
            self.stop(origin, said(copy.circle))
            return
        self._client -= 1
        origin.client, origin.has_begun = self._client, False
        self._by_client[self._client] = (copy, origin)
        floor, losses = copy.floor(origin), copy.replica.state.origins.losses(origin.name)
        positions = ((number, floor),) if floor and not origin.from_first else ()
        self._ask(
            origin.client,
            BeginReading(
                1,
                source.stream,
                source.where,
                "first",
                positions=positions,
                shard=number,
                stream_id=id_,
                losses=((number, losses),) if positions else (),
            ),
        )

    def stop(self, origin: OriginReading, fault: str = "") -> None:
        """Stop reading an origin. Rows that were read and not appended are read again."""
        client, origin.client, origin.has_begun = origin.client, 0, False
        origin.taken, origin.fault = None, fault
        origin.retry_at = self.port.now + (pacing.SILENT if fault else 0.0)
        if self._by_client.pop(client, None) is not None:
            self._close(client)

    def on_inner_reply(self, event: InnerReply) -> None:
        """Handle a reply that a program with this reading would be sent."""
        found = self._by_client.get(event.client)
        if found is None:
            return
        copy, origin = found
        reply = event.reply
        if isinstance(reply, ReadingReady):
            ((position, _),) = reply.shards
            fault = copy.begin(origin, position) if reply.stream == origin.id else "another stream"
            if fault:
                self.port.count("copies_refused")
                self.stop(origin, fault)
                return
            origin.has_begun, origin.from_first, origin.fault = True, False, ""
            origin.losses = reply.losses[0]
            self._ask(origin.client, TakeEvents(2, 1))
        elif isinstance(reply, EventsTaken):
            origin.taken = reply
            origin.losses = dict(reply.losses).get(origin.number, origin.losses)
            self.append(copy, origin)
        elif isinstance(reply, Failed):
            origin.from_first = reply.code == OUT_OF_RANGE and not origin.from_first
            self.stop(origin, f"{reply.code}: {reply.reason}")
            if origin.from_first:
                origin.retry_at = self.port.now

    def append(self, copy: ShardCopy, origin: OriginReading) -> None:
        """Append what waits, and take more."""
        if origin.taken is not None and copy.has_room:
            if fault := copy.take(origin):
                self.port.count("stream_answers_refused")
                self.stop(origin, fault)
                return
            self._ask(origin.client, TakeEvents(2, 1))


def _copies(entry: StreamEntry) -> bool:
    """Whether a stream copies others."""
    return bool(entry.options.sources or entry.options.mirror)
