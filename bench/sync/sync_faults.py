"""Faults where databases are kept in sync."""

from __future__ import annotations

from collections.abc import Iterator

from bench.mutations.planting import fault, replace
from canopy.sync import conversions
from canopy.sync.changes import (
    INSERT,
    SCHEMA,
    Change,
)
from canopy.sync.destinations.destination import Destination, SyncProgress
from canopy.sync.destinations.sqlite import SqliteDestination
from canopy.sync.folded import Step
from canopy.sync.row_filter import RowFilter
from canopy.sync.sources import sqlite_triggers
from canopy.sync.sources.postgres import PostgresSource
from canopy.sync.verification import SyncComparison
from streams.log import writers

WRITERS = "tests/attacks/streams/test_attacks_writers.py"
SQLITE = "tests/canopy/sync/test_sync_sqlite.py"


@fault("Y2", "tests/canopy/sync/test_sync_core.py", "test_columns_are_made_fit_as_their_values_are")
def sync_columns_of_large_integers_pass() -> None:
    """Columns of integers are handed on without a look at their size."""

    replace(conversions._are_small, lambda values: True)


@fault("Y2", "tests/canopy/sync/test_sync_kept.py", "test_a_table_that_bends_values_is_refused")
def sync_tables_that_were_there_are_not_read_back() -> None:
    """Nobody looks at what a table that was there before has made of values."""

    replace(SqliteDestination._doubtful, lambda self, table: {})


@fault("A43", WRITERS, "test_the_leader_takes_rows_of_a_stream_s_writers_only")
def streams_take_rows_of_anybody() -> None:
    """The leader of a shard does not ask who may append to its stream."""

    replace(writers.denial, lambda access, producer, node, asker: "")


@fault("Y3", WRITERS, "test_a_forged_row_is_found_even_where_the_stream_is_asked")
def sync_verifying_believes_the_stream() -> None:
    """Rows that were changed between the states that are compared are compared with the stream
    only."""

    replace(SyncComparison._keys, lambda self, table, changed: set())


@fault(
    "Y1",
    "tests/canopy/sync/test_sync_postgres.py",
    "test_a_table_that_is_made_later_is_taken_in_with_its_rows",
)
def sync_later_tables_come_without_their_rows() -> None:
    """A table that is made later on PostgreSQL is taken in without the rows that it has."""
    original = PostgresSource._taken_in

    def _taken_in(self: PostgresSource, name: str) -> Iterator[Change]:
        return (change for change in original(self, name) if change.op != INSERT)

    replace(original, _taken_in)


@fault("V1", SQLITE, "test_a_table_that_was_built_again_and_a_unique_index_are_seen")
def sync_lost_triggers_are_not_seen() -> None:
    """A SQLite table that was built again is taken to have its triggers still."""

    replace(sqlite_triggers.is_installed, lambda database, table, number: True)


@fault("Y1", SQLITE, "test_rows_enter_and_leave_the_filter")
def sync_rows_that_leave_a_filter_stay() -> None:
    """A row that ceases to match is not deleted at the destination."""
    original = RowFilter.admit

    def admit(self: RowFilter, change: Change) -> Change | None:
        found = original(self, change)
        return None if found is not None and found.op != change.op != SCHEMA else found

    replace(original, admit)


@fault(
    "V2",
    "tests/canopy/sync/test_sync_sqlite.py",
    "test_either_side_is_killed_at_every_step[appended]",
)
def sync_position_is_committed_before_the_changes() -> None:
    """A destination commits its position, and then the changes before it."""
    apply, store = Destination.apply, Destination.store
    later: dict[Destination, list[Step]] = {}

    def apply_later(self: Destination, step: Step) -> None:
        later.setdefault(self, []).append(step)

    def store_first(self: Destination, progress: SyncProgress) -> None:
        store(self, progress)
        self._execute("COMMIT")
        self.begin()
        for step in later.pop(self, ()):
            apply(self, step)

    replace(apply, apply_later)
    replace(store, store_first)
