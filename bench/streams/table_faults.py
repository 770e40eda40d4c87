"""Faults in the newest rows of streams with a key."""

from __future__ import annotations

from bench.mutations.planting import fault, replace
from streams.log.batches import Row
from streams.log.chunk import TABLE, Chunk
from streams.log.state import ShardState
from streams.log.table import KeyTable, NewestRow, TableView, key_of
from streams.services.table import TableWriting
from streams.shard.leader import Retention

SEARCH = "tests/streams/tables/test_streams_tables_soak.py"
NEWEST = "test_the_newest_rows_fold_to_what_was_committed_through_faults"
TABLES = "tests/streams/tables/test_streams_tables.py"
FOLD = "checker 8: the table at n is the fold to n, and nothing comes back"


@fault(FOLD, SEARCH, NEWEST)
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


@fault(FOLD, SEARCH, NEWEST)
def table_forgets_deletions_too_early() -> None:
    """A deletion that is not kept any more lets the row before it count again."""
    original = KeyTable.add

    def add(self: KeyTable, offset: int, row: Row, size: int) -> None:
        if not self.is_deletion(row):
            original(self, offset, row, size)

    replace(original, add)


@fault(FOLD, TABLES, "test_a_view_has_what_was_the_newest_when_it_was_made")
def table_view_loses_replaced_rows() -> None:
    """A reading does not get the rows that were replaced while it read the newest ones."""

    def replaced(self: TableView, offset: int) -> None:
        return None

    replace(TableView.replaced, replaced)


@fault(FOLD, SEARCH, NEWEST)
def table_former_chunks_are_left_out() -> None:
    """A table that is written anew has the rows of the log, and not those of the one before."""
    original = TableWriting._take

    def _take(self: TableWriting, chunk: Chunk) -> int:
        return 0 if chunk.kind == TABLE else original(self, chunk)

    replace(original, _take)


@fault(FOLD, TABLES, "test_segments_that_have_the_table_stay")
def table_chunks_are_removed_with_their_segment() -> None:
    """Retention does not know of the chunks that have the table."""

    def oldest_table_chunk(self: ShardState, committed: int) -> int | None:
        return None

    replace(ShardState.oldest_table_chunk, oldest_table_chunk)


@fault(FOLD, TABLES, "test_a_deletion_stays_until_registered_consumers_have_read_it")
def table_floor_passes_unread_deletions() -> None:
    """A deletion goes before a durable consumer has read it."""
    original = Retention.floor_due

    def floor_due(self: Retention, now: int) -> int:
        former, self.keep = self.keep, self.keep._replace(drops_unread=True)
        found = original(self, now)
        self.keep = former
        return found

    replace(original, floor_due)
