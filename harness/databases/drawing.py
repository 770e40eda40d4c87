"""Random values for columns, as literals of SQL, from hypothesis or from a random generator."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Draw(Protocol):
    """Where choices come from."""

    def integer(self, least: int, most: int) -> int:
        """Return an integer from `least` to `most`, both included."""

    def choice(self, of: Sequence[T]) -> T:
        """Return one of these items."""


class RandomDraw:
    """Choices of a random generator."""

    def __init__(self, rng: Random) -> None:
        self.integer: Callable[[int, int], int] = rng.randint
        self.choice = rng.choice


class Kind(NamedTuple):
    """A type of columns."""

    declared: str
    means: str
    """How values are compared (`plain`)."""
    value: Callable[[Draw], Any]
    """A value as the database's driver takes it, or as text that its SQL casts to the type."""


CHARACTERS = (
    *"abAZ09 '\"\\%_;,:\t\n\r{}[]()$?\x01\x1f\x7f",
    *(
        "é",
        "ß",
        "\u0130",
        "\u2028",
        "\u3042",
        "\U0001f600",
        "e\u0301",
        "\ufeff",
        "NULL",
        "\\N",
        "  ",
    ),
)


def text(draw: Draw, most: int = 12) -> str:
    return "".join(draw.choice(CHARACTERS) for _ in range(draw.integer(0, most)))[:most]


def large(draw: Draw) -> str:
    """Such that PostgreSQL keeps it apart from its row, mostly."""
    return text(draw, 3) + "0123456789" * draw.choice((0, 1, 900))


def binary(draw: Draw) -> bytes:
    return bytes(draw.integer(0, 255) for _ in range(draw.integer(0, 8)))


def whole(bits: int, signed: bool = True) -> Callable[[Draw], int]:
    """Integers of so many bits, mostly at the edges."""
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)

    def drawn(draw: Draw) -> int:
        edges = [least, least + 1, most, most - 1, 0, 1]
        edges += [n for n in (-1, 2**53 + 1, -(2**53) - 1, 255, 128) if least <= n <= most]
        return draw.choice(edges) if draw.integer(0, 1) else draw.integer(least, most)

    return drawn


def decimal(before: int, after: int) -> Callable[[Draw], str]:
    """Decimals with so many digits, as text; also zero with a scale."""

    def drawn(draw: Draw) -> str:
        left = draw.integer(0, 10 ** draw.integer(0, before) - 1) if before else 0
        digits = draw.integer(0, after)
        right = draw.integer(0, 10**digits - 1) if digits else 0
        sign = "-" if draw.integer(0, 1) and (left or right) else ""
        return f"{sign}{left}.{right:0{digits}}" if digits else f"{sign}{left}"

    return drawn


def floating(draw: Draw) -> float:
    """Finite floats: of any bits, and edges."""
    if draw.integer(0, 1):
        edges = (0.0, -0.0, 0.1, 1e-300, 1.7976931348623157e308, 5e-324, 2.0**53, 1 / 3, -1e22)
        return draw.choice(edges)
    (found,) = struct.unpack(">d", draw.integer(0, 2**64 - 1).to_bytes(8, "big"))
    return found if abs(found) < float("inf") else 0.5


def single(draw: Draw) -> float:
    """Finite floats of 32 bits without those that are not normal."""
    (found,) = struct.unpack(">f", draw.integer(0, 2**32 - 1).to_bytes(4, "big"))
    return found if 1.2e-38 < abs(found) < 3e38 else 0.5


def day(draw: Draw, first: int = 1) -> str:
    edges = [date(1970, 1, 1), date(1582, 10, 10), date(2024, 2, 29), date(9999, 12, 31)]
    if draw.integer(0, 2) == 0:
        return draw.choice(edges).isoformat()
    least = date(first, 1, 1).toordinal()
    return date.fromordinal(draw.integer(least, date.max.toordinal())).isoformat()


def clock(draw: Draw, most: int = 86_399) -> str:
    seconds, micros = draw.integer(0, most), draw.choice((0, 0, 1, 500_000, 999_999))
    minutes, second = divmod(seconds, 60)
    return time(*divmod(minutes, 60), second, micros).isoformat()


def moment(draw: Draw, first: int = 1) -> str:
    return f"{day(draw, first)} {clock(draw)}"


def zoned(draw: Draw) -> str:
    """A moment and its zone."""
    hours, minutes = draw.choice(((0, 0), (2, 0), (-5, -30), (14, 0)))
    at = datetime.fromisoformat(moment(draw, 2)).replace(tzinfo=UTC)
    if at.year > 9990:
        at = at.replace(year=2026, day=1)
    found = (at + timedelta(hours=hours, minutes=minutes)).replace(tzinfo=None)
    sign = "-" if hours < 0 else "+"
    return f"{found.isoformat(' ')}{sign}{abs(hours):02}:{abs(minutes):02}"


def one_of(*ways: Callable[[Draw], Any] | str | int | float | None) -> Callable[[Draw], Any]:
    """A value of one of these ways; what is no function stands for itself."""

    def drawn(draw: Draw) -> Any:
        way = draw.choice(ways)
        return way(draw) if callable(way) else way

    return drawn


def nullable(kind: Kind, draw: Draw) -> Any:
    return None if draw.integer(0, 9) == 0 else kind.value(draw)


def json_text(draw: Draw, depth: int = 2) -> str:
    """JSON with keys in any order, perhaps twice, and numbers of any length."""
    way = draw.integer(0, 6 if depth else 3)
    if way == 0:
        return draw.choice(("1e3", "-0.10", "123456789012345678901234567890", "1"))
    if way <= 2:
        return draw.choice(('"é\\u00e9"', '""', '"a b"', "null", "true"))
    if way == 3:
        return "{}"
    inner = [json_text(draw, depth - 1) for _ in range(draw.integer(0, 3))]
    if way == 4:
        return f"[{', '.join(inner)}]"
    keys = [draw.choice(("b", "a", "aa", "")) for _ in inner]
    return "{" + ", ".join(f'"{k}": {v}' for k, v in zip(keys, inner, strict=True)) + "}"
