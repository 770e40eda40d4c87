"""How the C library and Python's garbage collector are set up.

glibc keeps freed memory for later use, and raises its thresholds when large blocks come and go, so
that after a burst a node kept 8 MB that it did not need. With fixed thresholds large blocks are
always mapped and unmapped one by one. All threads share one arena: the few that a node has do not
allocate enough to need one each.

Python's collector looks for cycles among all objects that are old whenever there are a quarter more
of them: a node with 20,000 subscriptions stood still for as long as that takes. So an object is
looked at once, soon after it was made, together with few others, and then frozen: it is freed when
nothing refers to it, as ever, and no more looked at. A cycle of older objects would not be found,
and a node makes none: those of failed dials, in trio, are young
(tests/canopy/wire/process/test_wire_garbage.py holds it to that).
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

from canopy.wire.constants import YOUNG_OBJECTS

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # glibc's malloc.h

LARGE: Final = 1024 * 1024
"""Bytes from which a block is mapped by itself, and from which the free end of the heap is
returned. Measured with 10,000 subscriptions and 100,000 events: 124 MB resident instead of 132, at
the same speed."""


def return_large_blocks() -> None:
    """Have glibc return large freed blocks to the system at once; does nothing elsewhere."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for option, value in ((MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, LARGE), (ARENA_MAX, 1)):
        mallopt(option, value)


def freeze_heap() -> None:
    """Exclude from garbage collection all present objects, and from now on those that a collection
    has left alive."""
    if freeze_survivors not in gc.callbacks:
        gc.callbacks.append(freeze_survivors)
    gc.collect()
    gc.set_threshold(YOUNG_OBJECTS)


def freeze_survivors(phase: str, info: dict[str, int]) -> None:
    """After a collection."""
    if phase == "stop":
        gc.freeze()
