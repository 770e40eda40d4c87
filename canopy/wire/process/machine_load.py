"""The fields of a health record about the process and its machine (T6, docs/design/health.md).

Everything is read from the operating system without a library: processor time (getrusage), the
machine's memory and the process's own (``/proc``, so on Linux only), room on the data folder's file
system (statvfs). Values that a system does not report are left out.
"""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from canopy.wire.constants import YOUNG_OBJECTS

MEMINFO: Final = Path("/proc/meminfo")
STATM: Final = Path("/proc/self/statm")


class MachineLoad:
    """Measures this process and its machine. Tests may give two clocks, in seconds: `clock` the
    monotonic one, `busy` the processor time of the process."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = time.process_time,
    ) -> None:
        """`folder`: the data folder, which exists."""
        self._folder = folder
        self._clock = clock
        self._busy = busy
        self._before = (clock(), busy())

    def measure(self) -> dict[str, float | int]:
        """Return the fields of a health record about process and machine, as far as known: `cpu`
        (percent of one processor, since the last call), `memory` and `disk` (percent in use),
        `resident` (bytes)."""
        found: dict[str, float | int | None] = {
            "cpu": self._cpu(),
            "memory": memory_used(),
            "disk": disk_used(self._folder),
            "resident": resident(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _cpu(self) -> float | None:
        now = (self._clock(), self._busy())
        (since, before), self._before = self._before, now
        elapsed = now[0] - since
        return round(100.0 * (now[1] - before) / elapsed, 2) if elapsed > 0 else None


def memory_used(source: Path = MEMINFO) -> float | None:
    """Return the percentage of the machine's memory that is not available without swapping; None if
    the system does not report it."""
    try:
        lines = source.read_text().splitlines()
        sizes = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
        total, available = sizes["MemTotal"], sizes["MemAvailable"]
    except (OSError, KeyError, ValueError, IndexError):
        return None
    return round(100.0 * (1.0 - available / total), 2) if total > 0 else None


def disk_used(folder: Path) -> float | None:
    """Return the percentage of the folder's file system that is used, as `df` counts it for this
    user; None if the system does not report it."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    used = found.f_blocks - found.f_bfree
    usable = used + found.f_bavail
    return round(100.0 * used / usable, 2) if usable > 0 else None


def resident(source: Path = STATM) -> int | None:
    """Return the resident memory of this process in bytes; None if the system does not report
    it."""
    try:
        return int(source.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


# --- how the C library and Python's garbage collector are set up ---
#
# glibc keeps freed memory for later use, and raises its thresholds when large blocks come and go,
# so that after a burst a node kept 8 MB that it did not need. With fixed thresholds large blocks
# are always mapped and unmapped one by one. All threads share one arena: the few that a node has do
# not allocate enough to need one each.
#
# Python's collector looks for cycles among all objects that are old whenever there are a quarter
# more of them: a node with 20,000 subscriptions stood still for as long as that takes. So an object
# is looked at once, soon after it was made, together with few others, and then frozen: it is freed
# when nothing refers to it, as ever, and no more looked at. A cycle of older objects would not be
# found, and a node makes none: those of failed dials, in trio, are young
# (tests/canopy/wire/process/test_wire_garbage.py holds it to that).

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # glibc's malloc.h

LARGE: Final = 1024 * 1024
"""The size in bytes at which a block is mapped by itself, and at which the free end of the heap is
returned. Measured with 10,000 subscriptions and 100,000 events: 124 MB resident instead of 132, at
the same speed."""


def return_large_blocks() -> None:
    """Make glibc return large freed blocks to the system at once; does nothing with other C
    libraries."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for option, value in ((MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, LARGE), (ARENA_MAX, 1)):
        mallopt(option, value)


def freeze_heap() -> None:
    """Exclude all present objects from garbage collection, and from now on those that survive a
    collection."""
    if freeze_survivors not in gc.callbacks:
        gc.callbacks.append(freeze_survivors)
    gc.collect()
    gc.set_threshold(YOUNG_OBJECTS)


def freeze_survivors(phase: str, info: dict[str, int]) -> None:
    """After a collection, exempt the surviving objects from later ones (`gc.freeze`)."""
    if phase == "stop":
        gc.freeze()
