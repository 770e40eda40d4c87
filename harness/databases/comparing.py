"""Whether two databases have the same value: by text, without the code under test."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any


def plain(means: str, value: Any) -> Any:
    """`value`, read from any database, such that equal ones are equal.

    means: int, decimal, float, bool, text, bytes, date, time, timestamp, instant, or any (as it is,
    with its type)."""
    if value is None:
        return None
    return _PLAIN[means](value)


def _number(value: Any) -> Any:
    text = value if isinstance(value, str) else repr(value)
    found = Decimal(text.removeprefix("Decimal('").removesuffix("')"))
    if found.is_nan():
        return "NaN"
    if not found.is_finite():
        return str(found)
    text = format(found, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _float(value: Any) -> Any:
    found = float(value)
    return "NaN" if found != found else found + 0.0


def _bool(value: Any) -> Any:
    return {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}[
        str(value).lower()
    ]


def _bytes(value: Any) -> Any:
    if not isinstance(value, str | bytes):
        raise ValueError(f"{value!r} is no bytes")
    return bytes.fromhex(value[2:]) if isinstance(value, str) else bytes(value)


def _clock(value: Any) -> Any:
    text = str(value).replace("T", " ")
    return re.sub(r"\.(\d*?)0+(?=\D|$)", lambda m: f".{m[1]}" if m[1] else "", text)


def _instant(value: Any) -> Any:
    text = _clock(value)
    text = re.sub(r"([+-]\d\d)$", r"\1:00", text)
    if text.endswith("+00:00"):
        return text.removesuffix("+00:00")  # also what Python has no date for
    if not re.search(r"[+-]\d\d:\d\d$", text):
        return text
    try:
        return _clock(datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None))
    except ValueError:
        return text


def _any(value: Any) -> Any:
    return type(value).__name__, "NaN" if value != value else value


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "int": _number,
    "decimal": _number,
    "float": _float,
    "bool": _bool,
    "text": str,
    "bytes": _bytes,
    "date": str,
    "time": _clock,
    "timestamp": _clock,
    "instant": _instant,
    "any": _any,
}


def plain_rows(means: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The rows, comparable, in one order."""
    found = [tuple(plain(m, v) for m, v in zip(means, row, strict=True)) for row in rows]
    return sorted(found, key=repr)
