"""One shard that this node leads: requests of producers become chunks, and commits answers.

What comes in one turn goes into chunks together. While `UNDER_WAY` chunks are not committed, what
comes waits for them until it fills a chunk: under load chunks grow by themselves, and a quiet shard
answers after one round of replication.

Rows are decoded once, for the zone map and so that nothing unreadable comes into the log; the log
has the bytes that came. Batches of a chunk are in the order of their producers, so that the window
in the log's state has one run for each producer and chunk.

Whatever is answered from the log's state is answered when the log up to here is committed: a leader
that has been replaced without knowing it commits nothing, and so says nothing of what it knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from overlay.client import NO_MAJORITY
from overlay.command_faults import NODE_PREFIX
from overlay.machine import LocalEvent, NodeId, Peer, ProtocolError, Timer
from streams.access.reasons import (
    DISK_FULL,
    EXPIRED,
    FENCED,
    FULL,
    MALFORMED,
    MOVED,
    NOT_YET,
    POLICY,
    QUOTA,
    TOO_LARGE,
)
from streams.disk import DiskFailed, Written
from streams.log.batches import BatchHead, Row, decode_rows
from streams.log.chunk import CHUNK_TARGET, PRODUCERS, Chunk, read
from streams.log.names import split_shard
from streams.log.state import Appended, Entry, ProducerExpired, ProducerOpened, ProducerState
from streams.log.writers import denial
from streams.programs.producer.messages import (
    BATCH_MOST,
    FORKED,
    AppendRefused,
    AppendRows,
    JoinFork,
    OpenProducer,
    ProducerIsOpen,
    RowBatch,
    RowsAppended,
    Run,
)
from streams.services.append.numbers import New, Repeated, Wrong, joined, judge, replaced
from streams.services.service import Leaderships, LedShard, ReplicaOf, ShardService
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

UNDER_WAY: Final = 2
"""Chunks that are appended and not committed, from which on smaller ones wait: two keep disk and
network busy at once. With four, rows that came one by one took half as long again in the median
(`bench.streams.peers`)."""

PENDING_MOST: Final = 8 * 1024 * 1024
"""Bytes of rows that are not committed, at most: 30 chunks, 0.3 s at 100,000 rows of 250 bytes a
second."""

PRODUCER_MOST: Final = 2 * 1024 * 1024
"""Bytes of one producer's rows among them, at most: twice the requests that its node has under
way."""

MAJORITY_WAIT: Final = 2.0
"""Seconds without a commit after which new requests are refused: longer than a follower's restart
of its link, shorter than people wait."""

ANSWER_WITHIN: Final = 8.0
"""Seconds after which who waits for a commit is told that it is not known."""

PRODUCERS_MOST: Final = 100_000
"""Producers of a shard at most: some 10 MB of state."""

PRODUCER_IDLE: Final = 7 * 24 * 3_600 * 1_000_000_000
"""Nanoseconds without a row after which a producer may be forgotten: as Kafka's default
(transactional.id.expiration.ms)."""

HEAD_BYTES: Final = 32
"""Bytes of a batch's head beside the producer's name, at most."""

WAITING_MOST: Final = 10_000
"""Chunks, refusals and openings that wait for a commit at most."""

EXPIRED_AT_ONCE: Final = 1_000
"""Producers that one chunk forgets at most."""


LOOK: Final = 1.0
"""Seconds between looks at requests that have waited for too long."""


class LookAtAppends(Timer, frozen=True):
    """Fires when requests that have waited too long are to be looked for."""


class _Queued(NamedTuple):
    request: _Request
    head: BatchHead
    encoded: bytes
    rows: tuple[Row, ...]
    size: int  # bytes in a chunk, roughly


@dataclass(eq=False, slots=True)
class _Request:
    """A request that has been taken and is not answered."""

    sender: Peer
    number: int
    since: float
    size: int = 0
    waits: int = 1  # batches that are queued, chunks that are not committed or not read, and 1
    runs: list[Appended | Run] = field(default_factory=list)


class Appender(LedShard):
    """Appends to one shard under one epoch of this node's."""

    service: AppendServer

    def __init__(self, service: AppendServer, replica: Replica, leader: ShardLeader) -> None:
        super().__init__(service, replica, leader)
        self._fork = split_shard(replica.shard)[1]
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = self._queued_rows = 0
        self._following: dict[str, int] = {}  # by producer: what comes after what is queued
        self._bytes: dict[str, int] = {}  # by producer: of what is not committed
        self._pending = 0  # the same of all
        self._sizes: deque[tuple[int, dict[str, int]]] = deque()  # of chunks under way
        self._requests: dict[_Request, None] = {}  # all that are not answered
        self._progress = self.port.now
        """When a chunk was committed last, or there was none under way."""

    # -- requests --------------------------------------------------------------------------------

    def _may_append(self, sender: Peer, message: AppendRows | OpenProducer | JoinFork) -> bool:
        """Whether the producer of a request may append; else it was refused. Raises ProtocolError
        for the own producer of another node."""
        own, producer = NODE_PREFIX + sender.id, message.producer
        if producer.startswith(NODE_PREFIX) and producer.partition(FORKED)[0] != own:
            raise ProtocolError("the producer of another node")
        access = self.replica.terms.access
        if not access.writers and message.asker is None:
            return True
        reason = denial(access, producer, sender.id, message.asker)
        if reason:
            self.refuse(sender, message.request, POLICY, reason)
        return not reason

    def on_append_rows(self, sender: Peer, message: AppendRows) -> None:
        """Take a request: its batches are queued, found in the log, or refused together."""
        if not self._may_append(sender, message):
            return
        if message.session > self.replica.log.end.number and not self._fork:
            self.refuse(sender, message.request, MOVED, "a later leader opened this session")
            return
        sizes = [len(batch.rows) for batch in message.batches]
        if wrong := self._obstacle(message.producer, sum(sizes), message.batches):
            self.refuse(sender, message.request, *wrong)
            return
        if max(sizes, default=0) > BATCH_MOST:
            reason = f"a batch has {BATCH_MOST} bytes of rows at most"
            self.refuse(sender, message.request, TOO_LARGE, reason)
            return
        found = self._judged(message)
        if isinstance(found, Wrong):
            self.when_committed(lambda: self.refuse(sender, message.request, *found))
            return
        try:
            decoded = [
                decode_rows(batch.rows, batch.count) if isinstance(verdict, New) else ()
                for batch, verdict in zip(message.batches, found, strict=True)
            ]
            unfit = self.leader.retention.unfit(row for rows in decoded for row in rows)
        except ValueError as error:
            unfit = str(error)
        if unfit:
            self.refuse(sender, message.request, MALFORMED, unfit)
            return
        request = _Request(sender, message.request, self.port.now)
        if not self._requests:
            self.later(LookAtAppends, LOOK)
        self._requests[request] = None
        sequence, head = message.sequence, (message.producer, message.session)
        head_bytes = 4 * len(message.producer) + HEAD_BYTES
        for batch, rows, verdict in zip(message.batches, decoded, found, strict=True):
            if isinstance(verdict, New):
                request.waits += 1
                request.size += len(batch.rows)
                batch_head = BatchHead(*head, sequence, batch.count)
                size = len(batch.rows) + head_bytes
                self._queue.append(_Queued(request, batch_head, batch.rows, rows, size))
                self._queued_rows += batch.count
            else:
                self._add_repeated(request, verdict)
            sequence += batch.count
        if request.size:
            self._following[message.producer] = sequence
            self._queued_bytes += request.size
            self._pending += request.size
            self._bytes[message.producer] = self._bytes.get(message.producer, 0) + request.size
            self.service.wake(self.replica.shard)
        self._done(request)

    def _judged(self, message: AppendRows) -> list[New | Repeated] | Wrong:
        """Return how to handle each batch, or why the request is refused."""
        known = self.replica.state.producers.get(message.producer)
        following = self._following.get(message.producer, known.next if known else 0)
        if known is not None and message.sequence < following and self._queue:
            self.flush(everything=True)  # it may repeat what is queued
            known = self.replica.state.producers.get(message.producer)
        found: list[New | Repeated] = []
        sequence = message.sequence
        for batch in message.batches:
            verdict = judge(known, message.session, following, sequence, batch.count)
            if isinstance(verdict, Wrong):
                return verdict
            found.append(verdict)
            sequence += batch.count
            if isinstance(verdict, New):
                following = sequence
        return found

    def _obstacle(
        self, producer: str, size: int, batches: Sequence[RowBatch] = ()
    ) -> tuple[str, str] | None:
        """Return a code and reason why no rows of this producer can be taken at present; None: they
        can."""
        if self._sizes and self.port.now - self._progress > MAJORITY_WAIT:
            return NO_MAJORITY, "no majority of the shard's replicas answers"
        mine = self._bytes.get(producer, 0)
        crowded = self._pending + size > PENDING_MOST or len(self._waiting) >= WAITING_MOST
        if crowded or (mine and mine + size > PRODUCER_MOST):
            return FULL, "too much is not committed yet"
        if batches:
            rows = self._queued_rows + sum([batch.count for batch in batches])
            if reason := self.leader.retention.full(size + self._queued_bytes, rows):
                return QUOTA, reason
        return None

    def on_open_producer(self, sender: Peer, message: OpenProducer) -> None:
        """Begin a session, unless this very one has begun already."""
        if not self._may_append(sender, message):
            return
        if wrong := self._obstacle("", 0):
            self.refuse(sender, message.request, *wrong)
            return
        if self._fork and FORKED not in message.producer:
            reason = "a producer's session begins where a majority of the replicas is"
            self.refuse(sender, message.request, NO_MAJORITY, reason)
            return
        self.flush(everything=True)  # rows of the session that ends come before its end
        known = self.replica.state.producers.get(message.producer)
        if (refused := self._misses(known, message)) is not None:
            self.when_committed(lambda: self.refuse(sender, message.request, *refused))
            return
        if known is None and not self._make_room():
            reason = f"{PRODUCERS_MOST} producers have been active lately"
            self.refuse(sender, message.request, FULL, reason)
            return
        if known is None or known.token != message.token or not known.token:
            opened = ProducerOpened(message.producer, message.token, message.step)
            self._append_entries([opened])
            known = self.replica.state.producers.get(message.producer)
        assert known is not None
        place = (self.replica.shard, message.request, known.session)
        answer = ProducerIsOpen(*place, known.next, known.begun)
        self.when_committed(lambda: self.port.send(sender, answer))

    def on_join_fork(self, sender: Peer, message: JoinFork) -> None:
        """A producer goes on in this fork."""
        if not self._may_append(sender, message):
            return
        main, fork = split_shard(message.shard)
        if not fork:
            self.refuse(sender, message.request, MOVED, "the shard is no fork")
            return
        if wrong := self._obstacle("", 0):
            self.refuse(sender, message.request, *wrong)
            return
        self.flush(everything=True)
        known = self.replica.state.producers.get(message.producer)
        found = joined(message, known, self.service.replica(main))
        if isinstance(found, Wrong):
            self.refuse(sender, message.request, *found)
            return
        if found != known:
            self._append_entries([found])
        answer = ProducerIsOpen(self.replica.shard, message.request, found.session, found.next)
        self.when_committed(lambda: self.port.send(sender, answer))

    def _misses(self, known: ProducerState | None, message: OpenProducer) -> Wrong | None:
        """Return why the producer at this shard is not the one that the program means; None: it
        is."""
        if known is None and (message.known or message.after):
            return Wrong(EXPIRED, "this producer is not known here, or not any more")
        if known is not None and known.token == message.token:
            return None
        if wrong := replaced(known, message.token):
            return wrong
        if known is None:
            return None
        if 0 < message.step < known.step:
            return Wrong(
                FENCED, f"step {known.step} of the producer has begun: {message.step} ended"
            )
        if message.after in (0, known.session):
            return None
        return Wrong(FENCED, f"session {known.session} has replaced {message.after}")

    def _make_room(self) -> bool:
        """If there are too many producers, forget those that have been idle for long. Return
        whether there is room for one more."""
        producers = self.replica.state.producers
        if len(producers) < PRODUCERS_MOST:
            return True
        before = self.replica.log.time - PRODUCER_IDLE
        idle = [name for name, known in producers.items() if known.time < before]
        if idle:
            self._append_entries([ProducerExpired(name) for name in idle[:EXPIRED_AT_ONCE]])
        return bool(idle)

    def _append_entries(self, entries: list[Entry]) -> None:
        self._under_way(self.append_entries(PRODUCERS, entries), {})

    # -- chunks ----------------------------------------------------------------------------------

    def flush(self, everything: bool = False) -> None:
        """Append the queued rows in whole chunks. Append a partial chunk as well if few are under
        way."""
        while (
            self._queue
            and self.leader.leads
            and (everything or self._queued_bytes >= CHUNK_TARGET or len(self._sizes) < UNDER_WAY)
        ):
            self._append_queued()

    def _append_queued(self) -> None:
        size = 0
        taken: list[_Queued] = []
        while self._queue and (not taken or size + self._queue[0].size <= CHUNK_TARGET):
            queued = self._queue.popleft()
            size += queued.size
            self._queued_bytes -= len(queued.encoded)
            self._queued_rows -= queued.head.count
            taken.append(queued)
        taken.sort(key=lambda queued: queued.head.producer)
        heads = [queued.head for queued in taken]
        rows = [row for queued in taken for row in queued.rows]
        encoded_rows = [queued.encoded for queued in taken]
        chunk = self.leader.append_rows(heads, encoded_rows, rows, self.clock())
        sizes: dict[str, int] = {}
        offset = chunk.first
        requests: dict[_Request, None] = {}
        for request, head, encoded, _, _ in taken:
            sizes[head.producer] = sizes.get(head.producer, 0) + len(encoded)
            self._add_run(
                request, Appended(head.sequence, head.count, offset, chunk.number, chunk.epoch)
            )
            offset += head.count
            request.waits -= 1
            requests[request] = None
        for request in requests:
            request.waits += 1
        self._under_way(chunk, sizes)
        if not self._queue:
            self._following.clear()
        self.when_committed(lambda: self._chunk_committed(chunk, requests), chunk.number)

    def _under_way(self, chunk: Chunk, sizes: dict[str, int]) -> None:
        if not self._sizes:
            self._progress = self.port.now
        self._sizes.append((chunk.number, sizes))

    # -- commits ---------------------------------------------------------------------------------

    def committed(self) -> None:
        """More of the log is committed: answer who waits for it, and append what waited."""
        number = self.replica.committed
        self._progress = self.port.now
        while self._sizes and self._sizes[0][0] <= number:
            for producer, size in self._sizes.popleft()[1].items():
                self._pending -= size
                self._bytes[producer] -= size
                if not self._bytes[producer]:
                    del self._bytes[producer]
        super().committed()
        self.flush()

    def _chunk_committed(self, chunk: Chunk, requests: dict[_Request, None]) -> None:
        holders = self.leader.holders(chunk.number)
        for request in requests:
            self._place(request, chunk.number, chunk.hash, holders)
            self._done(request)

    def _add_run(self, request: _Request, run: Appended) -> None:
        """The rows of a batch lie there."""
        last = request.runs[-1] if request.runs else None
        both = last.joined(run) if isinstance(last, Appended) else None
        if both is None:
            request.runs.append(run)
        else:
            request.runs[-1] = both

    def _add_repeated(self, request: _Request, repeated: Repeated) -> None:
        """The rows of a batch are in the log: find the hashes of their chunks."""
        for run in repeated.runs or ():
            known = any(isinstance(r, Appended) and r.chunk == run.chunk for r in request.runs)
            self._add_run(request, run)
            if not known:
                request.waits += 1
                self._find_hash(request, run.chunk)
        if repeated.runs is None:
            request.waits += 1
            self.when_committed(lambda: self._done(request))

    def _find_hash(self, request: _Request, number: int) -> None:
        def found(digest: bytes) -> None:
            holders = self.leader.holders(number)
            self._place(request, number, digest, holders)
            self._done(request)

        line = self.replica.log.line(number)
        if line is not None:
            self.when_committed(lambda: found(line.hash), number)
            return

        def was_read(chunks: tuple[bytes, ...]) -> None:
            chunk = read(chunks[0]) if chunks else None
            found(chunk.hash if chunk is not None and chunk.number == number else b"")

        self.replica.chunks.read(number, was_read)

    def _place(
        self, request: _Request, number: int, digest: bytes, holders: tuple[NodeId, ...]
    ) -> None:
        for place, run in enumerate(request.runs):
            if isinstance(run, Appended) and run.chunk == number:
                request.runs[place] = Run(
                    run.sequence,
                    run.count,
                    run.offset,
                    number,
                    run.epoch,
                    digest,
                    holders,
                    self._fork,
                )

    def _done(self, request: _Request) -> None:
        """Note that one of the conditions of a request is met. Answer the request after the last
        one."""
        request.waits -= 1
        if request.waits or request not in self._requests:
            return
        del self._requests[request]
        runs = tuple([run for run in request.runs if isinstance(run, Run)])
        if len(runs) > 1:
            runs = tuple(sorted(runs, key=lambda run: run.sequence))
        self.port.send(request.sender, RowsAppended(self.replica.shard, request.number, runs))
        self.port.count("stream_appends")

    # -- refusals --------------------------------------------------------------------------------

    def on_look(self, timer: LookAtAppends) -> None:
        """Tell those who have waited for too long that it is not known."""
        before = self.port.now - ANSWER_WITHIN
        late = [request for request in self._requests if request.since < before]
        for request in late:
            del self._requests[request]
            reason = "the rows are in the leader's log, and no majority has them yet"
            self.refuse(request.sender, request.number, NOT_YET, reason)
        if self._requests:
            self.later(LookAtAppends, LOOK)

    def stop(self, leader: Peer | None) -> None:
        """Answer all waiting requests, because this node no longer leads."""
        self.refuse_all(MOVED, leader)

    def refuse_all(self, code: str, leader: Peer | None) -> None:
        """Answer all pending requests with `code`. Their outcome is unknown, because this node no
        longer leads the shard or its disk is full."""
        assert code in (MOVED, DISK_FULL)
        requests, self._requests = self._requests, {}
        self._queue.clear()
        self._waiting.clear()
        for request in requests:
            reason = "the node has stopped leading the shard"
            self.refuse(request.sender, request.number, code, reason, leader=leader)

    def refuse(
        self,
        sender: Peer,
        request: int,
        code: str,
        reason: str,
        expected: int = 0,
        leader: Peer | None = None,
    ) -> None:
        """Say that a request was not carried out. `expected`: the number that would follow."""
        self.port.count("stream_appends_refused")
        about = (self.replica.shard, request, code, reason[:500])
        self.port.send(sender, AppendRefused(*about, expected, leader))


# --- all shards that this node leads, as producers see them ---


class FlushAppends(LocalEvent, frozen=True):
    """Requests to append the rows that have arrived in this turn."""


class AppendServer(ShardService[Appender]):
    """Serves producers at the shards that this node leads."""

    kind = Appender

    def __init__(self, leaderships: Leaderships, leading: ReplicaOf) -> None:
        """The arguments are those of `ShardService`."""
        super().__init__(leaderships, leading)
        self.replica = leaderships.replica
        self._full: dict[str, None] = {}  # shards whose disk has had no room since the last write
        self._awake: dict[str, None] = {}  # shards for which something came in

    def flush(self, shard: str) -> None:
        """Append the rows queued for a shard, if this node leads it."""
        if (appender := self.present(shard)) is not None:
            appender.flush(everything=True)

    def refuse(self, sender: Peer, message: AppendRows | OpenProducer | JoinFork) -> None:
        """The disk of this node is full, or it does not lead the shard."""
        code, reason = MOVED, "this node does not lead the shard"
        if message.shard in self._full:
            code, reason = DISK_FULL, "the disk of the shard's leader is full"
        self.port.count("stream_appends_refused")
        where = (message.shard, message.request)
        leader = self._leaderships.leader(message.shard)
        refusal = AppendRefused(*where, code, reason, leader=leader)
        self.port.send(sender, refusal)

    def on_flush(self, event: FlushAppends) -> None:
        """Append what came in together."""
        awake, self._awake = self._awake, {}
        for shard in awake:
            if (appender := self._kept.get(shard)) is not None:
                appender.flush()

    def wake(self, shard: str) -> None:
        """Have the queued rows of a shard appended at the end of the turn."""
        if not self._awake:
            self.port.emit(FlushAppends())
        self._awake[shard] = None

    def on_written(self, event: Written) -> None:
        """A shard's disk has room."""
        self._full.pop(event.shard, None)

    def on_disk_failed(self, event: DiskFailed) -> None:
        """Fail the pending requests of a shard whose disk has failed. Their outcome is unknown."""
        if event.full:
            self._full[event.shard] = None
            if (appender := self._kept.get(event.shard)) is not None:
                appender.refuse_all(DISK_FULL, self._leaderships.leader(event.shard))
        self.end(event.shard)
