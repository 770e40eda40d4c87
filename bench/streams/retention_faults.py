"""Faults in what a shard keeps for its readers, and in what it may have."""

from __future__ import annotations

from bench.mutations.planting import fault, replace
from streams.log.shard_log import ShardLog
from streams.log.state import ShardState
from streams.shard.leader import ShardLeader
from streams.shard.retention import Keep, over, quota_floor

BOUNDS = "tests/streams/shard/test_streams_bounds.py"
KEPT = "promise: nothing unread expires unless the stream says so"
BOUNDED = "promise: a shard has no more than it may have"


@fault(KEPT, BOUNDS, "test_what_a_durable_consumer_has_not_read_stays")
def shard_retention_ignores_consumers() -> None:
    """A shard's leader lets rows go that a durable consumer has not read."""
    original = ShardLeader.retain

    def retain(self: ShardLeader, keep: Keep, now: int) -> None:
        original(self, keep._replace(drops_unread=True), now)

    replace(original, retain)


@fault(KEPT, BOUNDS, "test_what_a_durable_consumer_has_not_read_stays")
def shard_dropped_rows_are_not_counted() -> None:
    """Nobody hears that rows were dropped which a durable consumer had not read."""

    def _raise_floor(self: ShardState, offset: int, expired: int) -> None:
        self.floor = max(self.floor, offset)

    replace(ShardState._raise_floor, _raise_floor)


@fault(BOUNDED, BOUNDS, "test_a_full_shard_refuses_and_says_why_until_there_is_room")
def shard_quota_is_ignored() -> None:
    """A full shard takes rows."""

    def never(keep: Keep, log: ShardLog, floor: int, size: int, rows: int) -> str:
        return ""

    replace(over, never)


@fault(BOUNDED, BOUNDS, "test_a_full_shard_may_drop_its_oldest_rows_and_counts_for_whom")
def shard_oldest_rows_are_not_dropped() -> None:
    """A stream that is to drop its oldest rows keeps them."""

    def lowest(keep: Keep, log: ShardLog) -> int:
        return log.first_offset

    replace(quota_floor, lowest)
