"""How a destination keeps values of a source: types of columns, and the value that is handed to it.

Where both are of one kind, columns are declared with the source's own words. Otherwise the type is
the narrowest that holds every value of the column; a value that it cannot hold is refused
(UnfitError) and never bent: text in a column of integers, which SQLite allows, or the character 0
in a text, which PostgreSQL has no place for. Where a table of the destination was there before and
has other types, `destinations/keeping.py` looks at what has become of the values.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Final

from canopy.sync.changes import Column, Table
from canopy.sync.errors import UnfitError
from canopy.sync.values import ABSENT, Literal, Value

Fit = Callable[[Value], Value]
WholeFit = Callable[[Sequence[Value]], Sequence[Value]]

SQLITE_TYPES: Final = {
    "int": "INTEGER",
    "float": "REAL",
    "bool": "BOOLEAN",
    "bytes": "BLOB",
}
"""TEXT for any other: SQLite has no exact type for decimals, and DECIMAL would make them floats."""

POSTGRES_TYPES: Final = {
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
}

DUCKDB_TYPES: Final = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "bytes": "BLOB",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "uuid": "UUID",
}
"""VARCHAR for any other: its decimals have at most 38 digits."""


MARIADB_TYPES: Final = {
    "int": "bigint",
    "float": "double",
    "bool": "boolean",
    "bytes": "longblob",
    "date": "date",
    "time": "time(6)",
    "timestamp": "datetime(6)",
    "instant": "datetime(6)",  # in UTC: its own type ends in 2038
}
"""A text for any other: its decimals have at most 65 digits."""
EXACT: Final = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
"""Such that texts that differ in case, accents or blanks at the end are different."""
KEY_BYTES: Final = 3_000
"""Of all columns of a key together, in MariaDB."""


_LONG: Final = re.compile(r"(tiny|medium|long)?(text|blob)\b")
"""Types of which MariaDB has a prefix in a key, on which the key of a copy does not rest."""


def mariadb_type(table: Table, column: Column) -> str:
    """How MariaDB declares a column of a table; in a key texts have a most length."""
    is_long = column.name in table.keys and _LONG.match(column.declared)
    if table.dialect == "mariadb" and column.declared and not is_long:
        return column.declared
    found = MARIADB_TYPES.get(column.type)
    if found not in (None, "longblob"):
        return str(found)
    if column.name not in table.keys:
        return found or f"longtext {EXACT}"
    room = KEY_BYTES // len(table.key)
    return f"varbinary({room})" if found else f"varchar({room // 4}) {EXACT}"


def column_type(column: Column, source: str, destination: str) -> str:
    """How a destination of this kind declares the column."""
    if destination == source and (column.declared or source == "sqlite"):
        return column.declared  # SQLite leaves values as they are in a column without a type
    if destination == "sqlite":
        return SQLITE_TYPES.get(column.type, "TEXT")
    if destination == "duckdb":
        return DUCKDB_TYPES.get(column.type, "VARCHAR")
    return POSTGRES_TYPES.get(column.type, "text")


def fits(table: Table, destination: str) -> list[Fit]:
    """For each column of `table`, what makes of its values those that the destination is handed.
    They raise UnfitError."""
    return [
        _fit(table, column, _of_source(table, column, destination), destination)
        for column in table.columns
    ]


def _of_source(table: Table, column: Column, destination: str) -> Fit:
    """As `_base`, of values of the source: a text that looks like a number is none where SQLite has
    kept it beside numbers."""
    base = _base(table, column, destination)
    if table.dialect != "sqlite" or destination == "sqlite" or column.type != "decimal":
        return base

    def checked(value: Value) -> Value:
        if type(value) is str:
            raise _unfit(value, "number")
        return base(value)

    return checked


def whole_fits(table: Table, destination: str) -> list[WholeFit]:
    """As `fits`, for many values of a column at once: where all are of types that the destination
    takes as they are, they are handed on together."""
    found: list[WholeFit] = []
    for column in table.columns:
        base = _base(table, column, destination)
        fit = _fit(table, column, _of_source(table, column, destination), destination)
        found.append(_whole(fit, base))
    return found


def _base(table: Table, column: Column, destination: str) -> Fit:
    """What is done to values that are not NULL, but for what some databases refuse."""
    if destination == "sqlite":
        return _kept if table.dialect == "sqlite" else to_sqlite
    if destination == "mariadb" and table.dialect == "mariadb":
        return _kept
    if destination == "postgresql" and table.dialect == "postgresql":
        return _same_words
    return BASES.get(destination, POSTGRES_FITS).get(
        column.type, to_words if destination == "mariadb" else to_text
    )


def _fit(table: Table, column: Column, base: Fit, destination: str) -> Fit:
    if destination == "sqlite":
        return base
    if destination in ("duckdb", "postgresql"):
        return _typed(_dated(table, column, base))
    return _typed(_worded(base) if destination == "sqlalchemy" else base)


def _whole(fit: Fit, base: Fit) -> WholeFit:
    passing = PASSING.get(base, frozenset())

    def fitted(values: Sequence[Value]) -> Sequence[Value]:
        kinds = set(map(type, values))
        kinds.discard(type(None))
        if (
            kinds <= passing
            and (int not in kinds or base is _same_words or _are_small(values))
            and (str not in kinds or base in (to_sqlite, to_words) or not _have_zeros(values))
        ):
            return values
        return list(map(fit, values))

    return fitted if base is not _kept else lambda values: values


def _are_small(values: Sequence[Value]) -> bool:
    """Whether they are integers of 64 bits, or NULL."""
    try:
        array("q", filter(_is_value, values))
    except (OverflowError, TypeError):
        return False
    return True


def _is_value(value: Value) -> bool:
    return value is not None


def _have_zeros(values: Sequence[Value]) -> bool:
    """Whether texts, or NULLs, have the character 0 somewhere, or others are among them."""
    try:
        return "\0" in "".join(filter(None, values))
    except TypeError:
        return True


def _worded(fit: Fit) -> Fit:
    """`fit`, but what only its own database has words for is refused where it is no text."""

    def checked(value: Value) -> Value:
        found = fit(value)
        if type(found) is Literal:
            raise UnfitError(f"{found.text} is no value that this database has")
        return found

    return checked


def _dated(table: Table, column: Column, fit: Fit) -> Fit:
    """`fit`, but days 0 of MariaDB are refused."""
    if table.dialect != "mariadb" or column.type not in ("date", "timestamp", "instant"):
        return fit

    def checked(value: Value) -> Value:
        if type(value) is Literal:
            raise UnfitError(f"{value.text} is no date that this database has")
        return fit(value)

    return checked


def _typed(fit: Fit) -> Fit:
    """`fit` for all but what passes every destination."""
    return lambda value: value if value is None or value is ABSENT else fit(value)


def _kept(value: Value) -> Value:
    return value


def to_sqlite(value: Value) -> Value:
    """What SQLite stores for a value of another database."""
    kind = type(value)
    if kind is int:
        return value if -(2**63) <= value < 2**63 else str(value)
    if kind is float:
        return "NaN" if math.isnan(value) else value  # SQLite makes NULL of it
    if kind is bool:
        return int(value)
    if value is None or value is ABSENT or kind in (str, bytes):
        return value
    return words(value)


def words(value: Value) -> str:
    """A value as ISO 8601 or as its database writes it."""
    if type(value) is datetime:
        return value.isoformat(" ")
    if type(value) in (date, time):
        text: str = value.isoformat()
        return text
    if type(value) is Literal:
        return value.text
    if type(value) is Decimal:
        return format(value, "f")  # with its digits, not as 1E-8
    if type(value) is bytes:
        return "\\x" + value.hex()
    if type(value) is bool:
        return "true" if value else "false"
    return str(value)


def _unfit(value: Value, what: str) -> UnfitError:
    shown = repr(value)
    return UnfitError(f"{shown[:60]}{'…' if len(shown) > 60 else ''} is no {what}")


def to_int(value: Value) -> Value:
    """A 64-bit integer."""
    if type(value) in (int, bool) and -(2**63) <= value < 2**63:
        return int(value)
    raise _unfit(value, "64-bit integer")


def to_float(value: Value) -> Value:
    """A float, for a number that is one exactly."""
    if type(value) is float:
        return value
    if type(value) is int and abs(value) <= 2**53:
        return float(value)
    raise _unfit(value, "float")


def to_bool(value: Value) -> Value:
    """True or False, which SQLite writes as 1 and 0."""
    if type(value) in (int, bool) and value in (0, 1):
        return bool(value)
    raise _unfit(value, "boolean (0 or 1)")


_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity")
"""What `Decimal` reads, without the underscores, blanks and digits of other scripts that it
allows."""


def to_decimal(value: Value) -> Value:
    """A number with all of its digits."""
    if type(value) in (Decimal, int):
        return Decimal(value)
    if type(value) is float:
        return Decimal(repr(value))
    if type(value) is str and _NUMBER.fullmatch(value):
        return Decimal(value)
    raise _unfit(value, "number")


def to_text(value: Value) -> Value:
    """A text without the character 0."""
    if type(value) is Literal:
        return value.text
    if type(value) is not str:
        if type(value) in (Decimal, date, time, datetime):
            return words(value)
        raise _unfit(value, "text")
    if "\0" in value:
        raise _unfit(value, "text that this database can keep: it has the character 0")
    return value


def to_json(value: Value) -> Value:
    """The text of JSON; a number that SQLite has made of one."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return to_text(value)


def to_checked_json(value: Value) -> Value:
    """As `to_json`, where the destination takes only what is JSON."""
    found = to_json(value)
    try:
        json.loads(found, parse_constant=_no_constant, parse_float=str, parse_int=str)
    except RecursionError:
        pass  # too deep to be looked at here
    except ValueError:
        raise _unfit(value, "JSON") from None
    return found


def _no_constant(name: str) -> Value:
    raise ValueError(f"{name} is no JSON")


def to_bytes(value: Value) -> Value:
    """Bytes."""
    if type(value) is bytes:
        return value
    raise _unfit(value, "string of bytes")


_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


def to_date(value: Value) -> Value:
    """A day, also from its ISO text."""
    if type(value) in (date, Literal):
        return value
    if type(value) is str and _DAY.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise _unfit(value, "date")


_TOO_FINE: Final = re.compile(r"[.,]\d{7}")
"""More digits than microseconds have, which Python passes over."""


def to_time(value: Value) -> Value:
    """A time of the day without a zone, also from its ISO text."""
    if type(value) in (time, Literal):
        return value
    if type(value) is str and ":" in value and not _TOO_FINE.search(value):
        try:
            found = time.fromisoformat(value)
        except ValueError:
            found = None
        if found is not None and found.tzinfo is None:
            return found
    raise _unfit(value, "time")


def to_timestamp(value: Value) -> Value:
    """A date and time without a zone, also from its ISO text."""
    if type(value) is Literal:
        return value
    if type(value) is datetime and value.tzinfo is None:
        return value
    if type(value) is str and _DAY.match(value) and not _TOO_FINE.search(value):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is not None and found.tzinfo is None:
            return found
    raise _unfit(value, "timestamp without a zone")


def to_instant(value: Value) -> Value:
    """A date and time with a zone."""
    if type(value) is Literal or (type(value) is datetime and value.tzinfo is not None):
        return value
    if type(value) is str and _DAY.match(value) and not _TOO_FINE.search(value):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is not None and found.tzinfo is not None:
            return found
    raise _unfit(value, "timestamp with a zone")


def _same_words(value: Value) -> Value:
    if type(value) is str and "\0" in value:
        raise _unfit(value, "text that PostgreSQL can keep: it has the character 0")
    return value


POSTGRES_FITS: Final[dict[str, Fit]] = {
    "int": to_int,
    "float": to_float,
    "decimal": to_decimal,
    "bool": to_bool,
    "text": to_text,
    "bytes": to_bytes,
    "date": to_date,
    "time": to_time,
    "timestamp": to_timestamp,
    "instant": to_instant,
    "json": to_checked_json,
    "uuid": to_text,
}

DUCKDB_FITS: Final[dict[str, Fit]] = {
    **{name: POSTGRES_FITS[name] for name in ("int", "float", "bool", "bytes", "date", "time")},
    "timestamp": to_timestamp,
    "decimal": lambda value: words(to_decimal(value)),
    "json": to_json,
}


def to_words(value: Value) -> Value:
    """A text with any characters."""
    return value if type(value) is str else to_text(value)


def _finite(value: Value) -> Value:
    found = to_float(value)
    if math.isfinite(found):
        return found
    raise _unfit(value, "float that MariaDB has")


def _plain_date(fit: Fit) -> Fit:
    def checked(value: Value) -> Value:
        found = fit(value)
        if type(found) is Literal:
            raise UnfitError(f"{found.text} is no date that MariaDB has")
        return found

    return checked


def _in_utc(value: Value) -> Value:
    found = _plain_date(to_instant)(value)
    return found.astimezone(UTC).replace(tzinfo=None)


MARIADB_FITS: Final[dict[str, Fit]] = {
    "int": to_int,
    "float": _finite,
    "bool": to_bool,
    "bytes": to_bytes,
    "decimal": lambda value: words(to_decimal(value)),
    "json": to_json,
    "date": _plain_date(to_date),
    "time": to_time,
    "timestamp": _plain_date(to_timestamp),
    "instant": _in_utc,
}


GENERAL_FITS: Final[dict[str, Fit]] = {
    name: fit for name, fit in MARIADB_FITS.items() if name not in ("text", "json")
}
"""Of any database that SQLAlchemy knows."""

BASES: Final = {
    "duckdb": DUCKDB_FITS,
    "mariadb": MARIADB_FITS,
    "sqlalchemy": GENERAL_FITS,
}

PASSING: Final[dict[Fit, frozenset[type]]] = {
    to_int: frozenset((int,)),
    to_float: frozenset((float,)),
    to_bool: frozenset((bool,)),
    to_decimal: frozenset((Decimal,)),
    to_text: frozenset((str,)),
    to_json: frozenset((str,)),
    to_words: frozenset((str,)),
    to_bytes: frozenset((bytes,)),
    to_sqlite: frozenset((int, str, bytes)),
    to_date: frozenset((date,)),
    to_time: frozenset((time,)),
    _same_words: frozenset((int, float, bool, str, bytes, Decimal, date, time, datetime)),
}
"""Types of which a value is handed on as it is: an integer that is small enough, a text without the
character 0."""


def comparables(table: Table, destination: str, kept: bool = False) -> list[Fit]:
    """For each column, what makes of a value of the source, or with `kept` of the destination, one
    that is equal where the databases' values are: between two databases of one kind where type and
    bytes are the same, else where the destination keeps the source's value. They raise
    UnfitError."""
    if table.dialect == destination:
        return [exact] * len(table.columns)
    base = _base if kept else _of_source
    return [
        _comparable(
            _fit(table, column, base(table, column, destination), destination),
            column.type == "decimal",
        )
        for column in table.columns
    ]


def _comparable(fit: Fit, is_number: bool) -> Fit:
    def plain(value: Value) -> Value:
        found = fit(value)
        if is_number and type(found) in (int, float, str):  # a column that SQLite has converted
            try:
                found = Decimal(repr(found) if type(found) is float else found)
            except InvalidOperation:
                return found
        return canonical(found)

    return plain


def exact(value: Value) -> Value:
    """`value` such that two that have the same type and the same bytes are packed alike, and no
    others."""
    kind = type(value)
    if kind is float and math.isnan(value):
        return "NaN"
    if kind is Decimal:
        return format(value, "f")
    if kind in (Literal, datetime, date, time):
        return words(value)
    return value


def canonical(value: Value) -> Value:
    """`value` such that two that databases take for the same are the same object for Python and
    have the same `repr`: numbers by what they are worth, negative zero as zero, one NaN."""
    kind = type(value)
    if kind is bool:
        return int(value)
    if kind is float:
        if math.isnan(value):
            return "NaN"
        return int(value) if value.is_integer() else value
    if kind is Decimal:
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    if kind is Literal:
        return value.text
    if kind in (datetime, date, time):
        return words(value)
    return value
