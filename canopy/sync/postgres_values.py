"""PostgreSQL's values as text, which is how they are replicated, copied and handed to it.

A session that reads or writes them has the settings of `SESSION`, so that their text does not
depend on where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Final

from canopy.sync.values import Literal, Value

SESSION: Final = (
    "-c datestyle=ISO -c timezone=UTC -c intervalstyle=iso_8601 -c extra_float_digits=1 "
    "-c bytea_output=hex -c client_encoding=UTF8"
)

Decoder = Callable[[bytes], Value]


def _text(data: bytes) -> Value:
    return data.decode()


def _bytes(data: bytes) -> Value:
    return bytes.fromhex(data[2:].decode())


def _date(data: bytes) -> Value:
    text = data.decode()
    try:
        return date.fromisoformat(text)
    except ValueError:  # infinity, before Christ, after 9999
        return Literal(text)


def _time(data: bytes) -> Value:
    text = data.decode()
    try:
        return time.fromisoformat(text)
    except ValueError:  # 24:00:00
        return Literal(text)


def _timestamp(data: bytes) -> Value:
    text = data.decode()
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return Literal(text)


def _decimal(data: bytes) -> Value:
    return Decimal(data.decode())


TYPES: Final[dict[int, tuple[str, Decoder]]] = {
    16: ("bool", lambda data: data == b"t"),
    17: ("bytes", _bytes),
    18: ("text", _text),
    19: ("text", _text),
    20: ("int", int),
    21: ("int", int),
    23: ("int", int),
    25: ("text", _text),
    26: ("int", int),
    114: ("json", _text),
    700: ("float", float),
    701: ("float", float),
    1042: ("text", _text),
    1043: ("text", _text),
    1082: ("date", _date),
    1083: ("time", _time),
    1114: ("timestamp", _timestamp),
    1184: ("instant", _timestamp),
    1700: ("decimal", _decimal),
    2950: ("uuid", _text),
    3802: ("json", _text),
}
"""What the columns of a type mean, by the type's id in pg_type; any other is kept as its text."""
OTHER: Final = ("other", _text)


def spelled(value: Value) -> str | None:
    """`value` as PostgreSQL reads it."""
    kind = type(value)
    if kind is str:
        return str(value)
    if value is None:
        return None
    if kind is bool:
        return "t" if value else "f"
    if kind is bytes:
        return f"\\x{value.hex()}"
    if kind is datetime:
        return str(value.isoformat(" "))
    if kind in (date, time):
        return str(value.isoformat())
    if kind is Literal:
        return str(value.text)
    return str(value)


_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_PLAIN: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def copied(blocks: Iterator[bytes], decoders: list[Decoder]) -> Iterator[tuple[Value, ...]]:
    """The rows of COPY … TO STDOUT in its text format."""
    rest = b""
    for block in blocks:
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield tuple(
                [
                    None if cell == b"\\N" else decode(_unescaped(cell) if b"\\" in cell else cell)
                    for decode, cell in zip(decoders, line.split(b"\t"), strict=True)
                ]
            )


def _unescaped(cell: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: _PLAIN.get(found[1], found[1]), cell)
