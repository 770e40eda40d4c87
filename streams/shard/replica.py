"""One replica of a shard: its vote, its log, its disk, and how it follows a leader.

A vote (epoch, candidate) is durable before it is answered, and what is acknowledged is durable
before it is acknowledged: the disk carries out requests in order, so both wait for `Written`.

A follower compares each chunk with its own by number and hash. It truncates only what contradicts
its leader and is not committed; then its log is read again from disk, so that the fold of its state
is that of the chunks that are left. It never decodes rows.

Where something is damaged in the middle of its log, the replica takes part in nothing until others
have sent what was there (streams/shard/repair.py).

After a torn tail, damage that nobody can mend, or when the log ends before what was on disk once
(its newest segment was deleted), the replica is *suspect*, which is stored before the tail is cut
off: it follows and acknowledges what it has, but in a campaign its log proves nothing by what it
lacks, until a leader has brought it up to a chunk of the leader's own epoch.

When the disk fails, nothing that was not answered counts: the replica ends what it leads, and reads
its folder again after `REOPEN` seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from overlay.consensus.durability import DurableQueue
from overlay.consensus.votes import is_fenced, may_vote
from overlay.machine import LocalEvent, Machine, NodeId, Peer, Port, Timer, Version, by_id
from streams.disk import DiskFailed, LogDisk, Opened, ReadDone, Written
from streams.log.chunk import Chunk, ChunkId, genesis, number_of, read
from streams.log.recovery import FoundHole
from streams.log.shard_log import ShardLog
from streams.log.state import ShardState
from streams.log.writers import Access
from streams.shard.campaign import ShardCampaign
from streams.shard.damage import Damage
from streams.shard.kept_chunks import KeptChunks
from streams.shard.leader import RETRY, ROUNDS, ShardLeader
from streams.shard.messages import (
    HardState,
    RequestShardVote,
    ShardAck,
    ShardAppend,
    ShardBehind,
    ShardFenced,
    ShardFetch,
    ShardFetched,
    ShardMissing,
    ShardMissingSent,
    ShardVoteReply,
)
from streams.shard.removal import Removal
from streams.shard.repair import ATTEMPTS, SELDOM, Repair, send_missing
from streams.shard.retention import EVERYTHING

CUT_OFF: Final = 2.0
"""Seconds without an answer of a majority after which a leader says so to readers and members: as
long as the owner of the stream waits before it says so to others."""

REOPEN: Final = 1.0
"""Seconds after which a failed disk is tried again."""


class ReplicaRetry(Timer, frozen=True):
    """Ask again, or open the log again."""

    shard: str


class ShardCommitted(LocalEvent, frozen=True):
    """At this replica the chunks up to `number` are known to be committed."""

    shard: str
    number: int


class ShardLed(LocalEvent, frozen=True):
    """This node leads the shard under `epoch`, and a chunk of its own is committed: it may append
    what is asked of it, and knows all that was ever committed."""

    shard: str
    epoch: int


class ShardUnled(LocalEvent, frozen=True):
    """This node leads the shard no more. What it has appended and not seen committed may be
    committed by another, or never."""

    shard: str


class Replica(Machine):
    """One shard at one node."""

    def __init__(
        self, port: Port, disk: LogDisk, shard: str, founders: Sequence[Peer] = ()
    ) -> None:
        """`founders`: the replicas of a shard whose log is empty; none for one that is added."""
        super().__init__(port)
        self.disk = disk
        self.shard = shard
        self.founders = tuple(founders)
        self.stream = b""
        """The directory's entry of the stream, which the next leader's first chunk is to have."""
        self.access = Access()
        """What the stream is called here, and who may append to it."""
        self.keep = EVERYTHING
        """What the next leader here is to keep and to take."""
        self.log = ShardLog(genesis(shard))
        self.state = ShardState()
        self.hard_state = HardState(0, "", False)
        self.barred = False
        """It has lost its vote: it may take part only under another id."""
        self.ready = False  # its folder has been read
        self.heard_at = port.now
        """When a leader was heard last, or it was this node."""
        self.durable = 0  # number of the last chunk on disk
        self.committed = 0
        self.repair: Repair | None = None
        """While there are holes in the log."""
        self.leader: ShardLeader | None = None
        self.campaign: ShardCampaign | None = None
        self.chunks = KeptChunks(port, disk, shard, lambda: self.log)
        self.removal = Removal(self)
        self._matched = 0  # number of the last chunk that is as the epoch's leader has it
        self._first = 0  # the first chunk of that leader's epoch; 0: not known
        self._unstored = 0  # that are not durable yet
        self._opening = 0  # ticket of the request whose answer counts
        self.readings = 0
        """Times that its log has been another one than before, from some chunk on."""
        self._mends = 0  # that were tried since the log had no holes
        self.before_loss: ShardState | None = None
        """What the log said when it ended before it did, of who was beyond."""
        self.damage = Damage()
        """Counts of the damage found in the log, and of the repairs."""
        self._begins_late = False  # nobody has what comes before the first segment
        self._when_written = DurableQueue[Callable[[], None]]()

    def start(self) -> None:
        """Read vote and log from the disk; until then nothing is answered."""
        self._open()
        self.port.set_timer(RETRY, ReplicaRetry(self.shard))

    @property
    def replicas(self) -> tuple[Peer, ...]:
        """By the newest entry of the log, committed or not."""
        return self.state.replicas or self.founders

    @property
    def position(self) -> Version:
        """How far the log is."""
        return self.log.position

    def lead(self, epoch: int) -> None:
        """Campaign for `epoch`, if this replica has not voted in a higher one, nor in this one for
        another node."""
        if not self.ready or self.barred or not may_vote(self.hard_state, epoch, self.port.me.id):
            return
        if self.leader is not None and self.leader.epoch == epoch:
            return
        self._stop()
        self.campaign = ShardCampaign(self, epoch)
        self._vote(epoch, self.port.me.id, self.campaign.voted)
        self.port.set_timer(RETRY, ReplicaRetry(self.shard))

    def found(self, founders: Sequence[Peer]) -> None:
        """Take the replicas with which the log begins, after a restart before it has begun: no
        file names them."""
        if self.ready and not self.barred and not self.founders and self.log.end.number == 0:
            self.founders = tuple(founders)

    def begin_leading(self, epoch: int) -> None:
        """The campaign for `epoch` has succeeded."""
        self.campaign = None
        self.leader = ShardLeader(self, epoch)
        self.leader.begin()

    @property
    def serves(self) -> bool:
        """Whether this node leads the shard, and a chunk of its own epoch is committed."""
        leader = self.leader
        return leader is not None and self.ready and self.committed >= leader.first

    def lacks_majority(self) -> bool:
        """Whether it leads, and no majority of the replicas answers. To be called about once a
        second: meanwhile replicas are asked as often as where they lack rows."""
        leader = self.leader
        if leader is None:
            return False
        since = self.port.now - CUT_OFF - RETRY * ROUNDS
        return leader.stay_in_touch() <= since and not leader.is_followed(since)

    def is_cut_off(self, seconds: float) -> bool:
        """Whether it has heard of no leader for so long, or leads and no majority has answered."""
        since = self.port.now - seconds
        if self.leader is not None:
            return not self.leader.is_followed(since)
        return self.heard_at < since

    def _stop(self) -> None:
        """Lead no more, nor try to."""
        if self.leader is not None:
            self.heard_at = self.port.now
        served, self.leader, self.campaign = self.serves, None, None
        if served:
            self.port.emit(ShardUnled(self.shard))

    def learn_times(self) -> None:
        """Find out when the oldest segment began of which that is not known."""
        self.removal.learn_times()

    def is_led_by(self, leader: object) -> bool:
        """Whether `leader` is the one with which this replica leads."""
        return self.leader is leader

    def is_campaign(self, campaign: object) -> bool:
        """Whether `campaign` is the one that is under way."""
        return self.campaign is campaign

    # -- the disk --------------------------------------------------------------------------------

    def _open(self) -> None:
        self.ready = False
        self.repair = None
        self._when_written.clear()
        self.chunks.forget_readings()
        self.removal.clear(is_learning=False)
        self._unstored = 0
        self._opening = self.disk.open(self.shard)

    def on_opened(self, event: Opened) -> None:
        """The folder has been read: go on with what it has."""
        if (event.shard, event.ticket) != (self.shard, self._opening):
            return
        found, self._opening = event.found, 0
        try:
            stored = msgspec.msgpack.decode(event.hard_state or b"", type=HardState)
        except msgspec.MsgspecError:
            stored = None
        self.barred = event.damaged or (stored is None and found.log.end.number > 0)
        self.hard_state = stored or HardState(0, "", False)
        self.log, self.state = found.log, found.state
        self.readings += 1
        self.chunks.clear()
        self._matched = self._first = 0
        if not self.barred:  # else nothing is stored, which would count as its vote later
            if found.torn or self._has_lost(found.log):
                # Of several replicas others have what was committed, if it was.
                is_sure = len(self.replicas) == 1 and self._has_lost(found.log)
                self._suspect(found.surplus, found.log.next_offset + 1 if is_sure else 0)
            elif self._newest_segment() != self.hard_state.segment:
                self._note_segment(self._newest_segment())
            beginning = [found.beginning] if found.beginning and self._wants_beginning() else []
            if found.holes or beginning:
                self._mend(found.holes or beginning)
                return
        self.ready = True
        self._mends = 0
        self.durable = self.log.end.number
        self.committed = max(self.committed, found.committed)
        self.removal.add(self.durable, self.state.floor)
        self.removal.carry_out()
        if self.campaign is not None:
            self.campaign.go_on()
        elif self.leader is None and not self.barred:
            self._say_where()

    def _say_where(self) -> None:
        """The log was read: its leader may not know that it has to send what follows on it."""
        leader = self._candidate
        if leader.id and leader.id != self.port.me.id:
            self._say_behind(leader)

    @property
    def _candidate(self) -> Peer:
        """For whom this replica has voted last."""
        known = by_id(self.replicas).get(self.hard_state.candidate)
        return known or Peer(self.hard_state.candidate, "")

    def _wants_beginning(self) -> bool:
        return len(self.replicas) > 1 and not self._begins_late

    def _has_lost(self, log: ShardLog) -> bool:
        """Whether a log that was read ends before what it has had on disk."""
        newest = log.segments[-1].number if log.segments else 0
        return newest < self.hard_state.segment or log.end.number < self.durable

    def _newest_segment(self) -> int:
        return self.log.segments[-1].number if self.log.segments else 0

    def _note_segment(self, number: int) -> None:
        """Store which segment is the newest. Nothing waits for that."""
        self.hard_state = replace(self.hard_state, segment=number)
        self.disk.put(self.shard, msgspec.msgpack.encode(self.hard_state))

    def _suspect(self, surplus: Sequence[str] = (), lost_end: int = 0) -> None:
        """Store that the log may lack something, or that it had rows up to `lost_end`, then cut off
        what is no log."""
        self.port.count("shard_logs_suspect")
        end = max(lost_end, self.hard_state.lost_end)
        segment = self._newest_segment()
        self._put(replace(self.hard_state, suspect=True, segment=segment, lost_end=end))
        for name in surplus:
            self.disk.drop(self.shard, name)
        if self.log.segments:
            newest = self.log.segments[-1]
            self.disk.cut(self.shard, newest.name, newest.size)

    def _mend(self, holes: Sequence[FoundHole]) -> None:
        """Take part in nothing until other replicas have sent what was in the holes."""
        self.port.count("shard_holes_found", len(holes))
        self.damage.found += len(holes)
        self._stop()
        self.ready = False
        self._mends += 1
        begins = self.port.now + (SELDOM if self._mends > ATTEMPTS else 0.0)
        self.repair = Repair(self, holes, self._open, self._not_mended, begins)
        self.repair.ask()
        self.port.set_timer(RETRY, ReplicaRetry(self.shard))

    def damaged(self, holes: Sequence[FoundHole]) -> bool:
        """Holes were found in a log that was read before. Returns whether it mends them. A shard's
        only replica keeps what it has, and goes on: nobody can mend it."""
        if self.ready and not self.barred and len(self.replicas) > 1:
            self._mend(holes)
            return True
        self.port.count("shard_holes_left", len(holes))
        self.damage.found += len(holes)
        self.damage.left += len(holes)
        return False

    def _not_mended(self, first: FoundHole) -> None:
        """Nobody has what was in a hole, the first of those that are left."""
        if first.hole.first:
            self._end_before(first)
        else:  # nobody has what comes before this log: it begins where it does
            self.port.count("shard_holes_left")
            self.damage.left += 1
            self._begins_late = True
            self._open()

    def _end_before(self, first: FoundHole) -> None:
        """No replica has what was in a hole, and this one had: the log ends before it, may lack
        what was acknowledged, and is read again. A shard's only replica keeps copies of what is cut
        off: nobody else has that."""
        self._suspect(lost_end=self.log.next_offset)
        self.before_loss = self.before_loss or self.state
        self.damage.ended += 1
        self.durable = min(self.durable, first.hole.first - 1)
        for segment in reversed(self.log.segments):
            if segment.name != first.segment and segment.number < first.hole.first:
                break
            if len(self.replicas) == 1:
                self.disk.save(self.shard, segment.name)
            if segment.name == first.segment and first.hole.at:
                self.disk.cut(self.shard, segment.name, first.hole.at)
            else:
                self.disk.drop(self.shard, segment.name)
        self._open()

    def on_missing(self, sender: Peer, message: ShardMissing) -> None:
        """A replica has a hole: send it what this one has."""
        if message.shard == self.shard and (self.ready or self.repair is not None):
            send_missing(self, sender, message)

    def on_missing_sent(self, sender: Peer, message: ShardMissingSent) -> None:
        """What was in a hole."""
        if message.shard == self.shard and self.repair is not None:
            self.repair.sent(sender, message)

    def on_written(self, event: Written) -> None:
        """What was asked for is durable: say what waited for it."""
        if event.shard == self.shard:
            for then in self._when_written.stored(event.ticket):
                then()

    def on_read_done(self, event: ReadDone) -> None:
        """Bytes that were asked for."""
        if event.shard == self.shard:
            self.chunks.was_read(event)

    def on_disk_failed(self, event: DiskFailed) -> None:
        """Forget all requests without an answer."""
        if event.shard != self.shard or event.ticket < self._opening:
            return
        self._opening = 0
        self.port.count("shard_disk_failures")
        self._stop()
        self.ready, self.repair = False, None
        self._when_written.clear()
        self.chunks.forget_readings()
        self.port.set_timer(REOPEN, ReplicaRetry(self.shard))

    def on_retry(self, timer: ReplicaRetry) -> None:
        """Try again what has not been done or answered: reading the disk, mending, campaigning,
        replicating."""
        if self.repair is not None:
            self.repair.ask()
            if not self.replicas:  # nobody can be asked: wait for the leader
                self._say_where()
        elif not self.ready and not self._opening:
            self._open()
        if self.campaign is not None:
            self.campaign.ask()
        if self.leader is not None:
            self.leader.ask_again()
        if not self.ready or self.campaign is not None or self.leader is not None:
            leader = self.leader if self.ready else None
            is_quiet = leader is not None and leader.is_quiet
            self.port.set_timer(leader.pause if leader and is_quiet else RETRY, timer)

    def retry_soon(self) -> None:
        """Others may lack something by now: ask them again after the usual time."""
        self.port.set_timer(RETRY, ReplicaRetry(self.shard))

    # -- votes -----------------------------------------------------------------------------------

    def _vote(self, epoch: int, candidate: NodeId, then: Callable[[], None]) -> None:
        """Vote for `candidate` in `epoch`; `then` is called when that is durable."""
        if (epoch, candidate) != (self.hard_state.epoch, self.hard_state.candidate):
            self._matched = self._first = 0
        self._put(replace(self.hard_state, epoch=epoch, candidate=candidate), then)

    def clear_suspicion(self) -> None:
        """The log has everything that was ever committed."""
        if self.hard_state.suspect:
            self._put(replace(self.hard_state, suspect=False, lost_end=0))
        self.before_loss = None

    def _put(self, hard_state: HardState, then: Callable[[], None] | None = None) -> None:
        self.hard_state = hard_state
        self._unstored += 1

        def durable() -> None:
            self._unstored -= 1
            if then is not None:
                then()

        ticket = self.disk.put(self.shard, msgspec.msgpack.encode(hard_state))
        self._when_written.add(ticket, durable)

    def on_request_vote(self, sender: Peer, message: RequestShardVote) -> None:
        """Vote, and say how far the log is, when both are durable."""
        if message.shard != self.shard or not self.ready or self.barred:
            return
        if not may_vote(self.hard_state, message.epoch, sender.id):
            self.port.send(sender, ShardFenced(self.shard, self.hard_state.epoch))
            return
        if sender.id != self.port.me.id:
            self._stop()

        def voted() -> None:
            intact = not self.hard_state.suspect
            answer = ShardVoteReply(self.shard, message.epoch, self.log.position, intact)
            if self.hard_state.epoch == message.epoch:
                self.port.send(sender, answer)

        self._vote(message.epoch, sender.id, voted)

    def on_fenced(self, sender: Peer, message: ShardFenced) -> None:
        """A replica has voted in a higher epoch: this node leads no more."""
        if message.shard == self.shard and message.epoch > self.hard_state.epoch:
            self._stop()

    # -- chunks ----------------------------------------------------------------------------------

    def add(self, chunk: Chunk) -> None:
        """Append a chunk, in memory and to the disk; its `Written` makes it count."""
        line = self.log.add(chunk)
        floor = self.state.floor
        self.state.apply(chunk)
        if self.state.floor > floor:
            self.removal.add(chunk.number, self.state.floor)
        self.chunks.add(chunk)
        ticket = self.disk.write(self.shard, line.segment, line.at, chunk.data)
        self._when_written.add(ticket, lambda: self._stored(chunk.id))
        if chunk.begins_segment:
            self._note_segment(chunk.number)

    def _stored(self, chunk: ChunkId) -> None:
        if self.log.has(chunk):
            self.durable = max(self.durable, chunk.number)
        if self.leader is not None:
            self.leader.commit()
        elif self.campaign is not None:
            self.campaign.go_on()
        else:
            self._acknowledge()

    def take(self, chunks: Sequence[bytes], start: int) -> bool:
        """Take chunks in order, of which the sender has those from `start` on. Returns whether all
        of them are in the log now; otherwise the log is shorter, and is being read again, or they
        do not follow on it."""
        for data in chunks:
            chunk = read(data)
            if chunk is None or len(chunk.data) != len(data):
                self.port.count("shard_chunks_malformed")
                return False
            if chunk.number <= self.log.end.number:
                known = self.log.line(chunk.number)
                if chunk.number <= self.committed and known is None:
                    continue
                if known is None:  # more chunks than there are lines for: it cannot be compared
                    self.port.count("shard_chunks_unknown")
                    return False
                if known.hash == chunk.hash:
                    continue
                self._truncate(chunk.number)
                return False
            if chunk.number != self.log.end.number + 1 or chunk.previous != self.log.end.hash:
                if chunk.number != start or not chunk.begins_segment:
                    return False
                self._begin_anew(chunk)
            self.add(chunk)
        return True

    def _begin_anew(self, chunk: Chunk) -> None:
        """All that stands before `chunk` was committed, and is not kept any more: remove what this
        log has of it, and go on with `chunk`."""
        self.port.count("shard_logs_begun_anew")
        if self.log.segments:
            self._put(replace(self.hard_state, suspect=True, segment=0))
        for segment in reversed(self.log.segments):
            self.disk.drop(self.shard, segment.name)
        self.log, self.state = ShardLog(ChunkId(chunk.number - 1, chunk.previous)), ShardState()
        self.log.next_offset = chunk.first
        self.readings += 1
        self.chunks.clear()
        self.removal.clear(is_learning=True)

    def _truncate(self, number: int) -> None:
        """Remove the chunks from `number` on, which contradict the leader."""
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

    def on_append(self, sender: Peer, message: ShardAppend) -> None:
        """Take the leader's next chunks, and acknowledge when they are durable."""
        if self.repair is not None:
            self.repair.heard(sender)
        if message.shard != self.shard or not self.ready or self.barred:
            return
        if (message.epoch, sender.id) != (self.hard_state.epoch, self.hard_state.candidate):
            if is_fenced(self.hard_state, message.epoch):
                self.port.send(sender, ShardFenced(self.shard, self.hard_state.epoch))
                return
            # A majority has voted for the sender in this epoch, else it would not lead. So whoever
            # this replica has voted for cannot lead in it any more.
            self._stop()
            self._vote(message.epoch, sender.id, self._acknowledge)
        self.heard_at = self.port.now
        self._first = message.first
        if message.chunks:
            if not self.take(message.chunks, message.start):
                if self.ready:
                    self._say_behind(sender)
                return
            self._matched = max(self._matched, number_of(message.chunks[-1]))
        elif self.log.has(ChunkId(*message.end)):
            self._matched = max(self._matched, message.end[0])
        else:
            self._say_behind(sender)
            return
        self.commit_to(min(message.committed, self._matched))
        if not message.chunks or self._matched <= self.durable:  # else when they are written
            self._acknowledge()

    def _say_behind(self, leader: Peer) -> None:
        end = self.log.end
        known = min(self.committed, end.number)
        self.port.send(
            leader, ShardBehind(self.shard, self.hard_state.epoch, (end.number, end.hash), known)
        )

    def _acknowledge(self) -> None:
        """Say how far this log is on disk, as its leader has it."""
        number = min(self.durable, self._matched)
        if self._unstored or not number or self.leader is not None or self.campaign is not None:
            return
        if self._first and number >= self._first:
            self.clear_suspicion()
        self.port.send(self._candidate, ShardAck(self.shard, self.hard_state.epoch, number))

    def commit_to(self, number: int) -> None:
        """The chunks up to `number` are committed."""
        if number > self.committed:
            served, self.committed = self.serves, number
            if self.leader is not None and not served and self.serves:
                self.port.emit(ShardLed(self.shard, self.leader.epoch))
            self.port.emit(ShardCommitted(self.shard, number))
            self.removal.carry_out()

    # -- what candidates and leaders hear --------------------------------------------------------

    def on_vote_reply(self, sender: Peer, message: ShardVoteReply) -> None:
        """A replica has voted for this candidate, and says how far its log is."""
        if message.shard == self.shard and self.campaign is not None:
            self.campaign.granted(sender, message)

    def on_fetch(self, sender: Peer, message: ShardFetch) -> None:
        """A candidate asks for what it lacks."""
        mine = (self.hard_state.epoch, self.hard_state.candidate)
        if message.shard != self.shard or not self.ready or mine != (message.epoch, sender.id):
            return
        end = ChunkId(*message.end)
        start = end.number if self.log.has(end) else min(message.committed, self.log.end.number)

        def found(chunks: tuple[bytes, ...]) -> None:
            fetched = ShardFetched(self.shard, message.epoch, chunks, self.log.start)
            self.port.send(sender, fetched)

        self.chunks.read(start + 1, found)

    def on_fetched(self, sender: Peer, message: ShardFetched) -> None:
        """The furthest log's next chunks."""
        if message.shard == self.shard and self.ready and self.campaign is not None:
            self.campaign.fetched(message)

    def on_ack(self, sender: Peer, message: ShardAck) -> None:
        """A follower has more on disk."""
        if message.shard == self.shard and self.leader is not None:
            self.leader.acknowledged(sender, message)

    def on_behind(self, sender: Peer, message: ShardBehind) -> None:
        """A follower needs older chunks, or none of what it was sent fits."""
        if message.shard == self.shard and self.leader is not None:
            self.leader.behind(sender, message)
