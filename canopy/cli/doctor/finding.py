"""What one check says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal

import msgspec

Level = Literal["ok", "note", "warning", "error"]
SIGNS: Final[dict[Level, tuple[str, str]]] = {
    "ok": ("✓", "green"),
    "note": ("·", "cyan"),
    "warning": ("!", "yellow"),
    "error": ("✗", "red"),
}


class Finding(msgspec.Struct, frozen=True):
    """`what` is so, and `do` what to do about it ("" where nothing is to be done)."""

    check: str
    level: Level
    what: str
    do: str = ""


Check = Callable[[], Iterator[Finding]]
"""Looks at one thing. OSError: it could not be looked at."""


def carry_out(name: str, check: Check) -> list[Finding]:
    """The findings of a check; that it could not be carried out is one as well."""
    try:
        return list(check())
    except OSError as error:
        reason = error.strerror or str(error)
        return [Finding(name, "warning", f"could not be looked at: {reason}")]
