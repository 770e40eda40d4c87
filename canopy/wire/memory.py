"""How a node's process gives memory back to the system.

The C library keeps what was freed for its next use, and by default learns from large pieces that
came and went to keep ever more of that: after a burst a node held 8 MB that it did not need. So
large pieces are always asked for and given back one by one, and all threads share one heap (the few
that a node has are no allocators worth a heap of their own).
"""

from __future__ import annotations

import ctypes
from typing import Final

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # glibc's malloc.h

LARGE: Final = 1024 * 1024
"""Bytes from which a piece is given back by itself, and the free end of the heap is. Measured with
10,000 subscriptions and 100,000 events: 124 MB resident instead of 132, at the same speed."""


def give_back() -> None:
    """Do so from now on, where the C library is glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for option, value in ((MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, LARGE), (ARENA_MAX, 1)):
        mallopt(option, value)
