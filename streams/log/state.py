"""The state in a shard's log beside its rows: producers, consumers, groups, replicas, the floor of
retention.

The state is the fold of the chunks in their order. Each segment begins with the whole state, in one
chunk of kind State or, where it is large, in several; so recovery reads the newest segment only,
and retention deletes files. A state chunk repeats the fold of the chunks before it, and
`canopy stream verify` compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from overlay.machine import Peer
from streams.log.batches import BatchHead, MalformedChunkError, heads_of
from streams.log.chunk import (
    BEGINS,
    COMPLETES,
    CUT,
    DEAD,
    DECIDED,
    EVENTS,
    POSITIONS,
    PREPARED,
    PRODUCERS,
    REPLICAS,
    STATE,
    Chunk,
)
from streams.log.group_state import GROUP_ENTRIES, GroupEntry, GroupStates
from streams.log.half_state import HALF_ENTRIES, HalfEntry, HalfStates
from streams.log.lost_rows import LostRows
from streams.log.origins import CAPTURED, COPIED, ORIGIN_ENTRIES, OriginEntry, OriginStates
from streams.log.table import TableWritten

# The forks of a shard that were copied into its log (streams/services/fork/), as the log has them.
#
# A copied batch names the fork and its offset there, so that one chunk has the rows and the
# progress of the copy. Behind the rows of a fork's chunk the log names that chunk, by number and
# hash: so the main log alone proves a receipt of the fork after the fork is removed.

FORKS_KEPT: Final = 256
"""Forks that the state of a shard names; beyond it the one copied longest ago is forgotten. Guess:
each side of a partition makes one."""


class ForkCopied(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """The chunk of `fork` with this number and hash, and all chunks before it, are copied; it ends
    before the offset `next` of the fork. Of the fork's rows so far, `rows` were appended,
    `conflicting` of these without their producer's numbers, since other rows have them, and
    `repeated` were in the log already."""

    fork: str
    chunk: int
    hash: bytes
    next: int
    rows: int = 0
    conflicting: int = 0
    repeated: int = 0


class ForkStates:
    """The forks of a shard, in the order of their last copied chunks."""

    def __init__(self) -> None:
        self.known: dict[str, ForkCopied] = {}

    def floor(self, fork: str) -> int:
        """The offset up to which the fork is copied."""
        known = self.known.get(fork)
        return 0 if known is None else known.next

    def appended(self, head: BatchHead) -> None:
        """Note a batch that was copied from a fork."""
        known = self.known.get(head.fork) or ForkCopied(head.fork, 0, b"", 0)
        conflicting = 0 if head.producer else head.count
        self.take(
            replace(
                known,
                next=max(known.next, head.at + head.count),
                rows=known.rows + head.count,
                conflicting=known.conflicting + conflicting,
            )
        )

    def take(self, entry: ForkCopied) -> None:
        """Apply an entry of a chunk."""
        self.known.pop(entry.fork, None)
        self.known[entry.fork] = entry
        while len(self.known) > FORKS_KEPT:
            del self.known[next(iter(self.known))]


WINDOW: Final = 8
"""Runs of a producer whose places are kept, so that a repeated batch gets the original receipt:
twice the requests that a producer's node has in flight (`streams.programs.producer.row_queue`),
since the rows of one request may lie in two chunks. (Kafka's brokers remember five batches of a
producer, KIP-98.)"""

FORGOTTEN_MOST: Final = 1_000
"""The last expired durable consumers, of which the state keeps the positions. Guess."""

STATE_PIECE: Final = 128 * 1024
"""Bytes of state in one chunk; the rest follows in the next chunk."""


class Appended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive rows of a producer in one chunk: their numbers and their place."""

    sequence: int
    count: int
    offset: int
    chunk: int
    epoch: int

    def joined(self, run: Appended) -> Appended | None:
        """Return this run and one that follows on it in the same chunk as one; None: `run` does not
        follow."""
        end = (self.chunk, self.sequence + self.count, self.offset + self.count)
        if end != (run.chunk, run.sequence, run.offset):
            return None
        return Appended(self.sequence, self.count + run.count, self.offset, run.chunk, run.epoch)


class ProducerState(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The log's state of one producer: its newest session, the next sequence, the places of its
    last rows, the token of who opened the session, and the leader's time of its last chunk.
    `step`: the newest step of its work (0: none); `begun`: the sequence at which that step
    began."""

    name: str
    session: int
    next: int
    window: tuple[Appended, ...]
    token: str = ""
    time: int = 0
    step: int = 0
    begun: int = 0


class ReplicaSet(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The shard's replicas; a majority of them commits."""

    replicas: tuple[Peer, ...]


class Floor(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The log keeps no offset below this one. Rows below `expired` were past their time: readers
    that have not read them continue behind them. `lost`: all known losses at the log's end; empty:
    unchanged."""

    offset: int
    expired: int = 0
    lost: tuple[LostRows, ...] = ()


class ProducerOpened(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A producer's session begins and ends the session before it. Its number is that of this
    entry's chunk, so that no two sessions of a shard have the same number; `token`: the attempt
    that opened it. The sequence continues. A `step` above the producer's begins with the next
    row."""

    name: str
    token: str
    step: int = 0


class ProducerExpired(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The log forgets a producer."""

    name: str


class StreamIs(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The directory's entry of the stream (streams/directory/entry.py), so that any replica can
    restore it. The log treats it as opaque bytes."""

    value: bytes


class ConsumerPosition(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The log's state of a durable consumer: its selector, the next offset to read, its newest
    attachment and the token of who made it, the seconds of silence after which it expires (0:
    never), and the leader's time of its last entry."""

    name: str
    selector: str
    position: int
    attachment: int
    token: str
    expire_after: int
    time: int
    dropped: int = 0
    """Offsets that retention removed before it had read them."""
    was_at: int = 0
    """Its position before the log lost the rows there; 0: no loss to report. It is kept while the
    program with `token`, which has had the report, is the last one to attach."""


class ConsumerAttached(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A program attaches as the durable consumer `name`, which is created if there is none:
    `selector` and `position` are for a new one. The attachment's number is that of this entry's
    chunk; it ends the attachment before it."""

    name: str
    token: str
    selector: str
    position: int
    expire_after: int


class PositionMoved(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A consumer has processed all offsets below `position`, under its `attachment`. A position
    below the known one changes nothing."""

    name: str
    attachment: int
    position: int


class ConsumerExpired(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A durable consumer has expired. `position`: its position, kept for a report to the next
    program that attaches by this name; -1: none is kept. `told`: the program that has had the
    report."""

    name: str
    position: int = -1
    told: str = ""


Entry = (
    ProducerState
    | ReplicaSet
    | Floor
    | StreamIs
    | ProducerOpened
    | ProducerExpired
    | ConsumerPosition
    | ConsumerAttached
    | PositionMoved
    | ConsumerExpired
    | HalfEntry
    | OriginEntry
    | GroupEntry
    | TableWritten
    | ForkCopied
)
_ENTRIES: Final = msgspec.msgpack.Decoder(tuple[Entry, ...])


NO_TABLE: Final = TableWritten(0, 0)


def encode_entries(entries: Sequence[Entry]) -> bytes:
    """The rows of a chunk of any kind but Events."""
    return msgspec.msgpack.encode(entries)


def entries_of(chunk: Chunk) -> tuple[Entry, ...]:
    """The entries of a chunk of any kind but Events.
    MalformedChunkError if it has others."""
    try:
        return _ENTRIES.decode(chunk.rows)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedChunkError(f"chunk {chunk.number}: {error}") from None


def split_entries(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Entries divided into runs that fit into one chunk each: at least one run."""
    run: list[Entry] = []
    size = 0
    for entry in entries:
        length = len(msgspec.msgpack.encode(entry))
        if run and size + length > STATE_PIECE:
            yield run
            run, size = [], 0
        run.append(entry)
        size += length
    yield run


class ShardState:
    """The fold of a log. `apply` is called with each chunk, in order."""

    def __init__(self) -> None:
        self.producers: dict[str, ProducerState] = {}
        self.consumers: dict[str, ConsumerPosition] = {}
        self.forgotten: dict[str, ConsumerExpired] = {}
        """Expired durable consumers, each until a program attaches by its name that has not had
        the report."""
        self.replicas: tuple[Peer, ...] = ()
        self.floor = 0
        self.lost: tuple[LostRows, ...] = ()
        """Losses of rows at the log's end, the newest last."""
        self.stream = b""
        """The directory's entry of the stream as a leader last wrote it; empty: not known."""
        self.transactions = HalfStates()
        self.origins = OriginStates()
        self.forks = ForkStates()
        self.groups = GroupStates()
        self.table = NO_TABLE
        """The place of the newest rows below the floor, in a stream with a key."""
        self._former_table: TableWritten | None = None  # the table before; None: not known
        self._loading: ShardState | None = None  # a state of several chunks, not yet complete

    def apply(self, chunk: Chunk) -> None:
        """Take the next chunk of the log. MalformedChunkError if it cannot be read."""
        if chunk.kind == STATE:
            if chunk.begins_segment:
                self._loading = ShardState()
            if self._loading is not None:
                self._loading._take(chunk)
                if chunk.completes_state:
                    loaded, self._loading = self._loading, None
                    self.producers, self.replicas = loaded.producers, loaded.replicas
                    self.floor, self.stream, self.lost = loaded.floor, loaded.stream, loaded.lost
                    self.transactions, self.origins = loaded.transactions, loaded.origins
                    self.consumers, self.groups = loaded.consumers, loaded.groups
                    self.forgotten = loaded.forgotten
                    self.table, self.forks = loaded.table, loaded.forks
        elif chunk.kind == EVENTS:
            offset = chunk.first
            for head in heads_of(chunk):
                self._appended(head, offset, chunk)
                offset += head.count
        elif chunk.kind in (REPLICAS, CUT, PRODUCERS, POSITIONS, DEAD, PREPARED, DECIDED):
            self._take(chunk)

    def entries(self) -> Iterator[Entry]:
        """The whole state as entries, in a fixed order."""
        yield ReplicaSet(self.replicas)
        yield Floor(self.floor, 0, self.lost)
        if self.table != NO_TABLE:
            yield self.table
        if self.stream:
            yield StreamIs(self.stream)
        for name in sorted(self.producers):
            yield self.producers[name]
        yield from self.transactions.entries()
        yield from self.origins.entries()
        yield from self.forks.known.values()
        for name in sorted(self.consumers):
            yield self.consumers[name]
        yield from self.forgotten.values()
        yield from self.groups.entries()

    def oldest_table_chunk(self, committed: int) -> int | None:
        """The first chunk with rows of the table; None: there is none. A table written behind chunk
        `committed` may be truncated, so that the table before it is still needed."""
        needed = [self.table]
        if self.table.cut > committed:
            if self._former_table is None:
                return 0
            needed.append(self._former_table)
        return min((table.first for table in needed if table.first), default=None)

    def pieces(self) -> list[tuple[bytes, int]]:
        """The rows and flags of the state chunks with which a segment begins: at least one."""
        runs = [encode_entries(run) for run in split_entries(self.entries())]
        flags = [BEGINS, *[0] * (len(runs) - 1)]
        flags[-1] |= COMPLETES
        return list(zip(runs, flags, strict=True))

    def same(self, other: ShardState) -> bool:
        """Whether both states are equal."""
        return list(self.entries()) == list(other.entries())

    def _take(self, chunk: Chunk) -> None:
        for entry in entries_of(chunk):
            if isinstance(entry, ProducerState):
                self.producers[entry.name] = entry
            elif isinstance(entry, ReplicaSet):
                self.replicas = entry.replicas
            elif isinstance(entry, StreamIs):
                self.stream = entry.value
            elif isinstance(entry, Floor):
                self._raise_floor(entry.offset, entry.expired)
                self.lost = entry.lost or self.lost
            elif isinstance(entry, TableWritten):
                self._former_table = self.table
                self.table = replace(entry, cut=entry.cut or chunk.number)
            elif isinstance(entry, ProducerOpened):
                self._opened(entry, chunk)
            elif isinstance(entry, HALF_ENTRIES):
                self.transactions.take(entry, chunk)
            elif isinstance(entry, ORIGIN_ENTRIES):
                self.origins.take(entry)
            elif isinstance(entry, ForkCopied):
                self.forks.take(entry)
            elif isinstance(entry, GROUP_ENTRIES):
                self.groups.take(entry, chunk)
            elif isinstance(entry, ProducerExpired):
                self.producers.pop(entry.name, None)
            else:
                self._take_consumer(entry, chunk)

    def _raise_floor(self, offset: int, expired: int) -> None:
        """Remove offsets below this one; count for each consumer those that it had not read."""
        for name, known in self.consumers.items():
            unread = offset - max(known.position, self.floor)
            if unread > 0:
                dropped, position = known.dropped + unread, max(known.position, expired)
                self.consumers[name] = replace(known, dropped=dropped, position=position)
        if expired:
            self.groups.pass_over(expired)
        self.floor = max(self.floor, offset)

    def _opened(self, entry: ProducerOpened, chunk: Chunk) -> None:
        known = self.producers.get(entry.name) or ProducerState(entry.name, 0, 0, ())
        if entry.step > known.step:
            known = replace(known, step=entry.step, begun=known.next)
        self.producers[entry.name] = replace(
            known, session=chunk.number, token=entry.token, time=chunk.time
        )

    def _take_consumer(
        self,
        entry: ConsumerPosition | ConsumerAttached | PositionMoved | ConsumerExpired,
        chunk: Chunk,
    ) -> None:
        known = self.consumers.get(entry.name)
        if isinstance(entry, ConsumerPosition):
            self.consumers[entry.name] = entry
        elif isinstance(entry, ConsumerExpired):
            self.consumers.pop(entry.name, None)
            if entry.position >= 0:
                self.forgotten[entry.name] = entry
                while len(self.forgotten) > FORGOTTEN_MOST:
                    del self.forgotten[next(iter(self.forgotten))]
        elif isinstance(entry, ConsumerAttached):
            self.forgotten.pop(entry.name, None)
            if known is None:
                known = ConsumerPosition(entry.name, entry.selector, entry.position, 0, "", 0, 0)
            self.consumers[entry.name] = replace(
                known,
                attachment=chunk.number,
                token=entry.token,
                expire_after=entry.expire_after,
                time=chunk.time,
                was_at=0,
            )
        elif known is not None and known.attachment == entry.attachment:
            position = max(known.position, entry.position)
            self.consumers[entry.name] = replace(known, position=position, time=chunk.time)

    def _appended(self, head: BatchHead, offset: int, chunk: Chunk) -> None:
        if head.transaction:
            self.transactions.committed(head, offset, chunk)
            return
        if head.fork:
            self.forks.appended(head)
            if head.producer in self.producers:
                self._copied(head, offset, chunk)
            return
        if not head.producer:
            return
        if head.producer.startswith((CAPTURED, COPIED)):
            self.origins.appended(head)
            return
        known = self.producers.get(head.producer)
        if known is None or known.session != head.session:
            step = () if known is None else (known.step, known.begun)
            known = ProducerState(head.producer, head.session, 0, (), "", 0, *step)
        window = known.window
        run = Appended(head.sequence, head.count, offset, chunk.number, chunk.epoch)
        is_in_chunk = bool(window) and window[-1].chunk == chunk.number
        if is_in_chunk and (both := window[-1].joined(run)) is not None:
            window, run = window[:-1], both
        end, window = head.sequence + head.count, (*window, run)[-WINDOW:]
        self.producers[head.producer] = replace(known, next=end, window=window, time=chunk.time)

    def _copied(self, head: BatchHead, offset: int, chunk: Chunk) -> None:
        """A producer's rows were copied from a fork: its session continues behind them. A session
        that has replaced the one of these rows ends: its program would reuse their numbers, and
        its rows would count as appended already."""
        known = self.producers[head.producer]
        if known.session != head.session and head.sequence + head.count > known.next:
            known = replace(known, session=chunk.number, token="")
        run = Appended(head.sequence, head.count, offset, chunk.number, chunk.epoch)
        self.producers[head.producer] = replace(
            known,
            next=max(known.next, head.sequence + head.count),
            window=(*known.window, run)[-WINDOW:],
            time=chunk.time,
        )
