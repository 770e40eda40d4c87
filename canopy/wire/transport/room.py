"""The memory that sockets are read into.

A read into a new object first allocates as many bytes as may arrive. From 128 KiB on the C library
maps them for each read, and unmaps the unused part, which takes four times as long as receiving 20
KiB. So each thread keeps a buffer, and received bytes are copied out of it.
"""

from __future__ import annotations

import threading
from typing import Final


class _Room(threading.local):
    """The buffer into which a thread reads. Its contents are not needed between two reads."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray())

    def of(self, size: int) -> memoryview:
        """Return a buffer of at least `size` bytes. A page of it takes memory when it is first
        written."""
        if len(self._view) < size:
            self._view = memoryview(bytearray(size))
        return self._view


ROOM: Final = _Room()
