"""Faults in the replicas of a shard: votes, commits, the disk, damage."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from bench.mutations.planting import fault, replace
from canopy.wire.shards.log_disk import FileLogDisk, _Shard
from canopy.wire.shards.shard_list import ShardList
from overlay.consensus import Tracker, may_vote
from overlay.machine import Peer
from streams.log import chunk as chunks
from streams.log.chunk import HEAD
from streams.log.recovery import FoundHole
from streams.log.shard_log import Segment
from streams.shard.repair import Repair
from streams.shard.replica import Replica, ShardCampaign
from streams.shard.retention import EVERYTHING, Keep, floor_of
from streams.shard.stored_replica import StoredReplica

REPLICATION = "tests/streams/shard/test_streams_replication.py"
SHARDS = "tests/canopy/wire/shards/test_wire_shards.py"
REPAIR = "tests/streams/shard/test_streams_repair.py"


@fault("S1", REPLICATION, "test_a_follower_acknowledges_when_its_disk_has_the_chunk")
def shard_follower_acknowledges_before_its_disk() -> None:
    """A follower acknowledges chunks of a shard before they are on its disk."""
    original = Replica._acknowledge

    def _acknowledge(self: Replica) -> None:
        self.durable = self.log.end.number
        original(self)

    replace(original, _acknowledge)


@fault("S1", REPLICATION, "test_chunks_of_older_epochs_are_not_committed_by_counting")
def shard_commits_by_older_epochs() -> None:
    """A shard's leader commits chunks of older epochs by counting who has them."""
    original = Tracker.committable

    def committable(self: Tracker[Any], voters: Sequence[Peer], own: int, quorum: int = 0) -> int:
        first, self.first = self.first, 0
        number = original(self, voters, own, quorum)
        self.first = first
        return number

    replace(original, committable)


@fault("S1", REPLICATION, "test_what_is_acknowledged_stays_and_all_replicas_have_it")
def shard_sealed_by_a_minority() -> None:
    """A candidate for a shard leads without the votes of a majority."""
    original = ShardCampaign.is_enough

    replace(original, lambda self: bool(self.votes and self.replica.replicas))


@fault("S1", REPLICATION, "test_the_highest_epoch_wins_and_not_the_longest_log")
def shard_longest_log_wins() -> None:
    """A candidate for a shard takes the log with the most chunks, whatever its last epoch."""
    original = ShardCampaign.furthest

    replace(original, lambda self: max(self.votes.values(), key=lambda vote: vote[1].position[1]))


@fault("S1", REPLICATION, "test_a_vote_survives_a_restart_and_holds_against_lower_epochs")
def shard_vote_is_not_stored() -> None:
    """A shard's replica forgets at a restart for whom it has voted in which epoch."""

    replace(may_vote, lambda last, epoch, candidate: True)


@fault("S1", SHARDS, "test_nothing_is_answered_before_it_is_synced")
def shard_disk_answers_before_the_sync() -> None:
    """The disk of shards answers a write before its fdatasync."""
    original = FileLogDisk._sync

    def _sync(self: FileLogDisk, held: _Shard) -> None:
        with self._answered:
            self._answers += held.answers
        held.answers = []
        original(self, held)

    replace(original, _sync)


@fault("S1", SHARDS, "test_a_shard_whose_folder_is_gone_is_damaged_and_not_new")
def shard_that_is_gone_begins_again() -> None:
    """A shard whose folder is gone begins as one that never promised anything."""
    original = ShardList.is_missing

    def is_missing(self: ShardList, shard: str) -> bool:
        if original(self, shard):
            self.folder(shard).mkdir(parents=True)
        return False

    replace(original, is_missing)


@fault("S10", REPLICATION, "test_what_is_acknowledged_stays_and_all_replicas_have_it")
def shard_floor_is_too_high() -> None:
    """A shard's leader lets all segments but the newest go, whatever is to be kept."""

    def floor_too_high(segments: Sequence[Segment], keep: Keep, now: int) -> int:
        return segments[-1].offset if segments and keep != EVERYTHING else 0

    replace(floor_of, floor_too_high)


@fault("S1", REPLICATION, "test_a_follower_cuts_off_nothing_that_is_committed_whatever_it_is_sent")
def shard_truncates_what_is_committed() -> None:
    """A follower cuts off whatever contradicts its leader, committed or not."""
    original = StoredReplica._truncate

    def _truncate(self: StoredReplica, number: int) -> None:
        committed, self.committed = self.committed, 0
        original(self, number)
        self.committed = committed

    replace(original, _truncate)


@fault("S1", SHARDS, "test_a_folder_that_is_not_listed_is_set_aside_with_an_alarm")
def shard_orphans_are_deleted() -> None:
    """A node deletes the folder of a shard that its list does not name."""

    def _set_aside(self: ShardList, shard: str) -> None:
        shutil.rmtree(self.folder(shard))

    replace(ShardList._set_aside, _set_aside)


@fault("S12", REPAIR, "test_a_replica_with_a_hole_neither_answers_nor_leads_until_it_is_mended")
def shard_damaged_replica_leads() -> None:
    """A shard's replica takes part with holes in its log."""
    original = Replica._begin_repair

    def _begin_repair(self: Replica, holes: Sequence[FoundHole]) -> None:
        original(self, holes)
        self.ready = True
        self.durable = self.log.end.number

    replace(original, _begin_repair)


@fault("S12", REPAIR, "test_a_damaged_range_is_not_served_and_is_said")
def shard_damaged_range_is_served() -> None:
    """A shard's replica hands over chunks from its disk without a look at their CRC."""

    replace(chunks._crc, lambda head, body: int(HEAD.unpack(head)[2]))


@fault("S12", REPAIR, "test_a_hole_waits_for_who_may_have_what_was_in_it")
def shard_hole_is_given_up_after_a_while() -> None:
    """A shard's replica ends its log before a hole when one lacks the chunks and others are
    silent."""
    original = Repair.ask

    def ask(self: Repair) -> None:
        since = self.replica.port.now - 5.0
        if any(at < since for at in self._lacking.values()):
            self._hopeless(self.holes[0])
        else:
            original(self)

    replace(original, ask)


@fault("V3", REPAIR, "test_what_is_sent_for_a_hole_is_proved_by_its_hash_before_it_is_written")
def shard_repair_takes_bytes_unproved() -> None:
    """A shard's replica mends a hole with any valid chunk of the right number."""

    replace(Repair._is_wanted, lambda self, chunk: chunk.number == self._wanted()[0])
