"""The stored part of a shard's replica: its vote, its log, and the state that the log folds to. It
knows nothing of leaders and followers (`replica`).

A vote (epoch, candidate) is durable before it is answered, and chunks are durable before they are
acknowledged: the disk carries out requests in order, and what has to wait for one is called when
its `Written` comes.

After a torn tail that a process finds at its start, damage that nobody can repair, or when the log
ends before what was on disk once (its newest segment was deleted), the replica is *suspect*, which
is stored before the tail is cut off: it follows and acknowledges what it has, but in a campaign its
log proves nothing by what it lacks, until a leader has brought it up to a chunk of the leader's own
epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from overlay.consensus import DurableQueue
from overlay.machine import Machine, NodeId, Peer, Port
from streams.disk import LogDisk, Opened
from streams.log.chunk import BEGINS, Chunk, ChunkId, genesis, read
from streams.log.recovery import FoundHole
from streams.log.shard_log import ShardLog
from streams.log.state import ShardState
from streams.log.writers import Access
from streams.shard.kept_chunks import KeptChunks
from streams.shard.messages import HardState
from streams.shard.retention import EVERYTHING, Keep


class ShardTerms(NamedTuple):
    """The owner's description of a stream, as its replicas need it."""

    stream: bytes = b""
    """The directory's entry, which the first chunk of the next leader repeats."""
    access: Access = Access()
    """The stream's name, and who may append."""
    keep: Keep = EVERYTHING
    """The rows that the next leader keeps and takes."""


@dataclass(eq=False)
class Damage:
    """Counts of the damage in a replica's log since its node started, and of the repairs."""

    found: int = 0
    """Holes: places without the bytes that were written."""
    mended: int = 0
    """Chunks rewritten from other replicas."""
    refused: int = 0
    """Chunks from other replicas with a wrong hash."""
    left: int = 0
    """Holes that stay, since the shard has no other replica."""
    ended: int = 0
    """Holes whose chunks no other replica had: the log was cut before each."""
    before: ShardState | None = None
    """The state before the log was cut so, with the consumers and groups beyond its end."""

    def counts(self) -> tuple[int, ...]:
        """Found, mended, refused, left, ended."""
        return self.found, self.mended, self.refused, self.left, self.ended


class StoredReplica(Machine):
    """The vote and the log of one shard at one node."""

    def __init__(
        self, port: Port, disk: LogDisk, shard: str, founders: Sequence[Peer] = ()
    ) -> None:
        """`founders`: the replicas of a shard whose log is empty; none for one that is added."""
        super().__init__(port)
        self.disk = disk
        self.shard = shard
        self.founders = tuple(founders)
        self.terms = ShardTerms()
        self.log = ShardLog(genesis(shard))
        self.state = ShardState()
        self.hard_state = HardState(0, "", False)
        self.barred = False
        """It has lost its vote: it may take part only under another id."""
        self.ready = False  # its folder has been read
        self.durable = 0  # number of the last chunk on disk; 0: none, or not known yet
        self.committed = 0
        self.chunks = KeptChunks(port, disk, shard, lambda: self.log)
        self.damage = Damage()
        self._unstored = 0  # hard states that are not durable yet
        self._opening = 0  # ticket of the request whose answer counts
        self._when_written = DurableQueue[Callable[[], None]]()

    @property
    def replicas(self) -> tuple[Peer, ...]:
        """The shard's replicas by the newest entry of the log, committed or not."""
        return self.state.replicas or self.founders

    @property
    def takes_part(self) -> bool:
        """Whether it answers other replicas: its folder was read, without a hole, and with a vote
        that counts."""
        return self.ready and not self.barred

    def follows(self, node: NodeId, epoch: int) -> bool:
        """Whether its last vote is for `node` in `epoch`."""
        return (self.hard_state.candidate, self.hard_state.epoch) == (node, epoch)

    def describe(self, terms: ShardTerms) -> None:
        """Take the owner's description of the stream. A present leader keeps the terms that it
        has."""
        self.terms = terms

    def found(self, founders: Sequence[Peer]) -> None:
        """Take the replicas with which the log begins, after a restart before it has begun: no
        file names them."""
        if self.takes_part and not self.founders and self.log.end.number == 0:
            self.founders = tuple(founders)

    # -- opening ---------------------------------------------------------------------------------

    def _open(self) -> None:
        """Have the folder read: `Opened` or `DiskFailed` follows. Until then nothing is
        answered."""
        self.ready = False
        self._when_written.clear()
        self.chunks.forget_readings()
        self._unstored = 0
        self._opening = self.disk.open(self.shard)

    def _load(self, event: Opened) -> None:
        """Take the contents of the folder: vote, log and state. A log that may lack chunks is
        suspect from now on."""
        found, self._opening = event.found, 0
        try:
            stored = msgspec.msgpack.decode(event.hard_state or b"", type=HardState)
        except msgspec.MsgspecError:
            stored = None
        self.barred = event.damaged or (stored is None and found.log.end.number > 0)
        self.hard_state = stored or HardState(0, "", False)
        self.log, self.state = found.log, found.state
        self.chunks.clear()
        if self.barred:  # nothing is stored, which would count as its vote later
            return
        has_lost = self._has_lost(found.log)
        if has_lost or (found.torn and not self.durable):
            # Of several replicas others have what was committed, if it was.
            is_sure = len(self.replicas) == 1 and has_lost
            self._suspect(found.surplus, found.log.next_offset + 1 if is_sure else 0)
            return
        if found.torn:  # by a write that failed (a full disk), of which nobody was told
            self._cut_tail(found.surplus)
        if self._newest_segment() != self.hard_state.segment:
            self._note_segment(self._newest_segment())

    def _has_lost(self, log: ShardLog) -> bool:
        """Return whether a log that was read ends before a point that was on disk earlier."""
        newest = log.segments[-1].number if log.segments else 0
        return newest < self.hard_state.segment or log.end.number < self.durable

    def _newest_segment(self) -> int:
        return self.log.segments[-1].number if self.log.segments else 0

    # -- the hard state --------------------------------------------------------------------------

    def _put(self, hard_state: HardState, then: Callable[[], None] | None = None) -> None:
        """Store the hard state; `then` is called when it is durable."""
        self.hard_state = hard_state
        self._unstored += 1

        def durable() -> None:
            self._unstored -= 1
            if then is not None:
                then()

        ticket = self.disk.put(self.shard, msgspec.msgpack.encode(hard_state))
        self._when_written.add(ticket, durable)

    def _note_segment(self, number: int) -> None:
        """Store which segment is the newest. Nothing waits for that."""
        self.hard_state = replace(self.hard_state, segment=number)
        self.disk.put(self.shard, msgspec.msgpack.encode(self.hard_state))

    def _suspect(self, surplus: Sequence[str] = (), lost_end: int = 0) -> None:
        """Store that the log may lack chunks, or that it had rows up to `lost_end`, then cut off
        the invalid part."""
        self.port.count("shard_logs_suspect")
        end = max(lost_end, self.hard_state.lost_end)
        segment = self._newest_segment()
        self._put(replace(self.hard_state, suspect=True, segment=segment, lost_end=end))
        self._cut_tail(surplus)

    def _cut_tail(self, surplus: Sequence[str]) -> None:
        """Remove what stands behind the last chunk."""
        for name in surplus:
            self.disk.drop(self.shard, name)
        if self.log.segments:
            newest = self.log.segments[-1]
            self.disk.cut(self.shard, newest.name, newest.size)

    def clear_suspicion(self) -> None:
        """Note that the log has everything that was ever committed."""
        if self.hard_state.suspect:
            self._put(replace(self.hard_state, suspect=False, lost_end=0))
        self.damage.before = None

    # -- chunks ----------------------------------------------------------------------------------

    def add(self, chunk: Chunk) -> None:
        """Append a chunk, in memory and to the disk; its `Written` makes it count."""
        line = self.log.add(chunk)
        floor = self.state.floor
        self.state.apply(chunk)
        if self.state.floor > floor:
            self.log.cut(chunk.number, self.state.floor)
        self.chunks.add(chunk)
        ticket = self.disk.write(self.shard, line.segment, line.at, chunk.data)
        self._when_written.add(ticket, partial(self._stored, self.log.end))
        if chunk.flags & BEGINS:
            self._note_segment(chunk.number)

    def _stored(self, chunk: ChunkId) -> None:
        """Note that a chunk that was added is on disk."""
        raise NotImplementedError

    def take(self, chunks: Sequence[bytes], start: int) -> int:
        """Add chunks in order; the sender has the chunks from `start` on. Return the number of the
        last one if all of them are in the log now. Otherwise return 0: the chunks do not follow on
        the log, or the log was cut and is being read again."""
        number = 0
        for data in chunks:
            chunk = read(data)
            if chunk is None or len(chunk.data) != len(data):
                self.port.count("shard_chunks_malformed")
                return 0
            number, end = chunk.number, self.log.end
            if chunk.number <= end.number:
                known = self.log.line(chunk.number)
                if chunk.number <= self.committed and known is None:
                    continue
                if known is None:  # more chunks than there are lines for: it cannot be compared
                    self.port.count("shard_chunks_unknown")
                    return 0
                if known.hash == chunk.hash:
                    continue
                self._truncate(chunk.number)
                return 0
            if chunk.number != end.number + 1 or chunk.previous != end.hash:
                if chunk.number != start or not chunk.begins_segment:
                    return 0
                self._restart_at(chunk)
            self.add(chunk)
        return number

    def _restart_at(self, chunk: Chunk) -> None:
        """Remove the log, and begin another with `chunk`: all that stands before it was committed,
        and is no longer kept."""
        self.port.count("shard_logs_begun_again")
        if self.log.segments:
            self._put(replace(self.hard_state, suspect=True, segment=0))
        for segment in reversed(self.log.segments):
            self.disk.drop(self.shard, segment.name)
        self.log, self.state = ShardLog(ChunkId(chunk.number - 1, chunk.previous)), ShardState()
        self.log.next_offset = chunk.first
        self.chunks.clear()

    def _truncate(self, number: int) -> None:
        """Remove the chunks from `number` on, which contradict the leader, and read the log again:
        a state cannot be unfolded."""
        if number <= self.committed:
            self.port.count("shard_forks")  # two logs that both count as committed
            return
        left = [segment.number for segment in self.log.segments if segment.number < number]
        if self.hard_state.segment >= number:
            self._note_segment(left[-1] if left else 0)
        self.durable = min(self.durable, number - 1)
        for segment in reversed(self.log.segments):
            if segment.number >= number:
                self.disk.drop(self.shard, segment.name)
        before = self.log.line(number - 1)
        if before is not None:  # else a segment begins with it: older ones are not in memory
            self.disk.cut(self.shard, before.segment, before.at + before.length)
        self.port.count("shard_chunks_truncated")
        self._open()

    def end_before(self, hole: FoundHole) -> None:
        """End the log before a hole whose chunks no replica has, and read it again. The log may
        then lack acknowledged chunks. A shard's only replica keeps copies of the part that it cuts
        off, since no other node has it."""
        self._suspect(lost_end=self.log.next_offset)
        self.damage.before = self.damage.before or self.state
        self.damage.ended += 1
        self.durable = min(self.durable, hole.hole.first - 1)
        for segment in reversed(self.log.segments):
            if segment.name != hole.segment and segment.number < hole.hole.first:
                break
            if len(self.replicas) == 1:
                self.disk.save(self.shard, segment.name)
            if segment.name == hole.segment and hole.hole.at:
                self.disk.cut(self.shard, segment.name, hole.hole.at)
            else:
                self.disk.drop(self.shard, segment.name)
        self._open()

    def _remove_segments(self) -> None:
        """Delete the segments below the floor of the newest committed Cut, but for those that
        recovery, a half message or the table of newest rows needs."""
        log, committed = self.log, self.committed
        floor = log.committed_floor(committed)
        if len(log.segments) > 1 and log.segments[1].offset <= floor:
            half = self.state.transactions.oldest_chunk(committed)
            table = self.state.oldest_table_chunk(committed)
            needed = (log.state_at(committed), half, table)
            for name in log.retain(floor, min(number for number in needed if number is not None)):
                self.disk.drop(self.shard, name)
