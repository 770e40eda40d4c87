"""Whether a table that the sync has not made keeps values as they are (no IO).

A column of another type than the sync would have given it may bend what it is handed without a
word: SQLite makes 7 of the text '007' in a column of numbers, a numeric(9, 2) rounds, a collation
takes two keys for one. So of such tables the rows are read back in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from canopy.sync.changes import Table
from canopy.sync.dialects import Dialect
from canopy.sync.errors import UnfitError
from canopy.sync.values import ABSENT, Row, Value


class KeptValues:
    """Looks at the rows of one table after they were written."""

    def __init__(self, table: Table, dialect: Dialect, doubtful: Mapping[str, str]) -> None:
        """`dialect`: the dialect of the destination. `doubtful`: by name, the columns that differ
        from those that the sync would have made, each with its type."""
        self._table = table
        self._doubtful = dict(doubtful)
        self._source = dialect.comparables(table)
        self._kept = dialect.comparables(table, is_kept=True)
        self.has_keys = any(name in self._doubtful for name in table.keys)

    def check_met(self, found: Mapping[Row, Row]) -> None:
        """Raises UnfitError where the destination has found another key than it was asked for.
        `found`: by key, the row that it has found."""
        for key, row in found.items():
            for place, asked in zip(self._table.key, key, strict=True):
                if not self._is_same(place, asked, row[place]):
                    raise UnfitError(
                        f"{self._where(place, key)}: the destination takes it for the key "
                        f"{row[place]!r}; {self._advice(place)}"
                    )

    def check_kept(self, rows: Iterable[tuple[Row, Row]], found: Mapping[Row, Row]) -> None:
        """Raise UnfitError if a value differs at the destination. `rows`: keys, and rows that were
        written, except their ABSENT values."""
        for key, row in rows:
            kept = found.get(key)
            if kept is None:
                raise UnfitError(
                    f"{self._table.name}, key {key}: the destination does not find the row by this "
                    f"key; {self._advice(self._table.key[0])}"
                )
            for place, (value, there) in enumerate(zip(row, kept, strict=True)):
                if value is not ABSENT and not self._is_same(place, value, there):
                    raise UnfitError(
                        f"{self._where(place, key)}: {_shown(value)} would become {_shown(there)}; "
                        f"{self._advice(place)}"
                    )

    def _is_same(self, place: int, value: Value, there: Value) -> bool:
        if value is None or there is None:
            return value is there
        try:
            ours, theirs = self._source[place](value), self._kept[place](there)
        except UnfitError:
            return False
        if type(ours) is float:
            return repr(ours) == repr(theirs)  # negative zero is another
        return type(ours) is type(theirs) and bool(ours == theirs)

    def _where(self, place: int, key: Row) -> str:
        return f"{self._table.name}.{self._table.names[place]}, key {key}"

    def _advice(self, place: int) -> str:
        name = self._table.names[place]
        what = self._doubtful.get(name)
        said = f"its column {name} is {what}" if what else "one of its triggers may have done so"
        return f"{said}: give it the type that the source has, or let the sync make the table again"


def _shown(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
