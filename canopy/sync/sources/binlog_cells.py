"""The values of MariaDB's columns as its binary log has them (no IO).

Each type has a function that takes the bytes and the place where the value begins, and returns the
value and the place behind it. What Python has no type for (a day 0, a time of more than a day)
comes as the text that the server shows.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec

from canopy.sync.errors import SchemaError
from canopy.sync.servers.mariadb_values import decoded, instant_of
from canopy.sync.values import NativeText, Value, moment_of

TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, DATE = 1, 2, 3, 4, 5, 8, 9, 10
YEAR, NEWDATE, VARCHAR, BIT, TIMESTAMP, DATETIME, TIME = 13, 14, 15, 16, 17, 18, 19
DECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 246, 247, 248, 252, 253, 254, 255

NUMERIC: Final = frozenset((TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, YEAR, DECIMAL))
"""Types of which the server says whether they have a sign."""
CHARACTER: Final = frozenset((VARCHAR, BLOB, VAR_STRING, STRING, GEOMETRY))
"""Types of which it says the character set."""
COLLATIONS: Final = {8: "latin1", 33: "utf8mb3", 45: "utf8mb4", 46: "utf8mb4", 63: "binary"}

Reader: TypeAlias = Callable[[bytes, int], tuple[Value, int]]


class Field(msgspec.Struct, frozen=True):
    """A column as the log knows it."""

    name: str
    kind: int
    detail: int
    """A detail of the type: of texts the most bytes, of blobs the bytes of their length, of
    decimals the digits times 256 plus those behind the point, of times the digits of a second, of
    bits their number."""
    nullable: bool
    unsigned: bool = False
    charset: str = "binary"
    labels: tuple[bytes, ...] = ()


def field_of(name: str, kind: int, details: bytes, at: int, nullable: bool) -> tuple[Field, int]:
    """A column from its type and its part of the table's details."""
    if kind in (STRING, VAR_STRING):
        first, second = details[at], details[at + 1]
        if first & 0x30 != 0x30:  # two bits of the length are in the type
            return Field(
                name, first | 0x30, second | ((first & 0x30) ^ 0x30) << 4, nullable
            ), at + 2
        return Field(name, first, second, nullable), at + 2
    if kind == VARCHAR:
        return Field(name, kind, int.from_bytes(details[at : at + 2], "little"), nullable), at + 2
    if kind == DECIMAL:
        return Field(name, kind, details[at] * 256 + details[at + 1], nullable), at + 2
    if kind == BIT:
        return Field(name, kind, details[at] + 8 * details[at + 1], nullable), at + 2
    if kind in (FLOAT, DOUBLE, BLOB, GEOMETRY, TIMESTAMP, DATETIME, TIME):
        return Field(name, kind, details[at], nullable), at + 1
    return Field(name, kind, 0, nullable), at


def _number(layout: str) -> Reader:
    found = struct.Struct(layout)

    def read(data: bytes, at: int) -> tuple[Value, int]:
        return found.unpack_from(data, at)[0], at + found.size

    return read


def _int24(unsigned: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        return int.from_bytes(data[at : at + 3], "little", signed=not unsigned), at + 3

    return read


def _year(data: bytes, at: int) -> tuple[Value, int]:
    return 1900 + data[at] if data[at] else 0, at + 1


def _date(data: bytes, at: int) -> tuple[Value, int]:
    number = int.from_bytes(data[at : at + 3], "little")
    year, month, day = number >> 9, number >> 5 & 15, number & 31
    try:
        return date(year, month, day), at + 3
    except ValueError:
        return NativeText(f"{year:04}-{month:02}-{day:02}"), at + 3


def _fraction(data: bytes, at: int, digits: int) -> tuple[int, int]:
    """Return the microseconds of a fraction with `digits` decimal digits at `at`, and where it
    ends."""
    size = (digits + 1) // 2
    return int.from_bytes(data[at : at + size], "big") * 10 ** (6 - 2 * size), at + size


def _shown(seconds: str, micros: int, digits: int) -> str:
    return f"{seconds}.{micros:06}"[: len(seconds) + 1 + digits] if digits else seconds


def _datetime(digits: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        number = int.from_bytes(data[at : at + 5], "big") - (1 << 39)
        micros, at = _fraction(data, at + 5, digits)
        days, clock = number >> 17, number & 0x1FFFF
        months, day = days >> 5, days & 31
        year, month = divmod(months, 13)
        hour, minute, second = clock >> 12, clock >> 6 & 63, clock & 63
        try:
            return datetime(year, month, day, hour, minute, second, micros), at
        except ValueError:
            text = f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
            return moment_of(_shown(text, micros, digits)), at

    return read


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _timestamp(digits: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        micros, at = _fraction(data, at + 4, digits)
        if not seconds and not micros:
            return instant_of(_shown("0000-00-00 00:00:00", 0, digits)), at
        return _EPOCH + timedelta(seconds=seconds, microseconds=micros), at

    return read


def _time(digits: int) -> Reader:
    size = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[Value, int]:
        """A signed number of three bytes and the fraction's, of which the lower ones go on."""
        number = int.from_bytes(data[at : at + 3 + size], "big") - (1 << (23 + 8 * size))
        sign, number = ("-", -number) if number < 0 else ("", number)
        clock, rest = number >> 8 * size, number & ((1 << 8 * size) - 1)
        text = f"{sign}{clock >> 12:02}:{clock >> 6 & 63:02}:{clock & 63:02}"
        return _shown(text, rest * 10 ** (6 - 2 * size), digits), at + 3 + size

    return read


_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def _decimal(digits: int, behind: int) -> Reader:
    """Groups of nine digits in four bytes each, the first bit turned, all of them if negative."""
    whole, part = divmod(digits - behind, 9), divmod(behind, 9)
    groups = [whole[1], *([9] * whole[0]), *([9] * part[0]), part[1]]
    sizes = [(_DIGIT_BYTES[group], group) for group in groups if group]
    size = sum(bytes_ for bytes_, _ in sizes)

    def read(data: bytes, at: int) -> tuple[Value, int]:
        found = bytearray(data[at : at + size])
        is_negative = not found[0] & 0x80
        found[0] ^= 0x80
        if is_negative:
            found = bytearray(each ^ 0xFF for each in found)
        place, text = 0, ""
        for bytes_, group in sizes:
            text += f"{int.from_bytes(found[place : place + bytes_], 'big'):0{group}}"
            place += bytes_
        point = len(text) - behind
        sign = "-" if is_negative else ""
        written = f"{sign}{text[:point] or '0'}.{text[point:]}" if behind else sign + text
        return Decimal(written), at + size

    return read


def _bit(count: int) -> Reader:
    size = (count + 7) // 8

    def read(data: bytes, at: int) -> tuple[Value, int]:
        return int.from_bytes(data[at : at + size], "big"), at + size

    return read


def _string(size: int, charset: str, pad: int = 0) -> Reader:
    """Return the reader of a value whose length is in its first `size` bytes. `pad`: the length to
    which a binary value is padded with the zeros that the log left out."""

    def read(data: bytes, at: int) -> tuple[Value, int]:
        begin = at + size
        end = begin + int.from_bytes(data[at:begin], "little")
        found = data[begin:end]
        if len(found) != end - begin:
            raise ValueError("a value is cut off")
        if charset == "binary":
            return found.ljust(pad, b"\0"), end
        return decoded(found, charset), end

    return read


def _enum(labels: tuple[str, ...], size: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        number = int.from_bytes(data[at : at + size], "little")
        return labels[number - 1] if number else "", at + size

    return read


def _set(labels: tuple[str, ...], size: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        bits = int.from_bytes(data[at : at + size], "little")
        found = [label for place, label in enumerate(labels) if bits >> place & 1]
        return ",".join(found), at + size

    return read


def native_of(kind: str, found: bytes) -> str:
    """The text of a uuid, inet4 or inet6, which are bytes for the log."""
    if kind != "uuid":
        address = ipaddress.ip_address(found)
        mapped = getattr(address, "ipv4_mapped", None)
        return str(address) if mapped is None else f"::ffff:{mapped}"
    text = found.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


_WHOLE: Final = {TINY: "<b", SHORT: "<h", LONG: "<i", LONGLONG: "<q"}


def decoder_of(field: Field) -> Reader:
    """Return the function that reads the values of a column. Raises SchemaError for a type that
    cannot be captured."""
    kind, detail = field.kind, field.detail
    simple: dict[int, Reader] = {
        FLOAT: _number("<f"),
        DOUBLE: _number("<d"),
        YEAR: _year,
        DATE: _date,
        NEWDATE: _date,
        INT24: _int24(field.unsigned),
    }
    if kind in simple:
        return simple[kind]
    if kind in _WHOLE:
        return _number(_WHOLE[kind].upper() if field.unsigned else _WHOLE[kind])
    made: dict[int, Callable[[int], Reader]] = {
        DATETIME: _datetime,
        TIMESTAMP: _timestamp,
        TIME: _time,
        BIT: _bit,
        DECIMAL: lambda d: _decimal(d // 256, d % 256),
        VARCHAR: lambda d: _string(2 if d > 255 else 1, field.charset),
        BLOB: lambda d: _string(d, field.charset),
        GEOMETRY: lambda d: _string(d, "binary"),
    }
    if kind in made:
        return made[kind](detail)
    if kind == STRING:
        return _string(2 if detail > 255 else 1, field.charset, detail)
    if kind in (ENUM, SET):
        labels = tuple(decoded(label, field.charset) for label in field.labels)
        return (_enum if kind == ENUM else _set)(labels, detail)
    raise SchemaError(f"column {field.name} has a type ({kind}) that cannot be captured")
