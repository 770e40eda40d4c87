"""How long to wait before the next attempt to reach a node that is gone."""

from __future__ import annotations

FIRST = 0.25  # seconds; a node that restarts is back in about a second
MOST = 8.0  # wild guess: cheap to try, soon enough for somebody who watches


class Backoff:
    """Doubles from `first` to `most`; `reset` after a success."""

    def __init__(self, first: float = FIRST, most: float = MOST) -> None:
        self.first = first
        self.most = most
        self._next = first

    def reset(self) -> None:
        """The next wait is the first one again."""
        self._next = self.first

    def next(self) -> float:
        """Seconds to wait now."""
        now = self._next
        self._next = min(self.most, now * 2)
        return now
