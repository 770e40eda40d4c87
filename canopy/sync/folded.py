"""Many changes of one table as few statements: the last state of each row (no IO).

What is folded is applied in one transaction of the destination, so nobody sees the states between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from canopy.sync.changes import DELETE, TRUNCATE, UPDATE, Change, Table, merged
from canopy.sync.values import ABSENT, Row

SPELLED: Final = frozenset(("decimal", "float"))
"""Meanings of key columns whose values Python does not compare as databases do."""
NAN: Final = float("nan")


class Step(msgspec.Struct):
    """The operations on one table in a transaction, in the order of the fields: clear, deletes,
    upserts, updates."""

    table: Table
    clear: bool = False
    """All rows go first."""
    deletes: list[Row] = msgspec.field(default_factory=list)
    """Keys of the rows that go, before others come."""
    upserts: list[Row] = msgspec.field(default_factory=list)
    """Whole rows that are there in the end."""
    updates: list[tuple[Row, Row]] = msgspec.field(default_factory=list)
    """Key, and a row of which ABSENT values stay as they are; carried out last, in order."""


class Folded:
    """The changes of one table so far."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._rows: dict[Row, Row | None] = {}  # by key: the row at the end, None: none
        self._partial: dict[Row, Row] = {}  # by key: what is known of a row that is there already
        self._clear = False
        kinds = {table.columns[place].type for place in table.key}
        self._is_spelled = bool(kinds & SPELLED)
        self._first = table.key[0] if len(table.key) == 1 and not self._is_spelled else -1

    def add(self, change: Change) -> bool:
        """Take a change up; False if it has to wait until those before it are applied."""
        if change.op == TRUNCATE:
            self._rows, self._partial, self._clear = {}, {}, True
            return True
        before, after = change.before, change.after
        if change.op == DELETE:
            assert before is not None
            self._set(self._key(before), None)
            return True
        assert after is not None
        key = self._key(after)
        if change.op == UPDATE and before is not None and (old := self._key(before)) != key:
            if not _is_partial(after):
                self._set(old, None)
            elif (known := self._rows.get(old)) is not None:
                after = merged(known, after)
                self._set(old, None)
            else:
                return False
        if _is_partial(after):
            return self._complete(key, before, after)
        self._set(key, after)
        return True

    def step(self) -> Step:
        """The table's changes so far as one step, in which each row is written once."""
        gone = [key for key, row in self._rows.items() if row is None and not self._clear]
        upserts = [row for row in self._rows.values() if row is not None]
        if not self._is_spelled:
            return Step(self._table, self._clear, gone, upserts, list(self._partial.items()))
        deletes = [tuple(value for value, _ in key) for key in gone]
        updates = [(tuple(v for v, _ in key), row) for key, row in self._partial.items()]
        return Step(self._table, self._clear, deletes, upserts, updates)

    def _set(self, key: Row, row: Row | None) -> None:
        if self._partial:
            self._partial.pop(key, None)
        if key in self._rows:
            del self._rows[key]  # behind the others: unique values may have moved to it
        self._rows[key] = row

    def _complete(self, key: Row, before: Row | None, after: Row) -> bool:
        if before is not None and not any(
            new is ABSENT and old is ABSENT for old, new in zip(before, after, strict=True)
        ):
            self._set(key, merged(before, after))
        elif (known := self._rows.get(key)) is not None:
            self._set(key, merged(known, after))
        else:
            known = self._partial.get(key)
            self._partial[key] = after if known is None else merged(known, after)
        return True

    def _key(self, row: Row) -> Row:
        """The key; with its digits, if it has decimals: Python takes 1.0 for 1.00, and a
        destination that keeps them as text does not. One NaN is as another, which Python
        denies."""
        if self._first >= 0:
            return (row[self._first],)
        key = self._table.key_of(row)
        if not self._is_spelled:
            return key
        return tuple([(NAN if value != value else value, str(value)) for value in key])


def _is_partial(row: Row) -> bool:
    return ABSENT in row  # no other value is equal to it


def fold(changes: Iterable[Change], tables: dict[str, Table]) -> Iterator[Step]:
    """The steps for changes of rows, in order; a table's are together as far as that is possible.
    `tables`: by name, the shapes of the rows."""
    open_: dict[str, Folded] = {}
    for change in changes:
        folded = open_.get(change.table)
        if folded is None:
            folded = open_[change.table] = Folded(tables[change.table])
        if not folded.add(change):
            table = tables[change.table]
            yield folded.step()
            assert change.before is not None
            assert change.after is not None
            # The row has a new key, and values that only the destination knows.
            yield Step(table, updates=[(table.key_of(change.before), change.after)])
            del open_[change.table]
    for folded in open_.values():
        yield folded.step()
