"""Brings the rows of an altered table to the destination.

A new column mostly has one value in all rows that are there: the default that it was added with.
Then the stream has that value once (`FILL`), and behind it only the rows that have another. Which
value it is, is seen from the rows: a catalogue does not tell what a default was when the column was
added. Anything else is sent again, a piece at a time: each piece is a transaction of its own, and
the database's log is read on between two of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

import msgspec

from canopy.sync.changes import FILL, SCHEMA, TRUNCATE, Change, Commit, Table
from canopy.sync.sources.source import inserts
from canopy.sync.values import ABSENT, Row

SAMPLE: Final = 1_000
"""Rows that are looked at for the value of a new column."""
PIECE_ROWS: Final = 5_000
"""Rows of a table that are sent again in one transaction."""

ReadPiece = Callable[[Table, Row | None, int], list[Row] | None]
"""Reads the present rows of a table in the order of their keys: at most as many as the last
argument says, after a key (None: from the first row on). Returns None if the table has another
shape by now, or if the log has to be read first."""


def added(known: Table | None, table: Table) -> int:
    """Return how many columns `table` has after those of `known`, if nothing else has changed; else
    0."""
    if known is None or known.is_partial:
        return 0
    count = len(known.columns)
    if msgspec.structs.replace(table, columns=table.columns[:count]) != known:
        return 0
    return len(table.columns) - count


def filling(table: Table, count: int, sample: Sequence[Row]) -> Row | None:
    """A row with the value that the last `count` columns have in most rows of a sample, and ABSENT
    in the others. None, if there is no such value."""
    if not sample or not count:
        return None
    ((spelled, times),) = Counter(repr(row[-count:]) for row in sample).most_common(1)
    if 2 * times <= len(sample):
        return None
    found = next(row for row in sample if repr(row[-count:]) == spelled)
    return (*[ABSENT] * (len(table.columns) - count), *found[-count:])


def filled(table: Table, count: int, rows: Iterable[Row]) -> Iterator[Change] | None:
    """Yield the changes that give the last `count` columns their values in `rows`, which are all
    rows of the table: one value for all rows, and the rows that have another. None if most rows do
    not share a value."""
    rest = iter(rows)
    sample = list(islice(rest, SAMPLE))
    fill = filling(table, count, sample)
    if fill is None:
        return None if sample else iter(())
    spelled = repr(fill[-count:])  # 1 and 1.0, 1.0 and 1.00 are equal, and not the same
    others = (row for row in chain(sample, rest) if repr(row[-count:]) != spelled)
    return chain(
        (Change(FILL, table.name, None, fill, table),),
        inserts(table, others),
    )


class Resending:
    """The shapes that the stream has, and the tables of which all rows are sent again. Until that
    is done, the stream has a shape of the table that `is_partial`: a process that takes over sends
    them from the first row on."""

    def __init__(self, read: ReadPiece) -> None:
        self.known: dict[str, Table] = {}
        """By name, the tables as the stream has them."""
        self._read = read
        self._after: dict[str, tuple[Table, Row | None]] = {}

    def __bool__(self) -> bool:
        """Whether there is such a table."""
        return bool(self._after)

    def resume(self, known: Mapping[str, Table]) -> None:
        """Go on with the shapes that the stream has, and with the tables of which it has not all
        rows."""
        self.known.update(known)
        for table in known.values():
            if table.is_partial:
                self.begin(table)

    def learn(self, table: Table) -> None:
        """Note that the stream gets this shape, and that its rows need not be sent again."""
        self.known[table.name] = table
        self._after.pop(table.name, None)

    def is_under_way(self, table: Table) -> bool:
        """Whether the rows of this shape are being sent."""
        return table.name in self._after and self._after[table.name][0] == table

    def again(self, name: str) -> None:
        """Send the rows of a table from the first one on, if they are being sent."""
        if name in self._after:
            self._after[name] = (self._after[name][0], None)

    def barrier(self, table: Table, changes: Iterable[Change] | None) -> Iterator[Change]:
        """The new shape of a table, and the changes that give its rows their values; None: its
        rows follow in pieces."""
        if changes is None:
            told = self.known[table.name] = self.begin(table)
            yield Change(SCHEMA, table.name, schema=told)
        else:
            self.learn(table)
            yield Change(SCHEMA, table.name, schema=table)
            yield from changes

    def replaced(self, table: Table, rows: Iterable[Row]) -> Iterator[Change]:
        """Yield the changes for a new table, or for one that replaces another of its name: its
        shape, the removal of the former rows, and its present rows."""
        is_other = table.name in self.known
        self.learn(table)
        yield Change(SCHEMA, table.name, schema=table)
        if is_other:
            yield Change(TRUNCATE, table.name, schema=table)
        yield from inserts(table, rows)

    def begin(self, table: Table) -> Table:
        """Send all rows of a table. Returns the shape that the stream is told."""
        whole = msgspec.structs.replace(table, is_partial=False)
        self._after[table.name] = (whole, None)
        return msgspec.structs.replace(table, is_partial=True)

    def piece(self, commit: Commit) -> Iterator[Change | Commit]:
        """Yield the next piece of a table as one transaction, the last with the whole shape;
        nothing if there is none, or not yet: a table that was altered once more begins again when
        that is read in the log. The changes that follow in the log lead to the same rows."""
        for name in list(self._after):
            table, after = self._after[name]
            rows = self._read(table, after, PIECE_ROWS)
            if rows is None:
                continue
            del self._after[name]
            if rows:  # the other tables come first
                self._after[name] = (table, table.key_of(rows[-1]))
                yield from inserts(table, rows)
            else:
                self.known[name] = table
                yield Change(SCHEMA, name, schema=table)
            yield commit
            return
