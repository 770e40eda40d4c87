"""The statements for one table of a destination, and how its values fit (no IO)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from canopy.sinks.database import quoted
from canopy.sync.changes import Table
from canopy.sync.conversions import ColumnFit
from canopy.sync.dialects import Dialect
from canopy.sync.errors import UnfitError
from canopy.sync.values import ABSENT, Row

FITTED: Final = 1_000
"""Rows whose values are made fit together, column by column."""


class Statements:
    """The SQL by which rows of one table are inserted, upserted, updated and deleted."""

    def __init__(self, table: Table, dialect: Dialect, name: str) -> None:
        """`name`: the table's for SQL."""
        self.table = table
        mark = self._mark = dialect.mark
        # psycopg and pymysql spell a percent sign so where there are parameters.
        self._percent = "%%" if mark == "%s" else "%"
        self.name = name.replace("%", self._percent)
        self.columns = ", ".join(map(self.quoted, table.names))
        self.key = " AND ".join(f"{self.quoted(key)} = {mark}" for key in table.keys)
        marks = ", ".join([mark] * len(table.columns))
        into = f"INSERT INTO {self.name} ({self.columns}){dialect.overriding}"
        self.insert = f"{into} VALUES ({marks})"
        self.conflict = self._on_conflict(dialect)
        self.upsert = f"{self.insert} {self.conflict}"
        self.delete = f"DELETE FROM {self.name} WHERE {self.key}"
        self._fittings = dialect.fittings(table)

    def quoted(self, name: str) -> str:
        """A name in a statement that has parameters."""
        return quoted(name).replace("%", self._percent)

    def update(self, row: Row) -> str:
        """Return the statement that sets the values of `row` that are not ABSENT."""
        sets = [
            f"{self.quoted(column.name)} = {self._mark}"
            for column, value in zip(self.table.columns, row, strict=True)
            if value is not ABSENT
        ]
        return f"UPDATE {self.name} SET {', '.join(sets)} WHERE {self.key}"

    def fill(self, place: int, only_null: bool, kept: Iterable[str]) -> str:
        """The statement that sets one column of all rows, or of those that have NULL there;
        `kept`: columns that would change with it otherwise."""
        name = self.quoted(self.table.names[place])
        same = [f"{self.quoted(each)} = {self.quoted(each)}" for each in kept]
        where = f" WHERE {name} IS NULL" if only_null else ""
        return f"UPDATE {self.name} SET {', '.join([f'{name} = {self._mark}', *same])}{where}"

    def fitted(self, rows: Iterable[Row]) -> Iterator[Sequence[Any]]:
        """The rows as the driver is handed them. Raises UnfitError."""
        for columns in self.fitted_columns(rows):
            yield from zip(*columns, strict=True)

    def fitted_columns(self, rows: Iterable[Row]) -> Iterator[list[Sequence[Any]]]:
        """The columns of some rows after the other, as the driver is handed them. Raises
        UnfitError."""
        rest = iter(rows)
        while some := list(islice(rest, FITTED)):
            try:
                yield _many(self._fittings, some)
            except UnfitError as error:
                raise self._named(error, some) from None

    def fitted_keys(self, keys: Iterable[Row]) -> Iterator[Sequence[Any]]:
        """The keys as the driver is handed them."""
        for columns in self.fitted_key_columns(keys):
            yield from zip(*columns, strict=True)

    def fitted_key_columns(self, keys: Iterable[Row]) -> Iterator[list[Sequence[Any]]]:
        """The columns of some keys after the other, as the driver is handed them."""
        rest = iter(keys)
        fittings = [self._fittings[place] for place in self.table.key]
        while some := list(islice(rest, FITTED)):
            yield _many(fittings, some)

    def _named(self, error: UnfitError, rows: Sequence[Row]) -> UnfitError:
        for row in rows:
            for column, fitting, value in zip(self.table.columns, self._fittings, row, strict=True):
                try:
                    fitting.one(value)
                except UnfitError as found:
                    where = f"{self.table.name}.{column.name}, key {self.table.key_of(row)}"
                    return UnfitError(f"{where}: {found}")
        return error

    def _on_conflict(self, dialect: Dialect) -> str:
        keys = ", ".join(map(self.quoted, self.table.keys))
        spelled = dialect.spelled_keys
        sets = [
            f"{self.quoted(column.name)} = excluded.{self.quoted(column.name)}"
            for place, column in enumerate(self.table.columns)
            if place not in self.table.key or spelled is None or column.type in spelled
        ]
        done = f"UPDATE SET {', '.join(sets)}" if sets else "NOTHING"
        return f"ON CONFLICT ({keys}) DO {done}"


def _many(fittings: Sequence[ColumnFit], rows: Sequence[Row]) -> list[Sequence[Any]]:
    columns = zip(*rows, strict=True)
    return [fitting.many(values) for fitting, values in zip(fittings, columns, strict=True)]
