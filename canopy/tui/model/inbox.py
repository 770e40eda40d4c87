"""The one door from the threads to the screen.

Threads put deliveries and finished answers in; the beat of the app takes everything out at once.
Deliveries beyond `limit` push out the oldest, which nobody could have seen (a screenful is fifty
lines), but they stay counted: totals and rates are exact however slow the terminal is.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from overlay.client import Delivery

LIMIT = 5_000  # deliveries between two beats that are kept: as many as the event log holds


class Taken(NamedTuple):
    """What came since the last beat."""

    deliveries: list[tuple[int, Delivery]]  # (subscription's key, delivery), oldest first
    counts: dict[int, int]  # all deliveries per subscription's key, shown or not
    skipped: int  # how many of them are not in `deliveries`
    news: list[Callable[[], None]]  # to be called in the app's thread


class Inbox:
    """Filled by any thread, emptied by the app's."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._lock = threading.Lock()
        self._deliveries: deque[tuple[int, Delivery]] = deque(maxlen=limit)
        self._counts: dict[int, int] = {}
        self._skipped = 0
        self._news: list[Callable[[], None]] = []

    def deliver(self, key: int, deliveries: Sequence[Delivery]) -> None:
        """Add deliveries for the subscription `key`."""
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + len(deliveries)
            limit = self._deliveries.maxlen or 0
            self._skipped += max(0, len(self._deliveries) + len(deliveries) - limit)
            self._deliveries.extend((key, delivery) for delivery in deliveries)

    def tell(self, news: Callable[[], None]) -> None:
        """Have `news` called in the app's thread at the next beat.

        Bounded by those who tell: one per question asked (their queue is bounded) and one per
        change of a connection's state (which backs off).
        """
        with self._lock:
            self._news.append(news)

    def take(self) -> Taken:
        """All that came, and empty the box."""
        with self._lock:
            taken = Taken(list(self._deliveries), self._counts, self._skipped, self._news)
            self._deliveries.clear()
            self._counts, self._skipped, self._news = {}, 0, []
        return taken
