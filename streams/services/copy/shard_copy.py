"""One shard that copies others, while this node leads it: what was read becomes chunks.

A batch's head names the origin's shard and the offsets there, so that the rows and how far the
origin was copied are in one chunk: whoever leads next goes on behind the last one. Rows below that
were copied already, and are passed over. Where long nothing matches, the log is told how far was
scanned, so that a new leader need not look at all of it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from overlay.client import StreamEvent
from overlay.machine import Port
from streams.directory.entry import StreamEntry
from streams.log.batches import BatchHead, Row, encode_rows, join_batches
from streams.log.chunk import CHUNK_MOST, CHUNK_TARGET, CUT, EVENTS, HEAD, PRODUCERS
from streams.log.origins import OriginScanned
from streams.log.state import Entry, Floor, encode_entries
from streams.log.zones import encode_zones, zone_map
from streams.programs.producer.producers import shard_of
from streams.services.copy.origin import OriginReading
from streams.services.service import LedShard
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

UNDER_WAY: Final = 4
"""Chunks that are appended and not committed, from which on nothing more is taken."""

NOTE_AFTER: Final = 5.0
"""Seconds after which the log is told how far was scanned without a row …"""

NOTE_ROWS: Final = 100_000
"""… or offsets: what a new leader scans again in a second. Guess."""

SKIP_MOST: Final = 2**32 - 1
"""Offsets of one chunk at most."""

GAP_MOST: Final = 2**40
"""Offsets that a mirror leaves out at once, at most: more than an origin has removed."""


class ShardCopy(LedShard):
    """Of one shard, under one epoch of this node's."""

    def __init__(
        self,
        port: Port,
        replica: Replica,
        leader: ShardLeader,
        entry: StreamEntry,
        number: int,
        clock: Callable[[], int],
        go_on: Callable[[], None],
    ) -> None:
        """As of `LedShard`; `number`: of the shard in its stream, `entry`; `go_on`: append what
        waits, if there is room."""
        super().__init__(port, replica, leader, clock)
        self.entry = entry
        self.number = number
        self._go_on = go_on
        self.origins: dict[tuple[str, int], OriginReading] = {}  # by name of the stream, and shard
        self.gaps = 0
        self.circle: tuple[str, ...] = ()
        """The streams by which it copies itself; (): it does not, as far as is known."""
        self._sent: list[int] = []  # numbers of chunks that are not committed

    def committed(self) -> None:
        """More of the log is committed: there is room for more."""
        self._go_on()

    @property
    def has_room(self) -> bool:
        """Whether more may be appended."""
        while self._sent and self._sent[0] <= self.replica.committed:
            del self._sent[0]
        is_led = self.leader.leads
        return len(self._sent) < UNDER_WAY and is_led and not self.is_full

    @property
    def is_full(self) -> bool:
        """Whether the shard has as much as it may have, so that its origins wait."""
        return bool(self.leader.retention.full(0, 1))

    def floor(self, origin: OriginReading) -> int:
        """How far the log has an origin's shard."""
        return self.replica.state.origins.floor(origin.name)

    def losses(self, origin: OriginReading) -> int:
        """How many times the origin's log had lost rows when that floor was told."""
        return self.replica.state.origins.losses(origin.name)

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
        """Leave out the offsets that the origin has not any more."""
        while (missing := position - self.replica.log.next_offset) > 0:
            floor: list[Entry] = []
            if self.replica.log.next_offset == self.replica.state.floor:
                floor = [Floor(min(position, self.replica.log.next_offset + SKIP_MOST))]
            encoded = encode_entries(floor)
            self._append(CUT, encoded, min(missing, SKIP_MOST), b"")

    def take(self, origin: OriginReading) -> str:
        """Append what has come of an origin's shard. Returns why it cannot be taken; "": it was."""
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
            self._append(PRODUCERS, encode_entries([entry]), 0, b"")

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
        body, zones = join_batches(heads, encoded), encode_zones(zone_map(rows))
        if HEAD.size + len(zones) + len(body) > CHUNK_MOST:
            zones = b""
        self._append(EVENTS, body, len(rows), zones)
        self.port.count("copied", len(rows))

    def _append(self, kind: int, body: bytes, offsets: int, zones: bytes) -> None:
        chunk = self.leader.append_chunk(kind, body, offsets, zones=zones, time=self._clock())
        self._sent.append(chunk.number)
