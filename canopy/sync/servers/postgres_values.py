"""PostgreSQL's values as text, which is how they are replicated, copied and handed to it.

A session that reads or writes them has the settings of `SESSION`, so that their text does not
depend on where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import time
from decimal import Decimal
from itertools import islice
from typing import Final

from canopy.sync.conversions import words
from canopy.sync.values import NativeText, Value, date_of, moment_of

SESSION: Final = (
    "-c datestyle=ISO -c timezone=UTC -c intervalstyle=iso_8601 -c extra_float_digits=1 "
    "-c bytea_output=hex -c client_encoding=UTF8 -c row_security=off"
)
"""Without `row_security`, rows that a policy hides would be left out without a word; so it is an
error."""

Decoder = Callable[[str], Value]


def _bytes(text: str) -> Value:
    return bytes.fromhex(text[2:])


def _time(text: str) -> Value:
    try:
        return time.fromisoformat(text)
    except ValueError:  # 24:00:00
        return NativeText(text)


TYPES: Final[dict[int, tuple[str, Decoder]]] = {
    16: ("bool", lambda text: text == "t"),
    17: ("bytes", _bytes),
    18: ("text", str),
    19: ("text", str),
    20: ("int", int),
    21: ("int", int),
    23: ("int", int),
    25: ("text", str),
    26: ("int", int),
    114: ("json", str),
    700: ("float", float),
    701: ("float", float),
    1042: ("text", str),
    1043: ("text", str),
    1082: ("date", date_of),
    1083: ("time", _time),
    1114: ("timestamp", moment_of),
    1184: ("instant", moment_of),
    1700: ("decimal", Decimal),
    2950: ("uuid", str),
    3802: ("json", str),
}
"""The meaning of a type's columns, by the type's id in pg_type; any other is kept as its text."""
OTHER: Final = ("other", str)
DOMAINS: Final = "SELECT oid::bigint, typbasetype::bigint FROM pg_type WHERE typtype = 'd'"
"""The domains of a database, and of which type each is, which may be a domain as well."""


def type_of(kind: int, domains: Mapping[int, int]) -> tuple[str, Decoder]:
    """Return the meaning of a column of a type, or of a domain over it, and the function that makes
    a value from its text."""
    while kind in domains:
        kind = domains[kind]
    return TYPES.get(kind, OTHER)


def spelled(value: Value) -> str | None:
    """`value` as PostgreSQL reads it."""
    if value is None:
        return None
    return str(value) if type(value) in (str, float, Decimal) else words(value)


NULL: Final = "\\N"
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_CONTROLS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
AT_ONCE: Final = 500
"""Blocks of COPY, of one row mostly, that are read together."""


def copied(blocks: Iterable[bytes], decoders: Sequence[Decoder]) -> Iterator[tuple[Value, ...]]:
    """The rows of COPY … TO STDOUT in its text format."""
    left = iter(blocks)
    rest = b""
    while some := list(islice(left, AT_ONCE)):
        *lines, rest = b"".join([rest, *some]).split(b"\n")
        if lines:
            text = b"\n".join(lines).decode()
            columns = zip(*[line.split("\t") for line in text.split("\n")], strict=True)
            yield from zip(*map(_decoded, columns, decoders), strict=True)


def _decoded(cells: Sequence[str], decode: Decoder) -> Iterable[Value]:
    if any("\\" in cell for cell in cells):
        return [
            None if cell == NULL else decode(_unescaped(cell) if "\\" in cell else cell)
            for cell in cells
        ]
    return cells if decode is str else list(map(decode, cells))


def _unescaped(cell: str) -> str:
    return _ESCAPED.sub(lambda found: _CONTROLS.get(found[1], found[1]), cell)


def to_copy(columns: Iterable[Sequence[Value]]) -> str:
    """Rows, given by their columns, for COPY … FROM STDIN in its text format."""
    spelled_out = map(_spelled_out, columns)
    return "\n".join([*map("\t".join, zip(*spelled_out, strict=True)), ""])


def _spelled_out(values: Sequence[Value]) -> Sequence[str]:
    kinds = set(map(type, values))
    if len(kinds) == 1:
        (kind,) = kinds
        if kind in (int, float, Decimal):
            return list(map(str, values))
        if kind is str:
            whole = "".join(values)
            if not any(char in whole for char in "\\\t\n\r"):
                return values
    spelled_out = map(spelled, values)
    return [NULL if text is None else text.translate(_ESCAPES) for text in spelled_out]
