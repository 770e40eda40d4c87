"""Faults in what a shard keeps: retention, quotas, times, newest rows."""

from __future__ import annotations

from bench.mutations.planting import fault, replace
from streams.log.batches import Row
from streams.log.table import KeyTable, NewestRow, TableView, key_of
from streams.services.service import LedShard
from streams.shard.leader import ShardLeader
from streams.shard.retention import Keep, over

BOUNDS = "tests/streams/shard/test_streams_bounds.py"
TABLES_SOAK = "tests/streams/tables/test_streams_tables_soak.py"


@fault("T2", BOUNDS, "test_what_a_durable_consumer_has_not_read_stays")
def shard_retention_ignores_consumers() -> None:
    """A shard's leader lets rows go that a durable consumer has not read."""
    original = ShardLeader.retain

    def retain(self: ShardLeader, keep: Keep, now: int) -> None:
        original(self, keep._replace(drops_unread=True), now)

    replace(original, retain)


@fault("T8", BOUNDS, "test_a_full_shard_refuses_and_says_why_until_there_is_room")
def shard_quota_is_ignored() -> None:
    """A full shard takes rows."""

    replace(over, lambda keep, log, floor, size, rows: "")


@fault(
    "S11",
    "tests/streams/programs/reader/test_streams_expiry.py",
    "test_rows_are_delivered_until_they_are_past_their_time",
)
def expired_rows_are_delivered() -> None:
    """History delivers rows that are past their time."""

    replace(LedShard.is_over, lambda self, time: False)


@fault("S9", TABLES_SOAK, "test_the_newest_rows_fold_to_what_was_committed_through_faults")
def table_keeps_the_older_value() -> None:
    """The table keeps the first row of a key, and not the newest."""

    def add(self: KeyTable, offset: int, row: Row, size: int) -> None:
        self.end = max(self.end, offset + 1)
        key = key_of(row.attributes, self.key)
        if key is None:
            return
        if self.is_deletion(row):
            self.places.pop(key, None)
        else:
            self.places.setdefault(key, NewestRow(offset, size))

    replace(KeyTable.add, add)


@fault("S9", TABLES_SOAK, "test_the_newest_rows_fold_to_what_was_committed_through_faults")
def table_forgets_deletions_too_early() -> None:
    """A deletion that is no longer kept lets the row before it count again."""
    original = KeyTable.add

    def add(self: KeyTable, offset: int, row: Row, size: int) -> None:
        if not self.is_deletion(row):
            original(self, offset, row, size)

    replace(original, add)


@fault(
    "V5",
    "tests/streams/tables/test_streams_tables.py",
    "test_a_view_has_what_was_the_newest_when_it_was_made",
)
def table_view_loses_replaced_rows() -> None:
    """A reading does not get the rows that were replaced while it read the newest ones."""

    replace(TableView.replaced, lambda self, offset: None)
