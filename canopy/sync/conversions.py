"""Makes of values of a source those that a destination keeps (no IO).

A value that the destination's column has no place for is refused (UnfitError) and never bent: text
in a column of integers, which SQLite allows, or the character 0 in a text, which PostgreSQL has no
place for. Which of these functions a column needs is what its `Dialect` says.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Final

from canopy.sync.errors import UnfitError
from canopy.sync.values import ABSENT, NativeText, Value

Fit = Callable[[Value], Value]


class ColumnFit:
    """Converts the values of one column for the destination. NULL and ABSENT stay unchanged."""

    def __init__(self, fit: Fit, refused: Mapping[type, str]) -> None:
        """`refused`: types of values that are refused whatever `fit` makes of them, each with a
        text of what such values are not."""
        self._fit = fit
        self._refused = refused
        self._passing = PASSING.get(fit, frozenset())

    def one(self, value: Value) -> Value:
        """Return the value to hand to the destination. Raises UnfitError."""
        if value is None or value is ABSENT:
            return value
        if type(value) in self._refused:
            raise unfit(value, self._refused[type(value)])
        return self._fit(value)

    def many(self, values: Sequence[Value]) -> Sequence[Value]:
        """As `one` of each value: where all are of types that are handed on as they are, they are
        handed on together."""
        if self._fit is kept:
            return values
        kinds = set(map(type, values))
        kinds.discard(type(None))
        if (
            kinds <= self._passing
            and (int not in kinds or self._fit is same_words or _are_small(values))
            and (str not in kinds or self._fit in ANY_TEXT or not _have_zeros(values))
        ):
            return values
        return list(map(self.one, values))

    def number(self, value: Value) -> Value:
        """As `canonical`, of a column of decimals, which SQLite may have converted."""
        found = self.one(value)
        if type(found) in (int, float, str):
            try:
                found = Decimal(repr(found) if type(found) is float else found)
            except InvalidOperation:
                return found
        return canonical(found)

    def comparable(self, value: Value) -> Value:
        """As `canonical`, of what the destination is handed."""
        return canonical(self.one(value))


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


def kept(value: Value) -> Value:
    """`value` itself: the destination's database is of the source's kind."""
    return value


def to_sqlite(value: Value) -> Value:
    """Return the value that SQLite stores for a value of another database."""
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
    if type(value) is NativeText:
        return value.text
    if type(value) is Decimal:
        return format(value, "f")  # with its digits, not as 1E-8
    if type(value) is bytes:
        return "\\x" + value.hex()
    if type(value) is bool:
        return "true" if value else "false"
    return str(value)


def unfit(value: Value, what: str) -> UnfitError:
    """The error that says what a value is not."""
    shown = value.text if type(value) is NativeText else repr(value)
    return UnfitError(f"{shown[:60]}{'…' if len(shown) > 60 else ''} is no {what}")


def to_int(value: Value) -> Value:
    """`value` as a signed integer of 64 bits. Raises UnfitError."""
    if type(value) in (int, bool) and -(2**63) <= value < 2**63:
        return int(value)
    raise unfit(value, "64-bit integer")


def to_float(value: Value) -> Value:
    """A float, for a number that is one exactly."""
    if type(value) is float:
        return value
    if type(value) is int and abs(value) <= 2**53:
        return float(value)
    raise unfit(value, "float")


def to_bool(value: Value) -> Value:
    """True or False, which SQLite writes as 1 and 0."""
    if type(value) in (int, bool) and value in (0, 1):
        return bool(value)
    raise unfit(value, "boolean (0 or 1)")


_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity")
"""The texts that `Decimal` reads, without the underscores, blanks and digits of other scripts that
it allows."""


def to_decimal(value: Value) -> Value:
    """A number with all of its digits."""
    if type(value) in (Decimal, int):
        return Decimal(value)
    if type(value) is float:
        return Decimal(repr(value))
    if type(value) is str and _NUMBER.fullmatch(value):
        return Decimal(value)
    raise unfit(value, "number")


def to_text(value: Value) -> Value:
    """`value` as a text without the character 0. Raises UnfitError."""
    if type(value) is NativeText:
        return value.text
    if type(value) is not str:
        if type(value) in (Decimal, date, time, datetime):
            return words(value)
        raise unfit(value, "text")
    if "\0" in value:
        raise unfit(value, "text that this database can keep: it has the character 0")
    return value


def to_json(value: Value) -> Value:
    """The text of JSON; a number that SQLite has made of one."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return to_text(value)


def to_checked_json(value: Value) -> Value:
    """Convert as `to_json` does, for a destination that accepts only valid JSON."""
    found = to_json(value)
    try:
        json.loads(found, parse_constant=_no_constant, parse_float=str, parse_int=str)
    except RecursionError:
        pass  # too deep to be looked at here
    except ValueError:
        raise unfit(value, "JSON") from None
    return found


def _no_constant(name: str) -> Value:
    raise ValueError(f"{name} is no JSON")


def to_bytes(value: Value) -> Value:
    """`value` as bytes. Raises UnfitError."""
    if type(value) is bytes:
        return value
    raise unfit(value, "string of bytes")


_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


def to_date(value: Value) -> Value:
    """A day, also from its ISO text."""
    if type(value) in (date, NativeText):
        return value
    if type(value) is str and _DAY.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise unfit(value, "date")


_TOO_FINE: Final = re.compile(r"[.,]\d{7}")
"""More digits than microseconds have, which Python passes over."""


def to_time(value: Value) -> Value:
    """A time of the day without a zone, also from its ISO text."""
    if type(value) in (time, NativeText):
        return value
    if type(value) is str and ":" in value and not _TOO_FINE.search(value):
        try:
            found = time.fromisoformat(value)
        except ValueError:
            found = None
        if found is not None and found.tzinfo is None:
            return found
    raise unfit(value, "time")


def to_timestamp(value: Value) -> Value:
    """A date and time without a zone, also from its ISO text."""
    return _moment(value, False, "timestamp without a zone")


def to_instant(value: Value) -> Value:
    """Convert a value, which may be ISO text, to a date and time with a zone."""
    return _moment(value, True, "timestamp with a zone")


def _moment(value: Value, is_zoned: bool, what: str) -> Value:
    found = value
    if type(value) is str and _DAY.match(value) and not _TOO_FINE.search(value):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            raise unfit(value, what) from None
    if type(found) is NativeText or (
        type(found) is datetime and (found.tzinfo is not None) == is_zoned
    ):
        return found
    raise unfit(value, what)


def same_words(value: Value) -> Value:
    """`value` as another PostgreSQL has it. Raises UnfitError for the character 0, which none can
    store."""
    if type(value) is str and "\0" in value:
        raise unfit(value, "text that PostgreSQL can keep: it has the character 0")
    return value


def to_words(value: Value) -> Value:
    """`value` as a text, in which the character 0 may be."""
    return value if type(value) is str else to_text(value)


def to_finite(value: Value) -> Value:
    """A float that is neither infinite nor NaN."""
    found = to_float(value)
    if math.isfinite(found):
        return found
    raise unfit(value, "finite float")


def in_utc(value: Value) -> Value:
    """A date and time of UTC without its zone."""
    return to_instant(value).astimezone(UTC).replace(tzinfo=None)


def decimal_words(value: Value) -> Value:
    """The text of a number with all of its digits."""
    return words(to_decimal(value))


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
    same_words: frozenset((int, float, bool, str, bytes, Decimal, date, time, datetime)),
}
"""Types of which a value is handed on as it is: an integer that is small enough, a text without the
character 0."""
ANY_TEXT: Final = (to_sqlite, to_words)
"""The conversions by which texts may have the character 0."""


def exact(value: Value) -> Value:
    """`value` such that two that have the same type and the same bytes are packed alike, and no
    others."""
    kind = type(value)
    if kind is float and math.isnan(value):
        return "NaN"
    if kind is Decimal:
        return format(value, "f")
    if kind in (NativeText, datetime, date, time):
        return words(value)
    return value


def canonical(value: Value) -> Value:
    """Return `value` in a canonical form: two values that databases consider equal become the same
    object for Python and have the same `repr`. Numbers are compared by amount, negative zero is
    zero, and there is one NaN."""
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
    if kind is NativeText:
        return value.text
    if kind in (datetime, date, time):
        return words(value)
    return value
