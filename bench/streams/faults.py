"""Faults in a shard's log and its replication."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Sequence
from typing import Any

from bench.mutations.planting import fault, replace
from canopy.wire.durable import write_durably
from canopy.wire.shards.log_disk import FileLogDisk, _Request, _Shard
from canopy.wire.shards.shard_files import DURABLY, ShardFiles
from canopy.wire.shards.shard_list import ShardList
from overlay.consensus.tracker import Tracker
from overlay.consensus.votes import Vote, may_vote
from overlay.machine import NodeId, Peer
from streams.log import recovery
from streams.log.chunk import CUT, Chunk, ChunkId, read
from streams.log.recovery import FoundHole, Scan
from streams.log.recovery import scan as scan_segment
from streams.log.shard_log import Segment, ShardLog
from streams.shard.campaign import ShardCampaign
from streams.shard.leader import ShardLeader
from streams.shard.messages import ShardVoteReply
from streams.shard.replica import Replica
from streams.shard.retention import EVERYTHING, Keep, floor_of
from streams.shard.stored_replica import StoredReplica

SEEDS = "tests/streams/shard/test_streams_replication.py"
DISK = "tests/canopy/wire/shards/test_wire_shards.py"
SEARCH = "test_what_is_acknowledged_stays_and_all_replicas_have_it"
PROMISE = "promise: what is acknowledged is never lost"


@fault(PROMISE, SEEDS, "test_a_leader_counts_itself_when_its_disk_has_the_chunk")
def shard_leader_counts_itself_before_its_disk() -> None:
    """A shard's leader counts itself for a chunk that is not on its own disk yet."""
    original = ShardLeader.commit

    def commit(self: ShardLeader) -> None:
        durable, self.replica.durable = self.replica.durable, self.replica.log.end.number
        original(self)
        self.replica.durable = durable

    replace(original, commit)


@fault(
    "a shard's followers know what is committed, also when nobody appends",
    SEEDS,
    "test_a_follower_that_restarts_says_so_to_a_leader_that_asks_nobody",
)
def shard_restarted_follower_says_nothing() -> None:
    """A replica that has read its log waits until its leader asks it."""

    def _say_where(self: Replica) -> None:
        pass

    replace(Replica._say_where, _say_where)


@fault(PROMISE, SEEDS, "test_a_follower_acknowledges_when_its_disk_has_the_chunk")
def shard_follower_acknowledges_before_its_disk() -> None:
    """A follower acknowledges chunks of a shard before they are on its disk."""
    original = Replica._acknowledge

    def _acknowledge(self: Replica) -> None:
        self.durable = self.log.end.number
        original(self)

    replace(original, _acknowledge)


@fault(PROMISE, SEEDS, "test_chunks_of_older_epochs_are_not_committed_by_counting")
def shard_commits_by_older_epochs() -> None:
    """A shard's leader commits chunks of older epochs by counting who has them."""
    original = Tracker.committable

    def committable(self: Tracker[Any], voters: Sequence[Peer], own: int, quorum: int = 0) -> int:
        first, self.first = self.first, 0
        number = original(self, voters, own, quorum)
        self.first = first
        return number

    replace(original, committable)


@fault(PROMISE, SEEDS, SEARCH)
def shard_sealed_by_a_minority() -> None:
    """A candidate for a shard leads without the votes of a majority."""
    original = ShardCampaign.is_enough

    def is_enough(self: ShardCampaign) -> bool:
        return bool(self.votes and self.replica.replicas)

    replace(original, is_enough)


@fault(PROMISE, SEEDS, "test_the_highest_epoch_wins_and_not_the_longest_log")
def shard_longest_log_wins() -> None:
    """A candidate for a shard takes the log with the most chunks, whatever its last epoch."""
    original = ShardCampaign.furthest

    def furthest(self: ShardCampaign) -> tuple[Peer, ShardVoteReply]:
        return max(self.votes.values(), key=lambda vote: vote[1].position[1])

    replace(original, furthest)


@fault(PROMISE, SEEDS, SEARCH)
def shard_torn_replica_counts() -> None:
    """A replica whose tail is torn counts in a campaign as one that lacks nothing."""
    original = StoredReplica._suspect

    def _suspect(self: StoredReplica, surplus: Sequence[str] = (), lost_end: int = 0) -> None:
        original(self, surplus, lost_end)
        self.clear_suspicion()

    replace(original, _suspect)


@fault(PROMISE, SEEDS, SEARCH)
def shard_damage_is_not_looked_for() -> None:
    """A shard's recovery takes what is behind damage and forgets the damage."""
    kept = recovery._missing
    scanned = scan_segment

    def scan(data: bytes, number: int, after: ChunkId | None = None) -> Scan:
        return scanned(data, number, after)._replace(holes=[])

    def _missing(name: str, before: Scan, there: Scan) -> list[FoundHole]:
        return []

    replace(kept, _missing)
    replace(scanned, scan)


@fault(PROMISE, SEEDS, "test_replicas_change_one_at_a_time")
def shard_replicas_change_two_at_once() -> None:
    """A shard's leader changes the replicas again before the change before is committed."""

    def may_change(self: Tracker[Any], committed: int) -> bool:
        return True

    replace(Tracker.may_change, may_change)


@fault(PROMISE, SEEDS, "test_a_vote_survives_a_restart_and_holds_against_lower_epochs")
def shard_vote_is_not_stored() -> None:
    """A shard's replica forgets at a restart for whom it has voted in which epoch."""

    def always(last: Vote | None, epoch: int, candidate: NodeId) -> bool:
        return True

    replace(may_vote, always)


@fault(PROMISE, SEEDS, SEARCH)
def shard_chunks_are_not_compared() -> None:
    """A shard's follower takes a chunk by its number, whatever it follows on."""

    def take(self: StoredReplica, chunks: Sequence[bytes], start: int) -> int:
        number = 0
        for data in chunks:
            chunk = read(data)
            assert chunk is not None
            if chunk.number == self.log.end.number + 1 and chunk.previous == self.log.end.hash:
                self.add(chunk)
            number = chunk.number
        return number

    replace(StoredReplica.take, take)


@fault(PROMISE, DISK, "test_nothing_is_answered_before_it_is_synced")
def shard_disk_answers_before_the_sync() -> None:
    """The disk of shards answers a write before its fdatasync."""
    original = FileLogDisk._sync

    def _sync(self: FileLogDisk, held: _Shard) -> None:
        with self._answered:
            self._answers += held.answers
        held.answers = []
        original(self, held)

    replace(original, _sync)


@fault(PROMISE, DISK, "test_what_a_read_has_handed_to_the_system_is_synced_too")
def shard_disk_syncs_the_last_write_only() -> None:
    """The disk of shards makes what is written last durable, and not what a read had written."""

    def sync(self: ShardFiles) -> None:
        self._write_pieces(DURABLY)
        self._written = self._loose = False

    replace(ShardFiles.sync, sync)


@fault(
    PROMISE,
    DISK,
    "test_what_comes_before_a_vote_is_durable_before_it_and_the_vote_before_the_rest",
)
def shard_vote_overtakes_writes() -> None:
    """The disk of shards makes a vote durable before what was written before it."""

    def put(self: ShardFiles, data: bytes) -> None:
        write_durably(self.path / "promise", zlib.crc32(data).to_bytes(4, "big") + data)

    replace(ShardFiles.put, put)


@fault(PROMISE, DISK, "test_a_shard_whose_folder_is_gone_is_damaged_and_not_new")
def shard_that_is_gone_begins_anew() -> None:
    """A shard whose folder is gone begins as one that never promised anything."""
    original = ShardList.is_missing

    def is_missing(self: ShardList, shard: str) -> bool:
        if original(self, shard):
            self.folder(shard).mkdir(parents=True)
        return False

    replace(original, is_missing)


@fault("retention: rows stay as long as was asked for", SEEDS, SEARCH)
def shard_floor_is_too_high() -> None:
    """A shard's leader lets all segments but the newest go, whatever is to be kept."""

    def floor_too_high(segments: Sequence[Segment], keep: Keep, now: int) -> int:
        return segments[-1].offset if segments and keep != EVERYTHING else 0

    replace(floor_of, floor_too_high)


@fault("retention: a log is not longer than was asked for", SEEDS, SEARCH)
def shard_cut_is_not_carried_out() -> None:
    """A shard's replicas delete nothing that a Cut names."""

    def _remove_segments(self: StoredReplica) -> None:
        return

    replace(StoredReplica._remove_segments, _remove_segments)


@fault(PROMISE, SEEDS, "test_a_cut_is_carried_out_when_it_is_committed")
def shard_cut_before_it_is_committed() -> None:
    """A shard's leader deletes what a Cut names before the Cut is committed."""
    original = StoredReplica.add

    def add(self: StoredReplica, chunk: Chunk) -> None:
        original(self, chunk)
        if chunk.kind == CUT:
            for name in self.log.retain(self.state.floor, self.log.segments[-1].number):
                self.disk.drop(self.shard, name)

    replace(original, add)


@fault(PROMISE, SEEDS, "test_a_follower_cuts_off_nothing_that_is_committed_whatever_it_is_sent")
def shard_truncates_what_is_committed() -> None:
    """A follower cuts off whatever contradicts its leader, committed or not."""
    original = StoredReplica._truncate

    def _truncate(self: StoredReplica, number: int) -> None:
        committed, self.committed = self.committed, 0
        original(self, number)
        self.committed = committed

    replace(original, _truncate)


@fault(
    "promise: no shard's files are deleted unless its stream was removed",
    "tests/canopy/wire/shards/test_wire_shards.py",
    "test_a_folder_that_is_not_listed_is_set_aside_with_an_alarm",
)
def shard_orphans_are_deleted() -> None:
    """A node deletes the folder of a shard that its list does not name."""

    def _set_aside(self: ShardList, shard: str) -> None:
        shutil.rmtree(self.folder(shard))

    replace(ShardList._set_aside, _set_aside)


@fault(
    PROMISE,
    "tests/canopy/wire/shards/test_wire_shards_own_writes.py",
    "test_a_small_write_of_an_idle_node_is_durable_and_answered_at_once",
)
def shard_writes_overtake_those_of_the_thread() -> None:
    """A node's own thread carries out a write while the disk's has not answered those before it."""

    def _has_time(self: FileLogDisk, asked: Sequence[_Request], idle: float) -> bool:
        return self._pace.has_time(idle) and all(each.size > 0 for each in asked)

    replace(FileLogDisk._has_time, _has_time)


@fault(
    "promise: a shard has a leader and its replicas while a majority is there",
    SEEDS,
    "test_a_candidate_whose_end_is_in_an_older_segment_gets_what_follows",
)
def shard_candidates_are_sent_what_they_have() -> None:
    """A replica that has a chunk's hash on its disk only takes its log for another one than the
    candidate's, and sends what was committed and the candidate has."""
    original = ShardLog.has

    def has(self: ShardLog, chunk: ChunkId) -> bool | None:
        return original(self, chunk) or False

    replace(original, has)
