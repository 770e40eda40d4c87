"""One replica of a shard: it follows a leader, repairs its log, campaigns, or leads.

A follower compares each chunk with its own by number and hash. It truncates only what contradicts
its leader and is not committed. It never decodes rows.

Where something is damaged in the middle of its log, the replica takes part in nothing until others
have sent what was there (`repair`). When the disk fails, nothing that was not answered counts: the
replica ends what it leads, and reads its folder again after `REOPEN` seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from overlay.consensus import has_majority, is_fenced, may_vote
from overlay.machine import LocalEvent, NodeId, Peer, Port, Timer, by_id
from streams.disk import DiskFailed, LogDisk, Opened, ReadDone, Written
from streams.log.chunk import ChunkId, read
from streams.log.recovery import FoundHole
from streams.shard.leader import RETRY, ROUNDS, ShardLeader
from streams.shard.messages import (
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
from streams.shard.repair import ATTEMPTS, SELDOM, Repair, send_missing
from streams.shard.stored_replica import StoredReplica

# --- a candidate for a shard: it collects votes, fetches the furthest log, and leads ---
#
# The candidate asks all replicas of its newest replica set. Once enough have voted for it, no
# leader of a lower epoch commits (`overlay.consensus`), and the furthest of their logs has all that
# was ever committed; the candidate fetches what it lacks of that. So any replica may be nominated,
# and voters need not compare logs before they vote.
#
# Enough is a majority of intact replicas: it shares a replica with each majority that may have
# committed something. Of three, one may be torn if both others answer. (For a set of an even
# number, one less would do. But a candidate may not know the last change of the set: what two of
# three have committed after a fourth was removed, two of the four need not have.) A fetched log may
# change the replica set; then the votes count by the new one. If all have answered, nobody is left
# to ask: the furthest log counts, intact or not (after a loss of power everywhere, each replica may
# have a torn tail that was never durable).


class ShardCampaign:
    """A candidate's attempt under one epoch."""

    def __init__(self, replica: StoredReplica, epoch: int, won: Callable[[], None]) -> None:
        """`won` is called when the furthest log is here: this node leads from then on."""
        self.replica = replica
        self.epoch = epoch
        self._won = won
        self._is_over = False
        self.votes: dict[NodeId, tuple[Peer, ShardVoteReply]] = {}

    def end(self) -> None:
        """Give up: another may lead."""
        self._is_over = True

    def voted(self) -> None:
        """Count this node's own vote, which is durable, and ask the others."""
        mine = self.replica
        intact = not mine.hard_state.suspect
        vote = ShardVoteReply(mine.shard, self.epoch, mine.log.position, intact)
        self.votes[mine.port.me.id] = (mine.port.me, vote)
        self.ask()

    def ask(self) -> None:
        """Ask those who have not voted; fetch on from the furthest."""
        mine = self.replica
        if mine.port.me.id not in self.votes:
            return
        for peer in mine.replicas:
            if peer.id not in self.votes:
                mine.port.send(peer, RequestShardVote(mine.shard, self.epoch))
        self.go_on()

    def granted(self, sender: Peer, message: ShardVoteReply) -> None:
        """A replica has voted for this node."""
        if message.epoch == self.epoch and sender.id not in self.votes:
            self.votes[sender.id] = (sender, message)
            self.go_on()

    def fetched(self, message: ShardFetched) -> None:
        """Chunks of the furthest log: take them, and go on when they are durable."""
        if message.epoch == self.epoch and self.is_enough():
            before = self.replica.log.end
            self.replica.take(message.chunks, message.start)
            # Who got nothing new asks when its timer fires (`ask`), and not in a loop.
            if self.replica.ready and self.replica.log.end != before:
                self.go_on()

    def is_enough(self) -> bool:
        """Whether those who have voted have between them all that may have been committed."""
        replicas = self.replica.replicas
        is_everybody = bool(replicas) and all(peer.id in self.votes for peer in replicas)
        return is_everybody or self._is_sure()

    def _is_sure(self) -> bool:
        """Whether the furthest log has all that was ever committed, whatever this one had lost."""
        intact = {node for node, (_, vote) in self.votes.items() if vote.intact}
        return has_majority(self.replica.replicas, intact)

    def furthest(self) -> tuple[Peer, ShardVoteReply]:
        """The voter with the furthest log, and its vote."""
        return max(self.votes.values(), key=lambda vote: vote[1].position)

    def go_on(self) -> None:
        """Lead if this node has the furthest log and it is durable; otherwise fetch the missing
        chunks."""
        mine = self.replica
        if self._is_over or not mine.ready or not self.is_enough():
            return
        if mine.durable != mine.log.end.number:
            return
        peer, furthest = self.furthest()
        if mine.log.position < furthest.position:
            end = (mine.log.end.number, mine.log.end.hash)
            fetch = ShardFetch(mine.shard, self.epoch, end, min(mine.committed, end[0]))
            mine.port.send(peer, fetch)
        else:
            if self._is_sure():
                mine.clear_suspicion()
            self._won()
            mine.clear_suspicion()


CUT_OFF: Final = 2.0
"""Seconds without an answer of a majority after which a leader says so to readers and members: as
long as the owner of the stream waits before it says so to others."""

REOPEN: Final = 1.0
"""Seconds after which a failed disk is tried again."""


class ReplicaRetry(Timer, frozen=True):
    """Time to ask again, or to open the log again."""

    shard: str


class ShardCommitted(LocalEvent, frozen=True):
    """At this replica the chunks up to `number` are known to be committed."""

    shard: str
    number: int


class ShardLed(LocalEvent, frozen=True):
    """This node leads the shard under `epoch`, and a chunk of its own is committed. It may append
    rows on request, and knows all rows that were ever committed."""

    shard: str
    epoch: int


class ShardUnled(LocalEvent, frozen=True):
    """This node no longer leads the shard. Chunks that it appended and did not see committed may be
    committed by another leader, or never."""

    shard: str


class Replica(StoredReplica):
    """One shard at one node."""

    def __init__(
        self, port: Port, disk: LogDisk, shard: str, founders: Sequence[Peer] = ()
    ) -> None:
        """The arguments are those of `StoredReplica`."""
        super().__init__(port, disk, shard, founders)
        self.leader: ShardLeader | None = None
        """While this node leads."""
        self.serves = False
        """Whether it leads, and a chunk of its own epoch is committed."""
        self.campaign: ShardCampaign | None = None
        self.repair: Repair | None = None
        """While there are holes in the log."""
        self._heard_at = port.now  # a leader, or that it was this node
        self._sender = Peer("", "")  # of the last chunks; it leads under the vote's epoch …
        self._matched = 0  # … and has this chunk and all before it as they are here; 0: not known
        self._first = 0  # the first chunk of its epoch; 0: not known
        self._repairs = 0  # that were tried since the log had no holes
        self._begins_late = False  # nobody has what comes before the first segment

    def start(self) -> None:
        """Read vote and log from the disk; until then nothing is answered."""
        self._open()
        self.retry_soon()

    def retry_soon(self) -> None:
        """Have `on_retry` called after the usual time."""
        self.port.set_timer(RETRY, ReplicaRetry(self.shard))

    # -- who leads -------------------------------------------------------------------------------

    @property
    def followed(self) -> Peer | None:
        """The node for which this replica has voted last; None: nobody, or itself, or a node that
        is no replica."""
        candidate = self.hard_state.candidate
        return None if candidate == self.port.me.id else by_id(self.replicas).get(candidate)

    def lead(self, epoch: int) -> None:
        """Campaign for `epoch`, if this replica has not voted in a higher one, nor in this one for
        another node."""
        if not self.takes_part or not may_vote(self.hard_state, epoch, self.port.me.id):
            return
        if self.leader is not None and self.leader.epoch == epoch:
            return
        self._stop()
        self.campaign = ShardCampaign(self, epoch, self._begin_leading)
        self._vote(epoch, self.port.me.id, self.campaign.voted)
        self.retry_soon()

    def _begin_leading(self) -> None:
        """Lead under the epoch of the campaign, which has succeeded."""
        assert self.campaign is not None
        epoch, self.campaign = self.campaign.epoch, None
        self.leader = ShardLeader(self, epoch, self._commit_to, self.retry_soon)
        self.leader.begin()

    def _stop(self) -> None:
        """Stop leading, and stop any campaign."""
        if self.leader is not None:
            self._heard_at = self.port.now
            self.leader.end()
        if self.campaign is not None:
            self.campaign.end()
        served, self.serves = self.serves, False
        self.leader = self.campaign = None
        if served:
            self.port.emit(ShardUnled(self.shard))

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
        return self._heard_at < since

    def on_retry(self, timer: ReplicaRetry) -> None:
        """Retry unfinished or unanswered actions: reading the disk, repairing, campaigning,
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
            self.port.set_timer(self.leader.pause, timer)
        elif not self.ready or self.campaign is not None:
            self.retry_soon()

    # -- the disk --------------------------------------------------------------------------------

    def _open(self) -> None:
        self.repair = None
        super()._open()

    def on_opened(self, event: Opened) -> None:
        """Continue with the contents of the folder, which has been read."""
        if event.ticket != self._opening:
            return
        found = event.found
        self._load(event)
        self._matched = self._first = 0
        if not self.barred:
            beginning = [found.beginning] if found.beginning and self._wants_beginning() else []
            if found.holes or beginning:
                self._begin_repair(found.holes or beginning)
                return
        self.ready = True
        self._repairs = 0
        self.durable = self.log.end.number
        self.committed = max(self.committed, found.committed)
        self.log.cut(self.durable, self.state.floor)
        self._remove_segments()
        if self.campaign is not None:
            self.campaign.go_on()
        elif self.leader is None and not self.barred:
            self._say_where()

    def _wants_beginning(self) -> bool:
        return len(self.replicas) > 1 and not self._begins_late

    def on_written(self, event: Written) -> None:
        """Requests up to this one are durable: call those who wait for them."""
        for then in self._when_written.stored(event.ticket):
            then()

    def _stored(self, chunk: ChunkId) -> None:
        if self.log.has(chunk):
            self.durable = max(self.durable, chunk.number)
        if self.leader is not None:
            self.leader.commit()
        elif self.campaign is not None:
            self.campaign.go_on()
        else:
            self._acknowledge()

    def on_read_done(self, event: ReadDone) -> None:
        """Bytes that were asked for."""
        self.chunks.was_read(event)

    def on_disk_failed(self, event: DiskFailed) -> None:
        """Forget all requests without an answer."""
        if event.ticket < self._opening:
            return
        self._opening = 0
        self.port.count("shard_disk_failures")
        self._stop()
        self.ready, self.repair = False, None
        self._when_written.clear()
        self.chunks.forget_readings()
        self.port.set_timer(REOPEN, ReplicaRetry(self.shard))

    # -- damage ----------------------------------------------------------------------------------

    def _begin_repair(self, holes: Sequence[FoundHole]) -> None:
        """Stop taking part until other replicas have sent the chunks of the holes."""
        self.port.count("shard_holes_found", len(holes))
        self.damage.found += len(holes)
        self._stop()
        self.ready = False
        self._repairs += 1
        begins = self.port.now + (SELDOM if self._repairs > ATTEMPTS else 0.0)
        self.repair = Repair(self, holes, self._open, self._not_repaired, begins)
        self.repair.ask()
        self.retry_soon()

    def damaged(self, holes: Sequence[FoundHole]) -> bool:
        """Handle holes that were found in a log that was read before. Return whether this replica
        repairs them. A shard's only replica keeps its log and continues, since no other can repair
        it."""
        if self.takes_part and len(self.replicas) > 1:
            self._begin_repair(holes)
            return True
        self.port.count("shard_holes_left", len(holes))
        self.damage.found += len(holes)
        self.damage.left += len(holes)
        return False

    def _not_repaired(self, first: FoundHole) -> None:
        """End the log before a hole whose chunks no replica has, or begin it after the hole."""
        if first.hole.first:
            self.end_before(first)
        else:  # nobody has what comes before this log: it begins where it does
            self.port.count("shard_holes_left")
            self.damage.left += 1
            self._begins_late = True
            self._open()

    def on_missing(self, sender: Peer, message: ShardMissing) -> None:
        """A replica has a hole: send it what this one has."""
        if self.ready or self.repair is not None:
            send_missing(self, sender, message, self.hard_state.epoch if self.serves else 0)

    def on_missing_sent(self, sender: Peer, message: ShardMissingSent) -> None:
        """Chunks for a hole have come."""
        if self.repair is not None:
            self.repair.sent(sender, message)

    # -- votes -----------------------------------------------------------------------------------

    def _vote(self, epoch: int, candidate: NodeId, then: Callable[[], None]) -> None:
        """Vote for `candidate` in `epoch`; `then` is called when that is durable."""
        if not self.follows(candidate, epoch):
            self._matched = self._first = 0
        self._put(replace(self.hard_state, epoch=epoch, candidate=candidate), then)

    def on_request_vote(self, sender: Peer, message: RequestShardVote) -> None:
        """Vote, and say how far the log is, when both are durable."""
        if not self.takes_part:
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

    def on_vote_reply(self, sender: Peer, message: ShardVoteReply) -> None:
        """A replica has voted for this candidate, and says how far its log is."""
        if self.campaign is not None:
            self.campaign.granted(sender, message)

    def on_fenced(self, sender: Peer, message: ShardFenced) -> None:
        """Stop leading, because a replica has voted in a higher epoch."""
        if message.epoch > self.hard_state.epoch:
            self._stop()

    def on_fetch(self, sender: Peer, message: ShardFetch) -> None:
        """Send a candidate the chunks that it lacks."""
        if not self.ready or not self.follows(sender.id, message.epoch):
            return
        end = ChunkId(*message.end)
        known = self.log.has(end)

        def send(chunks: tuple[bytes, ...]) -> None:
            fetched = ShardFetched(self.shard, message.epoch, chunks, self.log.start)
            self.port.send(sender, fetched)

        def compare(chunks: tuple[bytes, ...]) -> None:
            there = read(chunks[0]) if chunks else None
            if there is None or (there.number, there.hash) != end:
                self.chunks.read(min(message.committed, self.log.end.number) + 1, send)
            elif len(chunks) > 1:
                send(chunks[1:])
            else:
                self.chunks.read(end.number + 1, send)

        if known is None:
            # Sent what it has already, the candidate would ask for the same again, for ever.
            self.chunks.read(end.number, compare)
        else:
            start = end.number if known else min(message.committed, self.log.end.number)
            self.chunks.read(start + 1, send)

    def on_fetched(self, sender: Peer, message: ShardFetched) -> None:
        """The furthest log's next chunks."""
        if self.ready and self.campaign is not None:
            self.campaign.fetched(message)

    # -- following -------------------------------------------------------------------------------

    def on_append(self, sender: Peer, message: ShardAppend) -> None:
        """Take the leader's next chunks, and acknowledge when they are durable."""
        if self.repair is not None:
            self.repair.heard(sender)
        if not self.ready or self.barred:
            return
        vote = self.hard_state
        if message.epoch != vote.epoch or sender.id != vote.candidate:
            if is_fenced(vote, message.epoch):
                self.port.send(sender, ShardFenced(self.shard, vote.epoch))
                return
            # A majority has voted for the sender in this epoch, else it would not lead. So whoever
            # this replica has voted for can no longer lead in it.
            self._stop()
            self._vote(message.epoch, sender.id, self._acknowledge)
        self._heard_at, self._sender = self.port.now, sender
        self._first = message.first
        if message.chunks:
            taken = self.take(message.chunks, message.start)
            if not taken:
                if self.ready:
                    self._say_behind(sender)
                return
            self._matched = max(self._matched, taken)
        elif self.log.has(ChunkId(*message.end)):
            self._matched = max(self._matched, message.end[0])
        else:
            self._say_behind(sender)
            return
        committed = min(message.committed, self._matched)
        if committed > self.committed:
            self._commit_to(committed)
        if not message.chunks or self._matched <= self.durable:  # else when they are written
            self._acknowledge()

    def _say_where(self) -> None:
        """The log was read: its leader may not know that it has to send what follows on it."""
        candidate = self.hard_state.candidate
        if candidate and candidate != self.port.me.id:
            self._say_behind(self.followed or Peer(candidate, ""))

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
        if self.hard_state.suspect and self._first and number >= self._first:
            self.clear_suspicion()
        self.port.send(self._sender, ShardAck(self.shard, self.hard_state.epoch, number))

    # -- leading ---------------------------------------------------------------------------------

    def _commit_to(self, number: int) -> None:
        """The chunks up to `number`, more than before, are committed."""
        self.committed = number
        leader = self.leader
        if leader is not None and not self.serves and number >= leader.first:
            self.serves = True
            self.port.emit(ShardLed(self.shard, leader.epoch))
        self.port.emit(ShardCommitted(self.shard, number))
        if len(self.log.segments) > 1:
            self._remove_segments()

    def on_ack(self, sender: Peer, message: ShardAck) -> None:
        """A follower has more on disk."""
        if self.leader is not None:
            self.leader.acknowledged(sender, message)

    def on_behind(self, sender: Peer, message: ShardBehind) -> None:
        """Send older chunks to a follower that needs them, or that could use none of those it was
        sent."""
        if self.leader is not None:
            self.leader.behind(sender, message)
