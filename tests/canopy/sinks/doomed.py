"""Connections to SQLite of programs that are killed at a statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

NEVER = 1 << 30


class KilledError(BaseException):
    """The program ends here, and nothing of it runs any more."""


class Doom:
    """Counts statements, and ends the program at one: before it is carried out, or after that."""

    def __init__(self, at: int = NEVER) -> None:
        self.at = at
        self.count = 0

    def carry_out(self, statement: Callable[..., Any], *arguments: Any) -> Any:
        self.count += 1
        if self.count >= self.at and (self.count > self.at or self.at % 2):
            raise KilledError
        found = statement(*arguments)
        if self.count >= self.at:
            raise KilledError
        return found


class DoomedCursor(sqlite3.Cursor):
    doom: Doom

    def execute(self, *arguments: Any) -> Any:
        return self.doom.carry_out(super().execute, *arguments)


class DoomedConnection(sqlite3.Connection):
    """A connection of a program that is killed. What is not committed is rolled back when it is
    closed, as SQLite does for a process that is gone."""

    doom = Doom()

    def execute(self, *arguments: Any) -> Any:
        return self.doom.carry_out(super().execute, *arguments)

    def cursor(self, *_: Any) -> Any:
        found = super().cursor(DoomedCursor)
        found.doom = self.doom
        return found


def open_database(path: Path, doom: Doom | None = None) -> sqlite3.Connection:
    db = sqlite3.connect(path, factory=DoomedConnection, check_same_thread=False)
    db.execute("PRAGMA synchronous = OFF")  # no power is lost here
    db.doom = doom or Doom()  # type: ignore[attr-defined]
    return db
