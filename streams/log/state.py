"""What a shard's log says beside its rows: producers, consumers, groups, replicas, the floor of
retention.

It is the fold of the chunks in their order. Each segment begins with the whole of it, in one chunk
of kind State or, where it is large, in several; so recovery reads the newest segment only, and
retention deletes files. What such chunks say is the fold of what came before: who has both can
compare them (`canopy stream verify`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from overlay.machine import Peer
from streams.log.batches import BatchHead, MalformedChunkError, heads_of
from streams.log.chunk import (
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
from streams.log.fork_state import ForkCopied, ForkStates
from streams.log.group_state import GROUP_ENTRIES, GroupEntry, GroupStates
from streams.log.half_state import HALF_ENTRIES, HalfEntry, HalfStates
from streams.log.lost_rows import LostRows
from streams.log.origins import CAPTURED, COPIED, ORIGIN_ENTRIES, OriginEntry, OriginStates
from streams.log.table import TableWritten

WINDOW: Final = 8
"""Runs of a producer whose places are kept, so that a repeat gets the original receipt: twice the
requests that a producer's node has under way (`streams.producing.sending`), since one of these may
come to lie in two chunks. (Kafka's brokers remember five batches of a producer, KIP-98.)"""

FORGOTTEN_MOST: Final = 1_000
"""Durable consumers that have expired of which is kept where they were, the last ones. Guess."""

STATE_PIECE: Final = 128 * 1024
"""Bytes after which the state goes on in another chunk."""


class Appended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run of a producer's rows that lie in one chunk behind one another: their numbers, and the
    place."""

    sequence: int
    count: int
    offset: int
    chunk: int
    epoch: int


class ProducerState(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """What the log knows of one producer: its newest session, the sequence that comes next, where
    its last rows are, who opened the session, and the leader's time of its last chunk. `step`: the
    newest step of its work (0: it has none), and `begun` the sequence with which that began."""

    name: str
    session: int
    next: int
    window: tuple[Appended, ...]
    token: str = ""
    time: int = 0
    step: int = 0
    begun: int = 0


class ReplicaSet(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The nodes of which a majority commits."""

    replicas: tuple[Peer, ...]


class Floor(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Offsets below this one are not kept any more; those below `expired` were past their time, and
    who has not read them goes on behind them. `lost`: all that is known of rows that were lost at
    the log's end; empty: nothing new."""

    offset: int
    expired: int = 0
    lost: tuple[LostRows, ...] = ()


class SessionOpened(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A producer's session begins, and ends the one before. Its number is that of the chunk that
    says so, so that no two sessions of a shard have the same; `token`: which attempt to open it
    that was. The sequence goes on. A `step` above the producer's begins with the row that comes
    next."""

    name: str
    token: str
    step: int = 0


class ProducerExpired(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Nothing is known of a producer any more."""

    name: str


class StreamIs(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The directory's entry of the stream (streams/directory/entry.py), so that it can be brought
    back by whoever has a shard. This log does not look into it."""

    value: bytes


class ConsumerPosition(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """What the log knows of a durable consumer: its selector, the offset that it reads next, its
    newest attachment and who made that, the seconds of silence after which it is forgotten (0: it
    never is), and the leader's time of the last word of it."""

    name: str
    selector: str
    position: int
    attachment: int
    token: str
    expire_after: int
    time: int
    dropped: int = 0
    """Offsets that it had not read when they were let go of."""
    was_at: int = 0
    """Where it was before the log lost the rows there, if no other program has come as this
    consumer since the one that was told, whose `token` is kept; 0: nothing to tell."""


class ConsumerAttached(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A program reads as the durable consumer `name`, which is made if it is not there; `selector`
    and `position` are those of a new one. The attachment's number is that of the chunk that says
    so, and ends the one before."""

    name: str
    token: str
    selector: str
    position: int
    expire_after: int


class PositionMoved(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A consumer is done with all offsets below `position`, as its `attachment` says. A position
    that is lower than the known one changes nothing."""

    name: str
    attachment: int
    position: int


class ConsumerExpired(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A durable consumer is none any more. `position`: where it was, which is kept to be told to
    the next program that comes as it; -1: it is not. `told`: the program that has been."""

    name: str
    position: int = -1
    told: str = ""


Entry = (
    ProducerState
    | ReplicaSet
    | Floor
    | StreamIs
    | SessionOpened
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
    """Entries as the chunks that have room for them: at least one."""
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


class StatePiece(NamedTuple):
    """The rows of one chunk of a segment's beginning; the last one completes it."""

    rows: bytes
    completes: bool


class ShardState:
    """The fold of a log. `apply` is called with each chunk, in order."""

    def __init__(self) -> None:
        self.producers: dict[str, ProducerState] = {}
        self.consumers: dict[str, ConsumerPosition] = {}
        self.forgotten: dict[str, ConsumerExpired] = {}
        """Durable consumers that have expired, until a program comes as one again that has not been
        told so."""
        self.replicas: tuple[Peer, ...] = ()
        self.floor = 0
        self.lost: tuple[LostRows, ...] = ()
        """Rows at the end that are lost, the newest loss last."""
        self.stream = b""
        """The directory's entry of the stream, as it was when a leader last wrote it; empty: not
        known."""
        self.transactions = HalfStates()
        self.origins = OriginStates()
        self.forks = ForkStates()
        self.groups = GroupStates()
        self.table = NO_TABLE
        """Where the newest rows below the floor are, in a stream with a key."""
        self._former_table: TableWritten | None = None  # before that; None: not known
        self._loading: ShardState | None = None  # a state whose last chunk has not come

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
        """All that there is to know, in a fixed order."""
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
        yield from self.forks.entries()
        for name in sorted(self.consumers):
            yield self.consumers[name]
        yield from self.forgotten.values()
        yield from self.groups.entries()

    def oldest_table_chunk(self, committed: int) -> int | None:
        """The first chunk that has rows of the table; None: there is none. A table that is written
        behind chunk `committed` may be lost again, so that the one before is needed still."""
        needed = [self.table]
        if self.table.cut > committed:
            if self._former_table is None:
                return 0
            needed.append(self._former_table)
        return min((table.first for table in needed if table.first), default=None)

    def pieces(self) -> list[StatePiece]:
        """The state as the chunks with which a segment begins: at least one."""
        runs = list(split_entries(self.entries()))
        last = len(runs) - 1
        return [StatePiece(encode_entries(run), place == last) for place, run in enumerate(runs)]

    def same(self, other: ShardState) -> bool:
        """Whether both say the same."""
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
            elif isinstance(entry, SessionOpened):
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
        """Offsets below this one are not kept; count for each consumer what it had not read."""
        for name, known in self.consumers.items():
            unread = offset - max(known.position, self.floor)
            if unread > 0:
                dropped, position = known.dropped + unread, max(known.position, expired)
                self.consumers[name] = replace(known, dropped=dropped, position=position)
        if expired:
            self.groups.pass_over(expired)
        self.floor = max(self.floor, offset)

    def _opened(self, entry: SessionOpened, chunk: Chunk) -> None:
        known = self.producers.get(entry.name)
        following, window = (0, ()) if known is None else (known.next, known.window)
        step, begun = (0, 0) if known is None else (known.step, known.begun)
        if entry.step > step:
            step, begun = entry.step, following
        self.producers[entry.name] = ProducerState(
            entry.name, chunk.number, following, window, entry.token, chunk.time, step, begun
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
            selector, position, dropped = entry.selector, entry.position, 0
            if known is not None:
                selector, position, dropped = known.selector, known.position, known.dropped
            self.consumers[entry.name] = ConsumerPosition(
                *(entry.name, selector, position, chunk.number, entry.token),
                *(entry.expire_after, chunk.time, dropped),
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
        window: tuple[Appended, ...] = ()
        token, run = "", Appended(head.sequence, head.count, offset, chunk.number, chunk.epoch)
        if known is not None and known.session == head.session:
            window, token = known.window, known.token
        if window:
            last = window[-1]
            end = (last.chunk, last.sequence + last.count, last.offset + last.count)
            if end == (run.chunk, run.sequence, run.offset):
                count = last.count + run.count
                run = Appended(last.sequence, count, last.offset, run.chunk, run.epoch)
                window = window[:-1]
        self.producers[head.producer] = ProducerState(
            *(head.producer, head.session, head.sequence + head.count),
            *((*window, run)[-WINDOW:], token, chunk.time),
            *((0, 0) if known is None else (known.step, known.begun)),
        )

    def _copied(self, head: BatchHead, offset: int, chunk: Chunk) -> None:
        """Rows of a producer came from a fork: its session goes on behind them. Where another
        session has replaced theirs, that ends: its program would give its next rows their
        numbers, which would count as appended."""
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
