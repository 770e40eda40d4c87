"""The leader's side of copying forks: what the main log lacks of a fork's chunk is appended.

Behind the rows stands which chunk of the fork they came from (streams/log/state.py). When that
is committed, the holder is told. A later leader knows from the log how far a fork was copied, so
that a chunk that comes again is answered, or its rest appended.

A fork knows the main log up to its base (streams/log/names.py). What a producer had under way
when the network broke may stand behind that in the main log, and was repeated in the fork; rows
that went to several forks may have been copied from another one. So for all chunks behind the base
it is noted which numbers of which producers are in which chunk; where numbers of the fork are among
them, the rows are compared. Rows that producers' requests have queued are appended first, so that
what is compared with a fork is all that this leader has taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from overlay.machine import Peer
from streams.log.batches import (
    BatchHead,
    MalformedChunkError,
    Row,
    encode_rows,
    heads_of,
    join_batches,
    rows_of,
)
from streams.log.chunk import CHUNK_MOST, EVENTS, HEAD, PRODUCERS, Chunk, read
from streams.log.names import parse_fork
from streams.log.state import ForkCopied
from streams.programs.producer.messages import CopyFork, ForkChunkCopied
from streams.services.service import Leaderships, LedShard, ReplicaOf, ShardService
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

# The vocabulary between a fork's holder and the leader of the shard, after the healing. (Producers
# ask for forks with messages of streams/programs/producer/messages.py.)


NEW: Final = "new"
REPEATED: Final = "repeated"
CONFLICTING: Final = "conflicting"


class MainRun(NamedTuple):
    """Rows `sequence` to `end - 1` of a producer are in this chunk of the main log, from its row
    `place` on."""

    sequence: int
    end: int
    chunk: int
    place: int


class MainRows:
    """The numbers of producers in the main log, from behind chunk `base` on."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.end = base
        """The last chunk that was noted."""
        self._runs: dict[str, list[MainRun]] = {}

    def note(self, chunk: Chunk) -> None:
        """The next chunk of the main log."""
        self.end = chunk.number
        place = 0
        for head in heads_of(chunk) if chunk.kind == EVENTS else ():
            if head.producer and not head.transaction:
                self._note(head, chunk.number, place)
            place += head.count

    def _note(self, head: BatchHead, chunk: int, place: int) -> None:
        runs = self._runs.setdefault(head.producer, [])
        end = head.sequence + head.count
        if runs:
            last = runs[-1]
            follows = (last.chunk, last.end) == (chunk, head.sequence)
            if follows and last.place + last.end - last.sequence == place:
                runs[-1] = last._replace(end=end)
                return
        runs.append(MainRun(head.sequence, end, chunk, place))

    def runs(self, head: BatchHead) -> list[MainRun]:
        """Return the runs that contain rows with numbers of this batch."""
        end = head.sequence + head.count
        runs = self._runs.get(head.producer, ())
        return [run for run in runs if run.sequence < end and run.end > head.sequence]


class JudgedRows(NamedTuple):
    """Rows of a fork that follow on one another and have one verdict."""

    verdict: str
    head: BatchHead
    rows: list[Row]


def chunks_needed(chunk: Chunk, main: MainRows) -> set[int]:
    """The chunks of the main log that a fork's chunk has to be compared with."""
    return {run.chunk for head in heads_of(chunk) for run in main.runs(head)}


def parts(
    fork: str,
    chunk: Chunk,
    floor: int,
    main: MainRows,
    chunks: Mapping[int, Chunk],
) -> list[JudgedRows]:
    """Judge the rows of a fork's chunk, in order. `floor`: rows below this offset are already
    handled. `chunks`: those of `chunks_needed`."""
    rows, offset, found = rows_of(chunk), chunk.first, list[JudgedRows]()
    known = {number: rows_of(each) for number, each in chunks.items()}
    for head in heads_of(chunk):
        runs = main.runs(head)
        for n in range(head.count):
            row = rows[offset + n - chunk.first]
            if offset + n >= floor:
                verdict = _verdict(head.sequence + n, row, runs, known)
                _add(found, verdict, fork, head, head.sequence + n, offset + n, row)
        offset += head.count
    return found


def _verdict(
    sequence: int, row: Row, runs: Iterable[MainRun], known: Mapping[int, tuple[Row, ...]]
) -> str:
    there = [
        known[run.chunk][run.place + sequence - run.sequence]
        for run in runs
        if run.sequence <= sequence < run.end
    ]
    if not there:
        return NEW
    mine = encode_rows((row,))
    return REPEATED if any(encode_rows((other,)) == mine for other in there) else CONFLICTING


def _add(
    found: list[JudgedRows],
    verdict: str,
    fork: str,
    head: BatchHead,
    sequence: int,
    at: int,
    row: Row,
) -> None:
    last = found[-1] if found else None
    if last is not None and last.verdict == verdict and _follows(last.head, head, sequence, at):
        longer = replace(last.head, count=last.head.count + 1)
        last.rows.append(row)
        found[-1] = JudgedRows(verdict, longer, last.rows)
        return
    begun = (head.producer, head.session, sequence) if verdict != CONFLICTING else ("", 0, 0)
    found.append(JudgedRows(verdict, BatchHead(*begun, 1, fork=fork, at=at), [row]))


def _follows(last: BatchHead, head: BatchHead, sequence: int, at: int) -> bool:
    if last.at + last.count != at:
        return False
    same = (last.producer, last.session) == (head.producer, head.session)
    return not last.producer or (same and last.sequence + last.count == sequence)


FORKS_AT_ONCE: Final = 16
"""Forks of a shard of which a chunk is being compared; the holders of others repeat theirs."""


class _Job:
    """One chunk of a fork, and the node that sent it."""

    def __init__(self, sender: Peer, fork: str, chunk: Chunk) -> None:
        self.sender, self.fork, self.chunk = sender, fork, chunk
        self.chunks: dict[int, Chunk] = {}  # of the main log, to be compared with


class ShardForkCopies(LedShard):
    """The copying of forks into one shard, under one epoch of this node."""

    def __init__(self, service: ForkCopies, replica: Replica, leader: ShardLeader) -> None:
        super().__init__(service, replica, leader)
        self._flush = service.flush
        self._main: MainRows | None = None
        self._jobs: dict[str, _Job] = {}
        self._appended: dict[str, _Job] = {}  # by fork: waits for the commit in the main log

    def on_copy_fork(self, sender: Peer, message: CopyFork) -> None:
        """A chunk of a fork; one that comes again begins again."""
        chunk, fork = read(message.chunk), message.fork
        try:
            if chunk is None or chunk.kind != EVENTS or parse_fork(fork) is None:
                raise MalformedChunkError("no rows of a fork")
            rows_of(chunk)  # before anything waits for the disk
        except MalformedChunkError:
            self.port.count("fork_chunks_malformed")
            return
        if fork in self._jobs or len(self._jobs) < FORKS_AT_ONCE:
            job = self._jobs[fork] = _Job(sender, fork, chunk)
            self._go_on(job)

    def _is_current(self, job: _Job) -> bool:
        return self._jobs.get(job.fork) is job and self.leader.leads

    def _go_on(self, job: _Job) -> None:
        """Take the next step of a job, and return to it when the rows to be read have arrived."""
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
        place = (job.fork, job.chunk.number, job.chunk.hash, job.chunk.next_offset)
        known = self.replica.state.forks.known.get(job.fork) or ForkCopied(*place)
        counts = (known.rows, known.conflicting, known.repeated + repeated)
        self.append_entries(PRODUCERS, [ForkCopied(*place, *counts)])
        rows = sum(part.head.count for part in found)
        self.port.count("fork_rows_appended", rows - repeated)
        self.port.count("fork_rows_repeated", repeated)
        self.port.count("fork_rows_conflicting", conflicting)

    def _append_rows(self, found: list[JudgedRows]) -> None:
        if not found:
            return
        heads, encoded = [part.head for part in found], [encode_rows(part.rows) for part in found]
        if HEAD.size + len(join_batches(heads, encoded)) > CHUNK_MOST and len(found) > 1:
            self._append_rows(found[: len(found) // 2])
            self._append_rows(found[len(found) // 2 :])
            return
        rows = [row for part in found for row in part.rows]
        self.leader.append_rows(heads, encoded, rows, self.clock())

    # -- commits ---------------------------------------------------------------------------------

    def _wait(self, job: _Job) -> None:
        """Tell the holder when all that this log has is committed."""
        del self._jobs[job.fork]
        waits = self._appended.get(job.fork)
        self._appended[job.fork] = job
        if waits is None or waits.chunk.number != job.chunk.number:
            self.when_committed(lambda: self._answer(job.fork, job.chunk.number))

    def _answer(self, fork: str, number: int) -> None:
        job = self._appended.get(fork)
        if job is not None and job.chunk.number == number:
            del self._appended[fork]
            self.port.send(job.sender, ForkChunkCopied(self.replica.shard, fork, number))


class ForkCopies(ShardService[ShardForkCopies]):
    """The copying of forks into all shards that this node leads. When it no longer leads a shard,
    the holders of forks repeat unanswered requests at the next leader."""

    kind = ShardForkCopies

    def __init__(
        self,
        leaderships: Leaderships,
        leading: ReplicaOf,
        flush: Callable[[str], None],
    ) -> None:
        """`flush`: appends the rows queued for a shard. The other arguments are those of
        `ShardService`."""
        super().__init__(leaderships, leading)
        self.flush = flush
