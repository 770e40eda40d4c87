"""SQLite, whose columns may hold anything."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.databases.drawing import (
    Draw,
    Kind,
    binary,
    clock,
    day,
    decimal,
    floating,
    json_text,
    moment,
    one_of,
    text,
    whole,
    zoned,
)

KEYS: tuple[Kind, ...] = (
    Kind("INTEGER", "int", whole(64)),
    Kind("TEXT", "text", text),
    Kind("VARCHAR(40)", "text", text),
    Kind("DATE", "date", day),
    Kind("BOOLEAN", "bool", lambda d: d.integer(0, 1)),
)


def anything(draw: Draw) -> Any:
    """A value of any storage class; text also with the character 0."""
    if draw.integer(0, 9) == 0:
        return float("inf")
    ways: tuple[Callable[[Draw], Any], ...] = (
        whole(64),
        floating,
        text,
        binary,
        decimal(8, 3),
        day,
    )
    found = draw.choice(ways)(draw)
    return f"{found}\0x" if isinstance(found, str) and draw.integer(0, 5) == 0 else found


KINDS: tuple[Kind, ...] = (
    *KEYS,
    Kind("BIGINT", "int", whole(64)),
    Kind("REAL", "float", one_of(float("inf"), floating, floating)),
    Kind("BLOB", "bytes", binary),
    Kind("NUMERIC", "decimal", one_of(whole(64), floating, decimal(8, 3))),
    Kind("DECIMAL(10,2)", "decimal", decimal(8, 2)),
    Kind("DATETIME", "timestamp", moment),
    Kind("TIMESTAMP WITH TIME ZONE", "instant", zoned),
    Kind("TIME", "time", clock),
    Kind("JSON", "text", json_text),
)
"""With values that are of their column's type."""
FINITE: tuple[Kind, ...] = tuple(
    Kind(k.declared, k.means, floating if k.declared == "REAL" else k.value) for k in KINDS
)
"""Without infinite floats, which MariaDB does not have."""
LOOSE: tuple[Kind, ...] = tuple(Kind(kind.declared, "any", anything) for kind in KINDS)
"""With values that may be anything, which SQLite only can keep."""


class Sqlite:
    """A new database file."""

    kind = "sqlite"
    kinds, keys = KINDS, KEYS

    def __init__(self, path: Path, loose: bool = False, finite: bool = False) -> None:
        """`loose`: columns hold what is not of their type, too; `finite`: values that MariaDB has,
        too."""
        if loose or finite:
            self.kinds = LOOSE if loose else FINITE
        self.path = path
        self.url = f"sqlite:{path}"
        # Of one thread at a time, not always the same.
        self._link = sqlite3.connect(
            path, isolation_level=None, timeout=30, check_same_thread=False
        )
        self._link.execute("PRAGMA journal_mode = WAL")
        self._link.execute("PRAGMA synchronous = OFF")

    def reconnect(self) -> None:
        """Its file is there as it was."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._link.execute(statement, values).fetchall()

    def named(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def read(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        return self.execute(
            f"SELECT {', '.join(map(self.named, columns))} FROM {self.named(table)}"
        )

    def close(self) -> None:
        self._link.close()
