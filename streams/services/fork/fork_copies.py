"""The leader's side of copying forks: what the main log lacks of a fork's chunk is appended.

Behind the rows stands which chunk of the fork they came from (streams/log/fork_state.py). When that
is committed, the holder is told. A later leader knows from the log how far a fork was copied, so
that a chunk that comes again is answered, or its rest appended.

Rows that producers' requests have queued are appended first, so that what is compared with a fork
is all that this leader has taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.machine import Peer, Port
from streams.log.batches import MalformedChunkError, encode_rows, join_batches, rows_of
from streams.log.chunk import CHUNK_MOST, EVENTS, HEAD, PRODUCERS, Chunk, read
from streams.log.fork_state import ForkCopied
from streams.log.names import parse_fork
from streams.log.state import encode_entries
from streams.log.zones import encode_zones, zone_map
from streams.services.fork.copied_rows import (
    CONFLICTING,
    REPEATED,
    JudgedRows,
    MainRows,
    chunks_needed,
    parts,
)
from streams.services.fork.messages import CopyFork, ForkChunkCopied
from streams.services.service import Leaderships, LedShard, ReplicaOf, ShardService
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

FORKS_AT_ONCE: Final = 16
"""Forks of a shard of which a chunk is being compared; the holders of others repeat theirs."""


class _Job:
    """One chunk of a fork, from whom it came."""

    def __init__(self, sender: Peer, fork: str, chunk: Chunk) -> None:
        self.sender, self.fork, self.chunk = sender, fork, chunk
        self.chunks: dict[int, Chunk] = {}  # of the main log, to be compared with


class ShardForkCopies(LedShard):
    """Of one shard, under one epoch of this node's."""

    def __init__(
        self,
        port: Port,
        replica: Replica,
        leader: ShardLeader,
        clock: Callable[[], int],
        flush: Callable[[str], None],
    ) -> None:
        """As of `LedShard`; `flush`: append what is queued for a shard."""
        super().__init__(port, replica, leader, clock)
        self._flush = flush
        self._main: MainRows | None = None
        self._jobs: dict[str, _Job] = {}
        self._waiting: dict[str, tuple[int, _Job]] = {}  # by fork: for a commit of the main log

    def take(self, sender: Peer, fork: str, chunk: Chunk) -> None:
        """A chunk of a fork; one that comes again begins again."""
        if fork in self._jobs or len(self._jobs) < FORKS_AT_ONCE:
            job = self._jobs[fork] = _Job(sender, fork, chunk)
            self._go_on(job)

    def _is_current(self, job: _Job) -> bool:
        return self._jobs.get(job.fork) is job and self.leader.leads

    def _go_on(self, job: _Job) -> None:
        """Do what comes next, and come back when what has to be read is there."""
        known = self.replica.state.forks.known.get(job.fork)
        if known is not None and known.chunk >= job.chunk.number:
            self._wait(job)
            return
        if job.chunk.first > self.replica.state.forks.floor(job.fork):
            self.port.count("fork_chunks_out_of_order")
            del self._jobs[job.fork]
            return
        self._flush(self.replica.shard)
        main = self._noted(job)
        if main is None:
            return
        for number in sorted(chunks_needed(job.chunk, main) - job.chunks.keys()):
            if not self._fetch(job, number):
                return
        floor = self.replica.state.forks.floor(job.fork)
        self._append(job, parts(job.fork, job.chunk, floor, main, job.chunks))
        self._wait(job)

    # -- the main log ----------------------------------------------------------------------------

    def _noted(self, job: _Job) -> MainRows | None:
        """The rows of the main log from the fork's base to the end; None: they are being read."""
        name = parse_fork(job.fork)
        assert name is not None
        # What retention has removed is nowhere twice if it is appended again.
        base = max(name.base, self.replica.log.start - 1)
        if self._main is None or self._main.base > base:
            self._main = MainRows(base)
        main = self._main
        main.end = max(main.end, self.replica.log.start - 1)
        while main.end < self.replica.log.end.number:
            recent = self.replica.chunks.recent_from(main.end + 1)
            if not recent:
                self.replica.chunks.scan(main.end + 1, lambda chunks: self._note(job, chunks))
                return None
            for chunk in recent:
                main.note(chunk)
        return main

    def _note(self, job: _Job, chunks: list[Chunk]) -> None:
        if self._main is not None and self.leader.leads:
            before = self._main.end
            for chunk in chunks:
                if chunk.number == self._main.end + 1:
                    self._main.note(chunk)
            if self._main.end > before and self._is_current(job):
                self._go_on(job)

    def _fetch(self, job: _Job, number: int) -> bool:
        """A chunk of the main log with which rows are compared. Returns whether it is there."""
        if recent := self.replica.chunks.recent_from(number, 1):
            job.chunks[number] = recent[0]
            return True

        def was_read(chunks: list[Chunk]) -> None:
            if chunks and chunks[0].number == number and self._is_current(job):
                job.chunks[number] = chunks[0]
                self._go_on(job)

        self.replica.chunks.scan(number, was_read)
        return False

    # -- appending -------------------------------------------------------------------------------

    def _append(self, job: _Job, found: list[JudgedRows]) -> None:
        repeated = sum(part.head.count for part in found if part.verdict == REPEATED)
        conflicting = sum(part.head.count for part in found if part.verdict == CONFLICTING)
        self._append_rows([part for part in found if part.verdict != REPEATED])
        known = self.replica.state.forks.known.get(job.fork)
        before = (0, 0, 0) if known is None else (known.rows, known.conflicting, known.repeated)
        entry = ForkCopied(
            *(job.fork, job.chunk.number, job.chunk.hash, job.chunk.next_offset),
            *(before[0], before[1], before[2] + repeated),
        )
        self.leader.append_chunk(PRODUCERS, encode_entries([entry]), time=self._clock())
        rows = sum(part.head.count for part in found)
        self.port.count("fork_rows_appended", rows - repeated)
        self.port.count("fork_rows_repeated", repeated)
        self.port.count("fork_rows_conflicting", conflicting)

    def _append_rows(self, found: list[JudgedRows]) -> None:
        if not found:
            return
        rows = [row for part in found for row in part.rows]
        body = join_batches([p.head for p in found], [encode_rows(p.rows) for p in found])
        zones = encode_zones(zone_map(rows))
        if HEAD.size + len(zones) + len(body) > CHUNK_MOST:
            zones = b""
        if HEAD.size + len(body) > CHUNK_MOST and len(found) > 1:
            self._append_rows(found[: len(found) // 2])
            self._append_rows(found[len(found) // 2 :])
            return
        self.leader.append_chunk(EVENTS, body, len(rows), zones=zones, time=self._clock())

    # -- commits ---------------------------------------------------------------------------------

    def _wait(self, job: _Job) -> None:
        """Tell the holder when all that this log has is committed."""
        del self._jobs[job.fork]
        number, waits = self._waiting.get(job.fork, (0, job))
        if waits.chunk.number != job.chunk.number or not number:
            number = self.replica.log.end.number
        self._waiting[job.fork] = (number, job)
        self.committed()

    def committed(self) -> None:
        """More of the log is committed."""
        for number, job in list(self._waiting.values()):
            if number <= self.replica.committed:
                del self._waiting[job.fork]
                shard = self.replica.shard
                self.port.send(job.sender, ForkChunkCopied(shard, job.fork, job.chunk.number))


class ForkCopies(ShardService[ShardForkCopies]):
    """All shards that this node leads, as holders of their forks see them. When it leads a shard no
    more, holders repeat at the next leader what was not answered."""

    def __init__(
        self,
        port: Port,
        leaderships: Leaderships,
        leading: ReplicaOf,
        clock: Callable[[], int],
        flush: Callable[[str], None],
    ) -> None:
        """As of `ShardService`; `flush`: append what is queued for a shard."""
        super().__init__(port, leaderships, leading, clock)
        self._flush = flush

    def make(self, replica: Replica, leader: ShardLeader) -> ShardForkCopies:
        """Take chunks of forks."""
        return ShardForkCopies(self.port, replica, leader, self._clock, self._flush)

    def on_copy_fork(self, sender: Peer, message: CopyFork) -> None:
        """A chunk of a fork."""
        chunk = read(message.chunk)
        copies = self.shard(message.shard)
        if copies is None:
            return
        name = parse_fork(message.fork)
        if chunk is None or chunk.kind != EVENTS or name is None:
            self.port.count("fork_chunks_malformed")
            return
        try:
            rows_of(chunk)  # before anything waits for the disk
        except MalformedChunkError:
            self.port.count("fork_chunks_malformed")
        else:
            copies.take(sender, message.fork, chunk)
