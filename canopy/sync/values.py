"""Values of database columns, and their bytes: nothing is lost between two databases.

A value is a Python object: None (NULL), bool, int of any size, float (also NaN and infinities),
str, bytes, Decimal (with its scale), date, time and datetime (with a zone or without,
microseconds). `NativeText` is what Python has no type for, as its database writes it (a date of
'infinity', or before Christ). `ABSENT` says that the value is not known here,
which NULL does not: PostgreSQL does not repeat a large value (TOAST) that an update has left as it
was.

MessagePack carries the plain ones as they are, and the others as extensions, whose numbers are
written in streams and must not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.msgpack import Ext

from canopy.sync.errors import MalformedError, UnfitError


class NativeText(msgspec.Struct, frozen=True):
    """A value in the words of the database that it comes from."""

    text: str


def text_or_value(value: Any) -> Any:
    """Return the text of a `NativeText`, as drivers take it; any other value as it is."""
    return value.text if type(value) is NativeText else value


def date_of(text: str) -> date | NativeText:
    """Read a date. One that Python has no type for (a day 0, infinity, before Christ) stays as the
    database writes it."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return NativeText(text)


def moment_of(text: str) -> datetime | NativeText:
    """Read a date and time, as `date_of` does a date."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return NativeText(text)


class _Absent:
    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()

Value: TypeAlias = Any
"""One of the types above; mypy has no use for the union, whose members are told apart by type."""
Row: TypeAlias = tuple[Value, ...]
T = TypeVar("T")

BIG: Final = 1
DECIMAL: Final = 2
DATE: Final = 3
TIME: Final = 4
TIMESTAMP: Final = 5  # microseconds since 1970, without a zone
INSTANT: Final = 6  # microseconds since 1970 in UTC
UNKNOWN: Final = 7
LITERAL: Final = 8

PLAIN: Final = frozenset((type(None), bool, int, float, str, bytes))
INT_MIN: Final = -(2**63)
UINT_MAX: Final = 2**64 - 1

_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def decoding(decoders: Sequence[Callable[[Any], Value]]) -> Callable[[Sequence[Any]], Row]:
    """Return the function that makes a row from a driver's cells, by a function for each column;
    NULL is None."""

    def decoded(cells: Sequence[Any]) -> Row:
        pairs = zip(decoders, cells, strict=True)
        return tuple([None if cell is None else decode(cell) for decode, cell in pairs])

    return decoded


def _wrapped(value: Value) -> Any:
    """Return the object by which MessagePack carries `value`. Raises UnfitError for an unknown
    type."""
    kind = type(value)
    if kind in PLAIN:
        if kind is int and not INT_MIN <= value <= UINT_MAX:
            return Ext(BIG, str(value).encode())
        return value
    if value is ABSENT:
        return Ext(UNKNOWN, b"")
    if kind is Decimal:
        return Ext(DECIMAL, str(value).encode())
    if kind is datetime:
        if value.tzinfo is None:
            return Ext(TIMESTAMP, _signed((value - _EPOCH) // _MICROSECOND))
        return Ext(INSTANT, _signed((value - _EPOCH_UTC) // _MICROSECOND))
    if kind is date:
        return Ext(DATE, value.isoformat().encode())
    if kind is time:
        return Ext(TIME, value.isoformat().encode())
    if kind is NativeText:
        return Ext(LITERAL, value.text.encode())
    raise UnfitError(f"a {kind.__name__} is no value that a stream can carry")


def _signed(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def _packable(row: Row | None) -> Sequence[Any] | None:
    """`row` as MessagePack can carry it, but for integers beyond 64 bits (`pack` sees to them)."""
    if row is None or PLAIN.issuperset(map(type, row)):
        return row
    return [value if value.__class__ in PLAIN else _wrapped(value) for value in row]


def pack(fields: Any, *rows: Row | None) -> bytes:
    """The MessagePack of [fields, row, …]. Raises UnfitError for text that UTF-8 cannot encode."""
    try:
        try:
            return _encoder.encode((fields, *map(_packable, rows)))
        except OverflowError:
            whole = [r if r is None else [_wrapped(value) for value in r] for r in rows]
            return _encoder.encode((fields, *whole))
    except UnicodeEncodeError:
        raise UnfitError("a text is no UTF-8") from None


def unpacking(kind: type[T]) -> Callable[[bytes], T]:
    """The decoder of what `pack` has made, [fields, row, …], if it is of the type `kind`."""
    return msgspec.msgpack.Decoder(kind, ext_hook=_unwrap).decode


def unpack(data: bytes, decode: Callable[[bytes], T]) -> T:
    """What `pack` has made, by its decoder (`unpacking`). Raises MalformedError."""
    try:
        return decode(data)
    except msgspec.ValidationError as error:
        raise MalformedError(
            f"an event of the stream is no change of a database: {error}"
        ) from None
    except (msgspec.DecodeError, ValueError, ArithmeticError) as error:
        raise MalformedError(f"an event of the stream cannot be decoded: {error}") from None


def _unwrap(code: int, data: memoryview) -> Value:
    content = bytes(data)
    if code == DECIMAL:
        return Decimal(content.decode())
    if code == INSTANT:
        return _EPOCH_UTC + int.from_bytes(content, "big", signed=True) * _MICROSECOND
    if code == TIMESTAMP:
        return _EPOCH + int.from_bytes(content, "big", signed=True) * _MICROSECOND
    if code == BIG:
        return int(content)
    if code == DATE:
        return date.fromisoformat(content.decode())
    if code == TIME:
        return time.fromisoformat(content.decode())
    if code == UNKNOWN:
        return ABSENT
    if code == LITERAL:
        return NativeText(content.decode())
    raise MalformedError(f"an event of the stream has a value of the unknown kind {code}")


_encoder: Final = msgspec.msgpack.Encoder()
