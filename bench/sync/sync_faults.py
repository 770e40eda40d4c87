"""Faults where databases are kept in sync."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from bench.mutations.planting import fault, replace, replace_constant
from canopy.sinks import positions
from canopy.sinks.database import quoted
from canopy.sync import conflicts, fitting, stream, verifying
from canopy.sync.capturing import Capture
from canopy.sync.changes import (
    FILL,
    INSERT,
    SCHEMA,
    TRUNCATE,
    Change,
    Column,
    Commit,
    Drafting,
    Table,
)
from canopy.sync.destinations.destination import Destination
from canopy.sync.destinations.mariadb import MariadbDestination
from canopy.sync.destinations.postgres import PostgresDestination
from canopy.sync.destinations.postgres_sequences import PostgresSequences
from canopy.sync.destinations.sqlite import SqliteDestination
from canopy.sync.filtering import RowFilter
from canopy.sync.sources import binlog, postgres_tables, resending, sqlite_triggers, sqlite_unique
from canopy.sync.sources.mariadb import MariadbSource
from canopy.sync.sources.mariadb_cascades import Cascades
from canopy.sync.sources.postgres import PostgresSource
from canopy.sync.sources.resending import Resending
from canopy.sync.sources.sqlite import SqliteSource
from canopy.sync.sources.sqlite_unique import Unique
from canopy.sync.values import Row, Value
from canopy.sync.verifying import Comparison
from overlay.client import Draft
from overlay.machine import NodeId
from streams.log import writers
from streams.log.writers import Access, Asker

ALTERED = "tests/canopy/sync/test_sync_altered.py"
CORE = "tests/canopy/sync/test_sync_core.py"
SQLITE = "tests/canopy/sync/test_sync_sqlite.py"
POSTGRES = "tests/canopy/sync/test_sync_postgres.py"
TWO_WAY = "tests/canopy/sync/test_sync_two_way.py"
MARIADB = "tests/canopy/sync/test_sync_mariadb.py"
CATALOGS = "tests/canopy/sync/test_sync_catalogs.py"
WRITERS = "tests/attacks/streams/test_attacks_writers.py"
FORGED = "promise: nobody but its source writes into a database that is kept in sync"
LARGE = "tests/canopy/sync/test_sync_large.py"
POSITIONS = "tests/canopy/sync/test_sync_positions.py"
KEPT = "tests/canopy/sync/test_sync_kept.py"
EXACT = "promise: a value arrives as it is, or is refused"
ROWS = "promise: the destination has the source's rows"
COLUMNS = "test_columns_are_made_fit_as_their_values_are"


@fault(EXACT, CORE, COLUMNS)
def sync_columns_of_large_integers_pass() -> None:
    """Columns of integers are handed on without a look at their size."""

    def _are_small(values: Sequence[Value]) -> bool:
        return True

    replace(fitting._are_small, _are_small)


@fault(EXACT, CORE, COLUMNS)
def sync_columns_of_texts_with_zeros_pass() -> None:
    """Columns of texts are handed on without a look for the character 0."""

    def _have_zeros(values: Sequence[Value]) -> bool:
        return False

    replace(fitting._have_zeros, _have_zeros)


@fault(EXACT, MARIADB, "test_a_text_where_numbers_were_is_kept_by_sqlite")
def sync_sqlite_keeps_the_type_of_a_column() -> None:
    """A SQLite destination leaves a column's type as it was."""

    def _change(self: SqliteDestination, table: Table, former: Table, old: Column) -> None:
        pass

    replace(SqliteDestination._change, _change)


@fault(EXACT, KEPT, "test_sqlite_columns_without_a_type_keep_what_a_value_is")
def sync_sqlite_columns_without_a_type_become_text() -> None:
    """A copy in SQLite gives a column without a type the type TEXT."""
    original = SqliteDestination._type

    def _type(self: SqliteDestination, table: Table, column: Column) -> str:
        return original(self, table, column) or "TEXT"

    replace(original, _type)


@fault(EXACT, KEPT, "test_a_table_that_bends_values_is_refused")
def sync_tables_that_were_there_are_not_read_back() -> None:
    """Nobody looks at what a table that was there before has made of values."""

    def _doubtful(self: SqliteDestination, table: Table) -> dict[str, str]:
        return {}

    replace(SqliteDestination._doubtful, _doubtful)


@fault(EXACT, KEPT, "test_verifying_sees_a_value_that_has_become_another")
def sync_verifying_compares_what_values_are_worth() -> None:
    """Verifying takes 1 and 1.0 for the same between databases of one kind."""
    replace(fitting.exact, fitting.canonical)


@fault(ROWS, CATALOGS, "test_keys_of_postgresql_are_read_as_the_server_means_them")
def sync_included_columns_are_of_the_key() -> None:
    """Columns that an index of PostgreSQL only includes are taken for columns of its key."""
    replace_constant(postgres_tables, "KEY", "indkey::int2[]")


@fault(ROWS, CATALOGS, "test_rows_that_an_index_of_sqlite_replaces_go_from_the_copy")
def sync_unique_expressions_replace_nothing() -> None:
    """Rows that go from SQLite because of a unique index of expressions are not looked for."""
    original = sqlite_unique.unique_indexes

    def unique_indexes(database: sqlite3.Connection, table: str) -> list[Unique]:
        return [one for one in original(database, table) if one.columns is not None]

    replace(original, unique_indexes)


@fault(FORGED, WRITERS, "test_the_leader_takes_rows_of_a_stream_s_writers_only")
def streams_take_rows_of_anybody() -> None:
    """The leader of a shard does not ask who may append to its stream."""

    def denial(access: Access, producer: str, node: NodeId, asker: Asker | None) -> str:
        return ""

    replace(writers.denial, denial)


@fault(FORGED, WRITERS, "test_a_forged_row_is_found_even_where_the_stream_is_asked")
def sync_verifying_believes_the_stream() -> None:
    """Rows that were changed between the states that are compared are compared with the stream
    only."""

    def _keys(self: Comparison, table: Table, changed: verifying._Changed) -> set[Row]:
        return set()

    replace(Comparison._keys, _keys)


@fault(ROWS, LARGE, "test_a_large_row_comes_in_parts_whoever_is_killed_between_them")
def sync_large_rows_are_one_event() -> None:
    """A change is one event, however large it is."""

    def drafts(self: Drafting, change: Change, commit: Commit | None = None) -> list[Draft]:
        return [self.draft(change, commit)]

    replace(Drafting.drafts, drafts)


@fault(ROWS, POSITIONS, "test_positions_of_an_earlier_version_are_taken_over")
def sync_positions_of_an_earlier_version_stay() -> None:
    """A table of positions that an earlier version has made is not taken over."""
    replace_constant(positions, "FORMER_COLUMN", "no such column")


@fault(ROWS, POSTGRES, "test_a_table_that_is_made_later_is_taken_in_with_its_rows")
def sync_later_tables_come_without_their_rows() -> None:
    """A table that is made later on PostgreSQL is taken in without the rows that it has."""
    original = PostgresSource._taken_in

    def _taken_in(self: PostgresSource, name: str) -> Iterator[Change]:
        return (change for change in original(self, name) if change.op != INSERT)

    replace(original, _taken_in)


@fault(ROWS, POSTGRES, "test_a_table_in_the_place_of_another_has_its_rows_only")
def sync_replaced_tables_keep_their_rows_on_postgresql() -> None:
    """A table in the place of another one is added to what that had, of PostgreSQL."""
    original = PostgresSource._taken_in

    def _taken_in(self: PostgresSource, name: str) -> Iterator[Change]:
        return (change for change in original(self, name) if change.op != TRUNCATE)

    replace(original, _taken_in)


@fault(ROWS, MARIADB, "test_a_table_in_the_place_of_another_has_its_rows_only")
def sync_replaced_tables_keep_their_rows_on_mariadb() -> None:
    """A table in the place of another one is added to what that had, of MariaDB."""
    original = MariadbSource._renewed

    def _renewed(self: MariadbSource, name: str) -> Iterator[Change]:
        return (change for change in original(self, name) if change.op != TRUNCATE)

    replace(original, _renewed)


@fault(ROWS, POSTGRES, "test_a_table_that_was_altered_while_no_sync_ran_is_sent_again")
def sync_tables_that_were_altered_are_not_sent_again() -> None:
    """A table that has another shape than the stream says is described anew, without its values."""

    def filled(table: Table, count: int, rows: Iterable[Row]) -> Iterator[Change] | None:
        return iter(())

    replace(resending.filled, filled)


@fault(EXACT, ALTERED, "test_a_column_with_a_default_is_one_value_in_postgresql")
def sync_new_columns_have_their_default_in_all_rows() -> None:
    """Rows that have another value in a new column than most are not looked for."""
    original = resending.filled

    def filled(table: Table, count: int, rows: Iterable[Row]) -> Iterator[Change] | None:
        found = original(table, count, rows)
        return None if found is None else iter([each for each in found if each.op == FILL])

    replace(original, filled)


@fault(ROWS, ALTERED, "test_values_that_differ_come_in_pieces_from_postgresql")
def sync_a_table_that_is_sent_in_pieces_looks_whole() -> None:
    """The stream has the whole shape of a table before the last of its rows was sent again."""

    def begin(self: Resending, table: Table) -> Table:
        whole = msgspec.structs.replace(table, is_partial=False)
        self._after[table.name] = (whole, None)
        return whole

    replace(Resending.begin, begin)


@fault(ROWS, CORE, "test_shapes_of_what_was_not_finished_do_not_count")
def sync_shapes_that_were_taken_back_count() -> None:
    """Shapes count for the stream's that stand in a transaction which was not finished."""
    original = stream.shapes

    def shapes(of: stream.Stream, end: int) -> dict[str, Table]:
        return original(of, 2**62)

    replace(original, shapes)


@fault(ROWS, SQLITE, "test_a_table_that_was_built_anew_and_a_unique_index_are_seen")
def sync_lost_triggers_are_not_seen() -> None:
    """A SQLite table that was built anew is taken to have its triggers still."""

    def is_installed(database: sqlite3.Connection, table: Table, number: int) -> bool:
        return True

    replace(sqlite_triggers.is_installed, is_installed)


@fault(ROWS, SQLITE, "test_rows_of_a_column_that_comes_while_the_log_is_read_wait_for_it")
def sync_rows_overtake_their_column() -> None:
    """SQLite's log is read to its end, whatever became of the tables meanwhile."""

    def _end_of_known(self: SqliteSource) -> int:
        self._refresh()
        return self.end()

    replace(SqliteSource._end_of_known, _end_of_known)


@fault(ROWS, SQLITE, "test_rows_enter_and_leave_the_filter")
def sync_rows_that_leave_a_filter_stay() -> None:
    """A row that ceases to match is not deleted at the destination."""
    original = RowFilter.admit

    def admit(self: RowFilter, change: Change) -> Change | None:
        found = original(self, change)
        return None if found is not None and found.op != change.op != SCHEMA else found

    replace(original, admit)


@fault(ROWS, SQLITE, "test_what_triggers_and_foreign_keys_do_to_a_row_is_not_overtaken")
def sync_a_row_that_a_trigger_puts_back_is_deleted() -> None:
    """A row of SQLite that was deleted is logged so, whatever stands in its place by then."""

    def _same(table: Table, row: str) -> str:
        return "0"

    replace(sqlite_triggers._same, _same)


@fault(ROWS, SQLITE, "test_what_triggers_and_foreign_keys_do_to_a_row_is_not_overtaken")
def sync_an_idle_database_has_an_empty_log() -> None:
    """A table that is made while SQLite's log is empty is taken for one of the first snapshot."""

    def _begin_log(self: SqliteSource) -> None:
        pass

    replace(SqliteSource._begin_log, _begin_log)


@fault(ROWS, SQLITE, "test_a_filter_of_no_table_is_refused")
def sync_filters_of_no_table_are_passed_over() -> None:
    """A filter whose table is spelled otherwise lets every row pass."""

    def _check_filters(self: Capture) -> None:
        pass

    replace(Capture._check_filters, _check_filters)


@fault(ROWS, MARIADB, "test_what_foreign_keys_change_is_not_in_the_log_and_arrives")
def sync_what_foreign_keys_change_is_not_looked_for() -> None:
    """Of MariaDB only the changes arrive that its log has."""

    def changed_with(self: Cascades, found: binlog.RowsChange) -> set[tuple[str, str]]:
        return set()

    replace(Cascades.changed_with, changed_with)


@fault(ROWS, MARIADB, "test_a_table_that_is_altered_has_its_shape_before_a_row_changes")
def sync_altered_tables_wait_for_a_row_on_mariadb() -> None:
    """A table of MariaDB has its new shape at the destination when the next row of it changes."""

    def _altered(self: MariadbSource, name: str, is_moved: bool) -> Iterator[Change]:
        return iter(())

    replace(MariadbSource._altered, _altered)


@fault(ROWS, POSTGRES, "test_a_table_that_is_altered_has_its_shape_before_a_row_changes")
def sync_altered_tables_wait_for_a_row_on_postgresql() -> None:
    """A table of PostgreSQL has its new shape at the destination when its next row changes."""

    def _altered(self: PostgresSource, name: str) -> Iterator[Change]:
        return iter(())

    replace(PostgresSource._altered, _altered)


@fault(ROWS, POSTGRES, "test_tables_of_other_schemas_are_kept_apart")
def sync_schemas_of_a_postgresql_are_one() -> None:
    """A PostgreSQL destination looks for each table by its name alone."""

    def _named(self: PostgresDestination, table: Table) -> str:
        return quoted(table.bare)

    replace(PostgresDestination._named, _named)


@fault(ROWS, POSTGRES, "test_programs_that_take_over_the_copy_meet_no_number_that_is_taken")
def sync_sequences_stay_behind() -> None:
    """Sequences of a PostgreSQL destination stay where they were."""

    def advance(self: PostgresSequences) -> None:
        self.forget()

    replace(PostgresSequences.advance, advance)


@fault(ROWS, TWO_WAY, "test_a_row_that_gets_another_key_is_two_changes")
def sync_a_changed_key_is_one_change_for_the_rules() -> None:
    """A row that gets another key is decided about as a whole, by its former key."""

    def _apart(changes: Sequence[Change], table: Table) -> Iterator[Change]:
        return iter(changes)

    replace(conflicts._apart, _apart)


@fault(ROWS, TWO_WAY, "test_postgresql_and_mariadb_both_ways")
def sync_a_note_of_a_conflict_commits_on_mariadb() -> None:
    """The table of conflicts is made within the transaction, which MariaDB commits with it."""

    def _make_conflicts(self: MariadbDestination) -> None:
        Destination._make_conflicts(self)

    replace(MariadbDestination._make_conflicts, _make_conflicts)


@fault(ROWS, SQLITE, "test_rows_that_a_change_within_a_change_replaces_are_told_of")
def sync_inner_changes_forget_what_outer_ones_keep() -> None:
    """What SQLite's REPLACE has made of a row is forgotten when a trigger changes another one."""

    def _changed(table: Table, number: int, which: str) -> str:
        return ""

    replace(sqlite_triggers._changed, _changed)
