"""The memory that sockets are read into.

A read into a new object first asks the C library for as many bytes as there may be. From 128 KiB on
that maps them for each read, and unmaps what was not filled, which takes four times as long as to
receive 20 KiB. So each thread has memory that is kept, and what came is copied out of it.
"""

from __future__ import annotations

import threading
from typing import Final


class _Room(threading.local):
    """The buffer into which a thread reads. Its contents are not needed between two reads."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray())

    def of(self, size: int) -> memoryview:
        """Return `size` bytes or more. A page of them takes memory when it is first written."""
        if len(self._view) < size:
            self._view = memoryview(bytearray(size))
        return self._view


ROOM: Final = _Room()
