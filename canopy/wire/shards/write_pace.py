"""When the node's own thread may wait for the disk of its shards: while it has the time.

A write of its own saves the node two wake-ups and a turn, and keeps it from all else for as long as
the disk takes. So it is for nodes with little to do, on disks that are quick.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

OWN_SIZE_MOST: Final = 64 * 1024
"""Bytes of a write that the node's own thread carries out."""

OWN_TOOK_MOST: Final = 0.002
"""Seconds that writes take at most lately where the node's own thread carries some out: a turn or
two. Guess; to be measured by the node's longest turns on disks of several speeds."""

TOOK_DECAY: Final = 0.9
"""The longest of the last writes counts so much for the next."""

FIRST_TOOK: Final = 0.05
"""Seconds that a write is taken to have taken before any was measured: the thread has the first
thirty."""


class WritePace:
    """How long writes took lately, and who carries one out. `done` and `thread` are called by the
    disk's thread, the others by the node's."""

    def __init__(self) -> None:
        self.took = FIRST_TOOK
        """Seconds that the slowest of the last writes took, the less the longer ago."""
        self._ended = 0.0  # when the last write in the node's thread ended
        self._given = self._done = 0

    def has_time(self, idle: float) -> bool:
        """Whether the node's idle time since its last write is longer than writes take. `idle`: the
        share of its time that it had nothing to do lately."""
        return self.took <= min((time.monotonic() - self._ended) * idle, OWN_TOOK_MOST)

    @property
    def is_given(self) -> bool:
        """Whether the thread has something to do."""
        return self._given != self._done

    def given(self) -> None:
        """The thread is given something."""
        self._given += 1

    def done(self, times: int) -> None:
        """The thread is done with what it was given in so many times."""
        self._done += times

    @contextmanager
    def own(self) -> Iterator[None]:
        """The node's thread carries something out."""
        with self.thread():
            yield
        self._ended = time.monotonic()

    @contextmanager
    def thread(self) -> Iterator[None]:
        """Somebody carries something out."""
        began = time.monotonic()
        yield
        self.took = max(time.monotonic() - began, TOOK_DECAY * self.took)
