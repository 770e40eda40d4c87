"""The queue from the threads to the app.

Threads add deliveries and callbacks; the app takes everything out at each tick. Deliveries beyond
`limit` evict the oldest, which nobody could have read (a screen has fifty lines), but all are
counted: totals and rates are exact however slow the terminal is.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from canopy.tui.constants import INBOX_DELIVERIES
from overlay.client import Delivery


class InboxContent(NamedTuple):
    """Everything that was added since the last `drain`."""

    deliveries: list[tuple[int, Delivery]]  # (subscription's key, delivery), oldest first
    counts: dict[int, int]  # all deliveries per subscription's key, shown or not
    skipped: int  # how many of them are not in `deliveries`
    callbacks: list[Callable[[], None]]  # to be called in the app's thread


class Inbox:
    """Filled by any thread, emptied by the app's thread."""

    def __init__(self, limit: int = INBOX_DELIVERIES) -> None:
        self._lock = threading.Lock()
        self._deliveries: deque[tuple[int, Delivery]] = deque(maxlen=limit)
        self._counts: dict[int, int] = {}
        self._skipped = 0
        self._callbacks: list[Callable[[], None]] = []

    def deliver(self, key: int, deliveries: Sequence[Delivery]) -> None:
        """Add deliveries for the subscription `key`."""
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + len(deliveries)
            limit = self._deliveries.maxlen or 0
            self._skipped += max(0, len(self._deliveries) + len(deliveries) - limit)
            self._deliveries.extend((key, delivery) for delivery in deliveries)

    def call_in_app(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the app's thread at the next tick.

        The callers bound the number: one per request (their queue is bounded) and one per change
        of a connection's state (with backoff).
        """
        with self._lock:
            self._callbacks.append(callback)

    def drain(self) -> InboxContent:
        """Take out everything that was added."""
        with self._lock:
            content = InboxContent(
                list(self._deliveries), self._counts, self._skipped, self._callbacks
            )
            self._deliveries.clear()
            self._counts, self._skipped, self._callbacks = {}, 0, []
        return content


class Worker:
    """A thread that reports to the app. Start it once."""

    def __init__(self, name: str, inbox: Inbox) -> None:
        self._inbox = inbox
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which runs until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Report nothing from now on; the thread ends soon after."""
        self._stop.set()

    def _run(self) -> None:
        raise NotImplementedError

    def _tell(self, report: Callable[[], None]) -> None:
        """Call `report` in the app's thread, unless this worker is stopped before."""
        self._inbox.call_in_app(lambda: None if self._stop.is_set() else report())
