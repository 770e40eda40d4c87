"""What a database can do for a sync that applies changes to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from canopy.sync.changes import Commit, Table
from canopy.sync.conflicts import Conflict
from canopy.sync.folding import Step
from canopy.sync.values import Row


class Progress(msgspec.Struct):
    """How far a sync has come, as its destination has it: the offset in the table
    `canopy_positions`, as of any consumer (canopy/sinks), all of it in `canopy_syncs`."""

    stream: str = ""
    """The stream's founding id; "": nothing was applied yet."""
    offset: int = 0
    """Of the stream, behind everything that was applied."""
    losses: int = 0
    """How many times the stream's log had lost rows at its end when that was told."""
    commit: Commit | None = None
    """Of the source, the newest that was applied."""
    tables: dict[str, Table] = msgspec.field(default_factory=dict)
    """The shapes of the tables, as the stream has said them so far."""
    name: str = ""
    """What the stream is called."""
    applied: float = 0.0
    """When, seconds since 1970 by the clock of the side that applies."""


class Destination(Protocol):
    """A database to which a sync is applied. One thread uses it."""

    kind: str
    """sqlite, postgresql, duckdb, or the name of a dialect of SQLAlchemy."""

    def progress(self) -> Progress:
        """How far the sync has come."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self, progress: Progress) -> None:
        """Commit it together with the position. Raises FencedError, and takes it back, when the
        position is not any more what `progress` or the last commit here has said."""

    def rollback(self) -> None:
        """Take the transaction back."""

    def take_up(self, table: Table) -> None:
        """Rows of this shape follow: make the table, or see that it has the columns and the key.
        Raises SchemaError when a person has to alter it."""

    def clear(self, table: Table) -> None:
        """Remove all rows."""

    def load(self, table: Table, rows: Iterable[Row]) -> None:
        """Insert rows of which there are none."""

    def apply(self, step: Step) -> None:
        """Carry out a step; its rows are values of the source."""

    def fill(self, table: Table, row: Row, only_null: bool) -> None:
        """Give all rows the values of `row`, a row of the source, but where that is ABSENT;
        `only_null`: those rows that have NULL there."""

    def fetch(self, table: Table, keys: Sequence[Row]) -> dict[Row, Row]:
        """The rows with these keys, as this database keeps them."""

    def note(self, conflicts: Sequence[Conflict]) -> None:
        """Keep conflicts in the table `canopy_conflicts`."""

    def scan(self, table: Table) -> Iterator[Row]:
        """All rows, as this database keeps them."""

    def remove(self) -> None:
        """Forget the sync's position."""

    def close(self) -> None:
        """End the connection; a transaction that is open is taken back."""
