"""What was taken away last, and how it comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from canopy.tui.constants import UNDO, UNDO_EVENTS


class Change(NamedTuple):
    """One change: `back` takes it back, and raises ValueError if that cannot be done now."""

    what: str  # what is there again afterwards, for people
    back: Callable[[], None]
    has_events: bool = False  # whether it holds the events of a list that was cleared


class UndoStack:
    """The last changes, newest last; bounded."""

    def __init__(self) -> None:
        self._changes: list[Change] = []

    def __len__(self) -> int:
        return len(self._changes)

    def push(self, change: Change) -> None:
        """Remember a change; the oldest beyond the bounds are forgotten."""
        self._changes.append(change)
        with_events = [one for one in self._changes if one.has_events]
        forgotten = with_events[:-UNDO_EVENTS]
        self._changes = [one for one in self._changes if one not in forgotten][-UNDO:]

    def undo(self) -> str:
        """Take back the newest change. Returns what is there again, "" if there is no change.
        Raises ValueError if it cannot be taken back now; then it is kept."""
        if not self._changes:
            return ""
        change = self._changes[-1]
        change.back()
        self._changes.pop()
        return change.what
