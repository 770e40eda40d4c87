"""One object for each kind of database: how it declares columns, and what they keep (no IO).

Where source and destination are of one kind, columns are declared with the source's own words, and
values are handed on as they are. Otherwise a column's type is the narrowest that holds every value
of its meaning, and a value that it cannot hold is refused. Where a table of the destination was
there before and has other types, `destinations/kept_values.py` looks at what became of the values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from canopy.sync import conversions
from canopy.sync.changes import Column, Table
from canopy.sync.conversions import ColumnFit, Fit
from canopy.sync.values import NativeText

MOMENTS: Final = frozenset(("date", "timestamp", "instant"))
"""Meanings of columns that have days 0 in MariaDB."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The SQL and the types of one kind of database."""

    name: str
    """The dialect's name, as `Table.dialect` has it."""
    types: Mapping[str, str]
    """By its meaning, the type of a column."""
    text: str
    """The type of a column of any other meaning."""
    fits: Mapping[str, Fit]
    """By the meaning of its column, what makes a value of another kind of database fit."""
    fit: Fit
    """The same of any other meaning."""
    own: Fit = conversions.kept
    """The conversion of values for a database of the same kind."""
    literals_refused: frozenset[str] = frozenset()
    """Meanings of columns that keep nothing for which Python has no type."""
    has_days_0: bool = False
    """Whether it keeps MariaDB's dates with a day, month or year of 0."""
    mark: str = "?"
    """The driver's spelling of a parameter in a statement."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Other words for types of a sync's own tables (`canopy.sinks.database.Column`)."""
    begin_view: str = "BEGIN"
    """The statement that begins a transaction for reading, which sees one moment."""
    overriding: str = ""
    """The words in INSERT that allow it to write to a column that the database numbers itself."""
    spelled_keys: frozenset[str] | None = frozenset()
    """Meanings of columns of a key that take values for the same which are spelled otherwise (0.0
    and -0.0), so that an upsert has to write the key as well; None: all."""

    def type_of(self, table: Table, column: Column) -> str:
        """Return the declaration of a column of a source's table."""
        if self.name == table.dialect and column.declared:
            return column.declared
        return self.types.get(column.type, self.text)

    def fittings(self, table: Table, *, is_kept: bool = False) -> list[ColumnFit]:
        """Return the conversions of each column of a source's table. `is_kept`: for values that
        this database has stored."""
        return [self._fitting(table, column, is_kept) for column in table.columns]

    def comparables(self, table: Table, *, is_kept: bool = False) -> list[Fit]:
        """For each column, what makes of a value of the source, or with `is_kept` of this database,
        one that is equal where the databases' values are: between two databases of one kind where
        type and bytes are the same, else where this one keeps the source's value. They raise
        UnfitError."""
        if table.dialect == self.name:
            return [conversions.exact] * len(table.columns)
        return [
            each.number if column.type == "decimal" else each.comparable
            for column, each in zip(
                table.columns, self.fittings(table, is_kept=is_kept), strict=True
            )
        ]

    def _fitting(self, table: Table, column: Column, is_kept: bool) -> ColumnFit:
        if self.name == table.dialect:
            return ColumnFit(self.own, {})
        fit, refused = self.fits.get(column.type, self.fit), dict[type, str]()
        if is_kept:
            return ColumnFit(fit, refused)
        if table.dialect == "sqlite" and column.type == "decimal" and self is not SQLITE:
            refused[str] = "number"  # a text that looks like one, beside numbers
        is_day_0 = table.dialect == "mariadb" and column.type in MOMENTS and not self.has_days_0
        if is_day_0 or column.type in self.literals_refused:
            refused[NativeText] = f"{column.type} that this database has"
        return ColumnFit(fit, refused)


class _Sqlite(Dialect):
    def type_of(self, table: Table, column: Column) -> str:
        """Return the type declared by another SQLite, which leaves values unchanged in a column
        without a type."""
        if table.dialect == self.name:
            return column.declared
        return super().type_of(table, column)


TYPED: Final[Mapping[str, Fit]] = {
    "int": conversions.to_int,
    "float": conversions.to_float,
    "bool": conversions.to_bool,
    "bytes": conversions.to_bytes,
    "date": conversions.to_date,
    "time": conversions.to_time,
    "timestamp": conversions.to_timestamp,
}
"""For databases whose columns keep values of their own type only."""

SQLITE: Final = _Sqlite(
    name="sqlite",
    types={"int": "INTEGER", "float": "REAL", "bool": "BOOLEAN", "bytes": "BLOB"},
    text="TEXT",  # for decimals, too: its DECIMAL would make floats of them
    fits={},
    fit=conversions.to_sqlite,
    has_days_0=True,
    spelled_keys=None,  # 1 and 1.0
)

POSTGRESQL: Final = Dialect(
    name="postgresql",
    types={
        "int": "bigint",
        "float": "double precision",
        "decimal": "numeric",
        "bool": "boolean",
        "bytes": "bytea",
        "date": "date",
        "time": "time",
        "timestamp": "timestamp",
        "instant": "timestamptz",
        "json": "json",  # as it is written; jsonb orders the keys
        "uuid": "uuid",
    },
    text="text",
    fits={
        **TYPED,
        "decimal": conversions.to_decimal,
        "instant": conversions.to_instant,
        "json": conversions.to_checked_json,
    },
    fit=conversions.to_text,
    own=conversions.same_words,
    mark="%s",
    begin_view="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    overriding=" OVERRIDING SYSTEM VALUE",
    spelled_keys=frozenset(("float",)),
)

DUCKDB: Final = Dialect(
    name="duckdb",
    types={
        "int": "BIGINT",
        "float": "DOUBLE",
        "bool": "BOOLEAN",
        "bytes": "BLOB",
        "date": "DATE",
        "time": "TIME",
        "timestamp": "TIMESTAMP",
        "uuid": "UUID",
    },
    text="VARCHAR",  # for decimals, too: its own have at most 38 digits
    fits={**TYPED, "decimal": conversions.decimal_words, "json": conversions.to_json},
    fit=conversions.to_text,
)

FINITE: Final[Mapping[str, Fit]] = {
    **TYPED,
    "float": conversions.to_finite,
    "decimal": conversions.decimal_words,
    "instant": conversions.in_utc,
}
"""For databases that have no infinity, and keep moments in UTC."""

EXACT: Final = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
"""Character set and collation by which texts that differ in case, accents or blanks at the end are
different."""
KEY_BYTES: Final = 3_000
"""Bytes of all columns of a key together, in MariaDB."""
_LONG: Final = re.compile(r"(tiny|medium|long)?(text|blob)\b")
"""Types of which MariaDB has a prefix in a key, on which the key of a copy does not rest."""


class _Mariadb(Dialect):
    def type_of(self, table: Table, column: Column) -> str:
        """In a key texts and bytes have a most length."""
        if column.name not in table.keys:
            return super().type_of(table, column)
        if table.dialect == self.name and column.declared and not _LONG.match(column.declared):
            return column.declared
        room = KEY_BYTES // len(table.key)
        in_key = {self.text: f"varchar({room // 4}) {EXACT}", "longblob": f"varbinary({room})"}
        found = self.types.get(column.type, self.text)
        return in_key.get(found, found)


MARIADB: Final = _Mariadb(
    name="mariadb",
    types={
        "int": "bigint",
        "float": "double",
        "bool": "boolean",
        "bytes": "longblob",
        "date": "date",
        "time": "time(6)",
        "timestamp": "datetime(6)",
        "instant": "datetime(6)",  # in UTC: its own type ends in 2038
    },
    text=f"longtext {EXACT}",  # for decimals, too: its own have at most 65 digits
    fits={**FINITE, "json": conversions.to_json},
    fit=conversions.to_words,
    literals_refused=MOMENTS,
    mark="%s",
    kinds={"TEXT": "longtext"},
    begin_view="START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)

GENERAL: Final = Dialect(
    name="sqlalchemy",
    types={},  # its columns are declared by SQLAlchemy (destinations/alchemy.py)
    text="",
    fits=FINITE,
    fit=conversions.to_text,
    literals_refused=MOMENTS | {"time"},
)
"""Any database that SQLAlchemy knows."""
