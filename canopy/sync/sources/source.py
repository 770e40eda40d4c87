"""The interface that captures the changes of one kind of database."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Protocol

from canopy.sync.changes import INSERT, SCHEMA, SNAPSHOT, Change, Commit, Table
from canopy.sync.errors import SchemaError, SourceLostError
from canopy.sync.values import Row

ASKED: Final = "canopy"
"""The word in place of a table in a MARK that was asked for (`Source.mark`)."""


def is_wanted(name: str, wanted: Sequence[str]) -> bool:
    """Whether a table is one of `wanted`: names, or patterns with `*` and `?`; () for all."""
    return not wanted or name in wanted or any(fnmatchcase(name, one) for one in wanted)


def wanted_of(wanted: Sequence[str], there: Sequence[str]) -> list[str]:
    """Return those of the tables `there` that are wanted. Raises SchemaError for a name, not a
    pattern, that matches no table."""
    for one in wanted:
        if one not in there and not any(char in one for char in "*?["):
            raise SchemaError(f"the source has no table {one} (any more)")
    return [name for name in there if is_wanted(name, wanted)]


def check_there(known: Iterable[str], there: Container[str]) -> None:
    """Raises SchemaError when a table that the stream has is gone from the source."""
    for name in known:
        if name not in there:
            raise SchemaError(
                f"table {name} is gone from the source (dropped, or renamed): create it again, or "
                f"go on without it with a new snapshot (canopy sync run --snapshot)"
            )


def check_source(commit: Commit, own: str) -> None:
    """Raises SourceLostError when the stream has changes of another database."""
    if commit.source != own:
        raise SourceLostError(
            f"the stream has changes of another database (id {commit.source}, not {own})"
        )


class SourceView(NamedTuple):
    """The tables of a source as one transaction sees them."""

    position: int
    tables: list[Table]
    rows: Callable[[Table], Iterator[Row]]
    """All rows of a table, as often as wanted."""


def inserts(table: Table, rows: Iterable[Row]) -> Iterator[Change]:
    """An INSERT for each row of `table`, as a snapshot has them."""
    return (Change(INSERT, table.name, None, row, table) for row in rows)


def snapshot(tables: Iterable[tuple[Table, Iterable[Row]]]) -> Iterator[Change]:
    """All rows of some tables, but for the END that has the position."""
    yield Change(SNAPSHOT)
    for table, rows in tables:
        yield Change(SCHEMA, table.name, schema=table)
        yield from inserts(table, rows)


class Source(Protocol):
    """A database whose changes are captured. One thread uses it."""

    id: str
    """The database's lasting id: a copy that was restored has the same."""

    mark_every: int
    """The distance by which positions may move without a wanted change until the stream is told:
    the source keeps what it has logged until then."""

    def resume(self, commit: Commit, known: Mapping[str, Table]) -> None:
        """Go on behind what the stream has; `known`: its tables, by name. Raises SourceLostError
        when what came next is not known (any more): going on would lose it without a word."""

    def snapshot(self) -> Iterator[Change | Commit]:
        """All rows as one transaction, from SNAPSHOT to END, and its commit; `changes` goes on
        behind it."""

    def changes(self, wait: float) -> Iterator[Change | Commit]:
        """Yield the changes committed since the last call, in whole transactions: behind the
        changes of each comes its commit, also if none of them is wanted. Rows carry their table.
        Nothing if none came within `wait` seconds."""

    def confirm(self, position: int) -> None:
        """Everything up to `position` is in the stream for good, and may be forgotten."""

    def target(self) -> int:
        """A position that `reached` will say of when everything is read that is committed by
        now."""

    def reached(self, target: int) -> bool:
        """Whether everything up to a `target` was read, and no table is being sent again."""

    def mark(self) -> int:
        """Commit a mark in the database, which comes through the log and the stream as changes do,
        and return its position."""

    def view(self) -> AbstractContextManager[SourceView]:
        """All rows at one position, in a transaction of their own."""

    def close(self) -> None:
        """End the connection to the database. Objects made in the database stay
        (`databases.remove_from_source` removes them)."""
